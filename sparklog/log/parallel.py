"""Sends many small requests to a storage in parallel: sequentially they take seconds on S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_parallel(function: Callable[[Item], Result], items: Iterable[Item], at_a_time: int) -> list[Result]:
    """Return the function's result for each item, in order. Raises the first error once all calls have ended.

    ``at_a_time`` is how many calls may run in parallel, as a store's ``parallel_requests``; with 1 they run in this
    thread, one after another, up to the first error.
    """
    arguments = list(items)
    if len(arguments) < 2 or at_a_time < 2:
        return [function(item) for item in arguments]
    with ThreadPoolExecutor(min(at_a_time, len(arguments))) as pool:
        futures: list[Future[Result]] = []
        for item in arguments:
            try:
                futures.append(pool.submit(function, item))
            except RuntimeError:  # an exiting interpreter starts no threads
                break
        rest = [function(item) for item in arguments[len(futures) :]]
        return [future.result() for future in futures] + rest


def call_both(first: Callable[[], First], second: Callable[[], Second], at_a_time: int) -> tuple[First, Second]:
    """Return the results of two calls; as ``map_parallel``."""
    calls: list[Callable[[], Any]] = [first, second]
    first_result, second_result = map_parallel(lambda call: call(), calls, at_a_time)
    return first_result, second_result
