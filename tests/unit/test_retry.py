"""Retries of reads: how often, after which pauses, and what is not retried."""

from __future__ import annotations

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import ObjectNotFoundError, StoragePermissionError, StorageUnavailableError
from sparklog.retry import ATTEMPTS, FIRST_PAUSE_SECONDS, retry_read


class Reads:
    """A read that fails so often before it answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "answer"


@pytest.mark.parametrize("error", [StorageUnavailableError("away", path="k"), StoragePermissionError("no", path="k")])
@pytest.mark.parametrize("failures", range(ATTEMPTS))
def test_a_read_is_retried_until_it_answers_after_longer_and_longer_pauses(failures: int, error: Exception) -> None:
    clock, read = ManualClock(), Reads(failures, error)
    assert retry_read(read, clock) == "answer"
    assert read.calls == failures + 1
    assert clock.monotonic() == pytest.approx(FIRST_PAUSE_SECONDS * (2**failures - 1))


def test_the_last_error_is_raised() -> None:
    read = Reads(ATTEMPTS, StorageUnavailableError("away", path="k"))
    with pytest.raises(StorageUnavailableError, match="away"):
        retry_read(read, ManualClock())
    assert read.calls == ATTEMPTS


@pytest.mark.parametrize("error", [ObjectNotFoundError("gone", path="k"), ValueError("a mistake")])
def test_what_a_repetition_does_not_change_is_raised_at_once(error: Exception) -> None:
    read = Reads(1, error)
    with pytest.raises(type(error)):
        retry_read(read, ManualClock())
    assert read.calls == 1
