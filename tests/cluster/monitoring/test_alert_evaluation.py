"""Rules evaluated on a cluster over time: what fires is sent once, and what could not be sent later."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import open_cluster
from sparklog.errors import InvalidRequestError, StorageError
from sparklog.monitoring.alerts.alert_file import CLAIM_MS, AlertFile
from sparklog.monitoring.alerts.evaluation import Alerts, Evaluation
from sparklog.monitoring.alerts.measures import View, measure
from sparklog.monitoring.alerts.rule_sets import IN_USE_MS
from sparklog.monitoring.alerts.rules import Rule, RuleBook, read_rules
from sparklog.monitoring.alerts.transitions import Observation, Subject
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.monitoring.alert_clusters import QuietCluster

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
LAG = {"name": "behind", "kind": "lag", "above": 3, "for": "2m", "keep_firing_for": "2m"}


@pytest.fixture
def quiet() -> QuietCluster:
    quiet = QuietCluster()
    quiet.commit_offset(0)
    quiet.append(5)
    return quiet


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AlertFile]:
    with AlertFile(str(tmp_path / "alerts.state")) as opened:
        yield opened


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    return tmp_path / "sent"


def book(sent: Path, *rules: dict[str, Any], code: str = KEEP, **channels: Any) -> RuleBook:
    command = {"type": "command", "command": [sys.executable, "-S", "-c", code, str(sent)]}
    return read_rules({"rule": list(rules or (LAG,)), "channel": {"ops": command, **channels}}, {})


def told(sent: Path) -> list[str]:
    """Return what the command was told, in order."""
    lines = sent.read_text().splitlines() if sent.exists() else []
    return [f"{alert['rule']} {alert['status']}" for line in lines for alert in json.loads(line)["alerts"]]


def evaluate(quiet: QuietCluster, file: AlertFile, book: RuleBook, after: float = 0.0) -> Evaluation:
    quiet.wait(after)
    return Alerts(quiet.coordinator, book, file).evaluate()


def test_an_alert_is_sent_when_it_fires_and_when_it_resolves_and_not_in_between(
    quiet: QuietCluster, file: AlertFile, sent: Path
) -> None:
    rules = book(sent)
    pending = evaluate(quiet, file, rules)
    assert ([alert.state.status for alert in pending.alerts], pending.firing, told(sent)) == (["pending"], 0, [])
    assert evaluate(quiet, file, rules, 60).changes == []
    fired = evaluate(quiet, file, rules, 60)
    assert (fired.firing, [change.status for change in fired.changes]) == (1, ["firing"])
    assert "group billing, topic orders: 5, more than 3" in fired.alerts[0].summary
    assert evaluate(quiet, file, rules, 60).changes == []
    quiet.commit_offset(5)
    kept = evaluate(quiet, file, rules, 60)
    assert kept.firing == 1, "it is kept for a while"
    assert "group billing, topic orders: 0, no longer more than 3" in kept.alerts[0].summary
    assert evaluate(quiet, file, rules, 120).alerts == []
    assert told(sent) == ["behind firing", "behind resolved"]


def test_two_instances_on_one_file_send_once(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    rules = book(sent, {**LAG, "for": "0s"})
    with AlertFile(file.path) as other:
        instances = [Alerts(quiet.coordinator, rules, file), Alerts(quiet.coordinator, rules, other)]
        changes = [instance.evaluate().changes for instance in instances * 3]
    assert [len(each) for each in changes] == [1, 0, 0, 0, 0, 0]
    assert told(sent) == ["behind firing"]


def test_instances_that_evaluate_at_the_same_time_send_once(quiet: QuietCluster, tmp_path: Path, sent: Path) -> None:
    rules = book(sent, {**LAG, "for": "0s"})
    together = threading.Barrier(4)

    def evaluate_twice(_: int) -> list[str]:
        with AlertFile(str(tmp_path / "shared.state")) as file:
            alerts = Alerts(quiet.coordinator, rules, file)
            together.wait()
            return [problem for _ in range(2) for problem in alerts.evaluate().problems]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(evaluate_twice, range(4))) == [[]] * 4
    assert told(sent) == ["behind firing"]


def test_what_could_not_be_sent_is_sent_later(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    rules = [{**LAG, "for": "0s"}]
    failed = evaluate(quiet, file, book(sent, *rules, code="import sys; sys.exit('no pager')"))
    assert failed.problems == ["channel ops: OSError: the command ended with 1: no pager; it is retried"]
    assert failed.firing == 1
    assert evaluate(quiet, file, book(sent, *rules), 1).problems == []
    assert told(sent) == [], "the back-off has not passed"
    evaluate(quiet, file, book(sent, *rules), 60)
    assert told(sent) == ["behind firing"]


def test_a_channel_that_fails_keeps_no_other_from_being_told(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    broken = {"type": "webhook", "url": "http://127.0.0.1:1/", "timeout": "2s"}
    rules = book(sent, {**LAG, "for": "0s"}, broken=broken)
    (problem,) = evaluate(quiet, file, rules).problems
    assert problem.startswith("channel broken: ")
    assert told(sent) == ["behind firing"]


def test_a_process_that_dies_between_deciding_and_sending_loses_no_notification(
    quiet: QuietCluster, file: AlertFile, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = book(sent, {**LAG, "for": "0s"})

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sparklog.monitoring.alerts.evaluation.send_all", die)
        with pytest.raises(KeyboardInterrupt):
            evaluate(quiet, file, rules)
    evaluate(quiet, file, rules, CLAIM_MS / 1000)
    assert told(sent) == ["behind firing"]


def test_a_rule_tells_only_the_channels_that_it_names(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    rules = book(sent, {**LAG, "for": "0s", "notify": []}, {**LAG, "name": "told", "for": "0s"})
    assert evaluate(quiet, file, rules).firing == 2
    assert told(sent) == ["told firing"]


def test_a_wall_clock_that_jumps_neither_fires_nor_resolves(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    late = {"name": "late", "kind": "lag_seconds", "above": "1h"}
    stuck = {"name": "idle", "kind": "no_commit", "above": "1h"}
    rules = book(sent, LAG, late, stuck)
    right = quiet.clock.now_ms()
    assert evaluate(quiet, file, rules).firing == 0
    quiet.clock.set_ms(right + 86_400_000)
    assert evaluate(quiet, file, rules, 60).firing == 0
    quiet.clock.set_ms(right - 86_400_000)
    assert evaluate(quiet, file, rules, 30).firing == 0
    assert [change.rule for change in evaluate(quiet, file, rules, 30).changes] == ["behind"], "after 2 minutes"
    quiet.clock.set_ms(right + 10 * 86_400_000)
    quiet.commit_offset(5)
    assert evaluate(quiet, file, rules, 30).firing == 1, "it has been clear for no time yet"


def test_an_evaluation_that_was_overtaken_changes_nothing(
    quiet: QuietCluster, file: AlertFile, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = book(sent, {**LAG, "for": "0s", "keep_firing_for": "0s"})

    def measure_slowly(rule: Rule, view: View) -> dict[Subject, Observation]:
        measured = measure(rule, view)
        monkeypatch.undo()
        quiet.commit_offset(5)
        quiet.wait(1)
        with AlertFile(file.path) as other:
            assert Alerts(quiet.coordinator, rules, other).evaluate().firing == 0
        return measured

    monkeypatch.setattr("sparklog.monitoring.alerts.evaluation.measure", measure_slowly)
    assert Alerts(quiet.coordinator, rules, file).evaluate().firing == 0
    assert told(sent) == []


def test_a_cluster_that_cannot_be_read_changes_nothing(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    rules = book(sent, {**LAG, "for": "0s", "keep_firing_for": "0s"})
    assert evaluate(quiet, file, rules).firing == 1
    faulty = FaultyStore(quiet.coordinator.store, seed=0)
    broken = open_cluster(faulty, clock=quiet.clock)
    faulty.inject(rates={"unavailable": 1.0})
    with pytest.raises(StorageError):
        Alerts(broken, rules, file).evaluate()
    assert evaluate(quiet, file, rules).changes == []


def test_what_waits_is_sent_while_the_cluster_cannot_be_read(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    rule = {**LAG, "for": "0s"}
    assert evaluate(quiet, file, book(sent, rule, code="import sys; sys.exit('no pager')")).problems
    quiet.wait(60)
    faulty = FaultyStore(quiet.coordinator.store, seed=0)
    broken = open_cluster(faulty, clock=quiet.clock)
    faulty.inject(rates={"unavailable": 1.0})
    with pytest.raises(StorageError):
        Alerts(broken, book(sent, rule), file).evaluate()
    assert told(sent) == ["behind firing"]


def test_a_rule_that_was_removed_resolves(quiet: QuietCluster, file: AlertFile, sent: Path) -> None:
    evaluate(quiet, file, book(sent, {**LAG, "for": "0s"}))
    evaluate(quiet, file, book(sent, {**LAG, "name": "another", "above": 100}), 1)
    assert told(sent) == ["behind firing", "behind resolved"]
    assert [change.status for change in file.changes(quiet.coordinator.state.cluster_id)] == ["resolved", "firing"]


def test_a_process_with_older_rules_does_not_let_the_alerts_of_newer_ones_resolve(
    quiet: QuietCluster, file: AlertFile, sent: Path
) -> None:
    older, newer = book(sent, {**LAG, "for": "0s"}), book(sent, {**LAG, "for": "0s", "name": "another"})
    evaluate(quiet, file, older)
    for _ in range(3):
        evaluate(quiet, file, newer, 60)
        with pytest.raises(InvalidRequestError, match=r"other rules with .*alerts\.state"):
            evaluate(quiet, file, older)
    assert told(sent) == ["behind firing", "behind resolved", "another firing"]


def test_older_rules_are_evaluated_again_once_the_newer_ones_are_not_in_use(
    quiet: QuietCluster, file: AlertFile, sent: Path
) -> None:
    rule = {**LAG, "for": "0s", "keep_firing_for": "0s"}
    older, newer = book(sent, rule), book(sent, {**rule, "above": 100})
    for rules in (older, newer):
        evaluate(quiet, file, rules)
    evaluate(quiet, file, older, IN_USE_MS / 1000)
    with pytest.raises(InvalidRequestError):
        evaluate(quiet, file, newer)
    assert told(sent) == ["behind firing", "behind resolved", "behind firing"]
