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
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from sparklog.client.background_thread import BackgroundThread
from sparklog.client.producer.futures import clamp_timeout
from sparklog.errors import KafkaTimeoutError, SparklogError

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
    """Runs calls one after the other in its own thread, so that the objects they use need no lock, and an interrupt of
    a caller does not arrive in the middle of a call.

    A caller that times out may keep the call and ask for its result later. Unlike an executor's thread, this one does
    not keep the process alive. Only one thread may submit calls.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()

    def _begin(self) -> None:
        calls: _Calls = SimpleQueue()
        self._runner = _Runner(calls, BackgroundThread(partial(_run_calls, calls), self._name))
        self._ended = False

    @property
    def runs_here(self) -> bool:
        """Whether this is the thread that runs the calls."""
        return self._runner.thread.thread is threading.current_thread()

    def call_within(self, seconds: float, action: Callable[[], Result], what: str) -> Result:
        """Run ``action`` after the earlier calls; return its result.

        Raises KafkaTimeoutError after ``seconds``; an action that has not begun by then is never run.
        """
        call = Call(action)
        try:
            self._submit(call)
            if not call.wait(seconds):
                raise timed_out(what, seconds)
            return call.result()
        finally:
            call.cancel()

    def submit(self, action: Callable[[], Result]) -> Call[Result]:
        """Queue a call of ``action``, to run after the earlier ones."""
        call = Call(action)
        self._submit(call)
        return call

    def _submit(self, call: Call[Any]) -> None:
        if self._ended:
            self._runner.calls.put(None)  # again, after an interrupt in ``end``
            self._begin()
        try:
            self._runner.thread.start()
        except SparklogError:  # no thread can be started, perhaps since the interpreter is shutting down: run it here
            call.run()
            return
        self._runner.calls.put(call)

    def end(self) -> None:
        """End the thread after all queued calls. Calls submitted later get another one."""
        self._ended = True
        self._runner.calls.put(None)

    def finish(self, seconds: float, action: Callable[[], object]) -> None:
        """Run a last call and end the thread; wait at most ``seconds``. Without a thread, run it in this one."""
        if self._runner.thread.thread is None:
            action()
            return
        call = self.submit(action)
        self.end()
        call.wait(seconds)


_Calls = SimpleQueue["Call[Any] | None"]


class _Runner(NamedTuple):
    """Calls that wait, and the thread that runs them."""

    calls: _Calls
    thread: BackgroundThread


def _run_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call.run()


def timed_out(what: str, seconds: float, then: str = "its outcome is unknown: try again") -> KafkaTimeoutError:
    """Return the error of a caller whose deadline has passed."""
    return KafkaTimeoutError(
        f"{what} had no answer from the storage within {seconds:.3g} seconds; the request continues, and {then}"
    )
