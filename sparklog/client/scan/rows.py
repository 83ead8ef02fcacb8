"""Reads the rows of a scan: of each partition the segments, record batches and columns that it needs.

Typed columns of history are read from its files, and those of the records after it from their keys and values, as by
``sparklog.table``. With a filter, segments and record batches are left out whose bounds say that no row of theirs
passes; the rows of the others are tested.

Rules: the history of a partition ends where it did when the scan was made, so that reading it twice returns the same.
Not for: which offsets a scan has (``scan``), and what a filter means (``row_filter``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.scan.row_filter import RowFilter
from sparklog.format.column_bounds import Bounds, ColumnBounds
from sparklog.format.parquet.delta_stats import decode_bounds
from sparklog.format.schema import COLUMNS, HEADERS, HEADERS_TYPE, KEY, TIMESTAMP_TYPE, VALUE
from sparklog.log.records.batches import RowBuilder, join_small
from sparklog.log.records.fetch import Selection, offset_and_time_bounds
from sparklog.log.records.records import Records
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.schema.languages.record_schema import RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values.typed_records import record_reader

ROW_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP_TYPE,
        "timestampType": pa.int32(),
        "headers": HEADERS_TYPE,
    }
)
"""The columns of every topic: names, types and order are those of Spark's Kafka source with headers."""

PRUNED_TOGETHER = 64
"""segments that are left out at once, if none of them can have rows that pass."""


class ScanRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition, of which those before ``history_end`` are history."""

    partition: int
    start: int
    end: int
    history_end: int = 0


class RowReader:
    """Reads rows of one topic. ``schema`` has the columns that are returned, ``typed`` is the topic's schema.

    Immutable, thread-safe.
    """

    def __init__(
        self,
        state: State,
        topic: str,
        schema: pa.Schema,
        typed: RecordSchema,
        row_filter: RowFilter | None = None,
    ) -> None:
        self._state = state
        self._topic = topic
        self._names = schema.names
        self._filter = row_filter
        self._filtered = frozenset(() if row_filter is None else row_filter.columns)
        added = () if row_filter is None else (field for field in row_filter.schema if field.name in self._filtered)
        self._schema = pa.schema([*schema, *(field for field in added if field.name not in schema.names)])
        self._stored = [name for name in COLUMNS if name in self._schema.names]
        self._typed_schema = typed
        self._typed = [field for field in typed_fields(typed.columns) if field.name in self._schema.names]
        self._bounded = [
            field for field in self._typed if field.name in self._filtered and not pa.types.is_nested(field.type)
        ]

        bounded = {"partition", "offset", "timestamp", *(field.name for field in self._bounded)}
        self._prunes = row_filter if self._filtered & bounded else None

    def read(self, reader: ConsumerReader, span: ScanRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, about 1 MiB at a time."""
        yield from join_small((batch, batch.nbytes) for batch in self._batches(reader, span))

    def _batches(self, reader: ConsumerReader, span: ScanRange) -> Iterator[pa.RecordBatch]:
        builder = RowBuilder(self._schema, self._schema.names, self._topic, span.partition)
        for records in self._records(reader, span):
            batch = builder.build(records)
            if self._filter is not None:
                batch = self._filter.apply(batch).select(self._names)
            if batch.num_rows:
                yield batch

    def _records(self, reader: ConsumerReader, span: ScanRange) -> Iterator[Records]:
        if span.start == span.end:
            return
        if self._topic not in self._state.topics:  # derived from commits
            for fetched in reader.fetch(self._topic, span.partition, span.start, span.end):
                yield _with_headers(fetched.records)
            return
        for start, end in self._admitted(reader, span):
            if self._stored or self._typed:
                yield from self._fetch(reader, span._replace(start=start, end=end))
            else:
                with_offsets = "offset" in self._schema.names
                yield from reader.positions(self._topic, span.partition, start, end, with_offsets, self._state)

    def _fetch(self, reader: ConsumerReader, span: ScanRange) -> Iterator[Records]:
        after_history = [name for name in COLUMNS if name in self._stored or (self._typed and name in (KEY, VALUE))]
        partition = self._partition_bounds(span.partition)

        def admits(bounds: Bounds) -> bool:
            return self._prunes is None or self._prunes.admits(self._relevant({**partition, **bounds}))

        def select(segment: Segment) -> Selection:
            is_history = _is_history(segment, span)
            return Selection(
                self._stored if is_history else after_history,
                self._typed if is_history else (),
                admits if self._prunes and segment.batches > 1 else None,
                self._bounded if is_history else (),
            )

        for fetched in reader.fetch(
            self._topic, span.partition, span.start, span.end, state=self._state, select=select
        ):
            yield self._with_typed(fetched.records)

    def _with_typed(self, records: Records) -> Records:
        """Add typed columns to records that are not history, by reading their keys and values."""
        batch = records.batch
        if not self._typed or self._typed[0].name in batch.schema.names:
            return records
        columns = record_reader(self._typed_schema).columns(batch.column(KEY), batch.column(VALUE))
        for field in self._typed:
            batch = batch.append_column(field, columns[field.name])
        return records._replace(batch=batch)

    # -- pruning

    def _admitted(self, reader: ConsumerReader, span: ScanRange) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range in which rows may pass the filter, in order."""
        if self._prunes is None:
            yield span.start, span.end
            return
        start = end = span.start
        for segment in self._admitted_segments(reader, span, self._prunes):
            if segment.base_offset > end:
                if start < end:
                    yield start, end
                start = segment.base_offset
            end = min(segment.end_offset, span.end)
        if start < end:
            yield start, end

    def _admitted_segments(self, reader: ConsumerReader, span: ScanRange, row_filter: RowFilter) -> Iterator[Segment]:
        partition = self._partition_bounds(span.partition)
        if not row_filter.admits(self._relevant(partition)):
            return
        segments = reader.segments(self._topic, span.partition, span.start, span.end, self._state)
        for first in range(0, len(segments), PRUNED_TOGETHER):
            some = segments[first : first + PRUNED_TOGETHER]
            if row_filter.admits(self._relevant({**partition, **_joint_bounds(some)})):
                bounds = [self._relevant({**partition, **self._segment_bounds(each, span)}) for each in some]
                admitted = row_filter.select(bounds)
                yield from (segment for segment, is_admitted in zip(some, admitted, strict=True) if is_admitted)

    def _segment_bounds(self, segment: Segment, span: ScanRange) -> Bounds:
        typed = decode_bounds(segment.stats, self._bounded) if _is_history(segment, span) else {}
        return {**_joint_bounds([segment]), **typed}

    def _relevant(self, bounds: Bounds) -> Bounds:
        return {name: column for name, column in bounds.items() if name in self._filtered}

    def _partition_bounds(self, partition: int) -> Bounds:
        number = pa.scalar(partition, pa.int32())
        return {"partition": ColumnBounds(number, number)}


def _is_history(segment: Segment, span: ScanRange) -> bool:
    return segment.is_history and segment.base_offset < span.history_end


def _joint_bounds(segments: Sequence[Segment]) -> Bounds:
    """Return the bounds of the offsets and timestamps of adjacent segments."""
    return offset_and_time_bounds(
        segments[0].base_offset,
        segments[-1].end_offset - 1,
        min(segment.min_timestamp_us for segment in segments),
        max(segment.max_timestamp_us for segment in segments),
    )


def _with_headers(records: Records) -> Records:
    """Add the column headers to records that have none: records derived from commits lack it."""
    batch = records.batch
    if HEADERS in batch.schema.names:
        return records
    return records._replace(batch=batch.append_column(HEADERS, pa.nulls(batch.num_rows, HEADERS_TYPE)))
