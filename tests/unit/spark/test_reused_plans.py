"""A plan that Spark keeps for later queries is told from one that was made for this query."""

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
from tests.unit.spark.helpers import cluster, write_rows

_plans = itertools.count()


class Plan:
    """One plan of a read of a topic with one record, and the queries that use it."""

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


def test_a_plan_that_another_query_uses_is_told_once_where_the_log_has_grown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(tmp_path)
    plan.query("1")
    plan.query("1")
    assert plan.looks == 0, "the query that it was made for costs nothing"
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


def test_an_end_that_was_asked_for_and_tasks_without_a_query_are_let_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (query, options) in enumerate((("q", {"endingOffsets": '{"orders":{"0":1}}'}), ("", {}))):
        plan = Plan(tmp_path / str(number), **options)
        plan.query(f"{query}1" * bool(query))
        plan.grow()
        plan.query(f"{query}2" * bool(query))
        assert plan.looks == 0
    assert caplog.text == ""


def test_a_cluster_that_is_gone_is_nobodys_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan(tmp_path)
    plan.query("1")
    delete_topic(plan.log, "orders")
    with caplog.at_level(logging.DEBUG):
        plan.query("2")
    assert caplog.text == ""
