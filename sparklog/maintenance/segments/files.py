"""Segments as maintenance tasks read and write them: from whichever replica is intact, and to all that are in sync.

Reading gives stored batches with what the index says of them, verified; where a broker does not answer, or its copy is
damaged, the next one is asked, so that damage is never written on. Writing gathers batches until they have the usual
size, and makes the same bytes at every broker.

Rules: columns are those of ``format.schema``; rows are numbered from the start of a segment. Nothing here is visible to
readers, since no commit names it yet.
Not for: which segments and records (``rewrite``, ``compact``), and commits.
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
from sparklog.store.local import close_together
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

FETCHED_AHEAD = 16
"""segments that are fetched at the same time from a storage where every request takes its time."""

WHOLE_BYTES = 4 * 1024 * 1024
"""bytes of a segment up to which it is fetched by one request. Larger ones are read ahead by the store."""

LARGEST_GATHERED_BYTES = 64 * limits.TARGET_BATCH_BYTES
"""bytes. However large ``index.interval.bytes`` is, batches are gathered up to this size and no further."""

Answer = TypeVar("Answer")


class SourceMissingError(Exception):
    """A file that was to be read is nowhere; ``path`` is its key."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Places(NamedTuple):
    """Where a task reads and writes. Picklable where the stores are.

    ``stores`` by broker id; ``read`` are brokers in the order to ask; ``write`` are those that get the files, the
    leader first. So many segments are fetched ``ahead`` of the one that is being read.
    """

    stores: Mapping[int, Store]
    read: tuple[int, ...]
    write: tuple[int, ...]
    ahead: int = 0


class Producer(NamedTuple):
    """Who sent a batch: Kafka's producer id and epoch, and the sequence of its first record; -1 for none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    sequence: int = NO_SEQUENCE


class Source:
    """One live segment to read. Not thread-safe; ``close`` lets go of its file, and it opens again when needed."""

    def __init__(self, segment: Segment, places: Places) -> None:
        self.segment = segment
        self.places = places
        self._brokers = [broker for broker in dict.fromkeys([*places.read, segment.broker]) if broker in places.stores]
        self._index: Index | None = None
        self._file: InputFile | None = None
        self._reader: SegmentReader | None = None

    @property
    def index(self) -> Index:
        """The index, read at the first use. Raises SourceMissingError, StorageError or CorruptIndexError once no broker
        is left."""
        if self._index is None:
            self._index = self._from_any(self._read_index)
        return self._index

    @property
    def batches(self) -> range:
        """The numbers of its batches in the file."""
        return range(self.segment.first_batch, self.segment.first_batch + self.segment.batches)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a record that the file has."""
        return tuple(name for name in schema.COLUMNS if name in self.index.columns)

    def entry(self, number: int) -> BatchEntry:
        return self.index.entry(number)

    def row(self, entry: BatchEntry) -> int:
        """The row of the segment that a batch begins with."""
        return entry.first_row - self.segment.first_row

    def fetch(self) -> None:
        """Get the index, and the records where they are few, before they are needed. Errors as ``read``."""
        if self.segment.size_bytes <= WHOLE_BYTES and self._reader is None:
            first, last = (self.index.entry(self.batches[at]) for at in (0, -1))
            self._from_any(lambda broker: self._fetch_all(broker, first.position, last.end - first.position))

    def fetch_index(self) -> None:
        """Get the index before it is needed."""
        assert self.index

    def read(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        """A verified batch. Raises SourceMissingError, StorageError or CorruptRecordError once no broker is left."""
        if not self.segment.has_gaps:
            columns = [name for name in columns if name != schema.OFFSET]
        return self._from_any(lambda broker: self._opened(broker).read(number, columns))

    def read_stored(self, number: int) -> list[pa.Buffer]:
        """A batch's bytes as they are stored, verified. Errors as ``read``."""
        return self._from_any(lambda broker: self._opened(broker).read_stored(number))

    def offsets(self, entry: BatchEntry, batch: pa.RecordBatch, base_offset: int) -> pa.Array:
        """The offsets of a batch's records, counted from ``base_offset``; int32."""
        ahead = self.segment.base_offset - base_offset
        if self.segment.has_gaps:
            return pc.add(batch.column(schema.OFFSET), pa.scalar(ahead, pa.int32()))
        return pc.add(_count_to(entry.count), ahead + self.row(entry)).cast(pa.int32())

    @staticmethod
    def count_from(first: int, count: int) -> pa.Array:
        """``first`` and the numbers after it, so many; int64."""
        return pc.add(_count_to(count), first)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._reader = None

    def _from_any(self, ask: Callable[[int], Answer]) -> Answer:
        """What the first broker answers that can; it is asked first from then on."""
        first_error: SparklogError | None = None
        for broker in list(self._brokers):
            try:
                return ask(broker)
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
        store, key = self.places.stores[broker], self.segment.index_path
        index = decode_index(store.get(key, limits.MAX_INDEX_BYTES), f"{store.root}/{key}")
        _check_holds(index, self.segment)
        return index

    def _fetch_all(self, broker: int, position: int, length: int) -> None:
        store, path = self.places.stores[broker], self.segment.path
        data = pa.py_buffer(store.get_range(path, position, length))

        def read_at(start: int, count: int) -> pa.Buffer:
            at = min(start - position, data.size)
            return data.slice(at, min(count, data.size - at))

        self._reader = SegmentReader(read_at, self.index, f"{store.root}/{path}")

    def _opened(self, broker: int) -> SegmentReader:
        if self._reader is None:
            store = self.places.stores[broker]
            self._file = store.open_input(self.segment.path)
            self._reader = SegmentReader(self._file.read_at, self.index, f"{store.root}/{self.segment.path}")
        return self._reader


def ahead(sources: Sequence[Source], fetch: Callable[[Source], None] = Source.fetch) -> Iterator[Source]:
    """The sources in their order; some that come next are fetched meanwhile, where their storage is far away."""
    workers = min(sources[0].places.ahead, len(sources)) if sources else 0
    if not workers:
        yield from sources
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[tuple[Source, Future[None]]] = deque()
        for source in sources:
            waiting.append((source, pool.submit(fetch, source)))
            if len(waiting) > workers:
                yield _fetched(*waiting.popleft())
        while waiting:
            yield _fetched(*waiting.popleft())


def _fetched(source: Source, done: Future[None]) -> Source:
    """What went wrong is left to whoever uses the source, and tries again."""
    done.exception()
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
    """0 to ``count - 1``."""
    return _powers(max((count - 1).bit_length(), 12)).slice(0, count)


class Layout(NamedTuple):
    """How a file is written; ``codec`` and ``level`` as in ``format.codec``, bytes as stored."""

    codec: str = "none"
    level: int | None = None
    has_key: bool = True
    has_headers: bool = False
    has_offsets: bool = False
    index_interval_bytes: int = 0


class SegmentOutput:
    """One ``.log`` and its ``.index`` in the making, at every broker of ``Places.write``. Not thread-safe.

    Batches are gathered to ``limits.TARGET_BATCH_BYTES``, and an index entry covers ``index_interval_bytes`` of the
    file at least, so that an index is no finer than asked for.
    """

    def __init__(self, places: Places, key: str, layout: Layout) -> None:
        self.key = key
        self._places = places
        self._outputs: list[OutputFile] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._producer: Producer | None = None
        self._layout = layout
        self._interval = layout.index_interval_bytes
        self._target = max(limits.TARGET_BATCH_BYTES, min(self._interval, LARGEST_GATHERED_BYTES))
        try:
            for broker in places.write:
                self._outputs.append(places.stores[broker].open_output(key))
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
        """Bytes of the ``.log`` so far, of one copy; without what is still being gathered."""
        return self._writer.bytes_written

    def write(self, data: BytesLike) -> None:
        """Bytes for every copy: this is the sink of Arrow's bytes."""
        for output in self._outputs:
            output.write(data)

    def add(self, batch: pa.RecordBatch, producer: Producer = Producer()) -> None:  # noqa: B008
        """Records that come next, with exactly the file's columns."""
        size = batch.nbytes
        if self._waiting and self._waiting_bytes + size > limits.MAX_BATCH_BYTES // 2:
            self._flush()
        self._producer = producer if not self._waiting else self._continued(producer)
        self._waiting.append(batch)
        self._waiting_bytes += size
        self._waiting_rows += batch.num_rows
        if self._waiting_bytes >= self._target:
            self._flush()

    def takes_as_stored(self, source: Source, entry: BatchEntry) -> bool:
        """Whether a batch is large enough as it is, and its bytes mean the same in this file."""
        layout, index = self._layout, source.index
        columns = schema.columns_present(layout.has_key, layout.has_headers, layout.has_offsets)
        return (
            not layout.has_offsets
            and source.segment.append_time_ms < 0  # else the times of the commit are to be written
            and (index.codec, index.columns) == (layout.codec, columns)
            and 2 * entry.decoded_length >= limits.TARGET_BATCH_BYTES
            and entry.length >= min(self._interval, LARGEST_GATHERED_BYTES)
        )

    def copy(self, parts: Sequence[pa.Buffer], entry: BatchEntry) -> None:
        """A batch that comes next, as it is stored in a file for which ``takes_as_stored`` says yes."""
        self._flush()
        self._writer.copy(parts, entry)

    def finish(self, broker: int) -> tuple[Run, int]:
        """Make both files durable everywhere; the run that a commit names, and how many of its values are null.

        ``broker`` is the one that the run is attributed to. Raises StorageError; nothing is visible then.
        """
        try:
            self._flush()
            index = self._writer.finish()
            for output, at in zip(self._outputs, self._places.write, strict=True):
                beside = self._places.stores[at].open_output(index_path(self.key))
                beside.write(index)
                close_together(output, beside)
        except BaseException:
            self.abort()
            delete_files(self._places, [self.key])  # one of several may be published already
            raise
        return self._run(broker), sum(entry.null_values for entry in self._writer.entries)

    def abort(self) -> None:
        """Leave nothing, as far as the storages allow; what stays is no part of the log."""
        for output in self._outputs:
            output.abort()

    def _continued(self, producer: Producer) -> Producer:
        """The gathered batch is a producer's only where all of it follows on in that producer's sequence."""
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
        stored = min(self._interval * size // max(entry.length, 1), LARGEST_GATHERED_BYTES)
        self._target = max(limits.TARGET_BATCH_BYTES, stored)

    def _run(self, broker: int) -> Run:
        entries = self._writer.entries
        return Run(
            path=self.key,
            broker=broker,
            replicas=list(self._places.write) if len(self._places.write) > 1 else [],
            batches=len(entries),
            records=self._writer.rows,
            size_bytes=sum(entry.length for entry in entries),
            min_timestamp_us=min(entry.min_timestamp_us for entry in entries),
            max_timestamp_us=max(entry.max_timestamp_us for entry in entries),
        )


def delete_files(places: Places, keys: Sequence[str]) -> None:
    """Take files away that no commit names. What cannot be deleted stays for a vacuum."""
    for broker in places.write:
        for key in keys:
            with suppress(StorageError):
                places.stores[broker].delete(index_path(key))
                places.stores[broker].delete(key)
