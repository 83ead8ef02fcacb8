"""A segment whose file is Parquet is read as one whose file is Arrow, by readers and by maintenance."""

from __future__ import annotations

import io
import itertools
from functools import partial

import pyarrow as pa
import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import CorruptRecordError, SparklogError
from sparklog.format import schema
from sparklog.format.index import BatchProducer, decode_index
from sparklog.format.open_segment import open_segment
from sparklog.format.parquet_writer import ParquetSegmentWriter
from sparklog.log.layout import segment_key
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.commits import LiveSegment, Run
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, change_segments, removed
from sparklog.protocol.segments import Segment, index_path
from sparklog.store.memory import MemoryStore
from tests.cluster.log.rewriting import rewrite
from tests.cluster.maintenance.logs import Read, Written, append, live, records

ROOTS = itertools.count()

ROWS = [
    Written(key=b"k1", value=b"v1", minute=1),
    Written(key=b"k2", value=None, minute=3),
    Written(key=None, value=b"", minute=2),
    Written(key=b"", value=b"v4", minute=4),
    Written(key=b"k1", value=b"v5", minute=5),
]


def cluster_with(rows: list[Written], **configs: str) -> Coordinator:
    coordinator = create_cluster(MemoryStore(f"history-{next(ROOTS)}"))
    coordinator.create_topic("t", 1, configs=configs)
    append(coordinator, "t", rows)
    return coordinator


def turn_into_parquet(coordinator: Coordinator, segment: Segment) -> None:
    """Replace a segment by one with the same records as Parquet, as the roll of a topic with history will."""
    store, state = coordinator.store, coordinator.refresh()
    index = decode_index(store.get(segment.index_path), segment.index_path)
    data = pa.py_buffer(store.get(segment.path))
    reader = open_segment(lambda position, size: data.slice(position, size), index, segment.path)
    sink = io.BytesIO()
    has_offsets = index.summary.has_offsets
    writer = ParquetSegmentWriter(sink, base_offset=segment.base_offset, has_offsets=has_offsets)
    columns = schema.columns_present(True, True, has_offsets)
    for number, entry in enumerate(index.entries):
        producer = BatchProducer(entry.producer_id, entry.producer_epoch, entry.base_sequence)
        writer.write(reader.read(number, columns), producer)
    key = segment_key("t", 0, segment.base_offset, state.version, coordinator.log.ids.write_id())
    store.put(index_path(key), writer.finish())
    store.put(key, sink.getvalue())
    run = Run(
        path=key,
        batches=segment.batches,
        records=segment.records,
        size_bytes=sum(entry.length for entry in writer.entries),
        min_timestamp_us=segment.min_timestamp_us,
        max_timestamp_us=segment.max_timestamp_us,
    )
    topic_id = state.topic("t").topic_id
    change = Replacement(
        topic="t",
        topic_id=topic_id,
        partition=0,
        start_offset=segment.base_offset,
        end_offset=segment.end_offset,
        removed=removed(topic_id, [segment]),
        added=[LiveSegment(base_offset=segment.base_offset, end_offset=segment.end_offset, closed=False, run=run)],
    )
    request = SegmentsRequest(version=state.version, changes=[change])
    assert coordinator.submit(partial(change_segments, request=request)).left_out == []


def all_to_parquet(coordinator: Coordinator) -> None:
    for segment in live(coordinator, "t"):
        turn_into_parquet(coordinator, segment)


def read(coordinator: Coordinator) -> list[Read]:
    return records(coordinator, "t")


def test_all_records_are_read_with_their_offsets_and_by_time() -> None:
    coordinator = cluster_with(ROWS)
    append(coordinator, "t", ROWS)
    before = read(coordinator)
    all_to_parquet(coordinator)
    assert read(coordinator) == before
    with LogReader(coordinator) as reader:
        assert [record.offset for record in reader.records("t", 0, 7, 9)] == [7, 8]
        found = reader.find_timestamp("t", 0, 4 * 60_000_000)
    assert found is not None
    assert found.offset == 3


def test_a_compacted_segment_keeps_its_gaps() -> None:
    coordinator = cluster_with(ROWS)
    rewrite(coordinator, keep=lambda offset: offset in (1, 4), batch_rows=1)
    before = read(coordinator)
    all_to_parquet(coordinator)
    assert [record.offset for record in before] == [1, 4]
    assert read(coordinator) == before


@pytest.mark.parametrize("configs", [{}, {"compression.type": "zstd"}])
def test_roll_merges_it_with_arrow_segments(configs: dict[str, str]) -> None:
    coordinator = cluster_with(ROWS, **configs)
    turn_into_parquet(coordinator, live(coordinator, "t")[0])
    for _ in range(40):
        append(coordinator, "t", ROWS)
    before = read(coordinator)
    assert roll(coordinator, InProcess()).files_in > 1
    assert read(coordinator) == before


def test_compaction_keeps_the_latest_record_of_each_key() -> None:
    rows = [Written(key=b"k%d" % (number % 2), value=b"%d" % number) for number in range(6)]
    coordinator = cluster_with(rows, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    append(coordinator, "t", rows)
    append(coordinator, "t", [Written(key=b"k9", value=b"active")])
    all_to_parquet(coordinator)
    compact(coordinator, InProcess())
    assert [(record.key, record.value) for record in read(coordinator)][-3:] == [
        (b"k0", b"4"),
        (b"k1", b"5"),
        (b"k9", b"active"),
    ]


def test_fsck_reads_it_and_finds_every_flipped_byte() -> None:
    coordinator = cluster_with(ROWS[:2])
    all_to_parquet(coordinator)
    assert {finding.kind for finding in check_cluster(coordinator.store).report.findings} == {"orphan-file"}
    (segment,) = live(coordinator, "t")
    sound = bytes(coordinator.store.get(segment.path))
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        coordinator.store.put(segment.path, bytes(damaged))
        kinds = {finding.kind for finding in check_cluster(coordinator.store).report.findings}
        assert kinds > {"orphan-file"}, f"byte {position}"


def test_a_flipped_byte_of_a_value_is_an_error_that_names_the_file() -> None:
    coordinator = cluster_with(ROWS)
    all_to_parquet(coordinator)
    (segment,) = live(coordinator, "t")
    entry = decode_index(coordinator.store.get(segment.index_path), segment.index_path).entry(0)
    damaged = bytearray(coordinator.store.get(segment.path))
    damaged[entry.position + entry.metadata_length + entry.key_length + 2] ^= 1
    coordinator.store.put(segment.path, bytes(damaged))
    with pytest.raises(SparklogError, match=segment.path) as raised:
        read(coordinator)
    assert isinstance(raised.value, CorruptRecordError)
