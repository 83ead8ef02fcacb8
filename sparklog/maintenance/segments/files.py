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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.errors import CorruptIndexError, CorruptionError, ObjectNotFoundError, SparklogError, StorageError
from sparklog.format import schema
from sparklog.format.index import BatchEntry, Index, decode_index
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter
from sparklog.protocol.commits import Run
from sparklog.protocol.segments import Segment, index_path
from sparklog.store.base import BytesLike, InputFile, OutputFile, Store
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

FETCHED_AHEAD = 16
"""Segments that are fetched at the same time from a storage with a high latency."""

MAX_WHOLE_FETCH_BYTES = 4 * 1024 * 1024
"""Size in bytes up to which a segment is fetched by one request. Larger ones are read ahead by the store."""

MAX_GATHERED_BYTES = 64 * limits.TARGET_BATCH_BYTES
"""Size in bytes up to which batches are gathered, however large ``index.interval.bytes`` is."""

Result = TypeVar("Result")


class SourceMissingError(Exception):
    """A file to read is missing at every broker; ``path`` is its key."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ReplicaStores(NamedTuple):
    """The stores that a task reads and writes. Picklable if the stores are.

    ``stores`` by broker id; ``read`` are the brokers in read order; ``write`` are the brokers that get the files, the
    leader first. ``ahead`` segments are fetched ahead of the one that is being read.
    """

    stores: Mapping[int, Store]
    read: tuple[int, ...]
    write: tuple[int, ...]
    ahead: int = 0


class Producer(NamedTuple):
    """The producer of a batch: Kafka's producer id and epoch, and the sequence of its first record; -1 for none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    sequence: int = NO_SEQUENCE


class Source:
    """One live segment to read. Not thread-safe; after ``close`` its file is opened again when needed."""

    def __init__(self, segment: Segment, replicas: ReplicaStores) -> None:
        self.segment = segment
        self.replicas = replicas
        self._brokers = [
            broker for broker in dict.fromkeys([*replicas.read, segment.broker]) if broker in replicas.stores
        ]
        self._index: Index | None = None
        self._file: InputFile | None = None
        self._reader: SegmentReader | None = None

    @property
    def index(self) -> Index:
        """The index, read at its first use. Raises SourceMissingError, StorageError or CorruptIndexError if all brokers
        fail."""
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

    def entry(self, number: int) -> BatchEntry:
        return self.index.entry(number)

    def row(self, entry: BatchEntry) -> int:
        """Return the row of the segment with which a batch begins."""
        return entry.first_row - self.segment.first_row

    def fetch(self) -> None:
        """Read the index, and the records of a small segment, before they are needed. Errors as ``read``."""
        if self.segment.size_bytes <= MAX_WHOLE_FETCH_BYTES and self._reader is None:
            first, last = (self.index.entry(self.batches[at]) for at in (0, -1))
            self._from_any(lambda broker: self._fetch_all(broker, first.position, last.end - first.position))

    def fetch_index(self) -> None:
        """Read the index before it is needed."""
        assert self.index

    def read(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return a verified batch. Raises SourceMissingError, StorageError or CorruptRecordError if all brokers
        fail."""
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
        return pc.add(_count_to(entry.count), relative_base + self.row(entry)).cast(pa.int32())

    @staticmethod
    def count_from(first: int, count: int) -> pa.Array:
        """Return ``count`` consecutive numbers from ``first`` on; int64."""
        return pc.add(_count_to(count), first)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._reader = None

    def _from_any(self, read: Callable[[int], Result]) -> Result:
        """Return what ``read`` returns for the first broker at which it succeeds; that one is read first from then on.

        If all fail, raises SourceMissingError or the error of the first broker.
        """
        first_error: SparklogError | None = None
        for broker in list(self._brokers):
            try:
                return read(broker)
            except (StorageError, CorruptionError) as error:
                first_error = first_error or error
                self.close()
                self._brokers.remove(broker)
                self._brokers.append(broker)
        if isinstance(first_error, ObjectNotFoundError):
            raise SourceMissingError(self.segment.path) from first_error
        assert first_error is not None
        raise first_error

    def _read_index(self, broker: int) -> Index:
        store, key = self.replicas.stores[broker], self.segment.index_path
        index = decode_index(store.get(key, limits.MAX_INDEX_BYTES), f"{store.root}/{key}")
        _check_holds(index, self.segment)
        return index

    def _fetch_all(self, broker: int, position: int, length: int) -> None:
        store, path = self.replicas.stores[broker], self.segment.path
        data = pa.py_buffer(store.get_range(path, position, length))

        def read_at(start: int, count: int) -> pa.Buffer:
            at = min(start - position, data.size)
            return data.slice(at, min(count, data.size - at))

        self._reader = SegmentReader(read_at, self.index, f"{store.root}/{path}")

    def _open_reader(self, broker: int) -> SegmentReader:
        if self._reader is None:
            store = self.replicas.stores[broker]
            self._file = store.open_input(self.segment.path)
            self._reader = SegmentReader(self._file.read_at, self.index, f"{store.root}/{self.segment.path}")
        return self._reader


def fetch_ahead(sources: Sequence[Source], fetch: Callable[[Source], None] = Source.fetch) -> Iterator[Source]:
    """Return the sources in order, fetching the next ``ReplicaStores.ahead`` of them in the background."""
    workers = min(sources[0].replicas.ahead, len(sources)) if sources else 0
    if not workers:
        yield from sources
        return
    with ThreadPoolExecutor(workers) as pool:
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


def _check_holds(index: Index, segment: Segment) -> None:
    last = index.entry(segment.first_batch + segment.batches - 1)
    rows = last.end_row - segment.first_row
    if index.entry(segment.first_batch).first_row != segment.first_row or rows != segment.records:
        raise CorruptIndexError(
            f"{index.path} does not hold the {segment.records} records in {segment.batches} batches that the commit "
            "log names; restore it from a copy",
            path=index.path,
        )


@lru_cache(maxsize=8)
def _powers(power: int) -> pa.Array:
    return pa.array(range(1 << power), pa.int64())


def _count_to(count: int) -> pa.Array:
    """Return the numbers 0 to ``count - 1``."""
    return _powers(max((count - 1).bit_length(), 12)).slice(0, count)


class Layout(NamedTuple):
    """How a file is written; ``codec`` and ``level`` as in ``format.codecs``, sizes as stored."""

    codec: str = "none"
    level: int | None = None
    has_key: bool = True
    has_headers: bool = False
    has_offsets: bool = False
    index_interval_bytes: int = 0


class SegmentOutput:
    """Writes one ``.log`` and its ``.index`` at every broker of ``ReplicaStores.write``. Not thread-safe.

    Batches are gathered to ``limits.TARGET_BATCH_BYTES``, and an index entry covers at least ``index_interval_bytes``
    of the file, so that the index is not finer than configured.
    """

    def __init__(self, replicas: ReplicaStores, key: str, layout: Layout) -> None:
        self.key = key
        self._replicas = replicas
        self._outputs: list[OutputFile] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._producer: Producer | None = None
        self._layout = layout
        self._interval = layout.index_interval_bytes
        self._target = max(limits.TARGET_BATCH_BYTES, min(self._interval, MAX_GATHERED_BYTES))
        try:
            for broker in replicas.write:
                self._outputs.append(replicas.stores[broker].open_output(key))
            self._writer = SegmentWriter(
                self,
                codec=layout.codec,
                level=layout.level,
                has_key=layout.has_key,
                has_headers=layout.has_headers,
                has_offsets=layout.has_offsets,
            )
        except BaseException:
            self.abort()
            raise

    @property
    def bytes_written(self) -> int:
        """Bytes of one copy of the ``.log`` so far, without the batches that are still being gathered."""
        return self._writer.bytes_written

    def write(self, data: BytesLike) -> None:
        """Write bytes to every copy: this object is the sink of Arrow's writer."""
        for output in self._outputs:
            output.write(data)

    def add(self, batch: pa.RecordBatch, producer: Producer = Producer()) -> None:  # noqa: B008
        """Append records, with exactly the file's columns."""
        size = batch.nbytes
        if self._waiting and self._waiting_bytes + size > limits.MAX_BATCH_BYTES // 2:
            self._flush()
        self._producer = producer if not self._waiting else self._common_producer(producer)
        self._waiting.append(batch)
        self._waiting_bytes += size
        self._waiting_rows += batch.num_rows
        if self._waiting_bytes >= self._target:
            self._flush()

    def takes_as_stored(self, source: Source, entry: BatchEntry) -> bool:
        """Whether a batch is large enough already, and its stored bytes are valid in this file."""
        layout, index = self._layout, source.index
        columns = schema.columns_present(layout.has_key, layout.has_headers, layout.has_offsets)
        return (
            not layout.has_offsets
            and source.segment.append_time_ms < 0  # else the timestamps become the time of the commit
            and (index.codec, index.columns) == (layout.codec, columns)
            and 2 * entry.decoded_length >= limits.TARGET_BATCH_BYTES
            and entry.length >= min(self._interval, MAX_GATHERED_BYTES)
        )

    def copy(self, parts: Sequence[pa.Buffer], entry: BatchEntry) -> None:
        """Append the stored bytes of a batch for which ``takes_as_stored`` is true."""
        self._flush()
        self._writer.copy(parts, entry)

    def finish(self, broker: int) -> tuple[Run, int]:
        """Make both files durable at all brokers; return the run for the commit, and its number of null values.

        ``broker`` is recorded as the broker of the run. Raises StorageError; then nothing is visible.
        """
        try:
            self._flush()
            index = self._writer.finish()
            for output, written_broker in zip(self._outputs, self._replicas.write, strict=True):
                index_output = self._replicas.stores[written_broker].open_output(index_path(self.key))
                index_output.write(index)
                output.close_with(index_output)
        except BaseException:
            self.abort()
            delete_files(self._replicas, [self.key])  # some brokers may have it already
            raise
        return self._run(broker), sum(entry.null_values for entry in self._writer.entries)

    def abort(self) -> None:
        """Discard the files. Best effort: what remains is not part of the log."""
        for output in self._outputs:
            output.abort()

    def _common_producer(self, producer: Producer) -> Producer:
        """Return the producer of the gathered batch: none unless all its records are in sequence from one producer."""
        first = self._producer
        assert first is not None
        if first.producer_id < 0 or producer[:2] != first[:2]:
            return Producer()
        return first if producer.sequence == (first.sequence + self._waiting_rows) % 2**31 else Producer()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        size, producer = self._waiting_bytes, self._producer or Producer()
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0
        entry = self._writer.write(
            batch, producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=producer.sequence
        )
        stored = min(self._interval * size // max(entry.length, 1), MAX_GATHERED_BYTES)
        self._target = max(limits.TARGET_BATCH_BYTES, stored)

    def _run(self, broker: int) -> Run:
        entries = self._writer.entries
        return Run(
            path=self.key,
            broker=broker,
            replicas=list(self._replicas.write) if len(self._replicas.write) > 1 else [],
            batches=len(entries),
            records=self._writer.rows,
            size_bytes=sum(entry.length for entry in entries),
            min_timestamp_us=min(entry.min_timestamp_us for entry in entries),
            max_timestamp_us=max(entry.max_timestamp_us for entry in entries),
        )


def delete_files(replicas: ReplicaStores, keys: Sequence[str]) -> None:
    """Delete files that no commit names. Best effort: a vacuum deletes what remains."""
    for broker in replicas.write:
        for key in keys:
            with suppress(StorageError):
                replicas.stores[broker].delete(index_path(key))
                replicas.stores[broker].delete(key)
