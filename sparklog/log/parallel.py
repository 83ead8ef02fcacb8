"""Many small requests to a storage at a time: one after the other they take seconds on S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PARALLEL_REQUESTS = 16
"""requests at a time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function's result for each item, in order. The first error is raised once all requests have ended."""
    arguments = list(items)
    if len(arguments) < 2:
        return [function(item) for item in arguments]
    with ThreadPoolExecutor(min(PARALLEL_REQUESTS, len(arguments))) as pool:
        return list(pool.map(function, arguments))
