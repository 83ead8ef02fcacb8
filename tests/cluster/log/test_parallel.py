"""Requests in parallel: each item has one call, whatever fails."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.log.parallel import map_parallel


@pytest.mark.parametrize("at_a_time", [1, 2, 16])
def test_results_are_in_the_order_of_the_items(at_a_time: int) -> None:
    assert map_parallel(lambda number: number * number, range(50), at_a_time) == [n * n for n in range(50)]
    assert map_parallel(str, [], at_a_time) == []


@pytest.mark.parametrize("at_a_time", [1, 2, 16])
def test_all_calls_end_before_the_first_error_is_raised(at_a_time: int) -> None:
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        if number % 3 == 1:
            raise ValueError(number)

    with pytest.raises(ValueError, match=r"^1$"):
        map_parallel(call, range(10), at_a_time)
    assert sorted(called) == list(range(10))


def test_an_item_has_one_call_if_its_thread_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """``submit`` raises after it has queued the call, and a thread that runs takes it."""
    submit, called = ThreadPoolExecutor.submit, list[int]()
    submitted = 0

    def fail_later(pool: ThreadPoolExecutor, function: Any, *arguments: Any) -> Future[Any]:
        nonlocal submitted
        future: Future[Any] = submit(pool, function, *arguments)
        submitted += 1
        if submitted > 2:
            raise RuntimeError("can't start new thread")
        return future

    monkeypatch.setattr(ThreadPoolExecutor, "submit", fail_later)
    map_parallel(called.append, range(100), 8)
    assert sorted(called) == list(range(100))


def test_an_interrupt_leaves_the_items_that_were_not_begun() -> None:
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_parallel(call, range(1000), 1)
    assert called == [0, 1, 2, 3]
