"""The newest commit of a time, where the log's time may have been reset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from sparklog.log.commits.time_search import PROBES, Timed, find_newest


def find(times: Sequence[int], time_ms: int, reads: list[int] | None = None) -> int | None:
    """Search commits 0, 1, 2, … of these times; the last one is known."""

    def read_times(versions: Sequence[int]) -> list[int]:
        if reads is not None:
            reads.append(len(versions))
        return [times[version] for version in versions]

    return find_newest(Timed(-1, -math.inf), Timed(len(times) - 1, times[-1]), time_ms, read_times)


def newest(times: Sequence[int], time_ms: int) -> int:
    return max((version for version, time in enumerate(times) if time <= time_ms), default=-1)


def grow(random: Random, start: int, count: int) -> list[int]:
    times = [start]
    while len(times) < count:
        times.append(times[-1] + random.randint(1, 9))
    return times


@pytest.mark.parametrize("seed", range(200))
def test_the_newest_commit_is_found_if_the_times_before_resets_are_later_than_those_after(seed: int) -> None:
    """As where a clock was days ahead, and the log's time is not there yet."""
    random = Random(seed)
    times = grow(random, 100, random.randint(1, 700))
    for start in random.sample([10**9, 10**8, 10**7], random.randint(0, 3)):
        present = times[-1] + 1
        times += grow(random, start, random.randint(1, 700)) + grow(random, present, random.randint(1, 700))
    for time_ms in (random.randint(times[0] - 10, times[-1] - 1) for _ in range(20)):
        assert find(times, time_ms) == newest(times, time_ms)


@pytest.mark.parametrize("seed", range(100))
def test_of_a_time_that_was_there_twice_a_version_of_that_time_is_found(seed: int) -> None:
    """The newest one among few commits."""
    random = Random(seed)
    times: list[int] = []
    for _ in range(random.randint(1, 4)):
        times += grow(random, random.randint(100, 2000), random.randint(1, 10 if seed % 2 else 400))
    for time_ms in (random.randint(90, times[-1] - 1) for _ in range(20)):
        found = find(times, time_ms)
        assert found is not None
        assert found == -1 or times[found] <= time_ms
        assert times[found + 1] > time_ms
        if len(times) <= PROBES:
            assert found == newest(times, time_ms)


def test_the_times_of_few_commits_are_read() -> None:
    reads: list[int] = []
    assert find(range(0, 2_000_000, 10), 1_234_567, reads) == 123_456
    assert len(reads) == 3
    assert sum(reads) < 4 * PROBES
