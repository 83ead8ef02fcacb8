"""Reads a ``.log`` with its ``.index`` for dump-log: batch by batch, with the faults of each.

Rules: damage is described and skipped, and raises no error; a file that cannot be opened raises one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparklog import limits
from sparklog.cli.output.documents import DumpedBatch, DumpedMismatch
from sparklog.errors import CorruptionError, ObjectNotFoundError, SparklogError
from sparklog.format import codecs
from sparklog.format.index import BatchEntry, Index, decode_index
from sparklog.format.open_segment import open_segment
from sparklog.format.scan import FileScan, ScannedMessage, entry_at, read_header, scan
from sparklog.format.schema import COLUMNS, FORMAT_VERSION, OFFSET, record_schema
from sparklog.format.segment_reader import SegmentReader
from sparklog.protocol.file_names import index_path, topic_in
from sparklog.protocol.partition_fold import last_sequence
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.store.open import open_store

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

UNKNOWN = -1


class RunInLog(NamedTuple):
    """A run of the file's batches, with its topic and segment in the commit log."""

    topic: str
    segment: Segment


class Batch(NamedTuple):
    """A record batch without its records, and these, None if they cannot be read; ``offsets`` are theirs in a file
    with gaps."""

    document: DumpedBatch
    records: pa.RecordBatch | None
    offsets: Sequence[int] | None
    append_time_ms: int

    def offset(self, row: int) -> int:
        return self.document.base_offset + row if self.offsets is None else self.offsets[row]

    def timestamp_ms(self, timestamp_us: int) -> int:
        return _timestamp_ms(self.append_time_ms, timestamp_us)

    def sequence(self, row: int) -> int | None:
        base = self.document.base_sequence
        return None if base is None else last_sequence(base, row + 1)


class SegmentFile:
    """An open ``.log`` with its ``.index``. Not thread-safe.

    ``index`` is None if it is missing or damaged; ``index_fault`` tells the reason, and ``index_damaged`` is true for
    damage.
    """

    def __init__(self, name: str, storage_options: Mapping[str, object], base_offset: int) -> None:
        folder, slash, self._key = name.rpartition("/")
        self._store = open_store(folder or slash or ".", storage_options)
        self.name = name
        self.base_offset = base_offset
        self._file = self._store.open_input(self._key)
        self._runs: list[RunInLog] = []
        self._append_time_runs: list[RunInLog] = []
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

    @cached_property
    def _scan(self) -> FileScan:
        return scan(self._file.read_at, self._file.size, self.index)

    @cached_property
    def _reader(self) -> SegmentReader | None:
        return None if self.index is None else open_segment(self._file.read_at, self.index, self.name)

    @property
    def folder(self) -> str:
        return self._store.root

    # -- runs in the commit log

    def find_runs(self, coordinator: Coordinator) -> list[RunInLog]:
        """Find the runs of this file that the commit log names, and use their offsets from then on."""
        key = self._key_below(coordinator)
        if key is None:
            return []
        topics = coordinator.state.topics
        likely = topic_in(key)  # that of a file's first run, usually its only one
        for topic in sorted(topics, key=lambda name: (name != likely, name)):
            segments = coordinator.segments(topic)
            for partition in range(len(topics[topic].partitions)):
                named = [segment for segment in segments.partition(partition) if segment.path == key]
                self._runs += [RunInLog(topic, segment) for segment in named]
            if self.index is not None and sum(run.segment.records for run in self._runs) == self.index.rows:
                break
        self._runs.sort(key=lambda run: run.segment.first_batch)
        return self._runs

    def read_append_times(self, coordinator: Coordinator) -> None:
        """Use only the append times of the commit log: the file itself has only the times of its writer."""
        self._append_time_runs, self._runs = self.find_runs(coordinator), []

    def _append_time_ms(self, batch: int) -> int:
        run = _run_of(self._runs or self._append_time_runs, batch)
        return NO_APPEND_TIME if run is None else run.append_time_ms

    def _key_below(self, coordinator: Coordinator) -> str | None:
        path = f"{self._store.root}/{self._key}"
        for broker in coordinator.state.brokers.values():
            root = broker.url or coordinator.store.root
            if path.startswith(root + "/"):
                return path[len(root) + 1 :]
        return None

    def _run(self, batch: int) -> Segment | None:
        return _run_of(self._runs, batch)

    def offset(self, batch: int, row: int) -> int:
        """Return the offset of a row of the file, which belongs to this batch."""
        run = self._run(batch)
        return self.base_offset + row if run is None else run.base_offset + (row - run.first_row)

    def first_offset(self, batch: int, entry: BatchEntry) -> int:
        if self.index is None or not self.index.summary.has_offsets:
            return self.offset(batch, entry.first_row)
        return self._base_of_run(batch) + entry.first_offset

    def _base_of_run(self, batch: int) -> int:
        run = self._run(batch)
        return self.base_offset if run is None else run.base_offset

    # -- batches

    def batches(self) -> Iterator[Batch]:
        """Yield all batches of the file, sound or not."""
        row = 0
        for number, message in enumerate(self._scan.messages):
            indexed = entry_at(self.index, message.position)
            batch = self._unindexed(number, row, message) if indexed is None else self._indexed(*indexed, message)
            row += batch.document.count or 0
            yield batch

    def _indexed(self, number: int, entry: BatchEntry, message: ScannedMessage) -> Batch:
        assert self._reader is not None
        records, offsets, fault = None, None, ""
        try:
            records = self._reader.read(number)
            if self.index is not None and self.index.summary.has_offsets:
                offsets = self._absolute(number, self._reader.read(number, [OFFSET]).column(0))
        except SparklogError as error:
            fault = str(error)
        base_sequence = _none_if_negative(entry.base_sequence)
        base_offset, max_timestamp_us = self.first_offset(number, entry), entry.max_timestamp_us
        document = replace(
            self._document(number, message, base_offset, entry.count, offsets, max_timestamp_us, entry.codec, fault),
            base_sequence=base_sequence,
            last_sequence=None if base_sequence is None else last_sequence(base_sequence, entry.count),
            producer_id=_none_if_negative(entry.producer_id),
            producer_epoch=_none_if_negative(entry.producer_epoch),
            crc=entry.crc32c,
        )
        return Batch(document, records, offsets, self._append_time_ms(number))

    def _document(
        self,
        number: int,
        message: ScannedMessage,
        base_offset: int,
        count: int,
        offsets: Sequence[int] | None,
        max_timestamp_us: int,
        codec: str,
        fault: str,
    ) -> DumpedBatch:
        """Describe a batch by its message and the commit log, without what only its index knows."""
        run, append_time_ms = self._run(number), self._append_time_ms(number)
        last_offset = base_offset + count - 1 if offsets is None else offsets[-1]
        max_timestamp_ms = _timestamp_ms(append_time_ms, max_timestamp_us)
        return DumpedBatch(
            base_offset=base_offset,
            last_offset=None if count < 0 else last_offset,
            count=_none_if_negative(count),
            base_sequence=None,
            last_sequence=None,
            producer_id=None,
            producer_epoch=None,
            leader_epoch=0 if run is None else run.leader_epoch,
            delete_horizon_ms=None if run is None else _none_if_negative(run.delete_horizon_ms),
            position=message.position,
            size_bytes=message.length,
            timestamp_type="CreateTime" if append_time_ms == NO_APPEND_TIME else "LogAppendTime",
            max_timestamp_ms=None if max_timestamp_ms == UNKNOWN else max_timestamp_ms,
            magic=FORMAT_VERSION,
            codec=codec,
            crc=message.crc32c,
            fault=fault or None,
            records=None,
        )

    def _absolute(self, batch: int, relative: pa.Array) -> list[int]:
        base = self._base_of_run(batch)
        return [base + offset for offset in relative.to_pylist()]

    def _unindexed(self, number: int, row: int, message: ScannedMessage) -> Batch:
        """Read a batch without the index: everything but the producer, and of an envelope only the size."""
        fault, records, offsets = message.fault, None, None
        codec = (self._file_schema.metadata or {}).get(b"sparklog.codec", b"none").decode("utf-8", "replace")
        envelope = codecs.is_envelope(codec)
        if self.index is not None:
            fault = fault or f"{self.name}: the index has no entry for the batch at position {message.position}"
        elif not envelope and not fault:
            try:
                records, relative = self._decode(message)
                offsets = None if relative is None else self._absolute(number, relative)
            except (pa.ArrowException, ValueError) as error:
                fault = f"{self.name}: the batch at position {message.position} cannot be decoded: {error}"
        largest = pc.max(records.column("timestamp").view("int64")).as_py() if records is not None else None
        base_offset = self.offset(number, row) if offsets is None else offsets[0]
        count = UNKNOWN if envelope else message.rows
        max_timestamp_us = UNKNOWN if largest is None else largest
        document = self._document(number, message, base_offset, count, offsets, max_timestamp_us, codec, fault)
        return Batch(document, records, offsets, self._append_time_ms(number))

    @cached_property
    def _file_schema(self) -> pa.Schema:
        with contextlib.suppress(ValueError):
            return read_header(self._file.read_at, self._file.size)[0]
        return pa.schema([])

    def _decode(self, message: ScannedMessage) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Decode a batch with Arrow: all columns of a record, and its explicit offsets if it has any."""
        stored = pa.ipc.read_record_batch(self._file.read_at(message.position, message.length), self._file_schema)
        stored.validate(full=True)
        schema = record_schema(COLUMNS)
        arrays = [
            stored.column(field.name) if field.name in stored.schema.names else pa.nulls(stored.num_rows, field.type)
            for field in schema
        ]
        offsets = stored.column(OFFSET) if OFFSET in stored.schema.names and stored.num_rows else None
        return pa.RecordBatch.from_arrays(arrays, schema=schema), offsets

    # -- the file as a whole

    def end_fault(self) -> tuple[str, int]:
        """Return the fault outside the batches, and the number of bytes at the end that belong to no batch."""
        result = self._scan
        if result.fault:
            fault = f"{self.name}: no record batch can be read from position {result.end} on: {result.fault}"
            return fault, self._file.size - result.end
        if self._reader is None or self.index is None:
            return "", 0
        try:
            self._reader.check_file()
        except SparklogError as error:
            return str(error), max(self._file.size - self.index.summary.log_length, 0)
        return "", 0

    def mismatches(self) -> Iterator[DumpedMismatch]:
        if self.index is None:
            return
        messages = self._scan.messages
        row = 0
        for number, entry in enumerate(self.index.entries):
            if number >= len(messages):
                yield self._offset_mismatch(number, entry.first_row, None)
                continue
            yield from self._differences(number, entry, messages[number], row)
            rows = messages[number].rows
            row += entry.count if rows < 0 or codecs.is_envelope(entry.codec) else rows
        for number in range(len(self.index), len(messages)):
            yield self._offset_mismatch(number, None, row)
            row += max(messages[number].rows, 0)

    def _offset_mismatch(self, batch: int, indexed: int | None, actual: int | None) -> DumpedMismatch:
        """Describe a difference between rows as one between offsets, which start at the file's base offset."""
        index, log = (None if row is None else self.offset(batch, row) for row in (indexed, actual))
        return DumpedMismatch(batch=batch, what="offset", index=index, log=log)

    def _differences(
        self, number: int, entry: BatchEntry, message: ScannedMessage, row: int
    ) -> Iterator[DumpedMismatch]:
        if entry.first_row != row:
            yield self._offset_mismatch(number, entry.first_row, row)
        values: tuple[tuple[Literal["position", "size", "crc"], int, int], ...] = (
            ("position", entry.position, message.position),
            ("size", entry.length, message.length),
            ("crc", entry.crc32c, message.crc32c),
        )
        for what, indexed, actual in values:
            if indexed != actual:
                yield DumpedMismatch(batch=number, what=what, index=indexed, log=actual)
        if entry.crc32c != message.crc32c or self._reader is None:
            return
        with contextlib.suppress(SparklogError):  # reported by the dump of the .log
            column = self._reader.read(number, ["timestamp"]).column(0).view("int64")
            smallest, largest = (value.as_py() for value in pc.min_max(column).values())
            for indexed, actual in ((entry.max_timestamp_us, largest), (entry.min_timestamp_us, smallest)):
                if indexed != actual:
                    yield DumpedMismatch(batch=number, what="timestamp", index=indexed // 1000, log=actual // 1000)


def _timestamp_ms(append_time_ms: int, timestamp_us: int) -> int:
    """Return a record's timestamp: the commit's time with LogAppendTime."""
    return append_time_ms if append_time_ms >= 0 else timestamp_us // 1000


def _none_if_negative(number: int) -> int | None:
    """Return the number, None for a negative one, which means unknown."""
    return None if number < 0 else number


def _run_of(runs: Sequence[RunInLog], batch: int) -> Segment | None:
    for run in runs:
        segment = run.segment
        if segment.first_batch <= batch < segment.first_batch + segment.batches:
            return segment
    return None
