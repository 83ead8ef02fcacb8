"""Convert Spark's rows to record columns: key, value, timestamp and headers as a ``.log`` file holds them.

    column       from                                      a null or a missing column becomes
    value        string (as UTF-8) or binary, required     a tombstone
    key          string or binary                          no key
    timestamp    timestamp                                 the time of the write
    headers      array<struct<key: string, value: binary>> no headers
    topic        string, unless the option is set          an error
    partition    int                                       the partitioner's choice

Rules: other columns are ignored; text and bytes are not changed, nor copied if Arrow allows it.
Not for: choosing partitions (``routing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError
from sparklog.format.schema import HEADERS, HEADERS_TYPE, KEY, TIMESTAMP, TIMESTAMP_TYPE, VALUE, record_schema

WRITTEN = (KEY, VALUE, TIMESTAMP, HEADERS, "topic", "partition")


class Rows(NamedTuple):
    """Records with the columns ``topic`` and ``partition`` of their rows; None if the rows have no such column.

    ``stamped`` says that the rows have a timestamp column, ``is_slice`` that the records are slices of larger buffers,
    which they keep in memory.
    """

    records: pa.RecordBatch
    topics: pa.Array | None
    partitions: pa.Array | None
    stamped: bool
    is_slice: bool

    def take(self, order: pa.Array) -> Rows:
        """Return copies of these rows in another order."""
        columns = [
            column if name == TIMESTAMP and not self.stamped else column.take(order)  # equal values need no reordering
            for name, column in zip(self.records.schema.names, self.records.columns, strict=True)
        ]
        return self._replace(
            records=pa.RecordBatch.from_arrays(columns, schema=self.records.schema),
            topics=None if self.topics is None else self.topics.take(order),
            partitions=None if self.partitions is None else self.partitions.take(order),
            is_slice=False,
        )


class Converter:
    """Converts batches of one schema. Immutable.

    ``columns`` are the names of the rows' columns; ``timestamp`` is a record's time only with ``include_timestamp``.
    ``has_key`` and ``has_headers`` say which columns the records have. Ignored columns stay in memory as long as the
    records do, so the records of such rows are slices.
    """

    def __init__(self, columns: Sequence[str], has_topic_option: bool, include_timestamp: bool = True) -> None:
        ignored = ["topic"] * has_topic_option + [TIMESTAMP] * (not include_timestamp)
        wanted = [name for name in WRITTEN if name not in ignored]
        self._selected = [number for number, name in enumerate(columns) if name.lower() in wanted]
        self._selects_all = len(self._selected) == len(columns)
        position = {columns[number].lower(): index for index, number in enumerate(self._selected)}
        self._value = position["value"]
        self._key = position.get("key")
        self._timestamp = position.get("timestamp")
        self._headers = position.get("headers")
        self._topic = None if has_topic_option else position["topic"]
        self._partition = position.get("partition")
        names = [
            name
            for name, is_present in (
                (KEY, self._key is not None),
                (VALUE, True),
                (TIMESTAMP, True),
                (HEADERS, self._headers is not None),
            )
            if is_present
        ]
        self._schema = record_schema(names)

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with only the columns that ``convert`` needs."""
        return batch if self._selects_all else batch.select(self._selected)

    @property
    def has_targets(self) -> bool:
        """Whether rows may name a topic or a partition."""
        return self._partition is not None or self._topic is not None

    @property
    def has_key(self) -> bool:
        return self._key is not None

    @property
    def has_headers(self) -> bool:
        return self._headers is not None

    def convert(self, batch: pa.RecordBatch, now_ms: int) -> Rows:
        """Return the rows of a selected batch. Raises InvalidRecordError for a column that cannot be converted."""
        columns = [
            self._timestamps(batch, now_ms) if name == TIMESTAMP else self._stored(batch, name)
            for name in self._schema.names
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Rows(
            records,
            None if self._topic is None else _cast(batch.column(self._topic), pa.string(), "topic"),
            None if self._partition is None else _cast(batch.column(self._partition), pa.int32(), "partition"),
            stamped=self._timestamp is not None,
            is_slice=not self._selects_all,
        )

    def _stored(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        position = {KEY: self._key, VALUE: self._value, HEADERS: self._headers}[name]
        assert position is not None
        return _cast(batch.column(position), HEADERS_TYPE if name == HEADERS else pa.binary(), name)

    def _timestamps(self, batch: pa.RecordBatch, now_ms: int) -> pa.Array:
        now = pa.scalar(now_ms * 1000, TIMESTAMP_TYPE)
        if self._timestamp is None:
            return pa.repeat(now, batch.num_rows)
        column = _cast(batch.column(self._timestamp), TIMESTAMP_TYPE, "timestamp")
        return pc.fill_null(column, now) if column.null_count else column


def _cast(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Return the column as this type: text to bytes, 64-bit offsets to 32-bit ones, other names of list items."""
    if column.type == wanted:
        return column
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecordError(
            f"column {name} of type {column.type} cannot be converted to {wanted}: {error}"
        ) from error
