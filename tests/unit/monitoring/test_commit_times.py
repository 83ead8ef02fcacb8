"""Which version there was at a time, also where the log's time was reset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.commit_times import CommitTimes


def times_of(first: int, times: list[int]) -> CommitTimes:
    return CommitTimes(to_table("commits", [(first + n, time, "", 0, [], 0) for n, time in enumerate(times)]))


def test_the_version_at_a_time_is_that_of_the_newest_commit_made_until_then() -> None:
    times = times_of(7, [10, 20, 30])
    assert [times.version_at(at) for at in (9, 10, 19, 20, 99)] == [None, 7, 7, 8, 9]
    assert [list(times.between(*limits)) for limits in ((None, None), (20, None), (11, 30), (31, 40), (30, 20))] == [
        [7, 8, 9], [8, 9], [8], [], [],
    ]  # fmt: skip
    assert times.first_ms == 10


def test_commits_ahead_of_a_reset_count_as_made_at_its_time() -> None:
    times = times_of(0, [10, 900, 910, 20, 30])
    assert [times.version_at(at) for at in (15, 20, 25, 30, 905)] == [0, 3, 3, 4, 4]
    assert list(times.between(20, 30)) == [1, 2, 3]


def test_without_commits_there_was_no_version() -> None:
    times = times_of(0, [])
    assert (times.version_at(5), list(times.between(None, 5)), times.first_ms) == (None, [], None)


@given(st.lists(st.integers(0, 20)), st.integers(0, 20), st.integers(0, 20))
def test_ranges_that_follow_each_other_have_each_commit_once(times: list[int], one: int, other: int) -> None:
    known = times_of(3, times)
    middle = sorted((one, other))
    parts = [known.between(None, middle[0]), known.between(*middle), known.between(middle[1], None)]
    assert [version for part in parts for version in part] == list(range(3, 3 + len(times)))
