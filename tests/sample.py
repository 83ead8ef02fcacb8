"""How much of what could be tried a run of the tests tries.

Tests that are marked ``sampled``, and those of Hypothesis, try all of it in ``make test-faults``, and a part otherwise:
a fifth of the faults at all steps and of the flipped bits, a quarter of the examples. The two to four kinds of faults
of a step follow each other, so that each kind is tried, and something at most steps. The part is the same in every run;
only ``make test-faults`` draws random examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

EVERY = 5
FEWEST_EXAMPLES = 10
WHOLE = bool(os.environ.get("SPARKLOG_EVERY_FAULT"))

STRIDE = 1 if WHOLE else EVERY
"""From one step to try to the next, where only the last one shows how many there are."""

Point = TypeVar("Point")


def chosen(points: Iterable[Point]) -> list[Point]:
    """Return the points to try, in order."""
    return list(points)[::STRIDE]


def examples(count: int = 100) -> int:
    """Return how many examples of Hypothesis to try of ``count``, by default of its own number."""
    return count if WHOLE else max(count // 4, FEWEST_EXAMPLES)
