"""One process of a soak run. It runs until SIGTERM and records its operations.

    python worker.py ROLE NAME FOLDER SEED

``FOLDER/cluster`` is the root, ``FOLDER/first`` and ``FOLDER/second`` are the locations of brokers 1 and 2,
``FOLDER/mirror`` is a mirror of the root, and ``FOLDER/logs/NAME.jsonl`` the log of the process. Each storage fails, as
drawn from the seed. Roles: producer, transactional, member, copier, maintainer.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import IndeterminateCommitError, SparklogError, StorageError
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import (
    ERROR,
    KINDS,
    LOST_ANSWER,
    OUTAGE,
    UNAVAILABLE,
    Call,
    FaultyStore,
    SimulatedInterrupt,
)
from sparklog.testing.history import OperationLog
from sparklog.testing.substitutes import substituted

_EXCLUDED = ("crash", "truncated", "half", "*", "~")
"""Processes are really killed here; other tests cover torn writes and permanent failures."""

RATES = {
    **{kind: 0.0001 for kind in KINDS if not any(word in kind for word in _EXCLUDED)},
    ERROR: 0.001,
    UNAVAILABLE: 0.003,
    LOST_ANSWER: 0.003,
    OUTAGE: 0.0002,
}
"""The rate of each kind of fault per call. All outcomes of a storage client are included."""

LESS_OFTEN = {"cluster": 1, "first": 100, "second": 100, "mirror": 10}
"""Folders of the root, the two locations and the mirror, and by how much the rates are divided there. A failed write
takes a replica out of the ISR, and a process then writes nothing there for 30 s: at full rates no replica came back. A
pass over the mirror makes hundreds of calls, and ends at the first that fails."""
ROOT, FIRST, SECOND, MIRROR = LESS_OFTEN

LONGEST_ANSWER_SECONDS = 10.0
"""So long a call of the storage waits that gets no answer, until the client gives it up: longer than a session. A call
without any limit would stop its process for the rest of the run, and soon all of them."""

CLOCKS_OFF_DAYS = (0, 0, 3, -3, 0, 8)
"""Clock errors in days; the seed of a worker selects one."""

IN, OUT, AUDIT, SHORT, LATEST = "in", "out", "audit", "short", "latest"
TOPICS = {IN: 4, OUT: 2, AUDIT: 1, SHORT: 1, LATEST: 1}
"""Number of partitions. All topics are rolled; "short" loses its oldest records, and "latest" is
compacted. Closed segments of "in" and "latest" become history segments."""

COMMON = {
    "segment.bytes": str(2**20),
    "segment.ms": "2000",
    "file.delete.delay.ms": "1000",
    "history.delete.delay.ms": "1000",
}
CONFIGS = {
    IN: {"history.format": "delta"},
    SHORT: {"retention.bytes": "20000"},
    LATEST: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "history.format": "delta"},
}
CLUSTER_CONFIGS = {
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.retention.check.interval.ms": "5000",
    "metadata.max.retention.ms": "60000",
}
REPLICATED = (IN, OUT, LATEST)
"""Topics with a replica at each of the two locations. The others are at the root."""

KEYS = 50
"""Number of keys in "latest"."""

VACUUM_AGE_MS = 2_000
"""The vacuum's age limit: less than the age of many files that a stopped process still commits."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a process, blocked until it can handle them."""

CALM = "calm"
"""Name of the file in the run's folder that marks the end of disturbances."""

SESSION_TIMEOUT_MS = 6_000
READERS, COPIERS = "readers", "copiers"
SHOW = signal.SIGUSR1
"""Makes a worker print what each of its threads does to its standard error."""

LINE = "%(asctime)s %(threadName)s %(levelname)s %(name)s: %(message)s"
"""Format of what a worker logs."""

FORGET_CALLS = 20_000
"""Recorded storage calls are dropped above this number: a run of half an hour makes millions."""


class WrongClock(SystemClock):
    """A clock that is off by days."""

    def __init__(self, days: int) -> None:
        self._off_ms = days * 86_400_000

    def now_ms(self) -> int:
        return super().now_ms() + self._off_ms


class StampingStore(FaultyStore):
    """A folder whose files seem to be stamped by a server with its own clock. It gives up calls without an answer."""

    calm: Path
    """The file that marks the end of disturbances: from then on such a call is given up at once."""
    recovers = False

    @property
    def has_own_clock(self) -> bool:
        return True

    def _draw(self) -> str | None:
        """Draw a fault; interrupts only occur in the main thread. The locations recover when the disturbances end."""
        kind = super()._draw()
        if self.recovers and self.calm.exists():
            return None
        in_background = threading.current_thread() is not threading.main_thread()
        return None if kind is not None and "interrupt" in kind and in_background else kind

    def _wait_for_ever(self, call: Call) -> None:
        given_up = time.monotonic() + LONGEST_ANSWER_SECONDS
        while time.monotonic() < given_up and not self.calm.exists():
            time.sleep(0.1)


class Worker:
    """Shared parts of all roles: a cluster on failing storage, an operation log, random numbers, and whether to
    continue."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.clock = WrongClock(CLOCKS_OFF_DAYS[seed % len(CLOCKS_OFF_DAYS)])
        self.calm = folder / CALM
        self.stores = {place: self._open_failing(folder, place, seed) for place in LESS_OFTEN}
        self.store = self.stores[ROOT]
        self.log = OperationLog(name, folder / "logs" / f"{name}.jsonl")
        self.going = True
        self._values = 0
        self._life = f"{os.getpid():x}{time.monotonic_ns():x}"
        signal.signal(signal.SIGTERM, self._stop)

    def _open_failing(self, folder: Path, place: str, seed: int) -> StampingStore:
        divisor = LESS_OFTEN[place] if self.name != "maintainer-2" else max(10, LESS_OFTEN[place])
        rates = {kind: rate / divisor for kind, rate in RATES.items()}
        store = StampingStore(open_store(folder / place), seed=seed + list(LESS_OFTEN).index(place), rates=rates)
        store.calm, store.recovers = self.calm, place in (FIRST, SECOND)
        return store

    def _stop(self, *_: object) -> None:
        self.going = False

    def open(self) -> Coordinator:
        """Open the cluster, with retries."""
        while self.going:
            try:
                return open_cluster(self.store, clock=self.clock)
            except SparklogError:
                time.sleep(0.05)
        sys.exit(0)

    def value(self) -> bytes:
        """Return a value that no other worker sends."""
        self._values += 1
        return f"{self.name}.{self._life}.{self._values}".encode()

    def pause(self, longest_seconds: float) -> None:
        time.sleep(self.random.uniform(0, longest_seconds))
        self.forget_calls()

    def forget_calls(self) -> None:
        for store in self.stores.values():
            if len(store.calls) > FORGET_CALLS:
                store.reset_counts()


def record_signals() -> Callable[[], bytes]:
    """Return a function that returns the numbers of the signals handled since its last call, by any handler."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def read() -> bytes:
        try:
            return os.read(reading, 4096)
        except BlockingIOError:
            return b""

    return read


def main(role: str, name: str, folder: str, seed: str) -> None:
    from tests.soak import maintainer, roles

    logging.basicConfig(level=logging.ERROR if role == "maintainer" else logging.WARNING, format=LINE)
    work: dict[str, Callable[[Worker], None]] = {
        "producer": roles.produce,
        "transactional": roles.transact,
        "member": roles.consume,
        "copier": roles.copy,
        "maintainer": maintainer.maintain,
    }
    faulthandler.register(SHOW)
    signals = record_signals()
    worker = Worker(name, Path(folder), int(seed))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        with ExitStack() as substitutes:
            for store in worker.stores.values():
                substitutes.enter_context(substituted(store))
            work[role](worker)
    except KeyboardInterrupt:
        return
    except (StorageError, IndeterminateCommitError, SimulatedInterrupt):
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # keep them pending for the restarted process
        if signal.SIGTERM in signals():
            return  # the restarted process would not see this signal
        # a permanent error or an interrupt: restart
        os.execv(sys.executable, [sys.executable, sys.argv[0], role, name, folder, str(int(seed) + 1)])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(*sys.argv[1:])
