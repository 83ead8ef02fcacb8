"""Each row on Kafka's tools in docs/differences.md is shown by a test named after its id."""

# ruff: noqa: F811 - fixtures of the command line's tests, which are arguments below

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import sparklog
from sparklog.coordinator import Coordinator
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.group_member import GroupMember
from sparklog.coordinator.leases import lease_key
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import init_producer
from sparklog.testing.records import Record, append_records
from tests.cluster.cli.conftest import Run, cluster, root, run  # noqa: F401

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"


def rows() -> list[str]:
    """The ids in the section on Kafka's tools."""
    section = DOCUMENT.read_text().partition("\n## Kafka's tools\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return [cell for cell in cells if cell not in ("id", "---")]


def test_rows_and_tests_correspond() -> None:
    named = [name[5:].replace("_", "-") for name in globals() if name.startswith("test_")]
    named.remove("rows-and-tests-correspond")
    assert sorted(rows()) == sorted(named)


# -- what is read and written


def test_root_not_servers(run: Run) -> None:
    assert "there is no server with a port" in run("topics", "--list", "--bootstrap-server", "localhost:9092").err


def test_errors_on_standard_error(run: Run, cluster: Coordinator) -> None:
    for arguments in (["topics", "--describe", "--topic", "z"], ["consumer-groups", "--describe", "--group", "z"]):
        result = run(*arguments)
        assert result.out == ""
        assert "Error" in result.err
    cluster.create_topic("t")
    late = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "2199-01-01T00:00:00.000", "--dry-run"]
    result = run("consumer-groups", *late)
    assert result.err.splitlines()[1] == (
        "Warn: Partition 0 from topic t is empty. Falling back to latest known offset."
    )
    assert "Warn" not in result.out


def test_help_asked_for(run: Run) -> None:
    for command in ("topics", "configs", "console-consumer", "delete-records"):
        assert run(command, "--help").code == run(command, "--help", "--kafka-exit-codes").code == 0


def test_stray_word(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    for arguments in (["topics", "--list"], ["console-producer", "--topic", "t"]):
        result = run(*arguments, "stray")
        assert result.code == 1
        assert "'stray' does not belong to any option" in result.err


def test_one_line_of_error(run: Run, root: str) -> None:
    result = run("topics", "--create")
    assert result.err.splitlines() == [
        'Missing required argument "[topic]"', "`sparklog topics --help` lists the options.",
    ]  # fmt: skip


def test_nearest_option(run: Run, root: str) -> None:
    assert "--tpoic is not a recognized option; did you mean --topic?" in run("topics", "--list", "--tpoic", "t").err


def test_option_given_twice(run: Run, root: str) -> None:
    for command in ("producer-perf-test", "transactions", "verifiable-producer", "topics"):
        result = run(command, "--topic", "a", "--topic", "b")
        assert result.code == 1
        assert "Found multiple arguments for option topic, but you asked for only one" in result.err


def test_unknown_property(run: Run, cluster: Coordinator) -> None:
    result = run("console-producer", "--topic", "t", "--reader-property", "nope=1", stdin=b"line\n")
    assert result.code == 0
    assert "WARN: ignoring unknown property 'nope' of the line reader" in result.err


def test_version_first(run: Run) -> None:
    assert run("topics", "--version").out == f"{sparklog.__version__} (sparklog)\n"


# -- topics and settings


def test_topics_in_one_commit(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("a", 1)
    cluster.create_topic("b", 9)
    assert run("topics", "--alter", "--topic", "a|b", "--partitions", "5").code == 1
    assert len(cluster.refresh().topic("a").partitions) == 1


def test_nothing_listed(run: Run, cluster: Coordinator) -> None:
    assert run("topics", "--list") == run("topics", "--list", "--topic", "none") == (0, "", "")


def test_internal_topics(run: Run, root: str) -> None:
    assert "is internal" in run("topics", "--create", "--topic", "__consumer_offsets").err
    assert run("topics", "--delete", "--topic", "__consumer_offsets").code == 1
    assert "PartitionCount: 50" in run("topics", "--describe", "--topic", "__consumer_offsets").out


def test_no_elr(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    assert run("topics", "--describe").lines[1].endswith("\tElr: N/A\tLastKnownElr: N/A")


def test_no_broker_settings(run: Run, root: str) -> None:
    change = ["--add-config", "log.cleaner.threads=2"]
    assert "broker 0 has no settings of its own" in run("configs", "--alter", "--broker", "0", *change).err
    assert "have no settings here" in run("configs", "--alter", "--user", "u", *change).err


def test_delete_config_not_set(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    result = run("configs", "--alter", "--topic", "t", "--delete-config", "retention.ms")
    assert (result.code, result.out) == (0, "Completed updating config for topic t.\n")
    assert "nothing to delete, these settings are not set: retention.ms" in result.err


def test_repeated_element(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    change = ["--add-config", "cleanup.policy=[compact,compact]"]
    assert run("configs", "--alter", "--topic", "t", *change).code == 1


# -- producing and consuming


def lines(run: Run, *flags: str) -> list[str]:
    return run("console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "1", *flags).lines


def test_producer_keeps_bytes(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("console-producer", "--topic", "t", stdin=b"\xff\xfe\n")
    shown = run("console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "1")
    assert shown.out == b"\xff\xfe\n".decode("utf-8", "replace")
    (file,) = Path(cluster.store.root).rglob("*.log")
    assert b"\xff\xfe" in file.read_bytes()


def test_producer_batch_size(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", 2)
    before = cluster.refresh().version
    run("console-producer", "--topic", "t", "--batch-size", "20", stdin=b"0123456789\n" * 6)
    assert cluster.refresh().version == before + 1 + 3  # the producer's id, and the commits


def test_producer_names_the_line(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"max.message.bytes": "100"})
    result = run("console-producer", "--topic", "t", stdin=b"a\n" + b"x" * 200 + b"\nb\n")
    assert result.code == 1
    assert result.err.startswith("line number 2: ")
    assert lines(run) == ["a"]


def test_producer_rides_out(run: Run, cluster: Coordinator) -> None:
    help_text = " ".join(run("console-producer", "--help").out.split())
    assert "until delivery.timeout.ms, 120000, if the storage does not answer" in help_text
    assert run("console-producer", "--topic", "t", "--message-send-max-retries", "0", stdin=b"a\n").code == 0


def test_isolation_level(run: Run, cluster: Coordinator) -> None:
    run("console-producer", "--topic", "t", stdin=b"a\n")
    for level in ("read_committed", "read_uncommitted"):
        assert lines(run, "--isolation-level", level) == ["a"]
    assert run("console-consumer", "--topic", "t", "--isolation-level", "nope").code == 1


def test_unknown_deserializer(run: Run, cluster: Coordinator) -> None:
    run("console-producer", "--topic", "t", stdin=b"a\n")
    read = ["--topic", "t", "--from-beginning", "--timeout-ms", "1", "--value-deserializer", "no.such.Thing"]
    for flags in ([], ["--kafka-exit-codes"]):
        result = run("console-consumer", *read, *flags)
        assert result.code == 1
        assert "'no.such.Thing'" in result.err


def test_leader_epochs(run: Run, cluster: Coordinator) -> None:
    run("console-producer", "--topic", "t", stdin=b"a\n")
    assert lines(run, "--formatter-property", "print.epoch=true") == ["Epoch:0\ta"]
    run("console-consumer", "--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "1")
    head, row = run("consumer-groups", "--describe", "--group", "g", "--verbose").lines[1:]
    assert row.split()[head.split().index("LEADER-EPOCH")] == "0"


def test_new_partitions_from_the_start(cluster: Coordinator) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "late", "--max-messages", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stderr is not None
        assert "waiting for it" in consumer.stderr.readline()
        append_records(cluster, "late", [Record(value=b"first")])
        out, _ = consumer.communicate(timeout=60)
    assert out == "first\n"


# -- groups


def test_unreadable_batch(run: Run, cluster: Coordinator, root: str) -> None:
    cluster.create_topic("t", partitions=2)
    for partition in (0, 1):
        append_records(cluster, "t", [Record(None, b"value-%d" % partition, partition=partition)])
    (file,) = Path(root, "t-0").glob("*.log")
    file.write_bytes(file.read_bytes().replace(b"value-0", b"valuf-0"))
    result = run("console-consumer", "--topic", "t", "--from-beginning", "--skip-message-on-error")
    assert (result.code, result.out) == (1, "value-1\n")


def test_no_coordinator(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("t", 0): 0})))
    head, row = run("consumer-groups", "--describe", "--group", "g", "--state").lines[1:]
    assert row.split()[1:3] == ["-", "(-)"]
    assert len(head.split()) == len(row.split())


def test_groups_are_classic(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("t", 0): 0})))
    assert [line.split()[1] for line in run("groups", "--list").lines] == ["TYPE", "Classic"]


def test_dead_group(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    member = GroupMember(cluster, "g", session_timeout_ms=6_000)
    member.join(["t"])
    lease = Path(cluster.store.root, lease_key("g", member.member_id))
    os.utime(lease, (lease.stat().st_atime, lease.stat().st_mtime - 60))
    assert "Empty" in run("consumer-groups", "--describe", "--group", "g", "--state").out
    assert member.member_id in cluster.refresh().groups["g"].members
    assert run("consumer-groups", "--delete", "--group", "g").code == 0


def test_time_without_milliseconds(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    reset = ["--reset-offsets", "--dry-run", "--group", "g", "--topic", "t", "--to-datetime", "2020-01-01T00:00:00"]
    result = run("consumer-groups", *reset)
    assert result.code == 0
    assert result.lines[2].split() == ["g", "t", "0", "0"]


def test_sorted_tables(run: Run, cluster: Coordinator) -> None:
    for topic in ("b", "a"):
        cluster.create_topic(topic, 3)
    reset = ["--reset-offsets", "--to-earliest", "--dry-run", "--group", "g", "--topic", "b", "--topic", "a"]
    table = [line.split()[1:3] for line in run("consumer-groups", *reset).lines[2:]]
    assert table == [["a", "0"], ["a", "1"], ["a", "2"], ["b", "0"], ["b", "1"], ["b", "2"]]


def test_partial_delete_offsets(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("t", 0): 0})))
    result = run("consumer-groups", "--delete-offsets", "--group", "g", "--topic", "z")
    assert result.err.startswith("Error: ")
    assert "succeeded" not in result.out


# -- the rest


def test_no_tiers(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    assert run("get-offsets", "--topic", "t", "--time", "latest-tiered") == (0, "", "")


def test_no_open_transactions(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    cluster.submit(partial(init_producer, transactional_id="tx"))
    described = run("transactions", "describe", "--transactional-id", "tx").lines[1]
    assert described.split("\t")[5].strip() == "None"
    assert len(run("transactions", "find-hanging", "--topic", "t", "--partition", "0").lines) == 1


def test_reassign_all_or_none(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    cluster.create_topic("t", 2)
    moves = [{"topic": "t", "partition": number, "replicas": [number * 7]} for number in (0, 1)]
    (tmp_path / "moves.json").write_text(json.dumps({"version": 1, "partitions": moves}))
    before = cluster.refresh().version
    execute = ["--execute", "--reassignment-json-file", str(tmp_path / "moves.json")]
    assert run("reassign-partitions", *execute).code == 1
    assert cluster.refresh().version == before


def test_verified_once(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    assert run("replica-verification").code == 0


def test_dump_without_the_log(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_records(cluster, "t", [Record(value=b"v")])
    (file,) = Path(cluster.store.root).rglob("*.log")
    beside = run("dump-log", "--files", str(file)).out
    asked = run("dump-log", "--files", str(file), "--bootstrap-server", cluster.store.root).out
    (Path(cluster.store.root) / "cluster.json").unlink()
    alone = run("dump-log", "--files", str(file)).out
    assert all(" LogAppendTime: " in said for said in (beside, asked))
    assert " CreateTime: " in alone


def test_settings_without_effect(run: Run, cluster: Coordinator) -> None:
    noted = run("topics", "--create", "--topic", "t", "--config", "flush.messages=1")
    assert (noted.code, noted.err.startswith("Note: stored, has no effect here: flush.messages=1")) == (0, True)
    assert run("configs", "--alter", "--topic", "t", "--add-config", "remote.storage.enable=true").code == 1


def test_endpoints_are_locations(run: Run, cluster: Coordinator) -> None:
    assert run("cluster", "list-endpoints").lines[1].split()[1:3] == [cluster.store.root, "-1"]


def test_log_dirs_of_a_lost_broker(run: Run, cluster: Coordinator) -> None:
    add_broker(cluster, f"{cluster.store.root}-1")
    shutil.rmtree(f"{cluster.store.root}-1")
    brokers = json.loads(run("log-dirs", "--describe", "--json").out)["brokers"]
    assert brokers[1]["logDirs"] == [
        {
            "logDir": f"{cluster.store.root}-1",
            "error": "org.apache.kafka.common.errors.KafkaStorageException",
            "partitions": [],
        }
    ]


# -- exit codes


def both_codes(run: Run, *arguments: str) -> tuple[int, int]:
    """Our exit code, and the one with --kafka-exit-codes."""
    return run(*arguments).code, run(*arguments, "--kafka-exit-codes").code


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--delete-offsets", "--topic", "t"]])
def test_exit_consumer_groups(run: Run, cluster: Coordinator, action: list[str]) -> None:
    cluster.create_topic("t")
    assert both_codes(run, "consumer-groups", "--group", "z", *action) == (1, 0)
    assert both_codes(run, "consumer-groups", *action) == (1, 1)
    assert both_codes(run, "consumer-groups", "--group", "z", *action, "--timeout", "soon") == (1, 1)


def test_exit_validate_regex(run: Run, root: str) -> None:
    assert both_codes(run, "consumer-groups", "--validate-regex", "(") == (1, 0)


def test_exit_delete_records(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    cluster.create_topic("t")
    partitions = [{"topic": "t", "partition": 0, "offset": 99}]
    (tmp_path / "offsets.json").write_text(json.dumps({"version": 1, "partitions": partitions}))
    assert both_codes(run, "delete-records", "--offset-json-file", str(tmp_path / "offsets.json")) == (1, 0)


def test_exit_configs_of_groups(run: Run, root: str) -> None:
    assert both_codes(run, "configs", "--describe", "--group", "g") == (1, 0)
    shown = run("configs", "--describe", "--group", "g", "--kafka-exit-codes").out
    assert re.fullmatch(r"The group 'g' doesn't exist and doesn't have dynamic config\.\n", shown)


def test_exit_dump_log(run: Run, cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(value=b"v" * 100)])
    (file,) = Path(cluster.store.root).rglob("*.log")
    data = bytearray(file.read_bytes())
    data[data.index(b"v" * 100)] ^= 1
    file.write_bytes(bytes(data))
    assert both_codes(run, "dump-log", "--files", str(file)) == (1, 0)
    assert both_codes(run, "dump-log", "--files", "notes.txt") == (1, 0)
