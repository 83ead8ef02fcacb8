"""Retries of reads: repeating one changes nothing, so no outcome has to be known first. Writes have rules of their own.

Not for: a storage that is away for long. Whoever asked is told, and decides.
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
    """What ``read`` returns. Raises its last StorageError after ``ATTEMPTS``, an ObjectNotFoundError at once."""
    for attempt in range(1, ATTEMPTS):
        try:
            return read()
        except ObjectNotFoundError:
            raise
        except StorageError:
            clock.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    return read()
