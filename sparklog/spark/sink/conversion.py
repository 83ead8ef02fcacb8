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
from sparklog.format.plain_arrays import timestamp_scalar
from sparklog.format.schema import COLUMNS, HEADERS, KEY, TIMESTAMP, TIMESTAMP_TYPE, record_schema

WRITTEN = (*COLUMNS, "topic", "partition")


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
        self._position = {columns[number].lower(): index for index, number in enumerate(self._selected)}
        self._schema = record_schema([name for name in COLUMNS if name in self._position or name == TIMESTAMP])

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with only the columns that ``convert`` needs."""
        return batch if self._selects_all else batch.select(self._selected)

    @property
    def has_targets(self) -> bool:
        """Whether rows may name a topic or a partition."""
        return "partition" in self._position or "topic" in self._position

    @property
    def has_key(self) -> bool:
        return KEY in self._position

    @property
    def has_headers(self) -> bool:
        return HEADERS in self._position

    def convert(self, batch: pa.RecordBatch, now_ms: int) -> Rows:
        """Return the rows of a selected batch. Raises InvalidRecordError for a column that cannot be converted."""
        columns = [
            self._timestamps(batch, now_ms) if field.name == TIMESTAMP else self._cast(batch, field.name, field.type)
            for field in self._schema
        ]
        return Rows(
            pa.RecordBatch.from_arrays(columns, schema=self._schema),
            self._cast(batch, "topic", pa.string()),
            self._cast(batch, "partition", pa.int32()),
            stamped=TIMESTAMP in self._position,
            is_slice=not self._selects_all,
        )

    def _timestamps(self, batch: pa.RecordBatch, now_ms: int) -> pa.Array:
        now = timestamp_scalar(now_ms * 1000)
        column = self._cast(batch, TIMESTAMP, TIMESTAMP_TYPE)
        if column is None:
            return pa.repeat(now, batch.num_rows)
        return pc.fill_null(column, now) if column.null_count else column

    def _cast(self, batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array | None:
        """Return a column as this type, None if the rows do not have it: text to bytes, 64-bit offsets to 32-bit ones,
        other names of list items."""
        if name not in self._position:
            return None
        column = batch.column(self._position[name])
        if column.type == wanted:
            return column
        try:
            return column.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidRecordError(
                f"column {name} of type {column.type} cannot be converted to {wanted}: {error}"
            ) from error
