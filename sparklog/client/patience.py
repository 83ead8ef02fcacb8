"""Calls of the storage that a caller waits for only so long: a request that hangs cannot be interrupted, so it stays in
a thread of its own, and the caller is told in time.

Rules: what is called has to be safe beside the caller's next steps. Nobody gets its result once the time is over, so it
is for what can be asked again. Waiting is real time, whatever clock the cluster has.

Not for: callbacks and listeners, which belong to the caller's thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sparklog.client.futures import longest_wait
from sparklog.errors import KafkaTimeoutError

Result = TypeVar("Result")


class Call(Generic[Result]):
    """One call, which ``run`` makes in some thread. Thread-safe."""

    def __init__(self, action: Callable[[], Result]) -> None:
        self._action = action
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._cancelled = False

    def start(self) -> Call[Result]:
        """Run in a thread of its own, or here and now where the interpreter is ending and starts none any more."""
        try:
            threading.Thread(target=self.run, name="sparklog-call", daemon=True).start()
        except RuntimeError:
            self.run()
        return self

    def run(self) -> None:
        try:
            if not self._cancelled:
                self._result = self._action()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def cancel(self) -> None:
        """Nobody waits for it any more: it is not made, unless it is under way already."""
        self._cancelled = True

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over, after at most so many seconds."""
        return self._done.wait(longest_wait(seconds))

    def result(self) -> Result:
        """What it returned or raised, once it is over."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[no-any-return]


def within(seconds: float | None, action: Callable[[], Result], what: str) -> Result:
    """What ``action`` returns. Raises KafkaTimeoutError after so many seconds; it goes on all the same."""
    if seconds is None or seconds == math.inf:
        return action()
    call = Call(action).start()
    if not call.wait(seconds):
        raise timed_out(what, seconds)
    return call.result()


class Repeatable(Generic[Result]):
    """A call that several may want, and that is under way once at most: a storage that hangs gets no crowd of threads.

    Thread-safe.
    """

    def __init__(self, action: Callable[[], Result], what: str) -> None:
        self._action = action
        self._what = what
        self._lock = threading.Lock()
        self._latest: Call[Result] | None = None

    def within(self, seconds: float, newer: bool = False) -> Result:
        """What it returns, also where it was begun by somebody who gave up on it. Raises KafkaTimeoutError.

        With ``newer`` not where that one is over by now, maybe for long: then it is called again.
        """
        with self._lock:
            call = self._latest
            if call is None or (newer and call.done()):
                call = self._latest = Call(self._action).start()
        if not call.wait(seconds):
            raise timed_out(self._what, seconds)
        with self._lock:
            if self._latest is call:
                self._latest = None
        return call.result()


class InOrder:
    """Calls that a thread of its own makes one after the other, so that what they use needs no lock. A caller that
    gives up on one may keep it, and ask for its result later. Unlike an executor's thread it keeps no process from
    ending.

    One thread submits.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._started = False

    def within(self, seconds: float, action: Callable[[], Result], what: str) -> Result:
        """What ``action`` returns, after the calls before. Raises KafkaTimeoutError after so many seconds; where it has
        not begun by then it never does."""
        call = self.submit(action)
        try:
            if not call.wait(seconds):
                raise timed_out(what, seconds)
            return call.result()
        finally:
            call.cancel()

    def submit(self, action: Callable[[], Result]) -> Call[Result]:
        """Make this call after those before."""
        call = Call(action)
        if not self._started:
            self._started = True
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:  # the interpreter is ending, and starts no thread any more
                self._started = False
                call.run()
                return call
        self._calls.put(call)
        return call

    def end(self) -> None:
        """End the thread once it has made all calls."""
        self._calls.put(None)

    def finish(self, seconds: float, action: Callable[[], object]) -> None:
        """Make a last call, here and now where there is no thread, and end the thread; wait so many seconds for it."""
        if not self._started:
            action()
            return
        call = self.submit(action)
        self.end()
        call.wait(seconds)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()


def timed_out(what: str, seconds: float, then: str = "its outcome is not known: try again") -> KafkaTimeoutError:
    """The error of a caller whose time is over."""
    return KafkaTimeoutError(
        f"{what} had no answer of the storage within {seconds:.3g} seconds; what was begun goes on, and {then}"
    )
