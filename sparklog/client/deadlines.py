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
from functools import partial
from queue import SimpleQueue  # noqa: TID251 - without a timeout
from typing import Any, Generic, NamedTuple, TypeVar, cast

from sparklog.client.background_thread import BackgroundThread
from sparklog.client.condition import Condition
from sparklog.clock import SystemClock
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.threads import start_thread

Result = TypeVar("Result")

_now = SystemClock().monotonic

_CANCELLED = object()

ENDING_SECONDS = 30.0
"""The longest that a call waits for those before the end of their thread, which may hang with the storage."""


def time_left(seconds: float) -> Callable[[], float]:
    """Return a function that returns what is left of these seconds, from now on; never less than 0."""
    until = _now() + seconds
    return lambda: max(until - _now(), 0.0)


class DeadlineCall(Generic[Result]):
    """One call, which ``run`` executes in some thread, once. ``cancel`` has no effect once it has begun. Thread-safe.

    No lock guards it, so that no interrupt leaves one held: who runs it is decided by one step, ``setdefault``.
    ``lock`` is one that a waiting thread may hold, and does not hold while it waits.
    """

    def __init__(self, action: Callable[[], Result], lock: Any = None) -> None:
        self._action = action
        self._runner: dict[str, object] = {}
        self._outcome: tuple[Result | None, BaseException | None] | None = None
        self._ended = Condition(lock)

    def start(self) -> DeadlineCall[Result]:
        """Run in a new thread, or in this one if the interpreter is shutting down and starts no threads."""
        try:
            start_thread(threading.Thread(target=self.run, name="sparklog-call", daemon=True))
        except RuntimeError:
            self.run()
        return self

    def run(self) -> None:
        """Execute the call, unless it was cancelled or another thread does, and keep its result or error."""
        me = object()
        outcome: tuple[Result | None, BaseException | None]
        try:
            if self._runner.setdefault("runner", me) is not me:
                return
            outcome = self._action(), None
        except BaseException as error:
            if self._runner.get("runner") is not me:
                raise
            outcome = None, error
        self._outcome = outcome
        self._ended.notify_all()

    def cancel(self) -> bool:
        """Let it never run, unless it has begun; return whether it will not run."""
        return self._runner.setdefault("runner", _CANCELLED) is _CANCELLED

    @property
    def has_begun(self) -> bool:
        return bool(self._runner)

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._outcome is not None

    def wait(self, seconds: float | None) -> bool:
        """Wait at most ``seconds``; return whether it has ended."""
        return self._ended.wait_for(self.done, seconds)

    def result(self) -> Result:
        """Return the result of a call that has ended, or raise its error."""
        assert self._outcome is not None
        result, error = self._outcome
        if error is not None:
            raise error
        return cast("Result", result)


def call_within(seconds: float | None, action: Callable[[], Result], what: str, lock: Any = None) -> Result:
    """Return the result of ``action``. Raises KafkaTimeoutError after ``seconds``; the action goes on in its thread.

    ``lock`` as for ``DeadlineCall``.
    """
    if seconds is None or seconds == math.inf:
        return action()
    call = DeadlineCall(action, lock).start()
    if not call.wait(seconds):
        raise timed_out(what, seconds)
    return call.result()


class Repeatable(Generic[Result]):
    """A call shared by its callers, of which at most one runs at a time: threads do not pile up if the storage hangs.

    Thread-safe. ``lock`` as for ``DeadlineCall``.
    """

    def __init__(self, action: Callable[[], Result], what: str, lock: Any = None) -> None:
        self._action = action
        self._what = what
        self._lock = lock
        self._choosing = threading.RLock()  # reentrant: a handler of a signal may call this within a call
        self._latest: DeadlineCall[Result] | None = None

    def call_within(self, seconds: float, newer: bool = False) -> Result:
        """Return its result, also of a call begun by a caller that has timed out. Raises KafkaTimeoutError.

        With ``newer``, a call that has already ended is not used, since its result may be old: another one begins.
        """
        with self._choosing:
            call = self._latest
            if call is None or (newer and call.done()):
                call = self._latest = DeadlineCall(self._action, self._lock)
        if not call.has_begun:  # or the start by another caller was interrupted; it runs once
            call.start()
        if not call.wait(seconds):
            raise timed_out(self._what, seconds)
        self._latest = None if self._latest is call else self._latest
        return call.result()


class InOrder:
    """Runs calls one after the other in its own thread, so that the objects they use need no lock, and an interrupt of
    a caller does not arrive in the middle of a call.

    A caller that times out may keep the call and ask for its result later. Unlike an executor's thread, this one does
    not keep the process alive. Only one thread may submit calls. ``lock`` as for ``DeadlineCall``.
    """

    def __init__(self, name: str, lock: Any = None) -> None:
        self._name = name
        self._lock = lock
        self._runner = self._new_runner()
        self._ended = False

    def _new_runner(self) -> _Runner:
        calls: _Calls = SimpleQueue()
        return _Runner(calls, BackgroundThread(partial(_run_calls, calls), self._name))

    @property
    def runs_here(self) -> bool:
        """Whether this is the thread that runs the calls."""
        return self._runner.thread.thread is threading.current_thread()

    def call_within(self, seconds: float, action: Callable[[], Result], what: str) -> Result:
        """Run ``action`` after the earlier calls; return its result.

        Raises KafkaTimeoutError after ``seconds``; an action that has not begun by then is never run.
        """
        call = DeadlineCall(action, self._lock)
        try:
            self._submit(call)
            if not call.wait(seconds):
                raise timed_out(what, seconds)
            return call.result()
        finally:
            call.cancel()

    def submit(self, action: Callable[[], Result]) -> DeadlineCall[Result]:
        """Queue a call of ``action``, to run after the earlier ones."""
        call = DeadlineCall(action, self._lock)
        self._submit(call)
        return call

    def _submit(self, call: DeadlineCall[Any]) -> None:
        if not self._ended:
            _put(self._runner, call)
        if self._ended:  # also if a handler of a signal has ended it since: the thread may not get to this call
            earlier, self._runner = self._runner, self._new_runner()
            _put(self._runner, DeadlineCall(partial(earlier.thread.join, ENDING_SECONDS), self._lock))
            _put(self._runner, call)
            self._runner.calls.put(None)

    def end(self) -> None:
        """End the thread after all queued calls. A call that is submitted later gets another one, after these."""
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


_Calls = SimpleQueue["DeadlineCall[Any] | None"]


class _Runner(NamedTuple):
    """Calls that wait, and the thread that runs them."""

    calls: _Calls
    thread: BackgroundThread


def _put(runner: _Runner, call: DeadlineCall[Any]) -> None:
    try:
        runner.thread.start()
    except SparklogError:  # no thread can be started, perhaps since the interpreter is shutting down: run it here
        call.run()
        return
    runner.calls.put(call)


def _run_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # not kept while the thread waits for the next one: it may refer to its client


def timed_out(what: str, seconds: float, then: str = "its outcome is unknown: try again") -> KafkaTimeoutError:
    """Return the error of a caller whose deadline has passed."""
    return KafkaTimeoutError(
        f"{what} had no answer from the storage within {seconds:.3g} seconds; the request continues, and {then}"
    )
