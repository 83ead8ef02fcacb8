"""Reading by offset and by time is exact, reads only the requested data, and verifies it."""

from __future__ import annotations

import uuid
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import CorruptIndexError, CorruptRecordError, DataLossError
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher, TimedOffset
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME
from tests.sample import examples

Batches = list[list[int]]


def new_cluster(partitions: int = 1) -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    coordinator.create_topic("t", partitions)
    return coordinator


def batch_of(timestamps: list[int], first: int = 0) -> pa.RecordBatch:
    values = pa.array([b"value-%d" % (first + i) for i in range(len(timestamps))], pa.binary())
    keys = pa.array([b"k%d" % (first + i) for i in range(len(timestamps))], pa.binary())
    stamps = pa.array(timestamps, pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([keys, values, stamps], names=["key", "value", "timestamp"])


def append_file(coordinator: Coordinator, runs: dict[int, Batches]) -> str:
    """Append one file with a run of batches for each of these partitions; each batch is given by its timestamps."""
    state = coordinator.state
    key = segment_key("t", 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key)
    for partition, batches in runs.items():
        writer.start_run(RunTarget("t", state.topic("t").topic_id, partition))
        offset = state.partition("t", partition).log_end_offset
        for timestamps in batches:
            writer.write(batch_of(timestamps, offset))
            offset += len(timestamps)
    coordinator.append(AppendRequest(appends=writer.finish()))
    return key


def read(coordinator: Coordinator, start: int, end: int, partition: int = 0) -> list[tuple[int, bytes]]:
    segments = coordinator.segments("t").partition(partition).between(start, end)
    records_read: list[tuple[int, bytes]] = []
    for records in Fetcher(lambda broker: coordinator.store).read("t", segments, start, end, ["value"]):
        values = records.batch.column(0).to_pylist()
        records_read += [(records.base_offset + row, value) for row, value in enumerate(values)]
    return records_read


shapes = st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=3), max_size=4)


@settings(max_examples=examples(60))
@given(shapes, st.integers(0, 40), st.integers(0, 40))
def test_any_range_of_offsets_is_read_exactly(files: list[Batches], start: int, end: int) -> None:
    coordinator = new_cluster()
    for batches in files:
        append_file(coordinator, {0: batches})
    total = sum(len(batch) for batches in files for batch in batches)
    expected = [(offset, b"value-%d" % offset) for offset in range(start, min(end, total))]
    assert read(coordinator, start, end) == expected


@settings(max_examples=examples(60))
@given(shapes, st.integers(0, 10))
def test_a_search_by_time_finds_the_first_offset_at_or_after_it(files: list[Batches], wanted: int) -> None:
    coordinator = new_cluster()
    for batches in files:
        append_file(coordinator, {0: batches})
    stamps = [stamp for batches in files for batch in batches for stamp in batch]
    expected = next((TimedOffset(i, stamp) for i, stamp in enumerate(stamps) if stamp >= wanted), None)
    fetcher = Fetcher(lambda broker: coordinator.store)
    assert fetcher.find_timestamp("t", coordinator.segments("t").partition(0), wanted, len(stamps)) == expected


def test_runs_of_several_partitions_in_one_file_are_read_separately() -> None:
    coordinator = new_cluster(partitions=3)
    append_file(coordinator, {0: [[1, 2]]})
    append_file(coordinator, {2: [[3], [4, 5]], 0: [[6]], 1: [[7, 8]]})
    assert read(coordinator, 0, 10, 0) == [(0, b"value-0"), (1, b"value-1"), (2, b"value-2")]
    assert read(coordinator, 1, 10, 2) == [(1, b"value-1"), (2, b"value-2")]
    fetcher = Fetcher(lambda broker: coordinator.store)
    assert fetcher.find_timestamp("t", coordinator.segments("t").partition(1), 8, 2) == TimedOffset(1, 8)
    assert fetcher.find_timestamp("t", coordinator.segments("t").partition(2), 6, 3) is None


def test_a_read_touches_only_the_requested_batches_and_columns() -> None:
    coordinator = new_cluster()
    append_file(coordinator, {0: [[i] * 2000 for i in range(10)]})
    segments = coordinator.segments("t").partition(0)
    file_size = segments[0].size_bytes
    one_record = Fetcher(lambda broker: coordinator.store)
    assert [r.base_offset for r in one_record.read("t", segments, 9_500, 9_501)] == [9_500]
    assert one_record.bytes_read < file_size / 8
    stamps = Fetcher(lambda broker: coordinator.store)
    assert sum(r.batch.num_rows for r in stamps.read("t", segments, 0, 20_000, ["timestamp"])) == 20_000
    assert stamps.bytes_read < file_size / 2


def test_records_of_a_topic_with_log_append_time_have_the_time_of_the_commit() -> None:
    coordinator = new_cluster()
    changes = {"message.timestamp.type": "LogAppendTime"}
    coordinator.submit(partial(alter_configs, topic="t", changes=changes))
    append_file(coordinator, {0: [[1, 2]]})
    committed_us = coordinator.state.timestamp_ms * 1000
    segments = coordinator.segments("t").partition(0)
    fetcher = Fetcher(lambda broker: coordinator.store)
    [records] = fetcher.read("t", segments, 0, 2, ["timestamp"])
    assert records.timestamp_type == LOG_APPEND_TIME
    assert records.batch.column(0).cast(pa.int64()).to_pylist() == [committed_us] * 2
    assert fetcher.find_timestamp("t", segments, committed_us, 2) == TimedOffset(0, committed_us)


def test_records_of_other_topics_keep_their_create_time() -> None:
    coordinator = new_cluster()
    append_file(coordinator, {0: [[5]]})
    [records] = Fetcher(lambda b: coordinator.store).read("t", coordinator.segments("t").partition(0), 0, 1)
    assert (records.timestamp_type, records.batch.column("timestamp")[0].value) == (CREATE_TIME, 5)


@pytest.mark.parametrize("ending", [".log", ".index"])
def test_a_missing_file_is_data_loss_and_the_error_names_the_records_and_the_file(ending: str) -> None:
    coordinator = new_cluster()
    append_file(coordinator, {0: [[1, 2]]})
    key = append_file(coordinator, {0: [[3]]})
    coordinator.store.delete(key.removesuffix(".log") + ending)
    assert len(read(coordinator, 0, 2)) == 2
    with pytest.raises(DataLossError, match="records 2 to 2 of t-0") as caught:
        read(coordinator, 0, 3)
    assert str(caught.value.path).endswith(ending)


def test_a_damaged_batch_stops_the_read_and_other_batches_stay_readable() -> None:
    coordinator = new_cluster()
    key = append_file(coordinator, {0: [[1] * 100, [2] * 100]})
    data = bytearray(coordinator.store.get(key))
    position = data.rindex(b"value-150")
    data[position] ^= 1
    coordinator.store.put(key, bytes(data))
    assert len(read(coordinator, 0, 100)) == 100
    with pytest.raises(CorruptRecordError, match="0x"):
        read(coordinator, 0, 200)


def test_an_index_of_another_file_is_refused() -> None:
    coordinator = new_cluster()
    first = append_file(coordinator, {0: [[1, 2]]})
    second = append_file(coordinator, {0: [[3]]})
    coordinator.store.put(first.replace(".log", ".index"), coordinator.store.get(second.replace(".log", ".index")))
    with pytest.raises((CorruptIndexError, CorruptRecordError)):
        read(coordinator, 0, 2)
