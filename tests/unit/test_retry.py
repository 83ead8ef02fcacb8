"""Retries of reads: number, pauses, and errors that are not retried."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.errors import CommitConflictError, ObjectNotFoundError, StoragePermissionError, StorageUnavailableError
from sparklog.ids import SeededIds
from sparklog.retry import (
    ATTEMPTS,
    FIRST_BACKOFF_SECONDS,
    FIRST_PAUSE_SECONDS,
    LAST_BACKOFF_SECONDS,
    commit_attempts,
    pauses_until,
    retry,
    retry_read,
)


class Reads:
    """A read that fails that many times before it succeeds."""

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
def test_a_read_is_retried_with_exponential_back_off_until_it_succeeds(failures: int, error: Exception) -> None:
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
def test_permanent_errors_are_raised_without_a_retry(error: Exception) -> None:
    read = Reads(1, error)
    with pytest.raises(type(error)):
        retry_read(read, ManualClock())
    assert read.calls == 1


def test_other_errors_are_raised_without_a_retry_and_each_retry_is_reported() -> None:
    clock, read = ManualClock(), Reads(2, StorageUnavailableError("away", path="k"))
    noted: list[Exception] = []
    assert retry(read, clock, [1, 2, 4], StorageUnavailableError, note=noted.append) == "answer"
    assert (clock.monotonic(), noted) == (3, [read.error] * 2)
    other = Reads(1, StoragePermissionError("no", path="k"))
    with pytest.raises(StoragePermissionError):
        retry(other, clock, [1], StorageUnavailableError)
    assert other.calls == 1


def test_a_call_is_retried_only_if_the_pause_ends_before_the_deadline() -> None:
    clock, calls = ManualClock(), Reads(100, StorageUnavailableError("away", path="k"))

    def slow() -> str:
        clock.advance(2)
        return calls()

    with pytest.raises(StorageUnavailableError):
        retry(slow, clock, pauses_until(9, 1, clock), StorageUnavailableError)
    assert (calls.calls, clock.monotonic()) == (3, 8)


def test_commit_attempts_end_at_the_deadline_or_their_maximum_number() -> None:
    clock = ManualClock()
    with pytest.raises(CommitConflictError, match="lost to other writers"):
        list(commit_attempts(clock, SeededIds(1), "root"))
    assert limits.COMMIT_SECONDS <= clock.monotonic() < limits.COMMIT_SECONDS + LAST_BACKOFF_SECONDS
    with pytest.raises(CommitConflictError, match=f"{limits.COMMIT_ATTEMPTS} attempts to commit to root lost"):
        list(commit_attempts(ManualClock(), SeededIds(1), "root", seconds=1e9))


def test_the_first_commit_attempt_has_no_pause_and_later_ones_a_random_one() -> None:
    clock = ManualClock()
    attempts = commit_attempts(clock, SeededIds(1), "root")
    next(attempts)
    assert clock.monotonic() == 0
    times = [clock.monotonic() for _ in zip(attempts, range(20), strict=False)]
    pauses = [end - start for start, end in pairwise([0, *times])]
    assert all(pause < FIRST_BACKOFF_SECONDS * 2**number for number, pause in enumerate(pauses))
    assert len(set(pauses)) == len(pauses)
