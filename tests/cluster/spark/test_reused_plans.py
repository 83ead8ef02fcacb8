"""A plan that Spark reuses for later queries is distinguished from one made for the current query."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.protocol.state import State
from sparklog.spark.options import source_options
from sparklog.spark.source.reused_plans import PlanIdentity, warn_of_reuse
from tests.cluster.spark.helpers import cluster, write_rows

_plans = itertools.count()


class Plan:
    """A plan of a read of a topic with one record, and the queries that use it."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.log: Coordinator = cluster(folder, orders=1)
        self.folder = folder
        self.options = source_options({"path": str(folder), "subscribe": "orders", **options})
        self.grow()
        self.identity = PlanIdentity(f"plan {next(_plans)}", 1)
        self.looks = 0

    def grow(self) -> None:
        write_rows(self.folder, "value string", [{"value": "v"}], topic="orders")

    def look(self) -> State:
        self.looks += 1
        return self.log.refresh()

    def query(self, number: str) -> None:
        warn_of_reuse(self.identity, number, "orders", 0, self.options, self.look)


def test_a_plan_reused_after_the_log_has_grown_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(tmp_path)
    plan.query("1")
    plan.query("1")
    assert plan.looks == 0, "the first query costs no look at the log"
    plan.query("2")
    assert caplog.text == "", "nothing new"
    plan.grow()
    for number in ("2", "3", "4"):
        plan.query(number)
    assert (
        caplog.text.count(
            "orders-0 is read only up to offset 1, the end of its log at an earlier query of this DataFrame"
        )
        == 1
    )
    assert "sparklog.read" in caplog.text
    assert plan.looks == 2


def test_reads_with_a_fixed_end_and_tasks_without_a_query_are_not_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (query, options) in enumerate((("q", {"endingOffsets": '{"orders":{"0":1}}'}), ("", {}))):
        plan = Plan(tmp_path / str(number), **options)
        plan.query(f"{query}1" * bool(query))
        plan.grow()
        plan.query(f"{query}2" * bool(query))
        assert plan.looks == 0
    assert caplog.text == ""


def test_a_deleted_cluster_causes_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan(tmp_path)
    plan.query("1")
    delete_topic(plan.log, "orders")
    with caplog.at_level(logging.DEBUG):
        plan.query("2")
    assert caplog.text == ""
