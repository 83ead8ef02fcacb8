"""Pools of threads after the main thread of the program has ended."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - patched by its name
import threading

import pytest

from sparklog.threads import Threads


def test_calls_get_threads_of_their_own_once_the_library_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Thread(target=int)
    with Threads(1) as pool:
        assert pool.submit(int, "1").result() == 1
        monkeypatch.setattr("concurrent.futures.thread._shutdown", True)  # as the interpreter does when it ends
        monkeypatch.setattr(threading, "main_thread", lambda: ended)
        assert pool.submit(int, "101", base=2).result() == 5
        with pytest.raises(ValueError, match="invalid literal"):
            pool.submit(int, "x").result()
        assert not pool.submit(threading.current_thread).result().name.startswith("ThreadPoolExecutor")


def test_a_refused_call_is_an_error_while_the_main_thread_runs() -> None:
    pool = Threads(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
