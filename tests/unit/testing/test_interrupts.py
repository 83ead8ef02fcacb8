"""Which points of a call are interrupted: those at which the interpreter looks for signals, and no others."""

from __future__ import annotations

import dis
import threading

import pytest

from sparklog.testing.faulty_store import SimulatedInterrupt
from sparklog.testing.interrupts import count_points, interrupt, without_signals
from sparklog.types import number

LOCK = threading.Lock()


def sample(values: list[int]) -> int:
    first = values
    second = first
    total = len(second)
    third = total
    with LOCK:
        third = total
    for value in values:
        third = value
    try:
        fourth = third
    finally:
        fifth = total
    return fourth + fifth


def test_lines_without_a_call_and_the_ends_of_blocks_are_no_points() -> None:
    lines = dict(dis.findlinestarts(sample.__code__))
    quiet = without_signals(sample.__code__)
    first = sample.__code__.co_firstlineno
    points = {line - first for offset, line in lines.items() if offset not in quiet}
    assert {2, 5, 9, 10, 12}.isdisjoint(points)  # after an assignment, in a loop's body, `try`
    assert {1, 4} <= points  # the entry; after the call of len()


def test_a_call_is_interrupted_at_each_point_and_at_none_beyond() -> None:
    points = count_points(lambda: number(3))
    assert points > 1
    for point in range(points):
        with pytest.raises(SimulatedInterrupt, match=rf"of \w+ .*types\.py:\d+\), point {point}$"):
            interrupt(lambda: number(3), point)
    assert not interrupt(lambda: number(3), points)


def test_a_handler_that_returns_lets_the_call_go_on() -> None:
    handled: list[object] = []
    results: list[object] = []
    assert interrupt(lambda: results.append(number(3)), 0, lambda: handled.append(number(4)))
    assert (handled, results) == ([4], [3])
