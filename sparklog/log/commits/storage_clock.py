"""The storage's time: the clock that all processes of a cluster share.

A machine's own clock may be off by days. The storage stamps every object it takes with its own time, so a process that
writes one and looks at it knows how far its clock is off::

    meta/clock    written over and over; its time of modification is the measurement, its content says nothing

Rules:

* A difference of up to ``limits.MAX_CLOCK_SKEW_MS`` is ordinary, and the machine's clock is used as it is: requests
  take time, and some storages stamp whole seconds. Beyond it the machine's clock is corrected by the difference.
* Measured at the first use, then every ten minutes, and when wall time and elapsed time disagree by more than a minute:
  the wall clock was set, or the machine slept. A measurement is one put and one look.
* Where the storage never tells its time, since this process may only read, the disk is full, or the storage stamps
  nothing, the machine's clock is used. Where it does not answer, no time is told: nothing could be committed with it.

What one process may expire of what is others' goes by ``ExpiryClock``: no clock that is ahead alone can delete
offsets, records or files before their time.

Not for: durations (``Clock.monotonic``), and times of records, which are their producers'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import StorageError, StorageFullError, StoragePermissionError, StorageUnavailableError
from sparklog.log.layout import CLOCK_KEY
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

MEASURED_EVERY_SECONDS = 600.0
"""seconds after which the storage is asked again."""

RETRY_SECONDS = 60.0
"""seconds after which a storage that did not answer is asked again, where it had told its time before."""

MAX_DIVERGENCE_MS = 60_000
"""ms by which wall time and elapsed time may disagree since a measurement."""


_ATTEMPTS = 3
"""times that a storage is asked before it does not answer."""


class _NoTimeError(StorageError):
    """A storage that does not stamp its objects."""


_NEVER_TOLD = (StoragePermissionError, StorageFullError, _NoTimeError)


class _Measurement(NamedTuple):
    """The storage's time, and this machine's two clocks at that moment."""

    storage_ms: int
    wall_ms: int
    monotonic: float

    @property
    def ahead_ms(self) -> int:
        """By how much this machine's wall clock is ahead of the storage's; negative when it is behind."""
        return self.wall_ms - self.storage_ms


class StorageClock:
    """The time by the storage's clock, for one store. Thread-safe: two threads may measure at once, which is harmless.
    Picklable."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._measured: _Measurement | None = None
        self._asked: tuple[int, float] | None = None  # wall and monotonic time of the last attempt
        self._failure: StorageError | None = None

    def now_ms(self) -> int:
        """This machine's wall clock, or the storage's where the two differ by more than ``limits.MAX_CLOCK_SKEW_MS``.

        Raises StorageError where the storage should tell and does not answer: what needs the time needs it too.
        """
        self._measure_if_due()
        now, measured = self._clock.now_ms(), self._measured
        if measured is None and self._failure is not None and not isinstance(self._failure, _NEVER_TOLD):
            raise self._failure
        if measured is None or abs(measured.ahead_ms) <= limits.MAX_CLOCK_SKEW_MS:
            return now
        return now - measured.ahead_ms

    def storage_now_ms(self) -> int | None:
        """The storage's time itself, to compare with times of modification; None where the storage did not say.

        A request's duration late, and never ahead of the storage's clock but for the drift of ten minutes.
        """
        if not self._store.has_own_clock:
            return self._clock.now_ms()
        self._measure_if_due()
        measured = self._measured
        if measured is None:
            return None
        return measured.storage_ms + int((self._clock.monotonic() - measured.monotonic) * 1000)

    def _measure_if_due(self) -> None:
        if not self._store.has_own_clock or not self._is_due():
            return
        before = self._measured
        self._asked = (self._clock.now_ms(), self._clock.monotonic())
        try:
            measured = self._measure()
        except StorageError as error:
            self._keep_going_without(error)
            return
        self._failure = None
        self._asked = (measured.wall_ms, measured.monotonic)
        self._measured = measured
        was_off = before is not None and abs(before.ahead_ms) > limits.MAX_CLOCK_SKEW_MS
        if abs(measured.ahead_ms) > limits.MAX_CLOCK_SKEW_MS and not was_off:
            logger.warning(
                "the clock of this machine is %d s %s the clock of the storage %s, whose time is used: set the clock",
                abs(measured.ahead_ms) // 1000,
                "ahead of" if measured.ahead_ms > 0 else "behind",
                self._store.root,
            )

    def _measure(self) -> _Measurement:
        """Raises StorageError. One that took long is made again: this process may have been stopped meanwhile."""
        for attempt in range(1, _ATTEMPTS + 1):
            began_ms, began = self._clock.now_ms(), self._clock.monotonic()
            try:
                self._store.put(CLOCK_KEY, b"-")
                storage_ms = self._store.info(CLOCK_KEY).modified_ms
            except StorageUnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                self._clock.sleep(0.05 * 2**attempt)
                continue
            if storage_ms <= 0:
                raise _NoTimeError(f"{self._store.root} does not say when {CLOCK_KEY} was written")
            # This machine's clocks are read after the answer: what is left out is the request's time, so the storage's
            # time is never overestimated.
            measured = _Measurement(storage_ms, self._clock.now_ms(), self._clock.monotonic())
            took_ms = max(measured.wall_ms - began_ms, (measured.monotonic - began) * 1000)
            if took_ms <= MAX_DIVERGENCE_MS or attempt == _ATTEMPTS:
                break
        return measured

    def _is_due(self) -> bool:
        if self._asked is None or self._measured is None:
            return True
        wall_ms, monotonic = self._asked
        elapsed = self._clock.monotonic() - monotonic
        if abs(self._clock.now_ms() - wall_ms - elapsed * 1000) > MAX_DIVERGENCE_MS:
            return True
        return elapsed >= (MEASURED_EVERY_SECONDS if self._failure is None else RETRY_SECONDS)

    def _keep_going_without(self, error: StorageError) -> None:
        """An earlier measurement holds for as long as this machine's clocks agree about the time since."""
        if self._failure is None:
            level = logging.INFO if isinstance(error, StoragePermissionError) else logging.WARNING
            logger.log(level, "the storage's time is not known: %s", error)
        self._failure = error
        measured = self._measured
        if measured is None:
            return
        wall_ms, elapsed = self._clock.now_ms(), self._clock.monotonic() - measured.monotonic
        if abs(wall_ms - measured.wall_ms - elapsed * 1000) > MAX_DIVERGENCE_MS:
            self._measured = None


class ExpiryClock:
    """The time by which what is others' may be expired: files, records, offsets, commits. Thread-safe.

    It is the earlier one of this machine's wall clock and the storage's, so both have to be ahead for anything to be
    expired too early. Where the storage does not tell its time, that of the newest commit stands for it: a cluster in
    which nobody commits expires nothing then. A clock that is behind expires late, which harms nobody.
    """

    def __init__(self, clock: Clock, storage: StorageClock, log_time_ms: Callable[[], int]) -> None:
        """``log_time_ms`` is the time of the newest commit that was read."""
        self._clock = clock
        self._storage = storage
        self._log_time_ms = log_time_ms

    def now_ms(self) -> int:
        storage_ms = self._storage.storage_now_ms()
        return min(self._clock.now_ms(), self._log_time_ms() if storage_ms is None else storage_ms)
