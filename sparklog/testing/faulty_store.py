"""A store that injects storage faults: by plan, by seed, or at each step in turn. It also counts calls and bytes, so
without faults it serves to measure requests.

Every call that would reach the storage is a step, numbered from 0 in ``calls``; so are the reads and writes of open
files. A ``Fault`` says what happens at a step: the effect of the call, and the answer to its caller. The kinds are
generated from these two (``faults``); some have short names:

    error        StorageError before the effect: it did not happen
    unavailable  StorageUnavailableError before the effect, as a 503: the caller cannot know that it did not happen
    lost_answer  the effect, then StorageUnavailableError
    outage       the same, and the next OUTAGE_STEPS calls are unavailable: the outcome stays unknown
    full         StorageFullError, nothing written (a streaming write fails there and then)
    permission   StoragePermissionError, nothing done
    truncated    the write keeps only the first half of its bytes, and reports success: a torn write
    crash_before SimulatedCrash before the effect, and at every later call until ``reopen``
    crash_after  SimulatedCrash after the effect, and at every later call
    repeated     the effect and success, and the effect once more some calls later, as of a request that was sent twice
    never_answers, done+never_answers
                 the call does not return before ``end_waits``, then StorageUnavailableError

``interrupt`` raises SimulatedInterrupt in the calling thread, which continues; ``crash`` ends the process. The other
kinds are named after both, such as ``done+permission`` and ``late12+unavailable``. Late effects happen when their steps
have passed, or with ``settle``, also after a crash of the process that made the call.

To test every crash of an operation (or with ``every_outcome`` every outcome), count its steps and repeat it::

    store = FaultyStore(MemoryStore("a"))
    operation(store)
    for fault in every_crash(store.calls):
        store = FaultyStore(MemoryStore(...), [fault])
        with suppress(SimulatedCrash): operation(store)
        store.reopen()
        ...  # what must hold after a restart

``listing_lag`` hides from listings objects written in that many last steps, and ``stale_reads`` answers a read of an
overwritten object with the version before, for that many steps: storages that are not strongly consistent.

Not for: the wrapped store's own crash safety; kill a process for that.
"""

from __future__ import annotations

import random  # noqa: TID251 - a seeded generator: the same seed injects the same faults
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from sparklog.errors import ObjectNotFoundError, StorageError, StorageUnavailableError
from sparklog.store.base import BytesLike, Deleted, InputFile, ObjectInfo, OutputFile, Store
from sparklog.store.wrapped import WrappedStore
from sparklog.testing.faults import (
    DONE,
    HALF,
    KINDS,
    LATE,
    NEVER,
    OK,
    OUTAGE_STEPS,
    TWICE,
    WRITES,
    Call,
    Fault,
    Outcome,
    applies,
    every_crash,
    every_outcome,
    name_of,
)

__all__ = [
    "CRASH_AFTER",
    "CRASH_BEFORE",
    "ERROR",
    "FULL",
    "KINDS",
    "LOST_ANSWER",
    "NEVER_ANSWERS",
    "OUTAGE",
    "OUTAGE_STEPS",
    "PERMISSION",
    "REPEATED",
    "TRUNCATED",
    "UNAVAILABLE",
    "WRITES",
    "Call",
    "CountingStore",
    "Fault",
    "FaultyInputFile",
    "FaultyOutputFile",
    "FaultyStore",
    "SimulatedCrash",
    "SimulatedInterrupt",
    "every_crash",
    "every_outcome",
]

ERROR = "error"
UNAVAILABLE = "unavailable"
LOST_ANSWER = "lost_answer"
OUTAGE = "outage"
FULL = "full"
PERMISSION = "permission"
TRUNCATED = "truncated"
CRASH_BEFORE = "crash_before"
CRASH_AFTER = "crash_after"
REPEATED = "repeated"
NEVER_ANSWERS = "never_answers"

T = TypeVar("T")
Data = TypeVar("Data", bound=Sized)


class SimulatedCrash(BaseException):
    """The process dies here. Not an ``Exception``, so that no ``except Exception`` catches it."""


class SimulatedInterrupt(BaseException):
    """The calling thread is interrupted here, as by KeyboardInterrupt, and its program continues; only this call fails.
    Not a KeyboardInterrupt, so that a test that does not expect it fails instead of ending the test run."""


class LateEffect(NamedTuple):
    """An effect that happens at a step at the latest, since it was requested before."""

    step: int
    effect: Callable[[], object]


class FaultyStore(WrappedStore):
    """Wraps any store. Thread-safe. A pickled copy has the same faults and starts counting at 0."""

    def __init__(
        self,
        store: Store,
        faults: Iterable[Fault] = (),
        *,
        seed: int | None = None,
        rates: Mapping[str, float] | None = None,
        before: Callable[[int, Call], None] | None = None,
        listing_lag: int = 0,
        stale_reads: int = 0,
    ) -> None:
        """Wrap ``store``. ``faults`` are the plan. With ``seed``, each step also draws a fault, of each kind in
        ``rates`` with that probability. ``before(step, call)`` runs first at every step, outside any lock: to delay, to
        let another writer run in between, or to raise. ``listing_lag`` and ``stale_reads`` are counted in steps."""
        super().__init__(store)
        self._plan = {fault.step: _known(fault.kind) for fault in faults}
        self._set_rates(rates or {})
        self._seed = seed
        self._random = random.Random(seed)
        self.before = before
        self._listing_lag = listing_lag
        self._stale_reads = stale_reads
        self._lock = threading.Lock()
        self._written_at: dict[str, int] = {}
        self._previous: dict[str, bytes] = {}
        self._outage_until = 0
        self._outage = UNAVAILABLE
        self._late: list[LateEffect] = []
        self._unfinished: set[OutputFile] = set()
        self._waits_end = threading.Event()
        self.calls: list[Call] = []
        self.injected: list[Fault] = []
        self.bytes_read = 0
        self.bytes_written = 0
        self.crashed = False

    def __reduce__(self) -> tuple[Any, ...]:
        copy = partial(FaultyStore, seed=self._seed, listing_lag=self._listing_lag, stale_reads=self._stale_reads)
        faults = [Fault(step, kind) for step, kind in self._plan.items()]
        return partial(copy, rates=self._rates), (self._store, faults)

    def __repr__(self) -> str:
        return f"FaultyStore({self._store!r}, faults={self._plan}, seed={self._seed})"

    @property
    def wrapped(self) -> Store:
        """The store that the faults are injected into."""
        return self._store

    @property
    def counts(self) -> Counter[str]:
        """The number of calls of each operation."""
        return Counter(call.operation for call in self.calls)

    def inject(self, *faults: Fault, rates: Mapping[str, float] | None = None) -> None:
        """Add faults to the plan, at steps as ``calls`` counts them. From now on each step of a store with a ``seed``
        also draws a fault of each kind in ``rates`` with that probability."""
        self._plan.update({fault.step: _known(fault.kind) for fault in faults})
        self._set_rates({**self._rates, **(rates or {})})

    def _set_rates(self, rates: Mapping[str, float]) -> None:
        self._rates = dict(sorted((_known(kind), rate) for kind, rate in rates.items()))
        self._total_rate = sum(self._rates.values()) + 1e-9  # rounded up: at most a few draws are looked at in vain

    def heal(self) -> None:
        """Drop the remaining faults and rates. An outage that has begun and late effects take their course."""
        self._plan.clear()
        self._set_rates({})

    def reopen(self) -> None:
        """Simulate a restart of the process: calls work, and the remaining faults are dropped. Writes that were open at
        the crash are aborted."""
        self.crashed = False
        self._outage_until = 0
        self.heal()
        for file in self._unfinished:
            file.abort()
        self._unfinished.clear()

    def settle(self) -> int:
        """Apply all late effects still in flight, in the order of their requests; return their number."""
        return self._land(self._take_late())

    def end_waits(self) -> None:
        """Let all calls that were never answered fail, now and from now on."""
        self._waits_end.set()

    def reset_counts(self) -> None:
        """Reset the counts and forget the calls so far; steps are numbered from 0 again."""
        with self._lock:
            self.calls, self.injected = [], []
            self.bytes_read = self.bytes_written = self._outage_until = 0
            self._written_at.clear()

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        def read() -> bytes:
            stale = self._stale(key)
            return self._count_read(stale if stale is not None else self._store.get(key, max_bytes))

        return self._step(Call("get", key), read)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        def read() -> bytes:
            stale = self._stale(key)
            if stale is None:
                return self._count_read(self._store.get_range(key, position, length))
            return self._count_read(stale[position : position + length])

        return self._step(Call("get_range", key), read)

    def put(self, key: str, data: BytesLike) -> None:
        self._write(Call("put", key), data, self._store.put)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        self._write(Call("put_if_absent", key), data, self._store.put_if_absent)

    def sync(self, folder: str) -> None:
        if self._store.is_local:  # elsewhere no request is sent
            self._step(Call("sync", folder), lambda: self._store.sync(folder))

    def delete(self, key: str) -> None:
        self._step(Call("delete", key), lambda: self._store.delete(key))

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        # Only a local disk does it, which sends no request again later.
        effect = partial(self._store.delete_exactly, key, data)
        return self._step(Call("delete", key), effect, late=lambda: lambda: None)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        found = self._step(Call("list", prefix), lambda: tuple(self._store.list(prefix)))
        oldest = len(self.calls) - self._listing_lag
        return (info for info in found if not self._listing_lag or self._written_at.get(info.key, -1) < oldest)

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        found = self._step(Call("list", folder), lambda: self._store.keys_after(folder, key))
        oldest = len(self.calls) - self._listing_lag
        if found is None or not self._listing_lag:
            return found
        return [each for each in found if self._written_at.get(each, -1) < oldest]

    def info(self, key: str) -> ObjectInfo:
        return self._step(Call("info", key), lambda: self._store.info(key))

    def open_input(self, key: str) -> FaultyInputFile:
        file = self._step(Call("open_input", key), lambda: self._store.open_input(key))
        return FaultyInputFile(self, file)

    def open_output(self, key: str) -> FaultyOutputFile:
        file = self._step(Call("open_output", key), lambda: self._store.open_output(key))
        self._unfinished.add(file)
        return FaultyOutputFile(self, file)

    def commit_lock(self, while_waiting: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        self._check_alive(Call("commit_lock", ""))
        return self._store.commit_lock(while_waiting)

    def remove_unfinished(self, before_ms: int) -> int:
        return self._step(Call("remove_unfinished", ""), lambda: self._store.remove_unfinished(before_ms))

    def _write(self, call: Call, data: BytesLike, write: Callable[[str, BytesLike], None]) -> None:
        view = memoryview(data).cast("B")

        def effect(body: BytesLike = data) -> None:
            self._remember(call.key)
            write(call.key, body)
            self._count_written(call.key, view.nbytes)

        def late() -> Callable[[], None]:
            body = bytes(view)  # the caller may use its buffer for something else by then
            return lambda: effect(body)

        self._step(call, effect, lambda: effect(view[: view.nbytes // 2 or 1]), late)

    def _step(
        self,
        call: Call,
        effect: Callable[[], T],
        half: Callable[[], T] | None = None,
        late: Callable[[], Callable[[], object]] | None = None,
    ) -> T:
        """Run one step: the effect, with the fault that is due. ``late`` prepares the effect for later."""
        self._check_alive(call)
        kind = self._due(call)
        if kind is None:
            return effect()
        outcome = KINDS[kind]
        if outcome.effect in (LATE, TWICE) and call.operation in WRITES:
            self._keep_late(LateEffect(len(self.calls) + outcome.delay, (late or (lambda: effect))()))
        if outcome.answer == OK:
            return (effect if outcome.effect == TWICE else half or effect)()
        if outcome.effect == HALF:
            (half or effect)()
        elif outcome.effect == DONE and (outcome.crashes or outcome.interrupts):
            effect()
        elif outcome.effect in (DONE, TWICE):
            with suppress(StorageError):  # its answer is lost, or is what the caller gets anyway
                effect()
        if outcome.answer == NEVER:
            self._wait_for_ever(call)
        raise self._failure(outcome, call)

    def _keep_late(self, effect: LateEffect) -> None:
        with self._lock:
            self._late.append(effect)

    def land(self, effect: LateEffect) -> None:
        """Apply a late effect now, if it has not happened."""
        with self._lock:
            if effect not in self._late:
                return
            self._late.remove(effect)
        self._land([effect])

    def _wait_for_ever(self, call: Call) -> None:
        """Wait for an answer that does not come. A simulation stops the actor instead."""
        self._waits_end.wait()

    def _due(self, call: Call) -> str | None:
        with self._lock:
            step = len(self.calls)
            self.calls.append(call)
            kind = self._plan.get(step) or (self._outage if step < self._outage_until else self._draw())
            if kind is not None and not applies(KINDS[kind], call.operation):
                kind = None
            if kind is not None:
                self.injected.append(Fault(step, kind))
                if KINDS[kind].lasting:
                    self._outage, self._outage_until = KINDS[kind].answer, step + 1 + KINDS[kind].lasting
        if self._late:
            self._land(self._take_late(step))
        if self.before is not None:
            self.before(step, call)
        return kind

    def _take_late(self, step: int | None = None) -> tuple[LateEffect, ...]:
        if not self._late:
            return ()
        with self._lock:
            due = tuple(late for late in self._late if step is None or late.step <= step)
            self._late = [late for late in self._late if late not in due]
        return due

    @staticmethod
    def _land(due: Collection[LateEffect]) -> int:
        for late in due:
            with suppress(StorageError):  # no caller is left to get it, such as that the key is taken by now
                late.effect()
        return len(due)

    def _draw(self) -> str | None:
        if self._seed is None:
            return None
        drawn = self._random.random()  # one number a step, so that a step's fault does not depend on the rates' order
        if drawn > self._total_rate:
            return None
        for kind, rate in self._rates.items():
            if drawn < rate:
                return kind
            drawn -= rate
        return None

    def _failure(self, outcome: Outcome, call: Call) -> BaseException:
        where = f"{self.root}/{call.key}"
        if outcome.crashes:
            self.crashed = True
            return SimulatedCrash(f"{name_of(outcome)} of {call.operation} of {where}")
        if outcome.interrupts:
            return SimulatedInterrupt(f"{name_of(outcome)} of {call.operation} of {where}")
        if outcome.answer == NEVER:
            return StorageUnavailableError(f"{call.operation} of {where} was never answered", path=where)
        return outcome.failure(f"injected {name_of(outcome)}: {call.operation} of {where}", where)

    def _check_alive(self, call: Call) -> None:
        if self.crashed:
            raise SimulatedCrash(f"{call.operation} of {self.root}/{call.key} after the crash; call reopen() first")

    def _remember(self, key: str) -> None:
        if self._stale_reads:
            with suppress(ObjectNotFoundError):
                self._previous[key] = self._store.get(key)

    def _stale(self, key: str) -> bytes | None:
        """Return the bytes of an object before its latest overwrite, while stale reads are due, else None."""
        if len(self.calls) - self._written_at.get(key, -1 - self._stale_reads) > self._stale_reads:
            return None
        return self._previous.get(key)

    def _count_read(self, data: Data) -> Data:
        with self._lock:
            self.bytes_read += len(data)
        return data

    def _count_written(self, key: str, size: int) -> None:
        with self._lock:
            self.bytes_written += size
            self._written_at[key] = len(self.calls)


class CountingStore(FaultyStore):
    """A store without faults that counts ``calls``, ``counts``, ``bytes_read`` and ``bytes_written``."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountingStore, (self._store,))


class FaultyInputFile:
    """An open file whose every read is a step. Thread-safe."""

    def __init__(self, store: FaultyStore, file: InputFile) -> None:
        self.key = file.key
        self._store = store
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def read_at(self, position: int, length: int) -> pa.Buffer:
        call = Call("read_at", self.key)
        return self._store._count_read(self._store._step(call, lambda: self._file.read_at(position, length)))

    def close(self) -> None:
        self._file.close()


class FaultyOutputFile(OutputFile):
    """A streaming write whose every write, close and abort is a step. Not thread-safe."""

    def __init__(self, store: FaultyStore, file: OutputFile) -> None:
        self.key = file.key
        self._store = store
        self._file = file
        self._lost_bytes = 0
        self._is_under_way = False

    def write(self, data: BytesLike) -> int:
        view = memoryview(data)

        def half() -> int:
            self._lost_bytes += view.nbytes - view.nbytes // 2
            self._file.write(view.cast("B")[: view.nbytes // 2])
            return view.nbytes

        written = self._aborting("write", lambda: self._file.write(data), half)
        with self._store._lock:
            self._store.bytes_written += written
        return written

    def tell(self) -> int:
        return self._file.tell() + self._lost_bytes

    def close(self) -> None:
        def publish() -> None:
            self._store._remember(self.key)
            self._file.close()
            self._store._unfinished.discard(self._file)
            self._store._count_written(self.key, 0)

        def late() -> Callable[[], None]:
            self._is_under_way = True
            self._store._unfinished.discard(self._file)  # its process may die in the meantime
            return publish

        self._aborting("close", publish, late=late)

    def abort(self) -> None:
        self._store._step(Call("abort", self.key), self._abandon)

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        elif not self._store.crashed:
            self.abort()

    def _aborting(
        self,
        operation: str,
        effect: Callable[[], T],
        half: Callable[[], T] | None = None,
        late: Callable[[], Callable[[], object]] | None = None,
    ) -> T:
        """Run a step whose failure makes the stream unusable, as with real ones."""
        try:
            return self._store._step(Call(operation, self.key), effect, half, late)
        except StorageError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Abort the stream, unless its close is in flight already, which cannot be undone."""
        if self._is_under_way:
            return
        self._file.abort()
        self._store._unfinished.discard(self._file)


def _known(kind: str) -> str:
    assert kind in KINDS, f"invalid kind of fault {kind!r}: one of {', '.join(KINDS)}"
    return kind
