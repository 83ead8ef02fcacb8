"""The storage's time: the clock that all processes of a cluster share.

A machine's own clock may be off by days. The storage stamps every stored object with its own time, so a process that
writes one and reads the stamp knows how far its clock is off::

    meta/clock    overwritten; its modification time is the measurement, it has no content

Rules:

* A difference of up to ``limits.MAX_CLOCK_SKEW_MS`` is normal, and the machine's clock is used unchanged: requests take
  time, and some storages stamp whole seconds. Beyond it the machine's clock is corrected by the difference.
* Measured at the first use, then every ten minutes, and when wall clock and monotonic clock disagree by more than a
  minute: the wall clock was set, or the machine slept. A measurement is one put and one read of the stamp.
* If the storage cannot tell its time, because this process may only read, or the storage stamps nothing, the machine's
  clock is used, but only if every attempt of a measurement was refused, since a single answer such as that of an
  expired token must not bring a wrong clock into the log. If the storage does not answer, or is full, there is no
  time: nothing could be committed anyway. The same holds if it refuses a process that has measured its time before.

Expiry of other processes' data uses ``ExpiryClock``: a single clock that is ahead cannot delete offsets, records or
files too early.

Not for: durations (``Clock.monotonic``), and timestamps of records, which their producers set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import StorageError, StoragePermissionError, StorageUnavailableError
from sparklog.log.layout import CLOCK_KEY
from sparklog.retry import pause_after
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

MEASURED_EVERY_SECONDS = 600.0
"""seconds after which the time is measured again."""

RETRY_SECONDS = 60.0
"""seconds after which a failed measurement is retried, if an earlier one succeeded."""

MAX_DIVERGENCE_MS = 60_000
"""ms by which wall clock and monotonic clock may disagree since a measurement."""


_ATTEMPTS = 3
"""tries of a measurement."""


class _NoTimeError(StorageError):
    """The storage does not stamp its objects."""


_NEVER_TOLD = (StoragePermissionError, _NoTimeError)

_REPEATED_REFUSALS = 3
"""refused measurements in a row of which each attempt is repeated; later ones only if the storage is unavailable."""


class _Measurement(NamedTuple):
    """The storage's time, and this machine's two clocks at that moment."""

    storage_ms: int
    wall_ms: int
    monotonic: float

    @property
    def ahead_ms(self) -> int:
        """ms by which this machine's wall clock is ahead of the storage's; negative if it is behind."""
        return self.wall_ms - self.storage_ms


class _Known(NamedTuple):
    """What a process knows of the storage's time. One object, so that a thread never sees half of a change.

    ``failure`` is that of the last measurement, None if it succeeded or there was none. ``measured`` is the last one
    that succeeded and still holds. ``has_measured``: the storage has told this process its time at least once.
    """

    measured: _Measurement | None = None
    failure: StorageError | None = None
    refusals: int = 0
    has_measured: bool = False


class StorageClock:
    """The time by the storage's clock, for one store. Thread-safe: concurrent measurements are harmless. Picklable."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known = _Known()
        self._last_attempt = 0.0  # monotonic time
        self._lock = threading.Lock()
        """Held while ``_known`` is changed, and not during requests."""

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return this machine's time, or the storage's if they differ by more than ``limits.MAX_CLOCK_SKEW_MS``.

        Raises StorageError if the storage does not answer: callers need both the time and the storage.
        """
        if not self._store.has_own_clock:
            return self._clock.now_ms()
        known = self._measure_if_due()
        now = self._clock.now_ms()
        if known.measured is None:
            may_use_own_clock = isinstance(known.failure, _NEVER_TOLD) and not known.has_measured
            if known.failure is not None and not may_use_own_clock:
                raise known.failure
            return now
        is_off = abs(known.measured.ahead_ms) > limits.MAX_CLOCK_SKEW_MS
        return now - known.measured.ahead_ms if is_off else now

    def storage_now_ms(self) -> int | None:
        """Return the storage's time, to compare with modification times; None if it is unknown.

        Late by a request's duration, and never ahead of the storage's clock except for the drift of ten minutes.
        """
        if not self._store.has_own_clock:
            return self._clock.now_ms()
        measured = self._measure_if_due().measured
        if measured is None:
            return None
        return measured.storage_ms + int((self._clock.monotonic() - measured.monotonic) * 1000)

    def _measure_if_due(self) -> _Known:
        """Return what is known, after a measurement if one is due."""
        known = self._known
        if not self._is_due(known):
            return known
        repeated = StorageError if known.refusals < _REPEATED_REFUSALS else StorageUnavailableError
        self._last_attempt = self._clock.monotonic()
        try:
            measured = self._measure(repeated)
        except StorageError as error:
            return self._keep_going_without(error)
        self._last_attempt = measured.monotonic
        self._warn(known.measured, measured)
        with self._lock:
            self._known = _Known(measured, has_measured=True)
            return self._known

    def _warn(self, before: _Measurement | None, measured: _Measurement) -> None:
        """Log that this machine's clock is far off, once."""
        was_off = before is not None and abs(before.ahead_ms) > limits.MAX_CLOCK_SKEW_MS
        if abs(measured.ahead_ms) > limits.MAX_CLOCK_SKEW_MS and not was_off:
            logger.warning(
                "the clock of this machine is %d s %s the clock of the storage %s, whose time is used: set the clock",
                abs(measured.ahead_ms) // 1000,
                "ahead of" if measured.ahead_ms > 0 else "behind",
                self._store.root,
            )

    def _measure(self, repeated: type[StorageError]) -> _Measurement:
        """Measure the storage's time; again after errors that are ``repeated``, and if that took long: this process may
        have stalled. Raises StorageError, one of ``_NEVER_TOLD`` only if no attempt failed otherwise."""
        failure: StorageError = _NoTimeError("no attempt was made")
        for attempt in range(1, _ATTEMPTS + 1):
            began_ms, began = self._clock.now_ms(), self._clock.monotonic()
            try:
                self._store.put(CLOCK_KEY, b"-")
                storage_ms = self._store.info(CLOCK_KEY).modified_ms
            except StorageError as error:
                failure = error if isinstance(failure, _NEVER_TOLD) else failure
                if not isinstance(error, repeated):
                    break
                if attempt < _ATTEMPTS:
                    self._clock.sleep(pause_after(attempt))
                continue
            if storage_ms <= 0:
                untold = _NoTimeError(f"{self._store.root} has no modification time of {CLOCK_KEY}")
                raise untold if isinstance(failure, _NEVER_TOLD) else failure
            # This machine's clocks are read after the response: that ignores the request's duration, so the storage's
            # time is never overestimated.
            measured = _Measurement(storage_ms, self._clock.now_ms(), self._clock.monotonic())
            took_ms = max(measured.wall_ms - began_ms, (measured.monotonic - began) * 1000)
            if took_ms <= MAX_DIVERGENCE_MS or attempt == _ATTEMPTS:
                return measured
            failure = StorageUnavailableError(f"{self._store.root} took {took_ms / 1000:.0f} s to tell its time")
        raise failure

    def _is_due(self, known: _Known) -> bool:
        if known.measured is None or not self._holds(known.measured):
            return True
        elapsed = self._clock.monotonic() - self._last_attempt
        return elapsed >= (MEASURED_EVERY_SECONDS if known.failure is None else RETRY_SECONDS)

    def _holds(self, measured: _Measurement) -> bool:
        """Return whether this machine's clocks agree on the time since a measurement."""
        elapsed_ms = (self._clock.monotonic() - measured.monotonic) * 1000
        return abs(self._clock.now_ms() - measured.wall_ms - elapsed_ms) <= MAX_DIVERGENCE_MS

    def _keep_going_without(self, error: StorageError) -> _Known:
        """Record a failure; an earlier measurement stays valid as long as it holds."""
        with self._lock:
            before = self._known
            measured = before.measured
            if measured is not None and not self._holds(measured):
                measured = None
            refusals = before.refusals + 1 if isinstance(error, _NEVER_TOLD) else 0
            self._known = known = _Known(measured, error, refusals, before.has_measured)
        if before.failure is None:
            level = logging.INFO if isinstance(error, StoragePermissionError) else logging.WARNING
            logger.log(level, "could not measure the storage's time: %s", error)
        return known


class ExpiryClock:
    """The time by which data of other processes may be expired: files, records, offsets, commits. Thread-safe.

    It is the earlier of this machine's wall clock and the storage's, so both have to be ahead for data to expire too
    early. If the storage's time is unknown, that of the newest commit replaces it: a cluster without commits expires
    nothing then. A clock that is behind expires data late, which is harmless.
    """

    def __init__(self, clock: Clock, storage: StorageClock, log_time_ms: Callable[[], int]) -> None:
        """``log_time_ms`` returns the time of the newest commit read."""
        self._clock = clock
        self._storage = storage
        self._log_time_ms = log_time_ms

    def now_ms(self) -> int:
        storage_ms = self._storage.storage_now_ms()
        return min(self._clock.now_ms(), self._log_time_ms() if storage_ms is None else storage_ms)
