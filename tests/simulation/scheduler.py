"""Deterministic simulation: several processes on one storage, with one seed that decides everything.

Each simulated process (an actor) is a greenlet, so only one runs at a time: at every storage call and every sleep it
yields, and the seed decides which actor runs next, which calls fail, which answers are lost, and which actor is killed.
Time is virtual, so back-off costs nothing. The same seed gives the same run, call for call; ``trace`` lists the calls.

    simulation = Simulation(seed=7)
    store = MemoryStore("simulated", simulation)
    machine = simulation.machine(ahead_ms=8 * 86_400_000)
    for name in ("a", "b"):
        work = partial(run, simulation.store(store, {"lost_answer": 0.1, "crash_before": 0.01}), machine)
        simulation.spawn(name, work, machine)
    simulation.run()

The simulation is itself a clock: the right one, which the storage has. A ``Machine`` is the clock of the processes on
it, and may be days off, run too fast, be set, and be suspended with all of its processes.

Not for: threads within one process (an actor's own locks must not be shared with another actor); threads of the code
under test are run in the actor's (``SideBySide``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, NoReturn

import pytest
from greenlet import getcurrent, greenlet

from sparklog.clock import Clock
from sparklog.coordinator import broker_probes, one_timeline
from sparklog.ids import SeededIds
from sparklog.log import background, parallel
from sparklog.maintenance.segments import files
from sparklog.store import limited
from sparklog.store.base import Store
from sparklog.testing.faulty_store import Call, FaultyStore

_waited: ContextVar[bool | None] = ContextVar("_waited", default=None)
"""Whether one of an actor's parallel requests was waited for; None if its requests are made one by one. A greenlet has
a context of its own."""


class Machine:
    """A computer's clock, and the processes that are suspended together with it. See ``sparklog.clock.Clock``.

    ``counts_suspension``: whether the elapsed time includes suspension, as CLOCK_BOOTTIME does.
    """

    counts_suspension = True

    def __init__(self, simulation: Simulation, ahead_ms: int = 0, drift: float = 0.0) -> None:
        self._simulation = simulation
        self._ahead_ms = ahead_ms
        self._drift = drift
        self._slept = 0.0

    def now_ms(self) -> int:
        return self._simulation.now_ms() + self._ahead_ms + int(self._simulation.monotonic() * self._drift * 1000)

    def monotonic(self) -> float:
        return self._simulation.monotonic() * (1 + self._drift) - self._slept

    def sleep(self, seconds: float) -> None:
        self._simulation.sleep(seconds)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock, as an operator or NTP would."""
        self._ahead_ms += by_ms

    def suspend(self, seconds: float) -> None:
        """Stop all processes of this machine; called by one of them."""
        if not self.counts_suspension:
            self._slept += seconds
        self._simulation.suspend(self, seconds)


class _RemoteStore(FaultyStore):
    """A store whose users send requests in parallel, as they do to a remote one."""

    @property
    def parallel_requests(self) -> int:
        return 16


class AtOnce:
    """A thread pool for the code under test: calls run immediately, in the actor itself."""

    def __init__(self, workers: int, thread_name_prefix: str = "") -> None:
        pass

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        return map(function, items)


class NoThread:
    """Cannot be started: the code under test does its work in the actor itself."""

    def __init__(self, **_: object) -> None:
        pass

    def is_alive(self) -> bool:
        return False

    def start(self) -> None:
        raise RuntimeError("a simulation starts no thread")


def start_no_thread(call: Callable[[], object]) -> NoReturn:
    raise RuntimeError("a simulation starts no thread")


class SideBySide(AtOnce):
    """All calls together wait for a slow storage only once."""

    def __init__(self, workers: int) -> None:
        self._before: bool | None = None

    def __enter__(self) -> SideBySide:
        self._before = _waited.get()
        if self._before is None:
            _waited.set(False)
        return self

    def __exit__(self, *_: object) -> None:
        _waited.set(self._before)


def run_without_threads(patch: pytest.MonkeyPatch) -> None:
    """Make parallel requests take the time of one, and the commit that requests a checkpoint write it; nobody reads the
    log meanwhile."""
    patch.setattr(parallel, "ThreadPoolExecutor", SideBySide)
    patch.setattr(files, "Threads", AtOnce)
    patch.setattr(broker_probes, "Thread", NoThread)
    for module in (broker_probes, limited):
        patch.setattr(module, "call_in_thread", start_no_thread)
    patch.setattr(background.BackgroundTask, "request", lambda self: self._work())
    patch.setattr(one_timeline, "keep_reading", lambda coordinator: nullcontext())


class _Actor:
    """One simulated process."""

    def __init__(self, name: str, work: Callable[[], None], machine: Machine | None) -> None:
        self.name = name
        self.work = work
        self.machine = machine
        self.greenlet = greenlet(self._run)
        self.wakes_at = 0.0
        self.finished = False
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
        self.finished = True


class Simulation:
    """The scheduler, the virtual clock and the source of randomness of one run. Not thread-safe: one run, one owner."""

    def __init__(self, seed: int, start_ms: int = 1_700_000_000_000) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.trace: list[str] = []
        self._start_ms = start_ms
        self._now = 0.0
        self._actors: list[_Actor] = []
        self._current: _Actor | None = None
        self._main = getcurrent()

    # -- what actors use

    def spawn(self, name: str, work: Callable[[], None], machine: Machine | None = None) -> None:
        """Add a process that starts when the seed decides, and stops while its machine is suspended."""
        self._actors.append(_Actor(name, work, machine))

    def machine(self, ahead_ms: int = 0, drift: float = 0.0) -> Machine:
        """Return a machine whose clock is ahead by ``ahead_ms`` at first, and by ``drift`` seconds more each second."""
        return Machine(self, ahead_ms, drift)

    def store(
        self,
        store: Store,
        rates: Mapping[str, float],
        stops: Callable[[Call], float] = lambda call: 0.0,
        latency: float = 0.0,
    ) -> FaultyStore:
        """Return the store as one life of a simulated process sees it; ``rates`` are ``FaultyStore``'s, per storage
        call.

        ``stops`` returns for how many seconds the process is stopped before a call, as by SIGSTOP. ``latency`` is the
        duration of a request in seconds; parallel requests together take that long.
        """

        def before(number: int, call: Call) -> None:
            seconds = stops(call) + self._latency(latency)
            if seconds > 0:
                self.sleep(seconds)
            self.step(" ".join(call))

        return _RemoteStore(store, seed=self.random.getrandbits(64), rates=rates, before=before)

    def _latency(self, seconds: float) -> float:
        waited = _waited.get()
        if waited is not None:
            _waited.set(True)
        return 0.0 if waited else seconds

    def ids(self) -> SeededIds:
        """Return a source of ids for one process, from the seed."""
        return SeededIds(self.random.getrandbits(64))

    def step(self, what: str) -> None:
        """Yield to another actor; return when the seed picks this one again."""
        assert self._current is not None, "only an actor of a running simulation may call this"
        self.trace.append(f"{self._current.name}: {what}")
        before, following = self._current, self._choose_next()
        if following is None:  # this one never runs again, and no other is left
            self._main.switch()
        elif following is not before:
            following.greenlet.switch()

    @property
    def clock(self) -> Clock:
        """The clock of the current actor's machine; the right one for an actor without a machine."""
        machine = self._current.machine if self._current is not None else None
        return self if machine is None else machine

    # the clock, see sparklog.clock.Clock

    def now_ms(self) -> int:
        return self._start_ms + int(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        assert self._current is not None
        self._current.wakes_at = self._now + seconds
        self.step(f"sleep {seconds:.4f}")

    def stop(self) -> None:
        """Never let the current actor run again, as a process whose call the storage never answers."""
        self.sleep(math.inf)

    @property
    def actor(self) -> str:
        """The name of the actor that runs now; empty before and after the run."""
        return "" if self._current is None else self._current.name

    def suspend(self, machine: Machine, seconds: float) -> None:
        """Stop all processes of a machine for ``seconds``, including the caller."""
        for actor in self._actors:
            if actor.machine is machine:
                actor.wakes_at = max(actor.wakes_at, self._now + seconds)
        self.step(f"suspended {seconds:.4f}")

    # -- running

    def run(self) -> None:
        """Run until every actor has finished. Raises the first error of an actor, named with the seed."""
        self._main = getcurrent()
        while (following := self._choose_next()) is not None:
            following.greenlet.switch()  # returns when an actor, which need not be this one, has finished
        for actor in self._actors:
            if actor.error is not None:
                raise AssertionError(f"seed {self.seed}: {actor.name} failed: {actor.error!r}") from actor.error

    def advance(self, seconds: float) -> None:
        """Let time pass once the run is over."""
        self._now += seconds

    def _choose_next(self) -> _Actor | None:
        """Return the actor that runs next, which is the current one from now on; None if all have finished.

        It is one of those that are awake; if all sleep, time jumps to the first that wakes.
        """
        now = self._now
        awake = [actor for actor in self._actors if actor.wakes_at <= now and not actor.finished]
        if not awake:
            waiting = [actor for actor in self._actors if not actor.finished and actor.wakes_at < math.inf]
            if not waiting:
                self._current = None
                return None
            self._now = min(actor.wakes_at for actor in waiting)
            awake = [actor for actor in waiting if actor.wakes_at <= self._now]
        self._current = awake[self._draw_below(len(awake))]
        return self._current

    def _draw_below(self, count: int) -> int:
        """Return a number from 0 to ``count - 1``: what ``random.randrange`` draws, in half the time."""
        bits = count.bit_length()
        draw = self.random.getrandbits
        number = draw(bits)
        while number >= count:
            number = draw(bits)
        return number
