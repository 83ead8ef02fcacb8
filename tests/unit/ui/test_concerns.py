"""What the overview says needs attention, and the tables of brokers and alerts: pure functions."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace

from sparklog.monitoring.alerts.evaluation import Alert
from sparklog.monitoring.alerts.rules import Rule
from sparklog.monitoring.alerts.transitions import FIRING, AlertState, Subject
from sparklog.protocol.state import BrokerState, PartitionState, RemovedFiles, State, TopicState
from sparklog.ui.views.alerts import concerns_of, subject_cell
from sparklog.ui.views.brokers import unhealthy_table
from sparklog.ui.views.overview import cluster_concerns
from sparklog.ui.views.query import Query
from sparklog.ui.views.topics import topic_row

HOUR_MS = 3_600_000
QUERY = Query("/log", {})


def state_of(*partitions: PartitionState) -> State:
    topic = TopicState(name="orders", topic_id="a", created_ms=0, partitions=partitions)
    brokers = {0: BrokerState(broker=0), 1: BrokerState(broker=1, url="/disk\x1b", online=False)}
    return State(cluster_id="c", topics=Map({"orders": topic}), brokers=brokers)


def concerns(state: State, now_ms: int = 0) -> list[str]:
    rows = [topic_row(topic) for topic in state.topics_in_order()]
    return [each.text for each in cluster_concerns(state, rows, "log", now_ms)]


def test_what_needs_attention_is_said_in_sentences() -> None:
    whole = PartitionState(replicas=(0,), isr=(0,), leader=0)
    state = state_of(whole, replace(whole, isr=(), leader=-1), replace(whole, unfit=3))
    late = RemovedFiles(version=1, delete_at_ms=HOUR_MS, files=2, size_bytes=2048)
    state = replace(state, removed_files=Map({"a": late}), moved_to="s3://new")
    assert concerns(state, 3 * HOUR_MS) == [
        "Broker 1 is offline: /disk\\x1b",
        "1 partition without a leader, or with replicas that are not in sync",
        "3 records of 1 topic do not fit the schema",
        "2 KiB of retired files could have been deleted an hour ago: does `sparklog maintain` run?",
        "The cluster continues at s3://new",
    ]
    assert len(concerns(state, HOUR_MS)) == 4, "the files are not late yet"


def test_partitions_that_are_not_healthy_say_what_is_missing_and_what_moves() -> None:
    state = state_of(
        PartitionState(replicas=(0, 1), isr=(0,), leader=0, adding=(1,), removing=(0,)),
        PartitionState(replicas=(1,), isr=(), leader=-1),
        PartitionState(replicas=(0,), isr=(0,), leader=0),
    )
    rows = [[cell.text for cell in row] for row in unhealthy_table(state, "log", QUERY).rows]
    assert rows == [
        ["orders", "0", "0", "0, 1", "0", "adds 1, removes 0"],
        ["orders", "1", "none", "1", "none", ""],
    ]


@pytest.mark.parametrize(
    ("subject", "href"),
    [
        ((("group", "a/b"), ("topic", "t")), "/log/group?name=a%2Fb"),
        ((("topic", "t"),), "/log/topics/t"),
        ((("step", "roll"), ("topic", "t")), "/log/maintenance"),
        ((("broker", "1"),), "/log/brokers"),
        ((), ""),
    ],
)
def test_an_alert_links_to_where_its_subject_shows(subject: Subject, href: str) -> None:
    assert subject_cell(subject, "log").href == href


def test_of_many_alerts_the_overview_shows_ten() -> None:
    rule = Rule("late", "no_commit", 60.0, 60.0, severity="critical")
    state = AlertState(FIRING, 0, 0.0, None, 90.0, "")
    alerts = [Alert(rule, (("group", f"g{number}"),), state, "because") for number in range(12)]
    found = concerns_of(alerts, "log")
    assert [each.kind for each in found] == ["bad"] * 10 + ["warn"]
    assert found[-1].text == "2 more alerts fire"
