"""Reads and writes segments for maintenance tasks: from any intact replica, and to all in-sync replicas.

Reading returns stored batches with their index entries, verified; if a broker does not answer, or its copy is damaged,
the next one is read, so that damage is never copied. Writing gathers batches until they have the usual size, and writes
the same bytes at every broker.

Rules: columns are those of ``format.schema``; rows are numbered from the start of a segment. Nothing here is visible to
readers, since no commit names it yet.
Not for: which segments and records (``merge``, ``compact``), and commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.errors import RecordListTooLargeError, SparklogError
from sparklog.format import schema
from sparklog.format.index import NO_PRODUCER, BatchEntry, BatchProducer, Index, decode_index
from sparklog.format.open_segment import open_segment
from sparklog.format.parquet.file_schema import decoded_length
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter, Sink
from sparklog.log.records.index_checks import check_run
from sparklog.log.records.read_order import REPLICA_FAILED, Result, read_any
from sparklog.log.records.replicated_file import ReplicatedFile, delete_copy
from sparklog.protocol.commits import Run
from sparklog.protocol.segments import Segment
from sparklog.retry import retry_read
from sparklog.schema.languages.ddl import KEY_UNFIT, UNFIT
from sparklog.schema.languages.record_schema import UNTYPED, RecordSchema
from sparklog.schema.typed_columns import bytes_per_record, typed_fields
from sparklog.schema.values.typed_records import TypedRecordReader, record_reader
from sparklog.store.base import InputFile, Store
from sparklog.threads import Threads

if TYPE_CHECKING:
    from sparklog.format.parquet.writer import ParquetSegmentWriter

FETCHED_AHEAD = 16
"""Segments that are fetched at the same time from a storage with a high latency."""

MAX_WHOLE_FETCH_BYTES = 4 * 1024 * 1024
"""Size in bytes up to which a segment is fetched by one request. Larger ones are read ahead by the store."""

MAX_GATHERED_BYTES = 64 * limits.TARGET_BATCH_BYTES
"""Size in bytes up to which batches are gathered, however large ``index.interval.bytes`` is."""


MAX_TYPED_BYTES = 64 * 1024 * 1024
"""Size in bytes that gathered records with typed columns can have at most, however little the bytes of their values, in
a file of the usual number of row groups."""


class ReplicaStores(NamedTuple):
    """The stores that a task reads and writes. Picklable if the stores are.

    ``stores`` by broker id; ``read`` are the brokers in read order; ``write`` are the brokers that get the files, the
    leader first. ``ahead`` segments are fetched ahead of the one that is being read. ``clock`` times the pauses before
    a read that failed at all brokers is repeated.
    """

    stores: Mapping[int, Store]
    read: tuple[int, ...]
    write: tuple[int, ...]
    ahead: int = 0
    clock: Clock = SystemClock()


class Source:
    """One live segment to read. Not thread-safe; after ``close`` its file is opened again when needed."""

    def __init__(self, topic: str, segment: Segment, replicas: ReplicaStores) -> None:
        self.segment = segment
        self._topic = topic
        self.replicas = replicas
        self._brokers = [
            broker for broker in dict.fromkeys([*replicas.read, segment.broker]) if broker in replicas.stores
        ]
        self._index: Index | None = None
        self._file: InputFile | None = None
        self._reader: SegmentReader | None = None

    @property
    def index(self) -> Index:
        """The index, read at its first use. Raises DataLossError if no broker has the file, StorageError or
        CorruptIndexError if all fail."""
        if self._index is None:
            self._index = self._from_any(self._read_index)
        return self._index

    @property
    def batches(self) -> range:
        """The numbers of the segment's batches in the file."""
        return range(self.segment.first_batch, self.segment.first_batch + self.segment.batches)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a record that the file has."""
        return tuple(name for name in schema.COLUMNS if name in self.index.columns)

    def entries(self) -> Iterator[tuple[int, BatchEntry]]:
        """Return the number and the index entry of each of the segment's batches. Errors as ``index``."""
        return ((number, self.index.entry(number)) for number in self.batches)

    def row(self, entry: BatchEntry) -> int:
        """Return the row of the segment with which a batch begins."""
        return entry.first_row - self.segment.first_row

    def fetch(self) -> None:
        """Read the index, and the records of a small segment, before they are needed. Errors as ``read``."""
        if self.segment.size_bytes <= MAX_WHOLE_FETCH_BYTES and self._reader is None:
            first, last = (self.index.entry(self.batches[at]) for at in (0, -1))
            summary = self.index.summary
            end = summary.log_length if summary.elides_values else last.end  # the footer says how to restore them
            self._from_any(lambda broker: self._fetch_all(broker, first.position, end - first.position))

    def fetch_index(self) -> None:
        """Read the index before it is needed."""
        assert self.index

    def read(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return a verified batch. Raises DataLossError if no broker has the file, StorageError or CorruptRecordError
        if all fail."""
        if not self.segment.has_gaps:
            columns = [name for name in columns if name != schema.OFFSET]
        return self._from_any(lambda broker: self._open_reader(broker).read(number, columns))

    def read_stored(self, number: int) -> list[pa.Buffer]:
        """Return the stored bytes of a batch, verified. Errors as ``read``."""
        return self._from_any(lambda broker: self._open_reader(broker).read_stored(number))

    def offsets(self, entry: BatchEntry, batch: pa.RecordBatch, base_offset: int) -> pa.Array:
        """Return the offsets of a batch's records, relative to ``base_offset``; int32."""
        relative_base = self.segment.base_offset - base_offset
        if self.segment.has_gaps:
            return pc.add(batch.column(schema.OFFSET), pa.scalar(relative_base, pa.int32()))
        return count_from(relative_base + self.row(entry), entry.count).cast(pa.int32())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._reader = None

    def _from_any(self, read: Callable[[int], Result]) -> Result:
        """Return what ``read`` returns for the first broker at which it succeeds. Those that fail are tried last from
        then on. If all fail, they are tried again: a task that reads thousands of files would otherwise never finish on
        a storage that fails one request in a thousand."""

        def attempt(broker: int) -> Result:
            try:
                return read(broker)
            except REPLICA_FAILED:
                self.close()
                raise

        def attempt_all() -> Result:
            failures: dict[int, SparklogError] = {}
            _, result = read_any(
                self._topic, self.segment, self._brokers, attempt, self.replicas.stores.__getitem__, failures
            )
            if failures:
                self._brokers = sorted(self._brokers, key=failures.__contains__)
            return result

        return retry_read(attempt_all, self.replicas.clock)

    def _read_index(self, broker: int) -> Index:
        store, key = self.replicas.stores[broker], self.segment.index_path
        return check_run(self.segment, decode_index(store.get(key, limits.MAX_INDEX_BYTES), f"{store.root}/{key}"))

    def _fetch_all(self, broker: int, position: int, length: int) -> None:
        store, path = self.replicas.stores[broker], self.segment.path
        data = pa.py_buffer(store.get_range(path, position, length))

        def read_at(start: int, count: int) -> pa.Buffer:
            at = min(start - position, data.size)
            return data.slice(at, min(count, data.size - at))

        self._reader = open_segment(read_at, self.index, f"{store.root}/{path}")

    def _open_reader(self, broker: int) -> SegmentReader:
        if self._reader is None:
            store, index = self.replicas.stores[broker], self.index
            self._file = store.open_input(self.segment.path)
            self._reader = open_segment(self._file.read_at, index, f"{store.root}/{self.segment.path}")
        return self._reader


def fetch_ahead(sources: Sequence[Source], fetch: Callable[[Source], None] = Source.fetch) -> Iterator[Source]:
    """Return the sources in order, fetching the next ``ReplicaStores.ahead`` of them in the background."""
    workers = min(sources[0].replicas.ahead, len(sources)) if sources else 0
    if not workers:
        yield from sources
        return
    with Threads(workers) as pool:
        fetching: deque[tuple[Source, Future[None]]] = deque()
        for source in sources:
            fetching.append((source, pool.submit(fetch, source)))
            if len(fetching) > workers:
                yield _wait_for_fetch(*fetching.popleft())
        while fetching:
            yield _wait_for_fetch(*fetching.popleft())


def _wait_for_fetch(source: Source, future: Future[None]) -> Source:
    """Wait until a source is fetched. An error is ignored, since the user of the source reads it again."""
    future.exception()
    return source


@lru_cache(maxsize=8)
def _powers(power: int) -> pa.Array:
    return pa.array(range(1 << power), pa.int64())


def count_from(first: int, count: int) -> pa.Array:
    """Return ``count`` consecutive numbers from ``first`` on; int64."""
    return pc.add(_powers(max((count - 1).bit_length(), 12)).slice(0, count), first)


class Layout(NamedTuple):
    """How a file is written; ``codec`` and ``level`` as in ``format.codecs``. ``schema``: how records are read into
    typed columns."""

    codec: str = "none"
    level: int | None = None
    has_key: bool = True
    has_headers: bool = False
    has_offsets: bool = False
    history: bool = False
    schema: RecordSchema = RecordSchema()

    @property
    def columns(self) -> tuple[str, ...]:
        return schema.columns_present(self.has_key, self.has_headers, self.has_offsets)


class Written(NamedTuple):
    """What a file holds: its run, the number of null values, and of a history segment its statistics, its size, and the
    number of records that do not fit the schema."""

    run: Run
    tombstones: int
    stats: str = ""
    file_bytes: int = 0
    unfit: int = 0


class SegmentOutput:
    """Writes one ``.log`` or ``.parquet``, and its index, at every broker of ``ReplicaStores.write``. Not thread-safe.

    Batches are gathered to ``limits.TARGET_BATCH_BYTES``, and an index entry covers at least ``index_interval_bytes``
    of the file, so that the index is not finer than configured; row groups to ``TARGET_ROW_GROUP_BYTES``.
    ``base_offset`` is that of the run. While a row group with typed columns is encoded in a thread, the values of the
    next one are read.
    """

    def __init__(
        self, replicas: ReplicaStores, key: str, layout: Layout, index_interval_bytes: int, base_offset: int
    ) -> None:
        self.key = key
        self._replicas = replicas
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_most = self._waiting_rows = 0
        self._producer: BatchProducer | None = None
        self._layout = layout
        self._interval = 0 if layout.history else index_interval_bytes  # as stored
        self._written = self._unfit = 0
        self._target = max(self._least_bytes(), min(self._interval, MAX_GATHERED_BYTES))
        targets = [(broker, replicas.stores[broker]) for broker in replicas.write]
        self._output = ReplicatedFile(key, targets, least=len(targets))
        self._writer = _open_writer(self._output, layout, base_offset)
        columns = layout.schema.columns
        self._typed = record_reader(layout.schema) if columns else None
        self._typed_width = bytes_per_record(columns)
        self._read = [
            name
            for name, part in ((schema.KEY, layout.schema.key), (schema.VALUE, layout.schema.value))
            if part.format != UNTYPED
        ]
        self._most_bytes = self._find_most_bytes()
        self._thread = Threads(1, "sparklog-encode")
        self._encoding: Future[None] | None = None
        self._is_last = False

    def add(self, batch: pa.RecordBatch, producer: BatchProducer = NO_PRODUCER) -> None:
        """Append records, with exactly the file's columns."""
        size = self._size_of(batch)
        if size > self._most_bytes and batch.num_rows > 1:
            self._add_halves(batch, producer)
            return
        if self._waiting and self._waiting_most + size > self._most_bytes:
            self._flush()
        self._producer = producer if not self._waiting else self._common_producer(producer)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_most += size
        self._waiting_rows += batch.num_rows
        if self._waiting_bytes >= self._target:
            self._flush()

    def _size_of(self, batch: pa.RecordBatch) -> int:
        """Return how many bytes the records take in this file at most before they are encoded. Texts and lists of typed
        columns can take more than in JSON: a list of numbers of one digit four times as much."""
        size = int(batch.nbytes)
        if self._typed is not None:
            size += batch.num_rows * self._typed_width + 4 * sum(batch.column(name).nbytes for name in self._read)
        return size

    def _add_halves(self, batch: pa.RecordBatch, producer: BatchProducer) -> None:
        """Append a batch that may be over the limit with the columns that this file adds."""
        for half, its_producer in _halves(batch, producer):
            self.add(half, its_producer)

    def takes_as_stored(self, source: Source, entry: BatchEntry) -> bool:
        """Whether a batch is large enough already, and its stored bytes are valid in this file."""
        layout, index = self._layout, source.index
        return (
            not layout.has_offsets
            and not layout.history
            and not index.summary.is_parquet
            and source.segment.append_time_ms < 0  # else the timestamps become the time of the commit
            and (index.codec, index.columns) == (layout.codec, layout.columns)
            and 2 * entry.decoded_length >= limits.TARGET_BATCH_BYTES
            and entry.length >= min(self._interval, MAX_GATHERED_BYTES)
        )

    def copy(self, parts: Sequence[pa.Buffer], entry: BatchEntry) -> None:
        """Append the stored bytes of a batch for which ``takes_as_stored`` is true."""
        self._flush()
        assert isinstance(self._writer, SegmentWriter)
        self._writer.copy(parts, entry)

    def finish(self) -> Written:
        """Make both files durable at all brokers; return what the commit says about them.

        Raises StorageError; then nothing is visible.
        """
        self._is_last = True
        try:
            self._flush()
            self._finish_encoding()
            self._thread.shutdown()
            index = self._writer.finish()
            stats = "" if isinstance(self._writer, SegmentWriter) else self._writer.stats
            self._output.finish(index)
        except BaseException:
            self.abort()
            for broker in self._replicas.write:  # some may have it already
                delete_copy(broker, self.key, self._replicas.stores.__getitem__)
            raise
        entries = self._writer.entries
        tombstones = sum(entry.null_values for entry in entries)
        run = self._output.run(entries)
        if isinstance(self._writer, SegmentWriter):
            return Written(run, tombstones)
        return Written(run, tombstones, stats, self._writer.bytes_written, self._unfit)

    def abort(self) -> None:
        """Discard the files. Best effort: what remains is not part of the log."""
        if self._encoding is not None:
            wait([self._encoding])
        self._thread.shutdown()
        self._output.abort()

    def _common_producer(self, producer: BatchProducer) -> BatchProducer:
        """Return the producer of the gathered batch: none unless all its records are in sequence from one producer."""
        first = self._producer
        assert first is not None
        if first.producer_id < 0 or producer[:2] != first[:2]:
            return NO_PRODUCER
        return first if producer.base_sequence == (first.base_sequence + self._waiting_rows) % 2**31 else NO_PRODUCER

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        size, producer = self._waiting_bytes, self._producer or NO_PRODUCER
        self._waiting, self._waiting_bytes, self._waiting_most, self._waiting_rows = [], 0, 0, 0
        before = self._writer.bytes_written
        if self._typed is None:
            self._writer.write(batch, **producer._asdict())
            self._written += 1
        else:
            self._write_typed(self._typed, batch, producer)
        length = self._writer.bytes_written - before
        self._target = max(self._least_bytes(), min(self._interval * size // max(length, 1), MAX_GATHERED_BYTES))
        self._most_bytes = self._find_most_bytes()

    def _write_typed(self, reader: TypedRecordReader, batch: pa.RecordBatch, producer: BatchProducer) -> None:
        """Write a batch with its typed columns; in halves if they take more than was estimated, which can happen since
        an element of a list may have two bytes in JSON. Those of a single record that is still too large stay null."""
        assert not isinstance(self._writer, SegmentWriter)
        keys, values = batch.column(schema.KEY), batch.column(schema.VALUE)
        try:
            columns = reader.columns(keys, values, limits.MAX_BATCH_BYTES - decoded_length(batch))
        except RecordListTooLargeError:
            if batch.num_rows > 1:
                for half, its_producer in _halves(batch, producer):
                    self._write_typed(reader, half, its_producer)
                return
            columns = reader.unfit_columns(1)
        self._finish_encoding()
        write = partial(self._writer.write, batch, columns, **producer._asdict())
        self._written += 1
        self._unfit += _count_unfit(columns)
        size = batch.nbytes + sum(column.nbytes for column in columns.values())
        if self._is_last or size > MAX_TYPED_BYTES:  # nothing follows, or not two of these in memory
            write()
            return
        try:
            self._encoding = self._thread.submit(write)
        except RuntimeError:  # the interpreter exits, or no thread can be started: the call may be queued already
            self._thread.shutdown(cancel_futures=True)
            write()

    def _finish_encoding(self) -> None:
        """Wait until the last row group is written. Raises its error."""
        if self._encoding is not None:
            self._encoding.result()

    def _least_bytes(self) -> int:
        """Return how many bytes are gathered at least: in a file of many row groups ever more, since their number is
        limited, and records that compress well make many of them."""
        if not self._layout.history:
            return limits.TARGET_BATCH_BYTES
        return min(limits.TARGET_ROW_GROUP_BYTES << self._doublings, limits.MAX_BATCH_BYTES // 4)

    def _find_most_bytes(self) -> int:
        """Return how many bytes are gathered at most; with typed columns the limit doubles as in ``_least_bytes``."""
        largest = limits.MAX_BATCH_BYTES // 2
        return largest if self._typed is None else min(MAX_TYPED_BYTES << self._doublings, largest)

    @property
    def _doublings(self) -> int:
        return self._written // (limits.MAX_ROW_GROUPS_PER_FILE // 8)


def _count_unfit(columns: Mapping[str, pa.Array]) -> int:
    """Return the number of records whose key or value does not fit."""
    flags = [columns[name] for name in (UNFIT, KEY_UNFIT) if name in columns]
    return int(reduce(pc.or_, flags).true_count)


def _halves(batch: pa.RecordBatch, producer: BatchProducer) -> list[tuple[pa.RecordBatch, BatchProducer]]:
    """Return the halves of a batch of more than one record, each with its producer."""
    middle = batch.num_rows // 2
    later = producer
    if producer.producer_id >= 0:
        later = producer._replace(base_sequence=(producer.base_sequence + middle) % 2**31)
    return [(batch.slice(0, middle), producer), (batch.slice(middle), later)]


def _open_writer(sink: Sink, layout: Layout, base_offset: int) -> SegmentWriter | ParquetSegmentWriter:
    if layout.history:
        from sparklog.format.parquet.writer import ParquetSegmentWriter  # Parquet's writer takes time to import

        return ParquetSegmentWriter(
            sink,
            base_offset=base_offset,
            codec=layout.codec,
            level=layout.level,
            has_offsets=layout.has_offsets,
            typed=typed_fields(layout.schema.columns),
            value_fields=() if layout.schema.value.kept else layout.schema.value.fields,
        )
    return SegmentWriter(
        sink,
        codec=layout.codec,
        level=layout.level,
        has_key=layout.has_key,
        has_headers=layout.has_headers,
        has_offsets=layout.has_offsets,
    )
