"""A compacted log keeps the latest record of each key under its offset, and tombstones for as long as needed."""

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
from sparklog.maintenance.segments.merge import MergeTask, merge_segments
from sparklog.maintenance.segments.replacement import Counts, replicas_of, target_of
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.segments import has_forgotten
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.segments import STORED_APPEND_TIME
from sparklog.testing.clusters import Cluster, cluster
from tests.cluster.maintenance.logs import MINUTE_US, Read, Written, append, live, log_files, records
from tests.sample import examples

COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
"""Each append of a later minute begins a segment."""

DAY_MS = 86_400_000


def put(c: Cluster, *pairs: tuple[str | None, str | None], minute: int | None = None, **more: Any) -> None:
    """Append one file of records, by default a minute after the previous one. If one has no key, the topic is not
    compacted meanwhile."""
    end = c.coordinator.refresh().partition("t", 0).log_end_offset
    at = 1 + end if minute is None else minute
    written = [
        Written(None if key is None else key.encode(), None if value is None else value.encode(), at)
        for key, value in pairs
    ]
    keyless = any(key is None for key, _ in pairs)
    if keyless:
        c.coordinator.submit(partial(alter_configs, topic="t", changes={"cleanup.policy": "delete"}))
    append(c.coordinator, "t", written, **more)
    if keyless:
        c.coordinator.submit(partial(alter_configs, topic="t", changes={"cleanup.policy": "compact"}))


def contents(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    return [
        (
            record.offset,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in records(c.coordinator, "t")
    ]


def clean(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    compact(c.coordinator, InProcess())
    return contents(c)


class Interleaved(InProcess):
    """Another job works on the log between the tasks and their commit."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work

    def run(self, function: Any, tasks: Any) -> Iterator[Any]:
        results = list(super().run(function, tasks))
        self._work()
        yield from results


def change_later_segments(c: Cluster) -> None:
    """Roll the active segment until the partition's state has forgotten all earlier changes."""
    before = c.coordinator.refresh().version
    while not has_forgotten(c.coordinator.refresh().partition("t", 0), before):
        for _ in range(6):
            put(c, ("later", "v"), minute=100)
        roll(c.coordinator, InProcess())


def test_changes_of_later_segments_do_not_refuse_a_compaction_however_many() -> None:
    """The state of a partition keeps its latest changes only."""
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for value in "abc":
            put(c, ("k", value), ("other", value))
        put(c, ("later", "v"), minute=100)
        done = compact(c.coordinator, Interleaved(lambda: change_later_segments(c)))
        assert (done.commits, done.left_out) == (1, [])
        assert contents(c)[:2] == [(4, "k", "c"), (5, "other", "c")]


def test_a_compaction_of_what_another_one_has_compacted_is_refused_however_many_changes_came_after() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for value in "abc":
            put(c, ("k", value), ("other", value))

        def compact_first() -> None:
            compact(c.coordinator, InProcess())
            change_later_segments(c)

        put(c, ("later", "v"), minute=100)
        done = compact(c.coordinator, Interleaved(compact_first))
        assert done.commits == 0
        assert done.left_out
        assert contents(c)[:2] == [(4, "k", "c"), (5, "other", "c")]


# -- which records survive


def test_the_latest_record_of_each_key_survives_with_its_offset_and_in_order() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"), ("c", "1"))
        put(c, ("a", "2"), ("b", "2"))
        put(c, ("b", "3"))
        put(c, ("x", "active"))
        assert clean(c) == [(2, "c", "1"), (3, "a", "2"), (5, "b", "3"), (6, "x", "active")]


def test_the_active_segment_is_not_cleaned_and_does_not_supersede_earlier_records() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("a", "2"), ("a", "3"))
        assert clean(c) == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "a", "3")]


def test_the_log_end_offset_is_kept_when_the_last_records_are_removed() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "0"})
        put(c, ("a", "1"))
        put(c, ("a", None))
        put(c, ("x", "active"))
        clean(c)
        assert clean_again(c) == [(2, "x", "active")]
        partition = c.coordinator.refresh().partition("t", 0)
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 4)


def clean_again(c: Cluster) -> list[tuple[int, str | None, str | None]]:
    """Compact after an append that makes the log dirty again."""
    put(c, (f"y{c.coordinator.refresh().version}", "dirt"))
    return clean(c)[:-1]


def test_records_without_a_key_are_removed() -> None:
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


def test_a_range_without_surviving_records_leaves_no_segment() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("a", "2"), ("b", "2"), minute=9)
        put(c, ("x", "active"), minute=10)
        clean(c)
        assert [(segment.base_offset, segment.end_offset) for segment in live(c.coordinator, "t")] == [(2, 4), (4, 5)]


def test_topics_that_are_not_compacted_are_not_cleaned() -> None:
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "cleanup.policy": "delete"})
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("a", "3"))
        assert compact(c.coordinator, InProcess()).commits == 0


@pytest.mark.parametrize(
    "change", [{"cleanup.policy": "delete"}, {"min.compaction.lag.ms": "99999999"}, {"delete.retention.ms": "5"}]
)
def test_a_pass_that_is_at_work_removes_nothing_by_rules_that_were_changed_since(change: dict[str, str]) -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for value in ("1", "2", "3"):
            put(c, ("a", value))
        put(c, ("b", "active"))
        before = contents(c)

        class Later(InProcess):
            def run(self, function: Any, tasks: Any) -> Any:
                yield from super().run(function, tasks)
                c.coordinator.submit(partial(alter_configs, topic="t", changes=change))

        counts = compact(c.coordinator, Later())
        assert counts.records_removed == 0
        assert "rules of compaction have changed" in counts.left_out[0]
        assert contents(c) == before


def test_a_pass_that_is_at_work_ends_with_the_cleaner_and_keeps_files_as_long_as_the_topic_says_now() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for value in ("1", "2", "3"):
            put(c, ("a", value))
        put(c, ("b", "active"))

        def compact_while(topic: str, changes: dict[str, str]) -> Counts:
            class Later(InProcess):
                def run(self, function: Any, tasks: Any) -> Any:
                    yield from super().run(function, tasks)
                    c.coordinator.submit(partial(alter_configs, topic=topic, changes=changes))

            return compact(c.coordinator, Later())

        assert "log.cleaner.enable is false" in compact_while("", {"log.cleaner.enable": "false"}).left_out[0]
        c.coordinator.submit(partial(alter_configs, topic="", changes={"log.cleaner.enable": "true"}))
        assert compact_while("t", {"file.delete.delay.ms": f"{DAY_MS}"}).records_removed == 2
        state = c.coordinator.refresh()
        (files,) = state.removed_files.values()
        assert files.delete_at_ms - state.timestamp_ms == DAY_MS


def test_a_disabled_cleaner_cleans_nothing() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("a", "3"))
        c.coordinator.submit(partial(alter_configs, topic="", changes={"log.cleaner.enable": "false"}))
        assert compact(c.coordinator, InProcess()).commits == 0


def test_a_producers_sequences_are_kept_when_its_records_are_removed() -> None:
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


# -- which range is cleaned


def test_records_younger_than_the_lag_are_not_cleaned() -> None:
    clock = ManualClock(now_ms=10 * 60_000)
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "min.compaction.lag.ms": str(5 * 60_000)})
        for minute in (1, 2, 3, 6, 7):
            put(c, ("a", str(minute)), minute=minute)
        assert [value for _, _, value in clean(c)] == ["3", "6", "7"]
        clock.advance(60)
        assert [value for _, _, value in clean(c)] == ["6", "7"]


def test_a_log_below_the_dirty_ratio_is_cleaned_when_it_is_overdue() -> None:
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


def test_a_pass_that_removes_nothing_stores_its_progress() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("x", "active"))
        clean(c)
        assert c.coordinator.refresh().partition("t", 0).cleaned_offset == 1
        version = c.coordinator.refresh().version
        clean(c)
        assert c.coordinator.refresh().version == version


def test_the_dirtiest_log_is_cleaned_first() -> None:
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
    """Notes the order of the topics."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.order.append(item.target.topic)
            yield function(item)


# -- tombstones


def test_a_tombstone_removes_the_older_records_of_its_key_and_is_kept_for_its_retention() -> None:
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


def test_an_expired_tombstone_is_removed_by_the_next_pass_that_cleans() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "1000"})
        put(c, ("a", None))
        put(c, ("x", "active"))
        clean(c)
        clock.advance(10)
        assert (0, "a", None) in clean(c), "nothing is dirty, so nothing is cleaned"
        assert (0, "a", None) not in clean_again(c)


def test_a_dirty_tombstone_is_kept_for_its_full_retention() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={**COMPACT, "delete.retention.ms": "0"})
        put(c, ("a", None))
        put(c, ("x", "active"))
        assert (0, "a", None) in clean(c), "its retention starts with the first pass that keeps it"
        assert (0, "a", None) not in clean_again(c)


@pytest.mark.parametrize(("value", "keeps_horizon"), [("1", True), (None, False)])
def test_the_time_of_a_tombstone_that_no_pass_has_kept_does_not_begin_in_a_merged_file(
    value: str | None, keeps_horizon: bool
) -> None:
    """A repair merges what a compaction had read: files with a delete horizon and others."""
    with cluster(clock=ManualClock()) as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", None))
        put(c, ("x", "active"))
        clean(c)
        put(c, ("b", value))
        state = c.coordinator.refresh()
        cleaned, *others = live(c.coordinator, "t")
        target = target_of(c.coordinator, state, "t", 0)
        replicas = replicas_of(c.coordinator, state.partition("t", 0))
        (change,) = merge_segments(MergeTask(0, (cleaned, *others), replicas, target, True)).changes
        assert change.added[0].delete_horizon_ms == (cleaned.delete_horizon_ms if keeps_horizon else -1)


def test_an_overwritten_tombstone_is_removed_immediately() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", None))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        assert clean(c) == [(1, "a", "2"), (2, "x", "active")]
        assert live(c.coordinator, "t")[0].delete_horizon_ms == -1


def test_new_tombstones_do_not_extend_the_retention_of_old_ones() -> None:
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


def test_surviving_records_are_merged_into_closed_segments() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(30):
            put(c, (f"k{number % 7}", str(number)))
        counts = compact(c.coordinator, InProcess())
        assert (counts.files_in, counts.files_out, counts.records_removed) == (29, 1, 22)
        assert [segment.closed for segment in live(c.coordinator, "t")] == [True, False]


def test_a_large_segment_that_loses_nothing_is_not_rewritten() -> None:
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


def test_unchanged_segments_are_kept_and_all_changes_are_one_commit() -> None:
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
        before = {record.offset: record for record in records(c.coordinator, "t")}
        clean(c)
        after = records(c.coordinator, "t")
        assert after == [before[record.offset] for record in after]
        assert len(after) == 6
        assert live(c.coordinator, "t")[0].append_time_ms == STORED_APPEND_TIME


def test_rolled_and_small_files_are_compacted_alike() -> None:
    contents_of_runs = []
    for rolls in (False, True):
        with cluster() as c:
            c.create_topic("t", configs={**COMPACT, "segment.ms": str(5 * 60_000)})
            for number in range(40):
                put(c, (f"k{number % 3}", str(number)))
            if rolls:
                roll(c.coordinator, InProcess())
            contents_of_runs.append(clean(c))
    assert contents_of_runs[0] == contents_of_runs[1]


def test_a_log_is_readable_from_any_offset_including_removed_ones() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(20):
            put(c, (f"k{number % 4}", str(number)), (f"u{number}", "v"))
        clean(c)
        everything = records(c.coordinator, "t")
        for start in range(40):
            assert records(c.coordinator, "t", start=start) == [
                record for record in everything if record.offset >= start
            ]


def test_damage_stops_the_pass_and_leaves_no_new_file() -> None:
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


# -- concurrent jobs


class RunWithInterruption(InProcess):
    """Runs the tasks, and then a callback before it returns the results."""

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self._callback = callback

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        results = [function(item) for item in items]
        self._callback()
        return iter(results)


def test_of_two_concurrent_passes_one_wins_and_the_other_deletes_its_files() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(6):
            put(c, ("a", str(number)))
        counts = compact(c.coordinator, RunWithInterruption(lambda: compact(c.coordinator, InProcess())))
        assert (counts.commits, counts.files_out) == (0, 0)
        assert counts.left_out
        assert [value for _, _, value in contents(c)] == ["4", "5"]
        assert len(log_files(c.coordinator)) == 6 + 1


def test_a_roll_during_a_pass_discards_the_whole_pass() -> None:
    """Otherwise the latest record of a key that one range lost could be in another range that was kept unchanged."""
    with cluster() as c:
        c.create_topic("t", configs={**COMPACT, "internal.segment.bytes": "2000"})
        put(c, ("a", "1"), ("b", "1"))
        put(c, ("big", "x" * 1900))
        put(c, ("a", "2"), minute=50)
        put(c, ("c", "2"), minute=50)
        put(c, ("x", "active"), minute=60)
        before = contents(c)
        counts = compact(c.coordinator, RunWithInterruption(lambda: roll(c.coordinator, InProcess())))
        assert counts.commits == 0
        assert contents(c) == before
        assert clean(c)[0] == (1, "b", "1")


def append_concurrently(coordinator: Coordinator) -> None:
    append(coordinator, "t", [Written(b"a", b"later", 99)])


def test_records_appended_during_a_pass_are_kept() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        put(c, ("a", "1"))
        put(c, ("a", "2"))
        put(c, ("x", "active"))
        compact(c.coordinator, RunWithInterruption(lambda: append_concurrently(c.coordinator)))
        assert [value for _, _, value in contents(c)] == ["2", "active", "later"]


# -- memory


def test_keys_that_exceed_the_memory_limit_are_compared_as_well() -> None:
    with cluster() as c:
        c.coordinator.submit(partial(alter_configs, topic="", changes={"log.cleaner.dedupe.buffer.size": "1"}))
        c.create_topic("t", configs=COMPACT)
        for minute in range(1, 4):
            written = [Written(b"%08d" % (number % 9000), b"%d" % number, minute) for number in range(20_000)]
            append(c.coordinator, "t", written)
        append(c.coordinator, "t", [Written(b"x", b"active", 5)])
        counts = compact(c.coordinator, InProcess())
        assert counts.records_removed == 60_000 - 9000
        log_records = records(c.coordinator, "t")
        assert [record.offset for record in log_records] == [*range(40_000 + 11_000, 60_000), 60_000]


def test_tasks_may_run_in_other_processes(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "c") as c:
        c.create_topic("t", configs=COMPACT)
        for number in range(4):
            put(c, ("a", str(number)))
        assert compact(c.coordinator, ProcessPool(2)).records_removed == 2
        assert [value for _, _, value in contents(c)] == ["2", "3"]


# -- any sequence of operations


keys = st.sampled_from(["a", "b", "c", "d", "", None])
values = st.sampled_from(["1", "2", None])
steps = st.one_of(
    st.lists(st.tuples(keys, values), min_size=1, max_size=5),
    st.sampled_from(["compact", "roll", "an hour", "a day"]),
)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(steps, max_size=25))
def test_any_operations_keep_the_latest_value_of_every_key(script: list[object]) -> None:
    """Compared with a model: a record may be missing only if a later one of its key is before the active segment, if it
    is a tombstone that a pass kept for a day, or if it has no key."""
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
            log_records = records(c.coordinator, "t")
            assert log_records == [appended[entry.offset] for entry in log_records]
            assert latest(log_records) == latest(appended)
            partition = c.coordinator.refresh().partition("t", 0)
            assert partition.log_end_offset == len(appended)
            assert partition.size_bytes == sum(entry.size_bytes for entry in live(c.coordinator, "t"))


def latest(records_read: list[Read]) -> dict[bytes, bytes]:
    """The final value of each key for a reader of the whole log; deleted keys are absent."""
    values_by_key: dict[bytes, bytes] = {}
    for record in records_read:
        if record.key is not None and record.value is not None:
            values_by_key[record.key] = record.value
        elif record.key is not None:
            values_by_key.pop(record.key, None)
    return values_by_key
