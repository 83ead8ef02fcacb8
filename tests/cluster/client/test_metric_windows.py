"""Windows: rates, averages and maxima over recent time, with the time passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.metrics.windows import Windows


def windows(seconds: float = 10, samples: int = 2, created: float = 0) -> Windows:
    return Windows(seconds, samples, created)


def test_empty_windows_are_zero() -> None:
    empty = windows()
    assert (empty.rate(5), empty.count_rate(5), empty.average(5), empty.maximum(5)) == (0, 0, 0, 0)


def test_a_rate_covers_the_time_since_creation_until_the_windows_are_full() -> None:
    measured = windows()
    measured.record(30, 1)
    assert measured.rate(2) == 15
    assert measured.rate(10) == 3
    assert measured.rate(19) == 30 / 19


def test_a_rate_covers_the_current_windows() -> None:
    measured = windows()
    measured.record(1_000, 5)
    measured.record(30, 15)
    assert measured.rate(20) == 3.0  # [0, 10) has expired, [10, 20] counts
    assert measured.rate(25) == 2.0
    assert measured.count_rate(25) == 1 / 15


def test_a_first_record_does_not_make_a_huge_rate() -> None:
    measured = windows()
    measured.record(1, 0.001)
    assert measured.rate(0.001) == 1


def test_averages_and_maxima_forget_expired_windows() -> None:
    measured = windows()
    measured.record(100, 5)
    measured.record(2, 12)
    measured.record(4, 19)
    assert (measured.average(19), measured.maximum(19)) == (106 / 3, 100)
    assert (measured.average(20), measured.maximum(20)) == (3, 4)
    assert (measured.average(29), measured.maximum(29)) == (3, 4)
    assert (measured.average(30), measured.maximum(30), measured.rate(30)) == (0, 0, 0)


def test_totals_never_expire() -> None:
    measured = windows()
    for second in range(100):
        measured.record(2, second)
    assert (measured.count, measured.total) == (100, 200)


def test_the_maximum_of_negative_values_is_negative() -> None:
    measured = windows()
    measured.record(-5, 1)
    assert measured.maximum(1) == -5


@given(
    st.lists(st.tuples(st.floats(0, 7), st.integers(-1_000, 1_000)), max_size=50),
    st.integers(1, 5),
    st.floats(0, 20),
)
def test_only_current_windows_are_measured(steps: list[tuple[float, int]], samples: int, after: float) -> None:
    measured, now, kept = windows(5, samples, created=100), 100.0, []
    for pause, value in steps:
        now += pause
        measured.record(value, now)
        kept.append((now, value))
    now += after
    oldest = 100 + max((now - 100) // 5 - samples + 1, 0) * 5
    counted = [value for at, value in kept if (at - 100) // 5 >= (oldest - 100) // 5]
    span = max(now - oldest, 1)
    assert measured.rate(now) == pytest.approx(sum(counted) / span)
    assert measured.count_rate(now) == pytest.approx(len(counted) / span)
    assert measured.average(now) == pytest.approx(sum(counted) / len(counted) if counted else 0)
    assert measured.maximum(now) == (max(counted) if counted else 0)
    assert measured.total == sum(value for _, value in kept)
