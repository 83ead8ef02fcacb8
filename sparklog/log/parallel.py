"""Sends many small requests to a storage in parallel: sequentially they take seconds on S3."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_parallel(function: Callable[[Item], Result], items: Iterable[Item], at_a_time: int) -> list[Result]:
    """Return the function's result for each item, in order. Raises the first error once all calls have ended.

    ``at_a_time`` is how many calls may run in parallel, as a store's ``parallel_requests``; with 1, and where no thread
    can be started, they run in this thread, one after another. Each item has one call.
    """
    pending = deque(enumerate(items))
    count = len(pending)
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}

    def work() -> None:
        while True:
            try:
                number, item = pending.popleft()
            except IndexError:
                return
            try:
                results[number] = function(item)
            except Exception as error:
                errors[number] = error

    helpers = min(at_a_time, count) - 1
    if helpers < 1:
        work()
    else:
        _work_in_threads(work, helpers, pending)
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(count)]


def _work_in_threads(work: Callable[[], None], helpers: int, pending: deque[Any]) -> None:
    """Run ``work`` in this thread and in up to that many others."""
    with ThreadPoolExecutor(helpers) as pool:
        futures: list[Future[None]] = []
        with suppress(RuntimeError):  # an exiting interpreter starts no threads
            for _ in range(helpers):
                futures.append(pool.submit(work))
        try:
            work()
        except BaseException:
            pending.clear()
            raise
    for future in futures:
        future.result()


def call_both(first: Callable[[], First], second: Callable[[], Second], at_a_time: int) -> tuple[First, Second]:
    """Return the results of two calls; as ``map_parallel``."""
    calls: list[Callable[[], Any]] = [first, second]
    first_result, second_result = map_parallel(lambda call: call(), calls, at_a_time)
    return first_result, second_result
