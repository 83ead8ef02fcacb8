"""The page of alerts: evaluated from what the follower has read, kept in one file, told once."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from sparklog.cli.main import main
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.monitoring.alerts.alert_file import AlertFile
from sparklog.monitoring.alerts.evaluation import Alerts
from sparklog.monitoring.alerts.rule_file import read_rule_file
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.ui.alert_watch import AlertWatch
from sparklog.ui.follower import IDLE_SECONDS, WATCHED_SECONDS_WITH_ALERTS, ClusterFollower
from sparklog.ui.views.cells import ms_of
from tests.shown_cluster import commit_group, make_shown_cluster
from tests.web import serving

DEFAULTS = Path(__file__).parents[3] / "conf" / "alerts.toml"
RULES = """
[channel.tell]
type = "command"
command = ["sh", "-c", "cat >> {told}; echo >> {told}"]

[[rule]]
name = "stuck <b>"
kind = "no_progress"
group = "billing"
above = "10m"
severity = "critical"
description = "Look at <i>billing</i>."

[[rule]]
name = "behind"
kind = "lag"
group = "billing"
above = 1
for = "1h"
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES.format(told=tmp_path / "told"))
    return path


@pytest.fixture
def watch(rules: Path, tmp_path: Path) -> AlertWatch:
    return AlertWatch(read_rule_file(str(rules)), str(tmp_path / "rules.state"))


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_alerts_are_shown_with_their_rules_and_when_they_resolve(watch: AlertWatch, tmp_path: Path) -> None:
    cluster = make_shown_cluster()
    clock = cluster.log.clock
    assert isinstance(clock, ManualClock)
    with serving(cluster, clock=clock, alerts=watch) as web:
        assert "have not been evaluated yet" in web.get("/log/alerts").text
        watch.evaluate(list(web.followers.values()))
        page = web.get("/log/alerts")
        assert "<b>" not in page.text
        text = text_of(page.text)
        assert "firing critical stuck &lt;b&gt; group billing, topic orders" in text
        assert "allowed 10 min" in text
        assert "pending warning behind group billing, topic orders" in text
        assert "Look at &lt;i&gt;billing&lt;/i&gt;." in text
        assert "above 1 for 1 h records that a group is behind in a topic" in text
        for path in ("/", "/log"):
            assert "Alert: stuck &lt;b&gt;: group billing, topic orders" in web.get(path).text
        commit_group(cluster, "billing", "orders", 0)
        clock.advance(120)
        watch.evaluate(list(web.followers.values()))
        text = text_of(web.get("/log/alerts").text)
        assert "Nothing fires." in text
        assert "resolved stuck" in text
    told = (tmp_path / "told").read_text()
    assert (told.count('"status": "firing"'), told.count('"status": "resolved"')) == (1, 1)


def test_a_page_and_the_command_on_one_file_tell_once(watch: AlertWatch, rules: Path, tmp_path: Path) -> None:
    cluster = make_shown_cluster()
    other = AlertWatch(read_rule_file(str(rules)), watch.path)
    followers = [ClusterFollower("log", cluster)]
    for each in (watch, other, watch):
        each.evaluate(followers)
    with AlertFile(watch.path) as file:
        Alerts(cluster, watch.book, file).evaluate()
    assert len(watch.board("log").firing) == len(other.board("log").firing) == 1
    assert (tmp_path / "told").read_text().count('"status": "firing"') == 1


def test_alerts_stay_as_they_are_while_the_storage_fails(watch: AlertWatch) -> None:
    cluster, failing = make_shown_cluster("failing-alerts"), False
    clock = cluster.log.clock
    assert isinstance(clock, ManualClock)

    def fail(_: int, call: Call) -> None:
        if failing:
            raise StorageUnavailableError(f"no answer to {call.operation}")

    follower = ClusterFollower("log", open_cluster(_faulty("failing-alerts", cluster, fail), clock=clock))
    watch.evaluate([follower])
    before = watch.board("log")
    failing = True
    clock.advance(120)
    watch.evaluate([follower])
    assert watch.board("log").alerts == before.alerts
    assert "no answer" in watch.board("log").problems[0]


def _faulty(name: str, cluster: Coordinator, fail: object) -> FaultyStore:
    return FaultyStore(MemoryStore(name, cluster.log.clock), before=fail)  # type: ignore[arg-type]


def test_an_hour_of_evaluations_and_viewers_stays_within_two_requests_a_second(tmp_path: Path) -> None:
    cluster = make_shown_cluster("counted-alerts")
    clock, calls = cluster.log.clock, Counter[str]()
    assert isinstance(clock, ManualClock)
    store = _faulty("counted-alerts", cluster, lambda _, call: calls.update([call.operation]))
    follower = ClusterFollower("log", open_cluster(store, clock=clock))
    watch = AlertWatch(read_rule_file(str(DEFAULTS)), str(tmp_path / "state"))
    watch.evaluate([follower])  # reads the commits that the rules look back at, once
    calls.clear()
    for _ in range(20):
        for _ in range(round(watch.interval_seconds / WATCHED_SECONDS_WITH_ALERTS)):
            clock.advance(WATCHED_SECONDS_WITH_ALERTS)
            follower.refresh()
        watch.evaluate([follower])
    assert calls.total() <= 2 * 20 * watch.interval_seconds
    assert WATCHED_SECONDS_WITH_ALERTS < IDLE_SECONDS


def test_a_watch_evaluates_by_itself_until_it_is_stopped(watch: AlertWatch) -> None:
    follower = ClusterFollower("log", make_shown_cluster())
    watch.start([follower])
    deadline = time.monotonic() + 60
    while watch.board("log").time_ms is None and time.monotonic() < deadline:
        time.sleep(0.05)
    watch.stop()
    assert len(watch.board("log").firing) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rules", "missing.toml"], "missing.toml"),
        (["--state", "x.state"], "--state requires --rules"),
        (["--rules", "RULES", "--state", "/dev/null/x"], "cannot be used"),
    ],
)
def test_rules_that_cannot_be_used_end_the_command(
    options: list[str], message: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(rules) if option == "RULES" else option for option in options]
    assert main(["ui", "/nonexistent/cluster", "--listen", "127.0.0.1:0", *given]) == 1
    assert message in capsys.readouterr().err


def test_an_earlier_version_is_the_same_looked_up_in_memory_or_in_the_storage() -> None:
    cluster = make_shown_cluster("earlier-versions")
    tables, state = SystemTables(cluster), cluster.state
    times = [row["timestamp"] for row in tables.read("commits", RowSelection(), state).to_pylist()[::9]]
    for at in times:
        for time_ms in (ms_of(at), (ms_of(at) or 0) + 1):
            assert time_ms is not None
            expected = newest_version_before(cluster.store, state.version, time_ms)
            assert tables.version_before(state, time_ms) == expected
            assert SystemTables(cluster).version_before(state, time_ms) == expected
