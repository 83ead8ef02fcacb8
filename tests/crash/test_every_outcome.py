"""Every operation of the project, with everything that a storage's client can show at every step of it.

The points are generated: for each call that an operation makes, each outcome that a call of that kind can come to
(``sparklog.testing.faults``). ``make test-faults`` tries them all and says how many they were; the ordinary tests try a
fixed sample of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from sparklog.client.producer.transactions import Transactions
from sparklog.errors import SparklogError
from sparklog.testing.faults import HALF, KINDS, LATE, every_outcome, kinds_of
from sparklog.testing.faulty_store import Fault
from tests.crash.operations import OPERATIONS
from tests.crash.worlds import World

PARTS = 6
"""tests that the points of one operation are split into, so that several processes share them."""

SAMPLE = 41
"""Of so many points the ordinary tests try one."""

AT_LEAST = 10_000
"""points there are in all."""


class Point(NamedTuple):
    place: str
    fault: Fault


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(OPERATIONS[request.getfixturevalue("name")])
    yield made
    made.forget()
    gc.collect()


def points(world: World, torn: bool = False) -> list[Point]:
    found = []
    for place in world.operation.places:
        calls = world.steps(place)
        assert calls, f"nothing is asked of {place}"
        found += [Point(place, fault) for fault in every_outcome(calls, torn=torn)]
    return [point for point in found if (KINDS[point.fault.kind].effect == HALF) == torn]


def attempt(world: World, number: int, point: Point) -> None:
    """Late effects happen before any process continues, and in another run after a clean-up."""
    is_late = KINDS[point.fault.kind].effect == LATE
    for late_first in (True, False) if is_late else (number % 2 == 0,):
        world.attempt(*point, late_first)


@pytest.mark.faults
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_a_storage_shows_at_any_step_nothing_is_lost_or_doubled(
    name: str, part: int, world: World, record_property: Callable[[str, object], None]
) -> None:
    tried = 0
    for number, point in islice(enumerate(points(world)), part, None, PARTS):
        attempt(world, number, point)
        tried += 1
    record_property("points", tried)


@pytest.mark.parametrize("name", OPERATIONS)
def test_of_what_a_storage_can_show_a_sample_loses_and_doubles_nothing(name: str, world: World) -> None:
    first = list(OPERATIONS).index(name) % SAMPLE
    for number, point in islice(enumerate(points(world)), first, None, SAMPLE):
        attempt(world, number, point)


@pytest.mark.faults
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_that_is_torn_at_any_step_harms_nothing_or_is_found_out(
    name: str, world: World, record_property: Callable[[str, object], None]
) -> None:
    torn = points(world, torn=True)
    for point in torn:
        world.attempt_torn(*point)
    record_property("points", len(torn))


def test_there_are_ten_thousand_points_of_every_kind() -> None:
    found: list[Point] = []
    kinds = set()
    for operation in OPERATIONS.values():
        world = World(operation)
        found += points(world)
        for place in operation.places:
            kinds |= {call.operation for call in world.steps(place)}
        world.forget()
    assert len(found) >= AT_LEAST
    assert {point.fault.kind for point in found} == {
        kind for kind in kinds_of("put_if_absent") + kinds_of("close") if KINDS[kind].effect != HALF
    }
    assert kinds >= {"put", "put_if_absent", "delete", "write", "close", "get", "read_at", "open_input", "list", "info"}


def test_an_abort_that_takes_an_interrupted_commit_for_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule broken on purpose: such an abort deletes files that the log names."""
    monkeypatch.setattr(Transactions, "_ensure_not_committed", lambda self: setattr(self, "_outcome_unknown", False))
    world = World(OPERATIONS["transactions"])
    found = 0
    for point in points(world):
        if point.fault.kind == "done+interrupt":
            try:
                world.attempt(*point, True)
            except (AssertionError, SparklogError):
                found += 1
    world.forget()
    assert found > 0
