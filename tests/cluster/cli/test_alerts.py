"""``sparklog alerts``: rules from a file, exit codes for cron, and a loop that a signal ends."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import CommitOffsets, CommittedOffset, CreateTopic
from sparklog.testing.records import Record, append_records

from .conftest import SPARKLOG, Run, commit

RULES = """
interval = "1s"

[[rule]]
name = "behind"
kind = "lag"
above = 3
"""
FORGED = "evil\x1b[2J\r\nforged"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return str(path)


@pytest.fixture
def behind(cluster: Coordinator) -> Coordinator:
    """A cluster with a group that is five records behind."""
    topic_id = cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"v")] * 5)
    offset = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=0)
    commit(cluster, CommitOffsets(group="billing", offsets=[offset]))
    return cluster


def test_nothing_that_fires_is_0_and_something_that_does_is_2(run: Run, root: str, rules: str) -> None:
    assert run("alerts", "--rules", rules, "--once") == (0, "Nothing fires (1 rule).\n", "")


def test_what_fires_is_printed_as_a_table(run: Run, behind: Coordinator, rules: str) -> None:
    result = run("alerts", "--rules", rules, "--once")
    assert (result.code, result.err) == (2, "")
    head, row = result.lines
    assert head.split() == ["STATUS", "SEVERITY", "RULE", "SINCE", "WHAT"]
    assert row.startswith("firing   warning   behind ")
    assert "group billing, topic orders: 5, more than 3" in row
    assert Path(rules).with_suffix(".state").exists()


def test_a_rule_with_a_time_is_pending_first(run: Run, behind: Coordinator, rules: str, tmp_path: Path) -> None:
    Path(rules).write_text(RULES + 'for = "1h"\n')
    state = str(tmp_path / "mine")
    result = run("alerts", "--rules", rules, "--once", "--state", state)
    assert (result.code, result.lines[1].split()[0]) == (0, "pending")
    assert Path(state).exists()
    assert not Path(rules).with_suffix(".state").exists()


def test_json_has_the_alerts_with_their_subjects(run: Run, behind: Coordinator, rules: str) -> None:
    result = run("alerts", "--rules", rules, "--once", "--json")
    report = json.loads(result.out)
    assert (result.code, report["firing"], report["rules"], report["problems"]) == (2, 1, 1, [])
    (alert,) = report["alerts"]
    assert (alert["subject"], alert["value"]) == ({"group": "billing", "topic": "orders"}, 5.0)
    assert [change["status"] for change in report["changes"]] == ["firing"]
    again = json.loads(run("alerts", "--rules", rules, "--once", "--json").out)
    assert (again["firing"], again["changes"]) == (1, [])


def test_a_channel_that_does_not_answer_is_1(run: Run, behind: Coordinator, rules: str) -> None:
    Path(rules).write_text(RULES + '[channel.ops]\ntype = "command"\ncommand = ["false"]\n')
    result = run("alerts", "--rules", rules, "--once")
    assert result.code == 1
    assert result.err == "channel ops: OSError: the command ended with 1; it is retried\n"
    assert "firing" in result.out


def test_invalid_rules_are_refused_before_anything_is_opened(run: Run, tmp_path: Path, rules: str) -> None:
    Path(rules).write_text(RULES.replace("above", "abov"))
    result = run("alerts", "--bootstrap-server", str(tmp_path / "nowhere"), "--rules", rules, "--once")
    assert result.code == 1
    assert "rule 'behind': unknown key 'abov'; did you mean above" in result.err
    assert "nowhere" not in result.err
    assert not Path(rules).with_suffix(".state").exists()


def test_check_validates_without_a_cluster(run: Run, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    assert run("alerts", "--rules", rules, "--check") == (0, f"{rules}: 1 rule and 0 channels, all valid.\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--once"], "rules"),
        (["--rules", "FILE", "--check", "--once"], "can't be used with"),
        (["--rules", "FILE", "--once", "--state", ""], "must not be empty"),
        (["--rules", "FILE", "--once", "--state", "/no/such/folder/x"], "cannot be used"),
        (["--rules", "/no/such/file"], "cannot be read: No such file"),
    ],
)
def test_mistakes_are_1(run: Run, root: str, rules: str, arguments: list[str], said: str) -> None:
    result = run("alerts", *(rules if argument == "FILE" else argument for argument in arguments))
    assert result.code == 1
    assert said in result.err


def test_hostile_names_cannot_forge_lines(run: Run, cluster: Coordinator, rules: str) -> None:
    commit(cluster, CreateTopic(topic="t", topic_id="i" * 22, replicas=[[0]], configs={}))
    append_records(cluster, "t", [Record(value=b"v")] * 5)
    offset = CommittedOffset(topic="t", topic_id="i" * 22, partition=0, offset=0)
    commit(cluster, CommitOffsets(group=FORGED, offsets=[offset]))
    result = run("alerts", "--rules", rules, "--once")
    assert len(result.lines) == 2
    assert "group evil\\x1b[2J\\r\\nforged, topic t" in result.out


@pytest.mark.parametrize("as_json", [False, True])
def test_the_loop_prints_what_changes_and_ends_with_a_signal(behind: Coordinator, rules: str, as_json: bool) -> None:
    command = [*SPARKLOG, "alerts", "--rules", rules, *(["--json"] if as_json else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    if as_json:
        assert json.loads(line)["changes"][0]["status"] == "firing"
    else:
        assert " FIRING behind: group billing, topic orders: 5, more than 3" in line
