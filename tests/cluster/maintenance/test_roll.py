"""A roll merges small files into large ones: the same records and offsets, in files with the topic's settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import CorruptRecordError, DataLossError, StorageError, StorageUnavailableError
from sparklog.format.index import Index, decode_index
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits.retired_files import read_removed
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.runner import InProcess, ProcessPool
from sparklog.maintenance.segments.files import Source
from sparklog.maintenance.segments.merge import MergeTask, merge_segments
from sparklog.maintenance.segments.replacement import replicas_of, target_of
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.commits import ChangePartition, LiveSegment, RegisterBroker, Run
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, change_segments, removed
from sparklog.protocol.file_names import begun_at
from sparklog.protocol.segments import STORED_APPEND_TIME, replacement_of
from sparklog.store.base import OutputFile
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.open import open_store
from sparklog.testing.clusters import cluster
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.logs import Read, Written, append, batch_of, live, log_files, records
from tests.sample import examples

HOUR_MS = 3_600_000


def index_of(coordinator: Coordinator, path: str) -> Index:
    key = path.removesuffix(".log") + ".index"
    return decode_index(coordinator.store.get(key), key)


def small_files(coordinator: Coordinator, count: int, topic: str = "t", **more: Any) -> None:
    for number in range(count):
        append(coordinator, topic, [Written(b"k%d" % number, b"v%d" % number, number)], **more)


def test_small_files_are_merged_into_one_and_every_record_is_unchanged() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 20)
        before = records(c.coordinator, "t")
        result = roll(c.coordinator, InProcess())
        assert (result.files_in, result.files_out, result.commits) == (20, 1, 1)
        assert len(live(c.coordinator, "t")) == 1
        assert records(c.coordinator, "t") == before
        assert len(before) == 20


def test_many_files_are_merged_although_one_read_in_seven_fails() -> None:
    """Without retries a task of 200 files never ends well, and the more files are left, the less likely it is to."""
    clock, reads = ManualClock(), itertools.count(1)

    def fail_some_reads(step: int, call: Call) -> None:
        is_read = call.key.endswith((".log", ".index")) and call.operation in ("get", "get_range", "read_at")
        if is_read and next(reads) % 7 == 0:
            raise StorageUnavailableError("503 Slow Down")

    with cluster(clock=clock) as c:
        c.create_topic("t")
        small_files(c.coordinator, 200)
        before = records(c.coordinator, "t")
        failing = open_cluster(FaultyStore(c.coordinator.store, before=fail_some_reads), clock=clock)
        assert roll(failing, InProcess()).files_in == 200
        assert next(reads) > 7
        assert records(c.coordinator, "t") == before


def test_a_long_roll_that_is_killed_keeps_what_it_has_done_until_then() -> None:
    clock, tasks = ManualClock(), itertools.count(1)

    def take_long() -> None:
        clock.sleep(6)
        if next(tasks) == 6:
            raise KeyboardInterrupt

    with cluster(clock=clock) as c:
        c.create_topic("t", partitions=8)
        for partition in range(8):
            small_files(c.coordinator, 20, partition=partition)
        with pytest.raises(KeyboardInterrupt):
            roll(c.coordinator, InProcess(take_long))
        assert [len(live(c.coordinator, "t", partition)) for partition in range(8)] == [1] * 3 + [20] * 5


def test_the_new_file_is_named_by_its_base_offset_and_the_planned_version() -> None:
    with cluster() as c:
        c.create_topic("t", configs={"segment.ms": str(HOUR_MS)})
        small_files(c.coordinator, 130)
        version = c.coordinator.refresh().version
        roll(c.coordinator, InProcess())
        for segment, base in zip(live(c.coordinator, "t"), (0, 61, 122), strict=True):
            assert segment.path.startswith(f"t-0/{base:020d}-v{version}-")
            assert begun_at(segment.path) == version


def test_complete_segments_are_closed_and_the_active_one_is_not() -> None:
    with cluster() as c:
        c.create_topic("t", configs={"segment.ms": str(HOUR_MS)})
        small_files(c.coordinator, 70)
        roll(c.coordinator, InProcess())
        assert [(segment.base_offset, segment.end_offset, segment.closed) for segment in live(c.coordinator, "t")] == [
            (0, 61, True),
            (61, 70, False),
        ]


def test_a_second_roll_has_nothing_to_do() -> None:
    with cluster() as c:
        c.create_topic("t", 2)
        small_files(c.coordinator, 10)
        roll(c.coordinator, InProcess())
        version = c.coordinator.refresh().version
        assert roll(c.coordinator, InProcess()).commits == 0
        assert c.coordinator.refresh().version == version


def test_all_partitions_of_all_topics_are_rolled_in_one_commit() -> None:
    with cluster() as c:
        for topic in ("a", "b"):
            c.create_topic(topic, 2)
            for partition in (0, 1):
                small_files(c.coordinator, 5, topic, partition=partition)
        version = c.coordinator.refresh().version
        result = roll(c.coordinator, InProcess())
        assert (result.files_in, result.files_out) == (20, 4)
        assert c.coordinator.refresh().version == version + 1


def test_only_the_requested_topics_are_rolled() -> None:
    with cluster() as c:
        for topic in ("a", "b"):
            c.create_topic(topic)
            small_files(c.coordinator, 5, topic)
        roll(c.coordinator, InProcess(), ["b"])
        assert (len(live(c.coordinator, "a")), len(live(c.coordinator, "b"))) == (5, 1)


def test_the_old_files_are_kept_for_their_readers_and_listed_for_deletion() -> None:
    with cluster() as c:
        c.create_topic("t", configs={"file.delete.delay.ms": "1234"})
        small_files(c.coordinator, 4)
        old = log_files(c.coordinator)
        roll(c.coordinator, InProcess())
        assert set(old) < set(log_files(c.coordinator))
        ((listing, removed_files),) = c.coordinator.refresh().removed_files.items()
        assert sorted(file.path for file in read_removed(c.coordinator.store, listing)) == sorted(old)
        assert removed_files.delete_at_ms == c.coordinator.state.timestamp_ms + 1234


def test_a_roll_updates_the_counts_and_keeps_the_producers_sequences() -> None:
    with cluster() as c:
        c.create_topic("t")
        producer = c.coordinator.submit(init_producer)
        for number in range(8):
            append(
                c.coordinator, "t", [Written(b"k")] * 3,
                producer_id=producer.producer_id, producer_epoch=0, base_sequence=3 * number,
            )  # fmt: skip
        before = c.coordinator.refresh().partition("t", 0)
        roll(c.coordinator, InProcess())
        after = c.coordinator.refresh().partition("t", 0)
        (segment,) = live(c.coordinator, "t")
        assert (after.segments, after.size_bytes) == (1, segment.size_bytes)
        assert (after.log_end_offset, after.producers) == (before.log_end_offset, before.producers)
        entry = index_of(c.coordinator, segment.path).entry(0)
        assert (entry.producer_id, entry.base_sequence, entry.count) == (producer.producer_id, 0, 24)


def test_a_batch_of_several_producers_has_no_producer() -> None:
    with cluster() as c:
        c.create_topic("t")
        for number in range(4):
            append(
                c.coordinator, "t", [Written(b"k")], producer_id=number % 2, producer_epoch=0, base_sequence=number // 2
            )
        roll(c.coordinator, InProcess())
        entry = index_of(c.coordinator, live(c.coordinator, "t")[0].path).entry(0)
        assert (entry.producer_id, entry.producer_epoch, entry.base_sequence) == (-1, -1, -1)


def test_headers_and_missing_keys_are_kept_if_only_some_files_have_them() -> None:
    with cluster() as c:
        c.create_topic("t")
        append(c.coordinator, "t", [Written(None, b"a"), Written(None, None)])
        append(c.coordinator, "t", [Written(b"", b"b", 1)])
        append(c.coordinator, "t", [Written(b"k", b"", 2, [("h", b"1"), ("h", b"2")]), Written(None, b"c", 3, [])])
        append(c.coordinator, "t", [Written(None, b"d", 4)])
        before = records(c.coordinator, "t")
        roll(c.coordinator, InProcess())
        assert records(c.coordinator, "t") == before


@pytest.mark.parametrize(
    ("configs", "written", "expected"),
    [
        ({}, "lz4", "lz4"),
        ({}, "snappy", "snappy"),
        ({"compression.type": "zstd"}, "none", "zstd"),
        ({"compression.type": "gzip"}, "lz4", "gzip"),
        ({"compression.type": "uncompressed"}, "zstd", "none"),
    ],
)
def test_files_are_written_with_the_topics_compression(configs: dict[str, str], written: str, expected: str) -> None:
    with cluster() as c:
        c.create_topic("t", configs=configs)
        small_files(c.coordinator, 5, codec=written)
        before = records(c.coordinator, "t")
        roll(c.coordinator, InProcess())
        assert index_of(c.coordinator, live(c.coordinator, "t")[0].path).codec == expected
        assert records(c.coordinator, "t") == before


def test_append_times_are_stored_in_the_file() -> None:
    clock = ManualClock()
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        for number in range(5):
            clock.advance(60)
            append(c.coordinator, "t", [Written(b"k", b"v", number)] * 2, log_append_time=True)
        before = records(c.coordinator, "t")
        roll(c.coordinator, InProcess())
        (segment,) = live(c.coordinator, "t")
        assert segment.append_time_ms == STORED_APPEND_TIME
        assert records(c.coordinator, "t") == before
        assert len({record.timestamp_us for record in before}) == 5
        for _ in range(4):
            append(c.coordinator, "t", [Written(b"k")], log_append_time=True)
        before = records(c.coordinator, "t")
        roll(c.coordinator, InProcess())
        assert records(c.coordinator, "t") == before


def test_an_index_entry_covers_at_least_index_interval_bytes() -> None:
    with cluster() as c:
        c.create_topic("t", configs={"index.interval.bytes": str(3 * 2**20)})
        for _ in range(10):
            append(c.coordinator, "t", [Written(b"k", b"x" * 2**20)])
        roll(c.coordinator, InProcess())
        index = index_of(c.coordinator, live(c.coordinator, "t")[0].path)
        assert [entry.count for entry in index.entries] == [3, 3, 3, 1]


def test_batches_have_the_default_size() -> None:
    with cluster() as c:
        c.create_topic("t")
        for _ in range(8):
            append(c.coordinator, "t", [Written(b"k", b"x" * 300_000)])
        roll(c.coordinator, InProcess())
        index = index_of(c.coordinator, live(c.coordinator, "t")[0].path)
        assert [entry.count for entry in index.entries] == [4, 4]


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_large_batches_are_copied_unchanged_between_small_ones(codec: str) -> None:
    with cluster() as c:
        c.create_topic("t")
        large = [Written(b"%d" % number, b"x" * 1000, number) for number in range(1500)]
        append(c.coordinator, "t", large, large[:5], codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
        for _ in range(3):
            append(c.coordinator, "t", [Written(b"k", b"small", 2000)], codec=codec)
        append(c.coordinator, "t", large, large, codec=codec)
        before = records(c.coordinator, "t")
        old = [index_of(c.coordinator, segment.path) for segment in live(c.coordinator, "t")]
        append(c.coordinator, "t", [Written(b"k", b"v", 3000)])
        merge_all(c.coordinator)
        (segment, _) = live(c.coordinator, "t")
        index = index_of(c.coordinator, segment.path)
        assert [entry.count for entry in index.entries] == [1500, 5 + 3, 1500, 1500]
        assert index.entry(0).crc32c == old[0].entry(0).crc32c
        assert index.entry(0).producer_id == 5
        assert records(c.coordinator, "t")[:-1] == before


def merge_all(coordinator: Coordinator) -> None:
    """Merge all but the last file of ``t``, whatever the roll would plan."""
    state = coordinator.refresh()
    segments = live(coordinator, "t")[:-1]
    replicas = replicas_of(coordinator, state.partition("t", 0))
    assert replicas is not None
    task = MergeTask(0, segments, replicas, target_of(coordinator, state, "t", 0), closed=True)
    merged = merge_segments(task).changes[0].added[0]
    topic_id = state.topic("t").topic_id
    change = Replacement(
        topic="t", topic_id=topic_id, partition=0, start_offset=0, end_offset=segments[-1].end_offset,
        removed=removed(topic_id, segments), added=[merged],
    )  # fmt: skip
    coordinator.submit(partial(change_segments, request=SegmentsRequest(version=state.version, changes=[change])))


def test_runs_of_many_partitions_in_one_file_are_separated() -> None:
    with cluster() as c:
        c.create_topic("t", 3)
        for number in range(5):
            append_to_all(c.coordinator, "t", number)
        before = [records(c.coordinator, "t", partition) for partition in range(3)]
        roll(c.coordinator, InProcess())
        assert [records(c.coordinator, "t", partition) for partition in range(3)] == before
        assert [live(c.coordinator, "t", partition)[0].path[:3] for partition in range(3)] == ["t-0", "t-1", "t-2"]


def append_to_all(coordinator: Coordinator, topic: str, number: int) -> None:
    """Append one file for all partitions, as a task that wrote to many partitions does."""
    state = coordinator.refresh().topic(topic)
    key = segment_key(topic, 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key)
    for partition in range(len(state.partitions)):
        writer.start_run(RunTarget(topic, state.topic_id, partition))
        same = [Written(b"%d" % partition, b"%d" % number)] * (partition + 1)
        writer.write(batch_of(same, ["key", "value", "timestamp"]))
    coordinator.append(AppendRequest(appends=writer.finish()))


# -- concurrent jobs, and readers


def test_a_merge_that_conflicts_with_another_job_is_skipped_and_its_file_deleted() -> None:
    with cluster() as c:
        c.create_topic("t", 2)
        for partition in (0, 1):
            small_files(c.coordinator, 5, partition=partition)
        result = roll(c.coordinator, Interrupted(lambda: roll_partition_first(c.coordinator, 0)))
        assert (result.files_out, len(result.left_out)) == (1, 1)
        assert "t-0" in result.left_out[0]
        assert len(log_files(c.coordinator)) == 10 + 1 + 1, "the old files, the other job's, and that of partition 1"


class Interrupted(InProcess):
    """Runs the tasks, and then a callback before it returns the results."""

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self._callback = callback

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        results = [function(item) for item in items]
        self._callback()
        return iter(results)


def roll_partition_first(coordinator: Coordinator, partition: int) -> None:
    """Roll a partition as another, faster job would."""
    state = coordinator.refresh()
    topic = state.topic("t")
    segments = live(coordinator, "t", partition)
    run = Run(
        path=f"t-{partition}/{0:020d}-v{state.version}-other.log",
        batches=1, records=5, size_bytes=1, min_timestamp_us=0, max_timestamp_us=0,
    )  # fmt: skip
    coordinator.submit(partial(change_segments, request=SegmentsRequest(
            version=state.version,
            changes=[
                Replacement(
                    topic="t", topic_id=topic.topic_id, partition=partition, start_offset=0, end_offset=5,
                    removed=removed(topic.topic_id, segments),
                    added=[LiveSegment(base_offset=0, end_offset=5, run=run)],
                )
            ],
        )))  # fmt: skip
    coordinator.store.put(run.path, b"x")


def test_a_topic_deleted_during_a_roll_leaves_no_new_files() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        before = log_files(c.coordinator)
        result = roll(c.coordinator, Interrupted(lambda: delete_topic(c.coordinator, "t")))
        assert result.files_out == 0
        assert result.left_out
        assert log_files(c.coordinator) == before


def test_records_appended_during_a_roll_are_kept() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        roll(c.coordinator, Interrupted(lambda: small_files(c.coordinator, 1)))
        assert [len(records(c.coordinator, "t")), len(live(c.coordinator, "t"))] == [6, 2]


def test_a_reader_of_an_older_state_continues_with_the_old_files() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        old = c.coordinator.refresh()
        roll(c.coordinator, InProcess())
        assert [segment.end_offset for segment in c.coordinator.segments("t", old).partition(0)] == [1, 2, 3, 4, 5]


# -- damage and replicas


def test_a_damaged_file_is_not_merged_and_the_others_are_rolled() -> None:
    with cluster() as c:
        c.create_topic("t", 2)
        for partition in (0, 1):
            small_files(c.coordinator, 5, partition=partition)
        damage(c.coordinator, live(c.coordinator, "t", 0)[3].path)
        before = log_files(c.coordinator)
        with pytest.raises(CorruptRecordError):
            roll(c.coordinator, InProcess())
        assert (len(live(c.coordinator, "t", 0)), len(live(c.coordinator, "t", 1))) == (5, 1)
        assert len(log_files(c.coordinator)) == len(before) + 1


def damage(coordinator: Coordinator, path: str) -> None:
    data = bytearray(coordinator.store.get(path))
    for at in range(len(data) // 3, len(data) // 2):
        data[at] ^= 0xFF
    coordinator.store.put(path, bytes(data))


def test_a_missing_file_is_reported_as_data_loss() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        c.coordinator.store.delete(live(c.coordinator, "t")[2].path)
        with pytest.raises(DataLossError, match="missing"):
            roll(c.coordinator, InProcess())


def replicated(coordinator: Coordinator, url: str) -> None:
    """Give broker 1 copies of all files of ``t``, in sync."""
    topic = coordinator.refresh().topic("t")
    open_store(url).put(IDENTITY_KEY, encode_identity(coordinator.state.cluster_id, 1))
    coordinator.submit(lambda state: Decision([RegisterBroker(broker=1, url=url)], None))
    for key in [info.key for info in coordinator.store.list("t-0/")]:
        coordinator.store_of(1).put(key, coordinator.store.get(key))
    change = ChangePartition(
        topic="t", topic_id=topic.topic_id, partition=0, leader=0, leader_epoch=0, isr=[0, 1], replicas=[0, 1]
    )
    coordinator.submit(lambda state: Decision([change], None))


def test_all_in_sync_replicas_get_the_same_file_and_stay_in_sync() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        replicated(c.coordinator, f"memory://{c.coordinator.log.ids.write_id()}")
        roll(c.coordinator, InProcess())
        (segment,) = live(c.coordinator, "t")
        assert c.coordinator.refresh().partition("t", 0).isr == (0, 1)
        for key in (segment.path, segment.index_path):
            assert c.coordinator.store.get(key) == c.coordinator.store_of(1).get(key)


@pytest.mark.parametrize("harm", ["damage", "delete"])
def test_an_intact_replica_is_read_instead_of_a_damaged_one(harm: str) -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        before = records(c.coordinator, "t")
        replicated(c.coordinator, f"memory://{c.coordinator.log.ids.write_id()}")
        path = live(c.coordinator, "t")[3].path
        if harm == "damage":
            damage(c.coordinator, path)
        else:
            c.coordinator.store.delete(path)
        roll(c.coordinator, InProcess())
        assert records(c.coordinator, "t") == before


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_replica_that_cannot_be_written_fails_the_roll_and_leaves_the_log_unchanged(broker: int, suffix: str) -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 5)
        replicated(c.coordinator, f"memory://{c.coordinator.log.ids.write_id()}")
        stores = [c.coordinator.store_of(number) for number in (0, 1)]
        before = [[info.key for info in store.list("t-0/")] for store in stores]
        open_output = stores[broker].open_output

        def refuse(key: str) -> OutputFile:
            if key.endswith(suffix):
                raise StorageError(f"{key} cannot be written")
            return open_output(key)

        stores[broker].open_output = refuse  # type: ignore[method-assign]
        with pytest.raises(StorageError, match="cannot be written"):
            roll(c.coordinator, InProcess())
        assert [[info.key for info in store.list("t-0/")] for store in stores] == before
        assert len(live(c.coordinator, "t")) == 5


def test_offsets_skipped_by_an_unclean_election_stay_skipped() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c.coordinator, 4)
        first, second, third, fourth = live(c.coordinator, "t")
        jumped = [
            replace(segment, base_offset=segment.base_offset + 7, end_offset=segment.end_offset + 7)
            for segment in (third, fourth)
        ]
        replicas = replicas_of(c.coordinator, c.coordinator.state.partition("t", 0))
        assert replicas is not None
        target = target_of(c.coordinator, c.coordinator.state, "t", 0)
        task = MergeTask(0, [first, second, *jumped], replicas, target, closed=False)
        merged = merge_segments(task).changes[0].added[0]
        assert (merged.base_offset, merged.end_offset, merged.run.records) == (0, 11, 4)
        source = Source("t", replacement_of(0, merged, 99), replicas)
        assert source.read(0, ["value", "offset"]).column(1).to_pylist() == [0, 1, 9, 10]


def test_tasks_may_run_in_other_processes(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "c") as c:
        c.create_topic("t", 2)
        for partition in (0, 1):
            small_files(c.coordinator, 5, partition=partition)
        before = [records(c.coordinator, "t", partition) for partition in (0, 1)]
        assert roll(c.coordinator, ProcessPool(2)).files_out == 2
        assert [records(c.coordinator, "t", partition) for partition in (0, 1)] == before


# -- any sequence of operations


some_bytes = st.one_of(st.none(), st.binary(max_size=6))
some_headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2))
some_records = st.lists(
    st.builds(Written, some_bytes, some_bytes, st.integers(0, 300), some_headers, st.just(0)), min_size=1, max_size=4
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(some_records, min_size=1, max_size=3), max_size=12),
    st.sampled_from(["none", "lz4", "gzip"]),
    st.integers(1, 6),
)
def test_rolls_do_not_change_any_appended_records(files: list[list[list[Written]]], codec: str, every: int) -> None:
    with cluster() as c:
        c.create_topic("t", configs={"segment.ms": str(HOUR_MS), "compression.type": "lz4"})
        expected: list[Read] = []
        for number, batches in enumerate(files):
            append(c.coordinator, "t", *batches, codec=codec)
            for written in [record for batch in batches for record in batch]:
                expected.append(
                    Read(
                        len(expected),
                        written.key,
                        written.value,
                        written.minute * 60_000_000,
                        list(written.headers or ()),
                    )
                )
            if number % every == 0:
                roll(c.coordinator, InProcess())
        roll(c.coordinator, InProcess())
        assert records(c.coordinator, "t") == expected
        for start in range(0, len(expected), 3):
            assert records(c.coordinator, "t", start=start) == expected[start:]
