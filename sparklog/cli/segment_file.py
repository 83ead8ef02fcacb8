"""A ``.log`` with its ``.index`` as dump-log looks at them: batch by batch, with whatever is wrong with each.

Damage is found, described and stepped over; nothing here raises for it. What cannot be opened at all does raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.cli.segment_scan import Found, Scan, entry_at, scan
from sparklog.errors import CorruptionError, ObjectNotFoundError, SparklogError
from sparklog.format import codec as codecs
from sparklog.format.index import BatchEntry, Index, decode_index
from sparklog.format.schema import COLUMNS, FORMAT_VERSION, OFFSET, record_schema
from sparklog.format.segment_reader import SegmentReader
from sparklog.protocol.partition_changes import last_sequence
from sparklog.protocol.segments import NO_APPEND_TIME, Segment, index_path
from sparklog.store.open import open_store

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

UNKNOWN = -1
NO_HORIZON = -1
TimestampKind = Literal["CreateTime", "LogAppendTime"]
MismatchKind = Literal["offset", "position", "size", "crc", "timestamp"]


class Placement(NamedTuple):
    """Where the commit log has put a run of the file's batches."""

    topic: str
    segment: Segment


class Batch(NamedTuple):
    """One record batch; ``fault`` says what is wrong with it, and is empty for a sound one."""

    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, of no use here
    base_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    position: int
    size: int
    max_timestamp_us: int
    append_time_ms: int
    codec: str
    crc: int
    fault: str
    records: pa.RecordBatch | None
    magic: int = FORMAT_VERSION
    offsets: Sequence[int] | None = None
    delete_horizon_ms: int = NO_HORIZON

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1 if self.offsets is None else self.offsets[-1]

    def offset(self, row: int) -> int:
        """The offset of one of its records."""
        return self.base_offset + row if self.offsets is None else self.offsets[row]

    @property
    def last_sequence(self) -> int:
        return UNKNOWN if self.base_sequence < 0 else last_sequence(self.base_sequence, self.count)

    @property
    def timestamp(self) -> tuple[TimestampKind, int]:
        """The kind and the largest of the timestamps, in milliseconds."""
        return self.stamp(self.max_timestamp_us)

    def stamp(self, timestamp_us: int) -> tuple[TimestampKind, int]:
        """A record's timestamp in milliseconds, with its kind: the commit's time where the topic stamps on append."""
        if self.append_time_ms >= 0:
            return "LogAppendTime", self.append_time_ms
        return "CreateTime" if self.append_time_ms == NO_APPEND_TIME else "LogAppendTime", timestamp_us // 1000

    def sequence(self, row: int) -> int:
        return UNKNOWN if self.base_sequence < 0 else last_sequence(self.base_sequence, row + 1)


class Mismatch(NamedTuple):
    """One thing that an index says of a batch and its log does not."""

    batch: int
    what: MismatchKind
    indexed: int
    found: int

    def values(self, segment: SegmentFile) -> tuple[int | None, int | None]:
        """What the index and the log have, None for nothing. Offsets begin at the file's base offset."""
        if self.what != "offset":
            return self.indexed, self.found
        indexed, found = (None if row < 0 else segment.offset(self.batch, row) for row in (self.indexed, self.found))
        return indexed, found


class SegmentFile:
    """An open ``.log`` and what its ``.index`` says. Not thread-safe.

    ``index`` is None where there is none or it is damaged; ``index_fault`` says which, and
    ``index_damaged`` is true for the latter.
    """

    def __init__(self, name: str, storage_options: Mapping[str, object], base_offset: int) -> None:
        folder, slash, self._key = name.rpartition("/")
        self._store = open_store(folder or slash or ".", storage_options)
        self.name = name
        self.base_offset = base_offset
        self._file = self._store.open_input(self._key)
        self._placements: list[Placement] = []
        self._stamped: list[Placement] = []
        self.index: Index | None = None
        self.index_fault = ""
        self.index_damaged = False
        self._read_index()

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_index(self) -> None:
        path = index_path(self.name)
        try:
            self.index = decode_index(self._store.get(index_path(self._key), limits.MAX_INDEX_BYTES), path)
            self.index.check()
        except ObjectNotFoundError:
            self.index_fault = f"{path} is missing: checksums cannot be verified"
        except CorruptionError as error:
            self.index = None
            self.index_fault, self.index_damaged = str(error), True

    @property
    def size(self) -> int:
        return self._file.size

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._file.read_at, self.size, self.index)

    @cached_property
    def _reader(self) -> SegmentReader | None:
        return None if self.index is None else SegmentReader(self._file.read_at, self.index, self.name)

    @property
    def folder(self) -> str:
        """Where it lies, as a path or URL."""
        return self._store.root

    # -- where it belongs

    def place(self, coordinator: Coordinator) -> list[Placement]:
        """The runs of this file that the commit log names; offsets are those from then on."""
        key = self._key_below(coordinator)
        if key is None:
            return []
        topics = coordinator.state.topics
        likely = key.partition("/")[0].rpartition("-")[0]  # of a file of one run, and the first of any other
        for topic in sorted(topics, key=lambda name: (name != likely, name)):
            segments = coordinator.segments(topic)
            for partition in range(len(topics[topic].partitions)):
                found = [segment for segment in segments.partition(partition) if segment.path == key]
                self._placements += [Placement(topic, segment) for segment in found]
            if self.index is not None and sum(run.segment.records for run in self._placements) == self.index.rows:
                break
        self._placements.sort(key=lambda placement: placement.segment.first_batch)
        return self._placements

    def stamp(self, coordinator: Coordinator) -> None:
        """Take the times of appends from the commit log, and nothing else: a file knows its writer's times alone."""
        self._stamped, self._placements = self.place(coordinator), []

    def _append_time_ms(self, batch: int) -> int:
        run = _run_of(self._placements or self._stamped, batch)
        return NO_APPEND_TIME if run is None else run.append_time_ms

    def _key_below(self, coordinator: Coordinator) -> str | None:
        path = f"{self._store.root}/{self._key}"
        for broker in coordinator.state.brokers.values():
            root = broker.url or coordinator.store.root
            if path.startswith(root + "/"):
                return path[len(root) + 1 :]
        return None

    def _placed(self, batch: int) -> Segment | None:
        return _run_of(self._placements, batch)

    def offset(self, batch: int, row: int) -> int:
        """The offset of a row of the file that belongs to this batch."""
        run = self._placed(batch)
        return self.base_offset + row if run is None else run.base_offset + (row - run.first_row)

    def first_offset(self, batch: int, entry: BatchEntry) -> int:
        """The offset of a batch's first record."""
        if self.index is None or not self.index.summary.has_offsets:
            return self.offset(batch, entry.first_row)
        return self._base_of_run(batch) + entry.first_offset

    def _base_of_run(self, batch: int) -> int:
        run = self._placed(batch)
        return self.base_offset if run is None else run.base_offset

    # -- batches

    def batches(self) -> Iterator[Batch]:
        """All batches that are in the file, sound or not."""
        row = 0
        for number, found in enumerate(self._scan.messages):
            known = entry_at(self.index, found.position)
            batch = self._unindexed(number, row, found) if known is None else self._indexed(*known, found)
            row += max(batch.count, 0)
            yield batch

    def _indexed(self, number: int, entry: BatchEntry, found: Found) -> Batch:
        assert self._reader is not None
        records, offsets, fault = None, None, ""
        try:
            records = self._reader.read(number)
            if self.index is not None and self.index.summary.has_offsets:
                offsets = self._absolute(number, self._reader.read(number, [OFFSET]).column(0))
        except SparklogError as error:
            fault = str(error)
        run = self._placed(number)
        return Batch(
            base_offset=self.first_offset(number, entry),
            count=entry.count,
            base_sequence=entry.base_sequence,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            leader_epoch=0 if run is None else run.leader_epoch,
            position=found.position,
            size=found.length,
            max_timestamp_us=entry.max_timestamp_us,
            append_time_ms=self._append_time_ms(number),
            codec=entry.codec,
            crc=entry.crc32c,
            fault=fault,
            records=records,
            offsets=offsets,
            delete_horizon_ms=NO_HORIZON if run is None else run.delete_horizon_ms,
        )

    def _absolute(self, batch: int, relative: pa.Array) -> list[int]:
        base = self._base_of_run(batch)
        return [base + offset for offset in relative.to_pylist()]

    def _unindexed(self, number: int, row: int, found: Found) -> Batch:
        """What can be said without the index: all but the producer, and of an envelope no more than its size."""
        fault, records, offsets = found.fault, None, None
        codec = (self._file_schema.metadata or {}).get(b"sparklog.codec", b"none").decode("utf-8", "replace")
        envelope = codecs.is_envelope(codec)
        if self.index is not None:
            fault = fault or f"{self.name}: the index has no entry for the batch at position {found.position}"
        elif not envelope and not fault:
            try:
                records, relative = self._decoded(found)
                offsets = None if relative is None else self._absolute(number, relative)
            except (pa.ArrowException, ValueError) as error:
                fault = f"{self.name}: the batch at position {found.position} cannot be decoded: {error}"
        largest = pc.max(records.column("timestamp").view("int64")).as_py() if records is not None else None
        return Batch(
            base_offset=self.offset(number, row) if offsets is None else offsets[0],
            count=UNKNOWN if envelope else found.rows,
            base_sequence=UNKNOWN,
            producer_id=UNKNOWN,
            producer_epoch=UNKNOWN,
            leader_epoch=0,
            position=found.position,
            size=found.length,
            max_timestamp_us=-1000 if largest is None else largest,
            append_time_ms=self._append_time_ms(number),
            codec=codec,
            crc=found.crc32c,
            fault=fault,
            records=records,
            offsets=offsets,
        )

    @cached_property
    def _file_schema(self) -> pa.Schema:
        with contextlib.suppress(pa.ArrowException, ValueError, OSError):
            return pa.ipc.read_schema(self._file.read_at(8, self.size - 8))
        return pa.schema([])

    def _decoded(self, found: Found) -> tuple[pa.RecordBatch, pa.Array | None]:
        """A batch by Arrow's own decoder, with all columns of a record, and its explicit offsets if it has any."""
        stored = pa.ipc.read_record_batch(self._file.read_at(found.position, found.length), self._file_schema)
        stored.validate(full=True)
        wanted = record_schema(COLUMNS)
        arrays = [
            stored.column(field.name) if field.name in stored.schema.names else pa.nulls(stored.num_rows, field.type)
            for field in wanted
        ]
        offsets = stored.column(OFFSET) if OFFSET in stored.schema.names and stored.num_rows else None
        return pa.RecordBatch.from_arrays(arrays, schema=wanted), offsets

    # -- the file as a whole

    def end_fault(self) -> tuple[str, int]:
        """What is wrong outside the batches, and how many bytes at the end belong to nothing."""
        result = self._scan
        if result.fault:
            what = f"{self.name}: no record batch can be read from position {result.end} on: {result.fault}"
            return what, self.size - result.end
        if self._reader is None or self.index is None:
            return "", 0
        try:
            self._reader.check_file()
        except SparklogError as error:
            return str(error), max(self.size - self.index.summary.log_length, 0)
        return "", 0

    def mismatches(self) -> Iterator[Mismatch]:
        """What the index says of the batches and the log does not."""
        if self.index is None:
            return
        messages = self._scan.messages
        row = 0
        for number, entry in enumerate(self.index.entries):
            if number >= len(messages):
                yield Mismatch(number, "offset", entry.first_row, UNKNOWN)
                continue
            yield from self._differences(number, entry, messages[number], row)
            rows = messages[number].rows
            row += entry.count if rows < 0 or codecs.is_envelope(entry.codec) else rows
        for number in range(len(self.index), len(messages)):
            yield Mismatch(number, "offset", UNKNOWN, row)
            row += max(messages[number].rows, 0)

    def _differences(self, number: int, entry: BatchEntry, found: Found, row: int) -> Iterator[Mismatch]:
        compared: tuple[tuple[MismatchKind, int, int], ...] = (
            ("offset", entry.first_row, row),
            ("position", entry.position, found.position),
            ("size", entry.length, found.length),
            ("crc", entry.crc32c, found.crc32c),
        )
        for what, indexed, actual in compared:
            if indexed != actual:
                yield Mismatch(number, what, indexed, actual)
        if entry.crc32c != found.crc32c or self._reader is None:
            return
        with contextlib.suppress(SparklogError):  # the dump of the .log says so
            column = self._reader.read(number, ["timestamp"]).column(0).view("int64")
            smallest, largest = (value.as_py() for value in pc.min_max(column).values())
            if entry.max_timestamp_us != largest:
                yield Mismatch(number, "timestamp", entry.max_timestamp_us // 1000, largest // 1000)
            if entry.min_timestamp_us != smallest:
                yield Mismatch(number, "timestamp", entry.min_timestamp_us // 1000, smallest // 1000)


def _run_of(placements: Sequence[Placement], batch: int) -> Segment | None:
    for placement in placements:
        run = placement.segment
        if run.first_batch <= batch < run.first_batch + run.batches:
            return run
    return None
