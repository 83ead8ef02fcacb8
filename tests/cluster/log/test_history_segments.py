"""A segment whose file is Parquet is read as one whose file is Arrow, by readers and by maintenance."""

from __future__ import annotations

import itertools
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog import limits
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import CorruptRecordError, SparklogError
from sparklog.format.index import decode_index
from sparklog.format.parquet import writer as parquet_writer
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments import files
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.file_names import index_path
from sparklog.protocol.segments import Segment
from sparklog.store.memory import MemoryStore
from tests.cluster.log.rewriting import rewrite
from tests.cluster.maintenance.logs import Read, Written, append, live, records
from tests.sample import chosen

ROOTS = itertools.count()

ROWS = [
    Written(key=b"k1", value=b"v1", minute=1),
    Written(key=b"k2", value=None, minute=3),
    Written(key=None, value=b"", minute=2),
    Written(key=b"", value=b"v4", minute=4),
    Written(key=b"k1", value=b"v5", minute=5),
]


LATER = [Written(key=b"last", value=b"active", minute=60)]


def cluster_with(*appends: list[Written], **configs: str) -> Coordinator:
    """A topic whose segments are history as soon as they are closed, which each is a minute after its first record."""
    coordinator = create_cluster(MemoryStore(f"history-{next(ROOTS)}"))
    coordinator.create_topic("t", 1, configs={"history.format": "delta", "segment.ms": "60000", **configs})
    for rows in appends:
        append(coordinator, "t", rows)
    return coordinator


def roll_to_history(coordinator: Coordinator) -> list[Segment]:
    """Close all segments and roll; return those that are history, all but the active one."""
    append(coordinator, "t", LATER)
    roll(coordinator, InProcess())
    *closed, active = live(coordinator, "t")
    assert not active.is_history
    assert closed
    assert all(segment.is_history and segment.closed for segment in closed)
    return closed


def read(coordinator: Coordinator) -> list[Read]:
    return records(coordinator, "t")


def test_all_records_are_read_with_their_offsets_and_by_time() -> None:
    coordinator = cluster_with(ROWS, ROWS)
    before = read(coordinator)
    roll_to_history(coordinator)
    assert read(coordinator)[:-1] == before
    with LogReader(coordinator) as reader:
        assert [record.offset for record in reader.records("t", 0, 7, 9)] == [7, 8]
        found = reader.find_timestamp("t", 0, 4 * 60_000_000)
    assert found is not None
    assert found.offset == 3


def test_history_is_in_the_folder_of_the_topics_table() -> None:
    coordinator = cluster_with(ROWS)
    (segment,) = roll_to_history(coordinator)
    assert segment.path.startswith("tables/t/_segments/partition=0/00000000000000000000-v")
    assert segment.index_path == f"{segment.path}.index"
    coordinator.store.info(segment.index_path)


def test_garbage_collection_deletes_history_of_no_use_and_no_other() -> None:
    coordinator = cluster_with(ROWS, **{"file.delete.delay.ms": "0"})
    (segment,) = roll_to_history(coordinator)
    abandoned = segment.path.replace("-v", "-v0-abandoned-v")
    for key in (abandoned, index_path(abandoned)):
        coordinator.store.put(key, b"never committed")
    report = vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)
    assert {file.path for file in report.files} == {abandoned, index_path(abandoned)}
    assert not report.left_alone
    assert not check_cluster(coordinator.store).report.findings
    assert len(read(coordinator)) == len(ROWS) + 1
    delete_topic(coordinator, "t")
    vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)
    assert not [info.key for info in coordinator.store.list("tables/t/_segments/")]


def test_any_parquet_reader_sees_absolute_offsets() -> None:
    coordinator = cluster_with(ROWS, ROWS)
    segments = roll_to_history(coordinator)
    tables = [pq.read_table(pa.BufferReader(coordinator.store.get(segment.path))) for segment in segments]
    offsets = [offset for table in tables for offset in table.column("offset").to_pylist()]
    assert offsets == [record.offset for record in read(coordinator)[:-1]]


def test_a_closed_segment_of_one_file_becomes_history_and_then_stays_as_it_is() -> None:
    coordinator = cluster_with(ROWS)
    (segment,) = roll_to_history(coordinator)
    assert roll(coordinator, InProcess()).files_in == 0
    assert live(coordinator, "t")[0] == segment


def test_history_stays_readable_after_the_topic_returns_to_arrow() -> None:
    coordinator = cluster_with(ROWS)
    roll_to_history(coordinator)
    coordinator.submit(partial(alter_configs, topic="t", changes={"history.format": "arrow"}))
    append(coordinator, "t", [Written(minute=120)])
    append(coordinator, "t", [Written(minute=120)])
    append(coordinator, "t", [Written(minute=180)])
    before = read(coordinator)
    roll(coordinator, InProcess())
    assert [segment.is_history for segment in live(coordinator, "t")] == [True, False, False, False]
    assert read(coordinator) == before


def test_a_compacted_segment_keeps_its_gaps() -> None:
    coordinator = cluster_with(ROWS)
    rewrite(coordinator, keep=lambda offset: offset in (1, 4), batch_rows=1)
    before = read(coordinator)
    roll_to_history(coordinator)
    assert [record.offset for record in before] == [1, 4]
    assert read(coordinator)[:-1] == before


def test_append_times_are_the_timestamps_of_the_files() -> None:
    coordinator = cluster_with(**{"message.timestamp.type": "LogAppendTime", "segment.ms": "1"})
    append(coordinator, "t", ROWS, log_append_time=True)
    append(coordinator, "t", ROWS, log_append_time=True)
    before = read(coordinator)
    roll(coordinator, InProcess())
    assert read(coordinator) == before


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_codec_is_the_topics_and_zstd_if_it_leaves_that_to_producers(codec: str) -> None:
    coordinator = cluster_with(ROWS, **{"compression.type": codec})
    before = read(coordinator)
    (segment,) = roll_to_history(coordinator)
    assert read(coordinator)[:-1] == before
    index = decode_index(coordinator.store.get(segment.index_path), segment.index_path)
    assert index.codec == {"producer": "zstd", "uncompressed": "none"}.get(codec, codec)


def test_compaction_keeps_the_latest_record_of_each_key_in_history() -> None:
    rows = [Written(key=b"k%d" % (number % 2), value=b"%d" % number) for number in range(6)]
    coordinator = cluster_with(rows, rows, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    roll_to_history(coordinator)
    compact(coordinator, InProcess())
    assert [(record.key, record.value) for record in read(coordinator)] == [
        (b"k0", b"4"),
        (b"k1", b"5"),
        (b"last", b"active"),
    ]
    assert all(segment.is_history for segment in live(coordinator, "t")[:-1])


def test_a_roll_keeps_the_time_at_which_tombstones_may_be_deleted() -> None:
    rows = [Written(key=b"k1", value=b"v", minute=1), Written(key=b"k2", value=None, minute=1)]
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "history.format": "arrow"}
    coordinator = cluster_with(rows, [rows[0]], **configs)
    append(coordinator, "t", LATER)
    compact(coordinator, InProcess())
    before = live(coordinator, "t")[0]
    coordinator.submit(partial(alter_configs, topic="t", changes={"history.format": "delta"}))
    roll(coordinator, InProcess())
    after = live(coordinator, "t")[0]
    assert after.is_history
    assert after.delete_horizon_ms == before.delete_horizon_ms > 0


def test_a_segment_of_more_row_groups_than_a_file_may_have_gets_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TARGET_ROW_GROUP_BYTES", 1000)
    monkeypatch.setattr(limits, "MAX_ROW_GROUPS_PER_FILE", 16)
    monkeypatch.setattr(parquet_writer, "MAX_ROW_GROUPS_PER_FILE", 16)
    coordinator = cluster_with(*[[Written(value=b"x" * 500, minute=1)] * 2 for _ in range(60)])
    before = read(coordinator)
    (segment,) = roll_to_history(coordinator)
    assert 8 < segment.batches <= 16
    assert read(coordinator)[:-1] == before


def test_so_does_one_with_typed_columns_that_take_more_than_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TYPED_BYTES", 2000)
    monkeypatch.setattr(limits, "MAX_ROW_GROUPS_PER_FILE", 16)
    monkeypatch.setattr(parquet_writer, "MAX_ROW_GROUPS_PER_FILE", 16)
    schema = ", ".join(f"f{number} bigint" for number in range(20))
    rows = [[Written(value=b'{"f%d":1}' % (number % 20), minute=1)] * 10 for number in range(60)]
    coordinator = cluster_with(*rows, **{"value.format": "json", "value.schema": schema})
    before = read(coordinator)
    (segment,) = roll_to_history(coordinator)
    assert 8 < segment.batches <= 16
    assert read(coordinator)[:-1] == before


@pytest.mark.sampled
def test_fsck_reads_it_and_finds_every_flipped_byte() -> None:
    coordinator = cluster_with(ROWS[:2])
    (segment,) = roll_to_history(coordinator)
    assert not check_cluster(coordinator.store).report.findings
    sound = bytes(coordinator.store.get(segment.path))
    for position in chosen(range(len(sound))):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        coordinator.store.put(segment.path, bytes(damaged))
        assert check_cluster(coordinator.store).report.findings, f"byte {position}"


def test_fsck_says_who_can_read_a_file_with_a_damaged_footer() -> None:
    coordinator = cluster_with(ROWS)
    (segment,) = roll_to_history(coordinator)
    damaged = bytearray(coordinator.store.get(segment.path))
    damaged[-10] ^= 1
    coordinator.store.put(segment.path, bytes(damaged))
    (finding,) = check_cluster(coordinator.store).report.findings
    assert (finding.kind, finding.severity) == ("damaged-file", "error")
    assert "can still be read by sparklog, but no other Parquet reader" in finding.message
    assert len(read(coordinator)) == len(ROWS) + 1


def test_a_flipped_byte_of_a_value_is_an_error_that_names_the_file() -> None:
    coordinator = cluster_with(ROWS)
    (segment,) = roll_to_history(coordinator)
    entry = decode_index(coordinator.store.get(segment.index_path), segment.index_path).entry(0)
    damaged = bytearray(coordinator.store.get(segment.path))
    damaged[entry.position + entry.metadata_length + entry.key_length + 2] ^= 1
    coordinator.store.put(segment.path, bytes(damaged))
    with pytest.raises(SparklogError, match=segment.path) as raised:
        read(coordinator)
    assert isinstance(raised.value, CorruptRecordError)


def test_fsck_rebuilds_a_damaged_index() -> None:
    coordinator = cluster_with(ROWS, ROWS)
    segment = roll_to_history(coordinator)[0]
    before = read(coordinator)
    index = bytearray(coordinator.store.get(segment.index_path))
    index[70] ^= 1
    coordinator.store.put(segment.index_path, bytes(index))
    repair_cluster(check_cluster(coordinator.store))
    assert not check_cluster(coordinator.store).report.findings
    assert read(open_cluster(coordinator.store)) == before


def test_fsck_rebuilds_an_index_that_is_lost_at_every_replica() -> None:
    coordinator = create_cluster(MemoryStore(f"history-{next(ROOTS)}"))
    add_broker(coordinator, f"memory://history-{next(ROOTS)}")
    coordinator.create_topic("t", 1, 2, configs={"history.format": "delta", "segment.ms": "60000"})
    with Producer(cluster=coordinator) as producer:
        for minute in (1, 2, 60):
            producer.send("t", b"v%d" % minute, timestamp_ms=minute * 60_000).get()
    roll(coordinator, InProcess())
    before, segment = read(coordinator), live(coordinator, "t")[0]
    assert segment.is_history
    for broker in (0, 1):
        coordinator.store_of(broker).delete(segment.index_path)
    repair_cluster(check_cluster(coordinator.store))
    assert not check_cluster(coordinator.store).report.findings
    assert read(open_cluster(coordinator.store)) == before
