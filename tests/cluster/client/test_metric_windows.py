"""Windows: rates, averages and maxima over the last while, with the time passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.metric_windows import Windows


def windows(seconds: float = 10, samples: int = 2, created: float = 0) -> Windows:
    return Windows(seconds, samples, created)


def test_nothing_recorded_is_zero() -> None:
    empty = windows()
    assert (empty.rate(5), empty.count_rate(5), empty.average(5), empty.maximum(5)) == (0, 0, 0, 0)


def test_a_rate_is_over_the_time_since_it_began_until_the_windows_are_full() -> None:
    found = windows()
    found.record(30, 1)
    assert found.rate(2) == 15
    assert found.rate(10) == 3
    assert found.rate(19) == 30 / 19


def test_a_rate_is_over_the_windows_that_count() -> None:
    found = windows()
    found.record(1_000, 5)
    found.record(30, 15)
    assert found.rate(20) == 3.0  # [0, 10) is gone, [10, 20] counts
    assert found.rate(25) == 2.0
    assert found.count_rate(25) == 1 / 15


def test_a_first_record_is_not_a_rate_of_thousands() -> None:
    found = windows()
    found.record(1, 0.001)
    assert found.rate(0.001) == 1


def test_averages_and_maxima_forget_what_is_older_than_the_windows() -> None:
    found = windows()
    found.record(100, 5)
    found.record(2, 12)
    found.record(4, 19)
    assert (found.average(19), found.maximum(19)) == (106 / 3, 100)
    assert (found.average(20), found.maximum(20)) == (3, 4)
    assert (found.average(29), found.maximum(29)) == (3, 4)
    assert (found.average(30), found.maximum(30), found.rate(30)) == (0, 0, 0)


def test_totals_forget_nothing() -> None:
    found = windows()
    for second in range(100):
        found.record(2, second)
    assert (found.count, found.total) == (100, 200)


def test_the_maximum_of_negative_values_is_one_of_them() -> None:
    found = windows()
    found.record(-5, 1)
    assert found.maximum(1) == -5


@given(
    st.lists(st.tuples(st.floats(0, 7), st.integers(-1_000, 1_000)), max_size=50),
    st.integers(1, 5),
    st.floats(0, 20),
)
def test_only_windows_that_count_are_measured(steps: list[tuple[float, int]], samples: int, after: float) -> None:
    found, now, kept = windows(5, samples, created=100), 100.0, []
    for pause, value in steps:
        now += pause
        found.record(value, now)
        kept.append((now, value))
    now += after
    oldest = 100 + max((now - 100) // 5 - samples + 1, 0) * 5
    counted = [value for at, value in kept if (at - 100) // 5 >= (oldest - 100) // 5]
    span = max(now - oldest, 1)
    assert found.rate(now) == pytest.approx(sum(counted) / span)
    assert found.count_rate(now) == pytest.approx(len(counted) / span)
    assert found.average(now) == pytest.approx(sum(counted) / len(counted) if counted else 0)
    assert found.maximum(now) == (max(counted) if counted else 0)
    assert found.total == sum(value for _, value in kept)
