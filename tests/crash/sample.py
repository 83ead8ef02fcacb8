"""Which of many faults a run of the tests tries.

Tests that are marked ``sampled`` try every fault at every step in ``make test-faults``, and a fifth of them otherwise.
A step has two to four kinds of faults one after the other, so each kind occurs, and one at most steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

EVERY = 5
VARIABLE = "SPARKLOG_EVERY_FAULT"

Point = TypeVar("Point")


def chosen(points: Iterable[Point]) -> list[Point]:
    """Return the points to try, in order."""
    return list(points)[:: 1 if os.environ.get(VARIABLE) else EVERY]
