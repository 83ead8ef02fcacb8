"""How much of what could be tried a run of the tests tries.

Tests that are marked ``sampled``, and those of Hypothesis, try all of it in ``make test-faults``, and a part otherwise:
a fifth of the faults at all steps and of the flipped bits, a quarter of the examples. A step has two to four kinds of
faults one after the other, so each kind occurs, and one at most steps. The part is the same in every run; all of it has
random examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

EVERY = 5
FEWEST_EXAMPLES = 10
WHOLE = bool(os.environ.get("SPARKLOG_EVERY_FAULT"))

Point = TypeVar("Point")


def chosen(points: Iterable[Point]) -> list[Point]:
    """Return the points to try, in order."""
    return list(points)[:: 1 if WHOLE else EVERY]


def examples(count: int = 100) -> int:
    """Return how many examples of Hypothesis to try of ``count``, by default of its own number."""
    return count if WHOLE else max(count // 4, FEWEST_EXAMPLES)
