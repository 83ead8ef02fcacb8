"""Deterministic simulation: several processes on one storage, with one seed that decides everything.

Each simulated process (an actor) is a thread, but only one runs at a time: at every storage call and every sleep it
hands over, and the seed picks who goes on, which calls fail, whose answer is lost, and who is killed. Time is virtual, so
back-off costs nothing. The same seed gives the same run, call for call; ``trace`` is what happened.

    simulation = Simulation(seed=7)
    store = MemoryStore("simulated")
    for name in ("a", "b"):
        simulation.spawn(name, lambda name=name: work(simulation.store(store, faults=Faults(lost_answer=0.1))))
    simulation.run()

Not for: threads within one process (an actor's own locks must not be shared with another actor).
"""

from __future__ import annotations

import random  # noqa: TID251 - the seed decides everything here
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from sparklog.errors import StorageUnavailableError
from sparklog.ids import SeededIds
from sparklog.store.base import BytesLike, InputFile, ObjectInfo, OutputFile, Store


class SimulatedCrash(BaseException):
    """The process is killed here. Derives from BaseException so that no handler of the code under test survives it."""


class Faults(NamedTuple):
    """Probabilities per storage call, 0 to 1: refused without effect, done but unanswered, process killed."""

    refused: float = 0.0
    lost_answer: float = 0.0
    crash: float = 0.0


class _Actor:
    """One simulated process. Its thread waits for ``go`` whenever it is not its turn."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.go = threading.Semaphore(0)
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
        self._handed_back = threading.Semaphore(0)

    # -- what actors use

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Add a process that starts when the seed says so."""
        self._actors.append(_Actor(name, work))

    def store(self, store: Store, faults: Faults | None = None) -> SimulatedStore:
        """The store as a simulated process sees it."""
        return SimulatedStore(self, store, faults or Faults())

    def ids(self) -> SeededIds:
        """A source of ids for one process, from the seed."""
        return SeededIds(self.random.getrandbits(64))

    def step(self, what: str) -> None:
        """Hand over; returns when the seed picks this actor again."""
        assert self._current is not None, "only an actor of a running simulation may call this"
        self.trace.append(f"{self._current.name}: {what}")
        self._hand_over(self._current)

    # the clock, see sparklog.clock.Clock

    def now_ms(self) -> int:
        return self._start_ms + int(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        assert self._current is not None
        self._current.wakes_at = self._now + seconds
        self.step(f"sleep {seconds:.4f}")

    # -- running

    def run(self) -> None:
        """Run until every actor has finished. Raises the first error of an actor, named with the seed."""
        threads = [threading.Thread(target=self._run_actor, args=(actor,), daemon=True) for actor in self._actors]
        for thread in threads:
            thread.start()
        while waiting := [actor for actor in self._actors if not actor.finished]:
            self._resume(self._pick(waiting))
        for actor in self._actors:
            if actor.error is not None:
                raise AssertionError(f"seed {self.seed}: {actor.name} failed: {actor.error!r}") from actor.error

    def _pick(self, waiting: list[_Actor]) -> _Actor:
        """One of those awake; when all sleep, time jumps to the first who wakes."""
        self._now = max(self._now, min(actor.wakes_at for actor in waiting))
        return self.random.choice([actor for actor in waiting if actor.wakes_at <= self._now])

    def _resume(self, actor: _Actor) -> None:
        self._current = actor
        actor.go.release()
        self._handed_back.acquire()

    def _hand_over(self, actor: _Actor) -> None:
        self._handed_back.release()
        actor.go.acquire()

    def _run_actor(self, actor: _Actor) -> None:
        actor.go.acquire()
        try:
            actor.work()
        except BaseException as error:
            actor.error = error
        actor.finished = True
        self._handed_back.release()


class SimulatedStore:
    """A store whose every call is a step of the simulation and may fail as the seed decides."""

    def __init__(self, simulation: Simulation, store: Store, faults: Faults) -> None:
        self._simulation = simulation
        self._store = store
        self._faults = faults

    @property
    def root(self) -> str:
        return self._store.root

    def _before(self, operation: str, key: str) -> bool:
        """Hand over, then decide what befalls the call. True: do it, but lose the answer."""
        self._simulation.step(f"{operation} {key}")
        chance = self._simulation.random.random()
        if chance < self._faults.crash:
            self._simulation.trace.append(f"killed before {operation} {key}")
            raise SimulatedCrash(f"before {operation} {key}")
        if chance < self._faults.crash + self._faults.refused:
            raise StorageUnavailableError(f"simulated: {operation} {key} was not carried out", path=key)
        return chance < self._faults.crash + self._faults.refused + self._faults.lost_answer

    def _lose(self, operation: str, key: str) -> StorageUnavailableError:
        self._simulation.trace.append(f"answer lost: {operation} {key}")
        return StorageUnavailableError(f"simulated: the answer to {operation} {key} was lost", path=key)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        if self._before("get", key):
            raise self._lose("get", key)
        return self._store.get(key, max_bytes)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        if self._before("get_range", key):
            raise self._lose("get_range", key)
        return self._store.get_range(key, position, length)

    def put(self, key: str, data: BytesLike) -> None:
        lost = self._before("put", key)
        self._store.put(key, data)
        if lost:
            raise self._lose("put", key)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        lost = self._before("put_if_absent", key)
        self._store.put_if_absent(key, data)
        if lost:
            raise self._lose("put_if_absent", key)

    def delete(self, key: str) -> None:
        lost = self._before("delete", key)
        self._store.delete(key)
        if lost:
            raise self._lose("delete", key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._simulation.step(f"list {prefix}")
        return self._store.list(prefix)

    def info(self, key: str) -> ObjectInfo:
        self._simulation.step(f"info {key}")
        return self._store.info(key)

    def open_input(self, key: str) -> InputFile:
        self._simulation.step(f"open_input {key}")
        return self._store.open_input(key)

    def open_output(self, key: str) -> OutputFile:
        self._simulation.step(f"open_output {key}")
        return self._store.open_output(key)

    def commit_lock(self) -> AbstractContextManager[None]:
        return self._store.commit_lock()

    def remove_unfinished(self, before_ms: int) -> int:
        return self._store.remove_unfinished(before_ms)
