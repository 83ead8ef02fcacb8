"""Storage calls with a deadline.

A request that hangs cannot be interrupted, so it runs in its own thread, and the caller gets an error at the deadline.

Rules: the call must be safe to run beside the caller's next steps. Its result is lost after the deadline, so it must be
repeatable. Waits are in real time, whatever clock the cluster has.

Not for: callbacks and listeners, which run in the caller's thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sparklog.client.producer.futures import clamp_timeout
from sparklog.errors import KafkaTimeoutError

Result = TypeVar("Result")


class Call(Future[Result]):
    """One call, which ``run`` executes in some thread. ``cancel`` has no effect once it has begun. Thread-safe."""

    def __init__(self, action: Callable[[], Result]) -> None:
        super().__init__()
        self._action = action

    def start(self) -> Call[Result]:
        """Run in a new thread, or in this one if the interpreter is shutting down and starts no threads."""
        try:
            threading.Thread(target=self.run, name="sparklog-call", daemon=True).start()
        except RuntimeError:
            self.run()
        return self

    def run(self) -> None:
        """Execute the call, unless it was cancelled, and keep its result or error."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._action())
        except BaseException as error:
            self.set_exception(error)

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds``; return whether it has ended."""
        return bool(wait([self], clamp_timeout(seconds)).done)


def call_within(seconds: float | None, action: Callable[[], Result], what: str) -> Result:
    """Return the result of ``action``. Raises KafkaTimeoutError after ``seconds``; the action goes on in its thread."""
    if seconds is None or seconds == math.inf:
        return action()
    call = Call(action).start()
    if not call.wait(seconds):
        raise timed_out(what, seconds)
    return call.result()


class Repeatable(Generic[Result]):
    """A call shared by its callers, of which at most one runs at a time: threads do not pile up if the storage hangs.

    Thread-safe.
    """

    def __init__(self, action: Callable[[], Result], what: str) -> None:
        self._action = action
        self._what = what
        self._lock = threading.Lock()
        self._latest: Call[Result] | None = None

    def call_within(self, seconds: float, newer: bool = False) -> Result:
        """Return its result, also of a call begun by a caller that has timed out. Raises KafkaTimeoutError.

        With ``newer``, a call that has already ended is not used, since its result may be old: another one begins.
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
    """Runs calls one after the other in its own thread, so that the objects they use need no lock.

    A caller that times out may keep the call and ask for its result later. Unlike an executor's thread, this one does
    not keep the process alive. Only one thread may submit calls.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._started = False

    def call_within(self, seconds: float, action: Callable[[], Result], what: str) -> Result:
        """Run ``action`` after the earlier calls; return its result.

        Raises KafkaTimeoutError after ``seconds``; an action that has not begun by then is never run.
        """
        call = self.submit(action)
        try:
            if not call.wait(seconds):
                raise timed_out(what, seconds)
            return call.result()
        finally:
            call.cancel()

    def submit(self, action: Callable[[], Result]) -> Call[Result]:
        """Queue a call of ``action``, to run after the earlier ones."""
        call = Call(action)
        if not self._started:
            self._started = True
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:  # the interpreter is shutting down and starts no threads
                self._started = False
                call.run()
                return call
        self._calls.put(call)
        return call

    def end(self) -> None:
        """End the thread after all queued calls."""
        self._calls.put(None)

    def finish(self, seconds: float, action: Callable[[], object]) -> None:
        """Run a last call and end the thread; wait at most ``seconds``. Without a thread, run it in this one."""
        if not self._started:
            action()
            return
        call = self.submit(action)
        self.end()
        call.wait(seconds)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()


def timed_out(what: str, seconds: float, then: str = "its outcome is unknown: try again") -> KafkaTimeoutError:
    """Return the error of a caller whose deadline has passed."""
    return KafkaTimeoutError(
        f"{what} had no answer from the storage within {seconds:.3g} seconds; the request continues, and {then}"
    )
