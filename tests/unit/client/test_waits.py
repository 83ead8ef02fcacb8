"""Waits of clients end at their time limit, however short it is, and at a notification that comes before."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparklog.client.condition import Condition, Flag
from sparklog.threads import Wakeup

SHORTEST = (0.0, 1e-9, 1e-7, 1e-6, 1e-5)
WAITS = 4_000
"""``SimpleQueue.get`` hung within 2,100 waits of 1 µs."""

WAIT_SECONDS = 60


def wait_for_change(seconds: float) -> None:
    lock = threading.RLock()
    with lock:
        Condition(lock).wait(seconds)


WAYS: dict[str, Callable[[float], object]] = {
    "a wakeup": lambda seconds: Wakeup().wait(seconds),
    "a condition": wait_for_change,
    "a condition that is not true": lambda seconds: Condition().wait_for(lambda: False, seconds),
    "a flag": lambda seconds: Flag().wait(seconds),
}


@pytest.mark.parametrize("wait", WAYS.values(), ids=list(WAYS))
def test_a_wait_ends_at_its_time_limit_however_short(wait: Callable[[float], object]) -> None:
    def run() -> None:
        for _ in range(WAITS):
            for seconds in SHORTEST:
                wait(seconds)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "it waits for longer than its limit"


def test_a_wait_ends_at_a_signal_that_came_before_it_and_only_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.wait()
    assert not wakeup.wait(0)
    wakeup.release()
    with pytest.raises(RuntimeError):
        wakeup.release()
    assert wakeup.wait(-1.0)


def test_a_wait_without_end_may_have_an_infinite_limit() -> None:
    wakeup, ended = Wakeup(), threading.Event()
    threading.Thread(target=lambda: wakeup.wait(float("inf")) and ended.set(), daemon=True).start()
    wakeup.set()
    assert ended.wait(WAIT_SECONDS)
