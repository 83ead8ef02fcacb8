"""Every operation of the project, with every outcome of a storage call at each of its steps.

The points are generated: for each call of an operation, every outcome that such a call can have
(``sparklog.testing.faults``). ``make test-faults`` tries all points and prints their number; the ordinary tests try a
fixed sample.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pytest

from sparklog.client.producer.transactions import Transactions
from sparklog.errors import SparklogError
from sparklog.testing.faults import HALF, KINDS, LATE, every_outcome, kinds_of
from sparklog.testing.faulty_store import Fault
from tests.crash.operations import OPERATIONS
from tests.crash.worlds import World

PARTS = 6
"""Number of tests that share the points of one operation, so that several processes can run them."""

SAMPLE = 41
"""The ordinary tests try one point in this many."""

AT_LEAST = 10_000
"""Minimum number of points in total."""


class Point(NamedTuple):
    location: str
    fault: Fault


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(OPERATIONS[request.getfixturevalue("name")])
    yield world
    world.forget()
    gc.collect()


def points(world: World, torn: bool = False) -> list[Point]:
    points = []
    for location in world.operation.locations:
        calls = world.steps(location)
        assert calls, f"the operation makes no call at {location}"
        points += [Point(location, fault) for fault in every_outcome(calls, torn=torn)]
    return [point for point in points if (KINDS[point.fault.kind].effect == HALF) == torn]


def attempt(world: World, number: int, point: Point) -> None:
    """Run once; a late effect in two runs: before any process continues, and after a clean-up."""
    is_late = KINDS[point.fault.kind].effect == LATE
    for late_first in (True, False) if is_late else (number % 2 == 0,):
        world.attempt(*point, late_first)


@pytest.mark.faults
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_storage_outcome_at_any_step_loses_or_duplicates_a_record(
    name: str, part: int, world: World, record_property: Callable[[str, object], None]
) -> None:
    tried = 0
    for number, point in islice(enumerate(points(world)), part, None, PARTS):
        attempt(world, number, point)
        tried += 1
    record_property("points", tried)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_storage_outcome_of_a_sample_loses_or_duplicates_a_record(name: str, world: World) -> None:
    first = list(OPERATIONS).index(name) % SAMPLE
    for number, point in islice(enumerate(points(world)), first, None, SAMPLE):
        attempt(world, number, point)


@pytest.mark.faults
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_torn_write_at_any_step_is_harmless_or_detected(
    name: str, world: World, record_property: Callable[[str, object], None]
) -> None:
    torn = points(world, torn=True)
    for point in torn:
        world.attempt_torn(*point)
    record_property("points", len(torn))


def test_there_are_ten_thousand_points_and_every_kind_occurs() -> None:
    all_points: list[Point] = []
    kinds = set()
    for operation in OPERATIONS.values():
        world = World(operation)
        all_points += points(world)
        for location in operation.locations:
            kinds |= {call.operation for call in world.steps(location)}
        world.forget()
    assert len(all_points) >= AT_LEAST
    assert {point.fault.kind for point in all_points} == {
        kind
        for operation in ("put_if_absent", "close", "put", "delete")
        for kind in kinds_of(operation)
        if KINDS[kind].effect != HALF
    }
    assert kinds >= {"put", "put_if_absent", "delete", "write", "close", "get", "read_at", "open_input", "list", "info"}


def test_an_abort_that_ignores_an_interrupted_commit_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded bug: such an abort deletes files that the log names."""

    def forget_the_request(self: Any) -> None:
        self._transaction.requested = None

    monkeypatch.setattr(Transactions, "_ensure_not_committed", forget_the_request)
    world = World(OPERATIONS["transactions"])
    failures = 0
    for point in points(world):
        if point.fault.kind == "done+interrupt":
            try:
                world.attempt(*point, True)
            except (AssertionError, SparklogError):
                failures += 1
    world.forget()
    assert failures > 0
