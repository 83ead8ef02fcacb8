"""Retries with back-off: of reads, of calls until a deadline, and of commits that lose to other writers.

Reads are idempotent, so they can be retried whatever the outcome; a write is retried only by a caller that knows
that repeating it does no harm.

Not for: long outages of a storage. Those raise, and the caller decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import (
    CommitConflictError,
    IndeterminateCommitError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
)
from sparklog.ids import Ids

Result = TypeVar("Result")

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05
"""Doubled after each failure: 0.75 s in all."""

FIRST_BACKOFF_SECONDS = 0.002
LAST_BACKOFF_SECONDS = 0.5
"""seconds of the longest pause after the first commit attempt that is lost, which doubles, and of any later one."""


def pause_after(failures: int, first_seconds: float = FIRST_PAUSE_SECONDS) -> float:
    """Return the seconds to wait before a read is repeated that failed, or proved nothing, this often before."""
    return first_seconds * 2.0**failures


READ_PAUSES = tuple(map(pause_after, range(ATTEMPTS - 1)))
"""seconds between the attempts of a read"""


def is_transient(error: Exception) -> bool:
    """Return whether an operation of a client may succeed later, unchanged: the storage failed, or other writers won.

    A missing permission is not transient. Whether the operation may be repeated at all is for its caller to know.
    """
    if isinstance(error, IndeterminateCommitError):
        return not isinstance(error.__cause__, StoragePermissionError)
    return isinstance(error, CommitConflictError | StorageError) and not isinstance(error, StoragePermissionError)


def is_a(kind: type[Exception]) -> Callable[[Exception], bool]:
    """Return the condition for ``retry`` that an error is of this class."""
    return lambda error: isinstance(error, kind)


def retry(
    call: Callable[[], Result],
    clock: Clock,
    pauses: Iterable[float],
    on: Callable[[Exception], bool],
    note: Callable[[Exception], object] | None = None,
) -> Result:
    """Return the result of ``call``. After an error for which ``on`` is true it is called again, after the next of the
    ``pauses`` in seconds; if there is none, and for other errors, it is raised. ``note`` gets each that is retried."""
    remaining = iter(pauses)
    while True:
        try:
            return call()
        except Exception as error:
            pause = next(remaining, None) if on(error) else None
            if pause is None:
                raise
            if note is not None:
                note(error)
        if pause > 0:
            clock.sleep(pause)


def pauses_until(deadline: float, seconds: float, clock: Clock) -> Iterator[float]:
    """Yield the same pause as long as it ends before the deadline, by the monotonic clock."""
    while clock.monotonic() + seconds < deadline:
        yield seconds


def retry_read(read: Callable[[], Result], clock: Clock) -> Result:
    """Return the result of ``read``. Raises its last StorageError after ``ATTEMPTS``, and an ObjectNotFoundError
    immediately."""
    return retry(read, clock, READ_PAUSES, _may_be_repeated)


def _may_be_repeated(error: Exception) -> bool:
    return isinstance(error, StorageError) and not isinstance(error, ObjectNotFoundError)


def commit_attempts(clock: Clock, ids: Ids, root: str, seconds: float = limits.COMMIT_SECONDS) -> Iterator[int]:
    """Yield the number of each attempt to commit, from 1, with random pauses between, so that racing writers do not
    meet again. Raises CommitConflictError after ``seconds`` or ``limits.COMMIT_ATTEMPTS``."""
    deadline = clock.monotonic() + seconds
    for attempt in range(limits.COMMIT_ATTEMPTS):
        yield attempt + 1
        longest = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(attempt, 10))
        clock.sleep(longest * ids.jitter())
        if clock.monotonic() >= deadline:
            break
    raise CommitConflictError(
        f"{attempt + 1} attempts to commit to {root} lost to other writers; nothing was written: try again, or write "
        "less often and more at a time",
        path=root,
    )
