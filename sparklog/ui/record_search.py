"""Reads records for the web page, within bounds: so many records shown, so many read, so many bytes.

    found = search(coordinator, state, Search("orders", {0: 120}, backwards=True, limit=50), RecordFilter())
    found.records, found.next

Rules: reads only, no group, nothing is stored. Of a large value only its beginning is kept. Not for: how records are
shown (``views.records``), and which match (``views.record_filter``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.reader import Fetched, LogReader
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptionError,
    DataLossError,
    ObjectNotFoundError,
    SparklogError,
    UnsupportedVersionError,
)
from sparklog.protocol.state import State
from sparklog.ui.views.record_filter import RecordFilter
from sparklog.ui.views.records import FoundRecord

KEPT_BYTES = 16 * 1024
"""Bytes of a key or value that are kept of a record in a list."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of records after which a search reads no more, but what it began with: a batch, or ``_FIRST_WINDOW``."""
MAX_READ = 200_000
"""Records after which a search reads no more."""
MAX_SECONDS = 5.0
"""Seconds after which a search returns what it has."""
_WINDOW = 1000
"""Offsets that a search with a filter reads together from the end backwards."""
_DAMAGE = (CorruptionError, DataLossError, ObjectNotFoundError, UnsupportedVersionError)
"""Errors of one file or batch: others of the topic can be read."""
_FIRST_WINDOW = 50
"""Offsets that it reads together at first, whatever their size; then twice as many each time."""


class Search(NamedTuple):
    """Where a search begins in each partition (``starts``), in which direction, and how many records it shows.

    Forwards it reads from each offset on; backwards, the records before it, newest first.
    """

    topic: str
    starts: Mapping[int, int]
    backwards: bool
    limit: int
    kept_bytes: int = KEPT_BYTES


class FoundRecords(NamedTuple):
    """The records that a search found, and how far it came: where the next one begins, by partition.

    ``stopped`` says which bound ended it before the end of the log, empty if none did. ``unreadable`` has the errors of
    partitions whose next records in this direction cannot be read.
    """

    records: list[FoundRecord]
    next: dict[int, int]
    read: int
    read_bytes: int
    stopped: str
    unreadable: Sequence[SparklogError] = ()


class _Budget:
    """What a search may still read. Not thread-safe."""

    def __init__(self, reader: LogReader) -> None:
        self._clock = reader.clock
        self._deadline = self._clock.monotonic() + MAX_SECONDS
        self.read = self.size = 0

    def take(self, fetched: Fetched) -> None:
        self.read += fetched.records.batch.num_rows
        self.size += fetched.records.batch.nbytes

    @property
    def is_late(self) -> bool:
        return self._clock.monotonic() > self._deadline

    @property
    def spent(self) -> str:
        if self.size >= MAX_BYTES:
            return f"{MAX_BYTES >> 20} MiB were read"
        if self.read >= MAX_READ:
            return f"{MAX_READ:,} records were read"
        return f"{MAX_SECONDS:g} s have passed" if self.is_late else ""


class _Late(Exception):
    """A filter takes too long: records from this offset on are not looked at yet."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def search(coordinator: Coordinator, state: State, wanted: Search, admits: RecordFilter) -> FoundRecords:
    """Return the records of a topic that pass a filter, at most ``wanted.limit`` of each partition, and of a damaged
    partition those before the damage.

    Raises as ``LogReader.fetch``, but for damage.
    """
    records: list[FoundRecord] = []
    unreadable: list[SparklogError] = []
    following: dict[int, int] = {}
    with LogReader(coordinator) as reader:
        budget = _Budget(reader)
        for partition, start in wanted.starts.items():
            walk = _backwards if wanted.backwards else _forwards
            following[partition] = start
            if budget.spent:
                continue
            count = 0
            try:
                for record, position in walk(reader, state, wanted, partition, start, admits, budget):
                    following[partition] = position
                    if record is not None:
                        records.append(record)
                        count += 1
                    if count >= wanted.limit or budget.spent:
                        break
            except _DAMAGE as error:
                unreadable.append(error)
    return FoundRecords(records, following, budget.read, budget.size, budget.spent, unreadable)


_Step = tuple[FoundRecord | None, int]
"""A record that passed, None at the end of what was read together, and where the search is then."""


def _forwards(
    reader: LogReader, state: State, wanted: Search, partition: int, start: int, admits: RecordFilter, budget: _Budget
) -> Iterator[_Step]:
    end = state.partition(wanted.topic, partition).high_watermark
    for fetched in reader.fetch(wanted.topic, partition, start, end, state=state):
        budget.take(fetched)
        try:
            for record in passing(partition, fetched, admits, wanted.kept_bytes, budget):
                yield record, record.offset + 1
        except _Late as late:
            yield None, late.offset
            return
        yield None, fetched.end_offset
    yield None, max(start, end)


def _backwards(
    reader: LogReader, state: State, wanted: Search, partition: int, start: int, admits: RecordFilter, budget: _Budget
) -> Iterator[_Step]:
    first = state.partition(wanted.topic, partition).log_start_offset
    most = wanted.limit if admits.is_empty else _WINDOW
    window, has_moved = min(_FIRST_WINDOW, most), False
    while start > first:
        low = max(start - window, first)
        records: list[FoundRecord] = []
        try:
            for fetched in reader.fetch(wanted.topic, partition, low, start, state=state):
                budget.take(fetched)
                if has_moved and budget.spent:  # the newest records of these are not read yet: the search goes on here
                    return
                records += passing(partition, fetched, admits, wanted.kept_bytes, budget if has_moved else None)
        except _Late:
            return
        except _DAMAGE:
            if start - low == 1:
                raise
            window = most = (start - low) // 2  # there may be sound records after the damage
            continue
        for record in reversed(records):
            yield record, record.offset
        start, window, has_moved = low, min(2 * window, most), True
        yield None, start


def passing(
    partition: int, fetched: Fetched, admits: RecordFilter, kept_bytes: int, budget: _Budget | None = None
) -> Iterator[FoundRecord]:
    """Yield those of the records that pass a filter, with the beginnings of their keys and values.

    Raises _Late when the time of the budget is over, but not before the first one.
    """
    batch = fetched.records.batch
    keys, values, stamps = batch.column("key"), batch.column("value"), batch.column("timestamp").view("int64")
    headers = batch.column("headers")
    for row, offset in enumerate(fetched.records.all_offsets()):
        if row and budget is not None and budget.is_late:
            raise _Late(offset)
        pairs = [(header["key"], header["value"]) for header in headers[row].as_py() or ()]
        if not admits.admits_headers(pairs) or not (admits.is_empty or _passes(keys[row], values[row], admits)):
            continue
        key, key_size = _beginning(keys[row], kept_bytes)
        value, value_size = _beginning(values[row], kept_bytes)
        yield FoundRecord(
            partition,
            offset,
            stamps[row].as_py(),
            fetched.records.timestamp_type,
            key,
            key_size,
            value,
            value_size,
            pairs,
            fetched.leader_epoch,
        )


def _passes(key: pa.Scalar, value: pa.Scalar, admits: RecordFilter) -> bool:
    return admits.admits_key(key.as_py()) and admits.admits_value(value.as_py())


def _beginning(scalar: pa.Scalar, kept_bytes: int) -> tuple[bytes | None, int]:
    """Return the first bytes of a value, without copying the rest, and its size."""
    if not scalar.is_valid:
        return None, 0
    buffer = scalar.as_buffer()
    return buffer[:kept_bytes].to_pybytes(), buffer.size


def read_record(
    coordinator: Coordinator, state: State, topic: str, partition: int, offset: int, kept_bytes: int
) -> FoundRecord | None:
    """Return the record at an offset, None if there is none. Raises as ``LogReader.fetch``."""
    with LogReader(coordinator) as reader:
        for fetched in reader.fetch(topic, partition, offset, offset + 1, state=state):
            for record in passing(partition, fetched, RecordFilter(), kept_bytes):
                return record
    return None


def find_starts(
    coordinator: Coordinator, state: State, topic: str, partitions: Sequence[int], timestamp_ms: int
) -> dict[int, int]:
    """Return the offset of the first record at or after a time, or the end, of each partition. Raises StorageError."""
    with LogReader(coordinator) as reader:
        found = {number: reader.find_timestamp(topic, number, timestamp_ms * 1000) for number in partitions}
    return {
        number: state.partition(topic, number).high_watermark if timed is None else timed.offset
        for number, timed in found.items()
    }
