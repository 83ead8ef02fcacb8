"""Deterministic simulation: several processes on one storage, with one seed that decides everything.

Each simulated process (an actor) is a thread, but only one runs at a time: at every storage call and every sleep it
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

import random  # noqa: TID251 - the seed decides everything here
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from sparklog.clock import Clock
from sparklog.ids import SeededIds
from sparklog.store.base import Store
from sparklog.testing.faulty_store import Call, FaultyStore

_thread = threading.local()
"""``side_by_side``: None if requests are made one by one, else whether one of the parallel requests was waited for."""


def _closed_gate() -> threading.Lock:
    """Return a lock that one thread waits for and another releases: a binary semaphore, cheaper than the real one."""
    gate = threading.Lock()
    gate.acquire()
    return gate


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


class SideBySide:
    """A thread pool for the code under test: calls run immediately, in the actor's own thread, and all of them together
    wait for a slow storage only once."""

    def __init__(self, workers: int) -> None:
        self._before: bool | None = None

    def __enter__(self) -> SideBySide:
        self._before = getattr(_thread, "side_by_side", None)
        if self._before is None:
            _thread.side_by_side = False
        return self

    def __exit__(self, *_: object) -> None:
        _thread.side_by_side = self._before

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        return map(function, items)


class _Actor:
    """One simulated process. Its thread waits for ``go`` while another actor runs."""

    def __init__(self, name: str, work: Callable[[], None], machine: Machine | None) -> None:
        self.name = name
        self.work = work
        self.machine = machine
        self.go = _closed_gate()
        self.wakes_at = 0.0
        self.finished = False
        self.error: BaseException | None = None


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
        self._all_finished = _closed_gate()

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

        return FaultyStore(store, seed=self.random.getrandbits(64), rates=rates, before=before)

    def _latency(self, seconds: float) -> float:
        waited = getattr(_thread, "side_by_side", None)
        if waited is not None:
            _thread.side_by_side = True
        return 0.0 if waited else seconds

    def ids(self) -> SeededIds:
        """Return a source of ids for one process, from the seed."""
        return SeededIds(self.random.getrandbits(64))

    def step(self, what: str) -> None:
        """Yield to another actor; return when the seed picks this one again."""
        assert self._current is not None, "only an actor of a running simulation may call this"
        self.trace.append(f"{self._current.name}: {what}")
        self._hand_over(self._current)

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

    def suspend(self, machine: Machine, seconds: float) -> None:
        """Stop all processes of a machine for ``seconds``, including the caller."""
        for actor in self._actors:
            if actor.machine is machine:
                actor.wakes_at = max(actor.wakes_at, self._now + seconds)
        self.step(f"suspended {seconds:.4f}")

    # -- running

    def run(self) -> None:
        """Run until every actor has finished. Raises the first error of an actor, named with the seed."""
        threads = [threading.Thread(target=self._run_actor, args=(actor,), daemon=True) for actor in self._actors]
        for thread in threads:
            thread.start()
        self._pass_on()
        self._all_finished.acquire()
        for actor in self._actors:
            if actor.error is not None:
                raise AssertionError(f"seed {self.seed}: {actor.name} failed: {actor.error!r}") from actor.error

    def advance(self, seconds: float) -> None:
        """Let time pass once the run is over."""
        self._now += seconds

    def _pick(self, waiting: list[_Actor]) -> _Actor:
        """Return one of the awake actors; if all sleep, time jumps to the first that wakes."""
        awake = [actor for actor in waiting if actor.wakes_at <= self._now]
        if not awake:
            self._now = min(actor.wakes_at for actor in waiting)
            awake = [actor for actor in waiting if actor.wakes_at <= self._now]
        return self.random.choice(awake)

    def _hand_over(self, actor: _Actor) -> None:
        """Let the next actor run, and wait for this one's turn, unless that is now."""
        if self._pass_on() is not actor:
            actor.go.acquire()

    def _pass_on(self) -> _Actor | None:
        """Return the actor that runs next. Runs in the thread of the actor that stops, which nothing wakes up."""
        before = self._current
        waiting = [actor for actor in self._actors if not actor.finished]
        if not waiting:
            self._all_finished.release()
            return None
        following = self._current = self._pick(waiting)
        if following is not before:
            following.go.release()  # from here on the others run, and ``_current`` is theirs
        return following

    def _run_actor(self, actor: _Actor) -> None:
        actor.go.acquire()
        try:
            actor.work()
        except BaseException as error:
            actor.error = error
        actor.finished = True
        self._pass_on()
