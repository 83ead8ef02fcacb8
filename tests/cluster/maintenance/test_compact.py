"""A compacted log keeps the latest record of each key under its offset, and tombstones as long as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptRecordError
from sparklog.maintenance.runner import InProcess, ProcessPool
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.segments import STORED_APPEND_TIME
from sparklog.testing.clusters import Cluster, cluster
from tests.cluster.maintenance.logs import MINUTE_US, Read, Written, append, live, log_files, records

COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
"""Each append of a later minute begins a segment."""

DAY_MS = 86_400_000


def put(c: Cluster, *pairs: tuple[str | None, str | None], minute: int | None = None, **more: Any) -> None:
    """One file of records, a minute after the one before."""
    end = c.coordinator.refresh().partition("t", 0).log_end_offset
    at = 1 + end if minute is None else minute
    written = [
        Written(None if key is None else key.encode(), None if value is None else value.encode(), at)
        for key, value in pairs
    ]
    append(c.coordinator, "t", written, **more)


def contents(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    return [
        (one.offset, None if one.key is None else one.key.decode(), None if one.value is None else one.value.decode())
        for one in records(c.coordinator, "t")
    ]


def clean(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    compact(c.coordinator, InProcess())
    return contents(c)


# -- what survives


def test_the_latest_record_of_each_key_survives_with_its_offset_and_in_order() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"), ("c", "1"))
        put(c, ("a", "2"), ("b", "2"))
        put(c, ("b", "3"))
        put(c, ("x", "active"))
        assert clean(c) == [(2, "c", "1"), (3, "a", "2"), (5, "b", "3"), (6, "x", "active")]


def test_the_active_segment_is_not_cleaned_and_hides_nothing_before_it() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("a", "2"), ("a", "3"))
        assert clean(c) == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "a", "3")]


def test_the_log_end_offset_stays_where_the_last_records_went() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "0"})
        put(c, ("a", "1"))
        put(c, ("a", None))
        put(c, ("x", "active"))
        clean(c)
        assert clean_again(c) == [(2, "x", "active")]
        held = c.coordinator.refresh().partition("t", 0)
        assert (held.log_start_offset, held.log_end_offset) == (0, 4)


def clean_again(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    """Once something is dirty again."""
    put(c, (f"y{c.coordinator.refresh().version}", "dirt"))
    return clean(c)[:-1]


def test_records_without_a_key_are_dropped() -> None:
    with cluster() as c:
        c.create_topic("t")
        put(c, (None, "1"), ("a", "1"), (None, "2"))
        put(c, (None, "3"))
        put(c, ("x", "active"))
        c.coordinator.submit(partial(alter_configs, topic="t", changes=COMPACT))
        assert clean(c) == [(1, "a", "1"), (4, "x", "active")]


def test_an_empty_key_is_a_key() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("", "1"), ("", "2"))
        put(c, ("x", "active"))
        assert clean(c) == [(1, "", "2"), (2, "x", "active")]


def test_a_range_of_which_nothing_survives_leaves_no_segment() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("a", "2"), ("b", "2"), minute=9)
        put(c, ("x", "active"), minute=10)
        clean(c)
        assert [(one.base_offset, one.end_offset) for one in live(c.coordinator, "t")] == [(2, 4), (4, 5)]


def test_topics_that_are_not_compacted_are_left_alone() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "cleanup.policy": "delete"})
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("a", "3"))
        assert compact(c.coordinator, InProcess()).commits == 0


def test_a_cluster_whose_cleaner_is_off_is_left_alone() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("a", "3"))
        c.coordinator.submit(partial(alter_configs, topic="", changes={"log.cleaner.enable": "false"}))
        assert compact(c.coordinator, InProcess()).commits == 0


def test_a_producers_sequences_stay_when_its_records_go() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        sent = {"producer_id": 7, "producer_epoch": 0}
        put(c, ("a", "1"), **sent, base_sequence=0)
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        before = c.coordinator.refresh().partition("t", 0).producers
        clean(c)
        assert c.coordinator.refresh().partition("t", 0).producers == before
        put(c, ("a", "3"), **sent, base_sequence=1)


# -- which range


def test_records_younger_than_the_lag_are_not_cleaned() -> None:
    clock = ManualClock(now_ms=10 * 60_000)
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "min.compaction.lag.ms": str(5 * 60_000)})
        for minute in (1, 2, 3, 6, 7):
            put(c, ("a", str(minute)), minute=minute)
        assert [value for _, _, value in clean(c)] == ["3", "6", "7"]
        clock.advance(60)
        assert [value for _, _, value in clean(c)] == ["6", "7"]


def test_a_log_that_is_hardly_dirty_waits_until_it_is_overdue() -> None:
    clock = ManualClock(now_ms=10 * 60_000)
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "min.cleanable.dirty.ratio": "0.9"})
        for minute in (1, 2, 3):
            put(c, (f"k{minute}", "v"), minute=minute)
        clean(c)
        put(c, ("k1", "w"), minute=4)
        assert len(clean(c)) == 4, "a part of the log is dirty, less than the ratio"
        put(c, ("k1", "active"), minute=5)
        c.coordinator.submit(partial(alter_configs, topic="t", changes={"max.compaction.lag.ms": str(7 * 60_000)}))
        assert len(clean(c)) == 5, "the oldest dirty record is 7 minutes old"
        clock.advance(1)
        assert len(clean(c)) == 4


def test_a_second_pass_with_nothing_dirty_does_nothing() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        clean(c)
        version = c.coordinator.refresh().version
        assert c.coordinator.refresh().partition("t", 0).cleaned_offset == 2
        clean(c)
        assert c.coordinator.refresh().version == version


def test_a_pass_that_takes_nothing_away_notes_how_far_it_came() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("x", "active"))
        clean(c)
        assert c.coordinator.refresh().partition("t", 0).cleaned_offset == 1
        version = c.coordinator.refresh().version
        clean(c)
        assert c.coordinator.refresh().version == version


def test_the_dirtiest_log_comes_first() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        c.create_topic("u", configs=COMPACT)
        for topic, count in (("t", 1), ("u", 9)):
            append(c.coordinator, topic, [Written(b"k", b"x" * 100, 1)] * 5)
            append(c.coordinator, topic, [Written(b"k", b"x", 2)])
            compact(c.coordinator, InProcess(), [topic])
            append(c.coordinator, topic, [Written(b"k", b"x" * 100, 3)] * count)
            append(c.coordinator, topic, [Written(b"k", b"active", 4)])
        order: list[str] = []
        compact(c.coordinator, Recording(order))
        assert order == ["u", "t"]


class Recording(InProcess):
    """Notes which topics come in which order."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.order.append(item.target.topic)
            yield function(item)


# -- tombstones


def test_a_tombstone_takes_the_older_records_of_its_key_and_stays_for_its_time() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("a", None))
        put(c, ("x", "active"))
        assert clean(c)[:2] == [(1, "b", "1"), (2, "a", None)]
        (segment, *_) = live(c.coordinator, "t")
        assert segment.delete_horizon_ms == clock.now_ms() + DAY_MS
        clock.advance(DAY_MS / 1000 - 1)
        assert (2, "a", None) in clean_again(c)
        clock.advance(2)
        assert (2, "a", None) not in clean_again(c)
        assert (1, "b", "1") in contents(c)


def test_time_alone_takes_no_tombstone_only_the_next_pass_does() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "1000"})
        put(c, ("a", None))
        put(c, ("x", "active"))
        clean(c)
        clock.advance(10)
        assert (0, "a", None) in clean(c), "nothing is dirty, so nothing is cleaned"
        assert (0, "a", None) not in clean_again(c)


def test_a_tombstone_in_the_dirty_part_gets_its_whole_time() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "0"})
        put(c, ("a", None))
        put(c, ("x", "active"))
        assert (0, "a", None) in clean(c), "the first pass that keeps it begins its time"
        assert (0, "a", None) not in clean_again(c)


def test_a_tombstone_that_is_overwritten_goes_at_once() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", None))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        assert clean(c) == [(1, "a", "2"), (2, "x", "active")]
        assert live(c.coordinator, "t")[0].delete_horizon_ms == -1


def test_new_tombstones_do_not_prolong_the_time_of_old_ones() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("old", None))
        for _ in range(30):
            put(c, (f"k{c.coordinator.refresh().version}", None))
            clean(c)
            clock.advance(3600)
        keys = [key for _, key, _ in contents(c)]
        assert "old" not in keys
        assert len(live(c.coordinator, "t")) < 15


# -- files


def test_what_survives_is_merged_into_closed_segments() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(30):
            put(c, (f"k{number % 7}", str(number)))
        counts = compact(c.coordinator, InProcess())
        assert (counts.files_in, counts.files_out, counts.records_removed) == (29, 1, 22)
        assert [one.closed for one in live(c.coordinator, "t")] == [True, False]


def test_a_large_segment_that_loses_nothing_is_not_written_again() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "internal.segment.bytes": "1000"})
        put(c, ("big", "x" * 900))
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        big = live(c.coordinator, "t")[0]
        clean(c)
        assert live(c.coordinator, "t")[0] == big
        assert [key for _, key, _ in contents(c)] == ["big", "a", "x"]


def test_segments_between_those_that_change_stay_and_all_changes_are_one_commit() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "internal.segment.bytes": "1000"})
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("big", "x" * 900))
        put(c, ("a", "2"), ("c", "1"))
        put(c, ("x", "active"))
        version, big = c.coordinator.refresh().version, live(c.coordinator, "t")[1]
        assert clean(c)[0] == (1, "b", "1")
        assert c.coordinator.refresh().version == version + 1
        assert big in live(c.coordinator, "t")
        assert len(live(c.coordinator, "t")) == 4


def test_append_times_survive_compaction() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "message.timestamp.type": "LogAppendTime"})
        for number in range(4):
            clock.advance(60)
            put(c, ("a", str(number)), (f"k{number}", "v"), log_append_time=True)
        before = {one.offset: one for one in records(c.coordinator, "t")}
        clean(c)
        after = records(c.coordinator, "t")
        assert after == [before[one.offset] for one in after]
        assert len(after) == 6
        assert live(c.coordinator, "t")[0].append_time_ms == STORED_APPEND_TIME


def test_rolled_and_small_files_are_compacted_alike() -> None:
    found = []
    for rolls in (False, True):
        with cluster() as c:
            c.create_topic("t", configs={**COMPACT, "segment.ms": str(5 * 60_000)})
            for number in range(40):
                put(c, (f"k{number % 3}", str(number)))
            if rolls:
                roll(c.coordinator, InProcess())
            found.append(clean(c))
    assert found[0] == found[1]


def test_a_log_is_read_from_any_offset_also_from_one_that_is_gone() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(20):
            put(c, (f"k{number % 4}", str(number)), (f"u{number}", "v"))
        clean(c)
        everything = records(c.coordinator, "t")
        for start in range(40):
            assert records(c.coordinator, "t", start=start) == [one for one in everything if one.offset >= start]


def test_damage_stops_the_pass_and_leaves_nothing_behind() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        path = live(c.coordinator, "t")[1].path
        data = bytearray(c.coordinator.store.get(path))
        for at in range(len(data) // 3, len(data) // 2):
            data[at] ^= 0xFF
        c.coordinator.store.put(path, bytes(data))
        before = log_files(c.coordinator)
        with pytest.raises(CorruptRecordError):
            compact(c.coordinator, InProcess())
        assert log_files(c.coordinator) == before


# -- other jobs


class Meanwhile(InProcess):
    """Runs the tasks, and then something else before the results are given out."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        results = [function(item) for item in items]
        self._meanwhile()
        return iter(results)


def test_two_passes_at_the_same_time_are_one_and_the_files_of_the_other_go() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(6):
            put(c, ("a", str(number)))
        counts = compact(c.coordinator, Meanwhile(lambda: compact(c.coordinator, InProcess())))
        assert (counts.commits, counts.files_out) == (0, 0)
        assert counts.left_out
        assert [value for _, _, value in contents(c)] == ["4", "5"]
        assert len(log_files(c.coordinator)) == 6 + 1


def test_a_roll_in_the_middle_of_a_pass_leaves_all_of_the_pass_out() -> None:
    """Or else what one stretch lost could have its latest record in another that was kept as it was."""
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "internal.segment.bytes": "2000"})
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("big", "x" * 1900))
        put(c, ("a", "2"), minute=50)
        put(c, ("c", "2"), minute=50)
        put(c, ("x", "active"), minute=60)
        before = contents(c)
        counts = compact(c.coordinator, Meanwhile(lambda: roll(c.coordinator, InProcess())))
        assert counts.commits == 0
        assert contents(c) == before
        assert clean(c)[0] == (1, "b", "1")


def appended_meanwhile(coordinator: Coordinator) -> None:
    append(coordinator, "t", [Written(b"a", b"later", 99)])


def test_records_appended_during_a_pass_stay() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        compact(c.coordinator, Meanwhile(lambda: appended_meanwhile(c.coordinator)))
        assert [value for _, _, value in contents(c)] == ["2", "active", "later"]


# -- memory


def test_keys_that_do_not_fit_the_memory_are_compared_all_the_same() -> None:
    with cluster() as c:
        c.coordinator.submit(partial(alter_configs, topic="", changes={"log.cleaner.dedupe.buffer.size": "1"}))
        c.create_topic("t", configs=COMPACT)
        for minute in range(1, 4):
            written = [Written(b"%08d" % (number % 9000), b"%d" % number, minute) for number in range(20_000)]
            append(c.coordinator, "t", written)
        append(c.coordinator, "t", [Written(b"x", b"active", 5)])
        counts = compact(c.coordinator, InProcess())
        assert counts.records_removed == 60_000 - 9000
        found = records(c.coordinator, "t")
        assert [one.offset for one in found] == [*range(40_000 + 11_000, 60_000), 60_000]


def test_tasks_may_run_in_other_processes(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "c") as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(4):
            put(c, ("a", str(number)))
        assert compact(c.coordinator, ProcessPool(2)).records_removed == 2
        assert [value for _, _, value in contents(c)] == ["2", "3"]


# -- anything


keys = st.sampled_from(["a", "b", "c", "d", "", None])
values = st.sampled_from(["1", "2", None])
steps = st.one_of(
    st.lists(st.tuples(keys, values), min_size=1, max_size=5),
    st.sampled_from(["compact", "roll", "an hour", "a day"]),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(steps, max_size=25))
def test_the_log_says_the_same_of_every_key_whatever_is_done_to_it(script: list[object]) -> None:
    """Against a model: a record may be missing only if a later one of its key is before the active segment, it is a
    tombstone that was kept for a day by a pass, or it has no key."""
    clock = ManualClock(now_ms=DAY_MS)
    with cluster(clock=clock) as c:
        c.create_topic("t", configs=COMPACT)
        appended: list[Read] = []
        for step in script:
            if isinstance(step, list):
                minute = 1 + len(appended)
                put(c, *step, minute=minute)
                for key, value in step:
                    appended.append(
                        Read(
                            len(appended), None if key is None else key.encode(),
                            None if value is None else value.encode(), minute * MINUTE_US, [],
                        )
                    )  # fmt: skip
            elif step == "compact":
                compact(c.coordinator, InProcess())
            elif step == "roll":
                roll(c.coordinator, InProcess())
            else:
                clock.advance(3600 if step == "an hour" else 86_401)
            found = records(c.coordinator, "t")
            assert found == [appended[one.offset] for one in found]
            assert latest(found) == latest(appended)
            held = c.coordinator.refresh().partition("t", 0)
            assert held.log_end_offset == len(appended)
            assert held.size_bytes == sum(one.size_bytes for one in live(c.coordinator, "t"))


def latest(found: list[Read]) -> dict[bytes, bytes]:
    """What a reader of the whole log knows of each key in the end; a key that is deleted is as one that never was."""
    known: dict[bytes, bytes] = {}
    for one in found:
        if one.key is not None and one.value is not None:
            known[one.key] = one.value
        elif one.key is not None:
            known.pop(one.key, None)
    return known
