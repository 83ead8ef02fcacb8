"""Retries of reads. Reads are idempotent, so they can be retried whatever the outcome; writes have their own rules.

Not for: long outages of a storage. Those raise, and the caller decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.errors import ObjectNotFoundError, StorageError

Result = TypeVar("Result")

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05
"""Doubled after each failure: 0.75 s in all."""


def retry_read(read: Callable[[], Result], clock: Clock) -> Result:
    """Return the result of ``read``. Raises its last StorageError after ``ATTEMPTS``, and an ObjectNotFoundError
    immediately."""
    for attempt in range(1, ATTEMPTS):
        try:
            return read()
        except ObjectNotFoundError:
            raise
        except StorageError:
            clock.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    return read()
