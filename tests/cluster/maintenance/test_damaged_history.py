"""Damage to a history file is an error that names the file, in every read and job that needs the damaged bytes; what
nobody reads there, ``fsck`` finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog import TopicPartition
from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptRecordError, SparklogError
from sparklog.format.index import BatchEntry, decode_index
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.protocol.segments import Segment
from tests.cluster.maintenance.logs import Written, append, live
from tests.cluster.maintenance.published_tables import DELTA, alter, cluster_in, delete_records, roll_all

STORED = ("key", "value", "timestamp", "headers", "offset")
TYPED = {"value.format": "json", "value.schema": "customer string, amount double"}


def history(folder: Path) -> tuple[Coordinator, Segment]:
    """A typed topic, and its first history segment, of nine records."""
    coordinator = cluster_in(folder)
    coordinator.create_topic("t", 1, configs={**DELTA, **TYPED, "min.cleanable.dirty.ratio": "0"})
    for number in range(9):
        value = b'{"customer":"c%d","amount":%d}' % (number, number)
        append(coordinator, "t", [Written(b"k%d" % (number % 3), value, 0, [("h", b"%d" % number)])])
    append(coordinator, "t", [Written(b"last", b"active", 60)])
    roll_all(coordinator)
    segment = live(coordinator, "t")[0]
    assert segment.is_history
    return coordinator, segment


def consume(coordinator: Coordinator) -> None:
    with sparklog.Consumer(bootstrap_servers=coordinator.store.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while consumer.position(TopicPartition("t", 0)) < 10:
            consumer.poll(timeout_ms=100)


def scan(coordinator: Coordinator) -> None:
    sparklog.scan("t", coordinator.store.root).to_arrow()


def compact_all(coordinator: Coordinator) -> None:
    alter(coordinator, cleanup_policy="compact")
    compact(coordinator, InProcess())


def rewrite(coordinator: Coordinator) -> None:
    """Roll, which rewrites a history file without its deleted records."""
    delete_records(coordinator, 4)
    roll_all(coordinator)


READS = [consume, scan, compact_all, rewrite]
Read = Callable[[Coordinator], None]


def positions(coordinator: Coordinator, segment: Segment) -> dict[str, range]:
    """Return where the columns of a record lie in the file, and as ``metadata`` the typed columns before them."""
    entry: BatchEntry = decode_index(coordinator.store.get(segment.index_path), segment.index_path).entry(0)
    position, found = entry.position, {}
    for name in ("metadata", *STORED):
        length = getattr(entry, f"{name}_length")
        found[name] = range(position, position + length)
        position += length
    return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    replace(path, bytes(data))


def replace(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("column", ["key", "value", "timestamp", "headers"])
def test_a_flipped_bit_of_a_column_that_is_read_is_an_error_that_names_the_file(
    read: Read, column: str, tmp_path: Path
) -> None:
    coordinator, segment = history(tmp_path)
    where = positions(coordinator, segment)[column]
    flip(tmp_path / segment.path, where[len(where) // 2])
    with pytest.raises(CorruptRecordError, match=segment.path):
        read(coordinator)


@pytest.mark.parametrize("read", READS)
def test_a_file_that_is_cut_short_is_an_error_that_names_it(read: Read, tmp_path: Path) -> None:
    coordinator, segment = history(tmp_path)
    data = (tmp_path / segment.path).read_bytes()
    replace(tmp_path / segment.path, data[: positions(coordinator, segment)["value"].stop - 1])
    with pytest.raises(SparklogError, match=segment.path):
        read(coordinator)


@pytest.mark.parametrize(("part", "kind"), [("typed columns", "damaged-batch"), ("footer", "damaged-file")])
def test_damage_that_a_consumer_does_not_read_is_found_by_fsck(part: str, kind: str, tmp_path: Path) -> None:
    coordinator, segment = history(tmp_path)
    position = positions(coordinator, segment)["metadata"][9] if part == "typed columns" else -20
    flip(tmp_path / segment.path, position)
    consume(coordinator)
    (finding,) = check_cluster(coordinator.store).report.findings
    assert (finding.kind, finding.severity) == (kind, "error")
    assert segment.path in str(finding)


def test_compaction_does_not_copy_damaged_typed_columns(tmp_path: Path) -> None:
    coordinator, segment = history(tmp_path)
    flip(tmp_path / segment.path, positions(coordinator, segment)["metadata"][9])
    compact_all(coordinator)
    assert live(coordinator, "t")[0].path != segment.path
    assert not check_cluster(coordinator.store).report.findings
