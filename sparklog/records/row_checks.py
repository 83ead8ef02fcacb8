"""Checks of rows by column: whether a topic accepts all of them, before any is routed or written.

Rows are Arrow columns of a file's types (``format.schema``). Not for: single records, wording (``record_checks``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format.plain_arrays import plain_array
from sparklog.format.schema import HEADERS, KEY, TIMESTAMP, VALUE
from sparklog.records.record_checks import (
    check_request_size,
    check_schema,
    check_timestamp,
    no_key,
    no_such_partition,
    topic_limit_error,
)
from sparklog.records.topic_rules import TopicRules
from sparklog.schema.languages.record_schema import RecordSchema
from sparklog.schema.values.typed_records import record_reader


def check_rows(rows: pa.RecordBatch, rules: TopicRules, now_ms: int, stamped: bool = True) -> None:
    """Raise the error of a row that the topic refuses; its ``index`` is the first such row's, unless it is about time.

    ``stamped`` says that the timestamps are the rows' own. Raises InvalidRecordError without a key for a compacted
    topic, or with a key or value that does not fit its schema; MessageSizeTooLargeError and InvalidTimestampError.
    """
    if rules.needs_key:
        keys = rows.column(KEY) if KEY in rows.schema.names else None
        if keys is None or keys.null_count:
            raise no_key(rules.topic, 0 if keys is None else pc.index(keys.is_null(), True).as_py())
    if rules.schema is not None:
        _check_schema(rows, rules.schema, rules)
    if rows.nbytes > rules.max_record_bytes:
        _check_sizes(rows, rules)
    if stamped and rows.num_rows:
        for stamp in pc.min_max(rows.column(TIMESTAMP)).values():
            check_timestamp(stamp.value // 1000, rules, now_ms)


def check_partitions(named: pa.Array, topic: str, partitions: int) -> None:
    """Raise InvalidPartitionError if a row names a partition that is not 0 to ``partitions - 1``; null names none."""
    if named.null_count == len(named):
        return
    low, high = (bound.as_py() for bound in pc.min_max(named).values())
    if low < 0 or high >= partitions:
        raise no_such_partition(topic, partitions, low if low < 0 else high)


def _check_schema(rows: pa.RecordBatch, schema: RecordSchema, rules: TopicRules) -> None:
    keys = rows.column(KEY) if KEY in rows.schema.names else None
    values = rows.column(VALUE)
    index = record_reader(schema).find_first_misfit(keys, values)
    if index >= 0:
        check_schema(None if keys is None else keys[index].as_py(), values[index].as_py(), rules, index)


def _check_sizes(rows: pa.RecordBatch, rules: TopicRules) -> None:
    names = rows.schema.names
    lengths = [pc.binary_length(rows.column(name)) for name in (KEY, VALUE) if name in names]
    if HEADERS not in names and sum(pc.max(length).as_py() or 0 for length in lengths) <= rules.max_record_bytes:
        return
    sizes = row_sizes(rows)
    for index in pc.indices_nonzero(pc.greater(sizes, rules.max_record_bytes)).to_pylist():
        _check_size(rows.slice(index, 1).to_pylist()[0], sizes[index].as_py(), index, rules)


def row_sizes(rows: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each row's key, value and headers."""
    sizes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for name in {KEY, VALUE}.intersection(rows.schema.names):
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(rows.column(name)), 0))
    return pc.add(sizes, _header_sizes(rows.column(HEADERS))) if HEADERS in rows.schema.names else sizes


def _check_size(row: dict[str, Any], size: int, index: int, rules: TopicRules) -> None:
    """Check a row of ``size`` bytes as a record: it may be over the topic's limit only before it is compressed."""
    check_request_size(size, rules, index)
    headers = [(header["key"], header["value"]) for header in row.get(HEADERS) or ()]
    refusal = topic_limit_error(size, row.get(KEY), row.get(VALUE), headers, rules, index)
    if refusal is not None:
        raise refusal


def _header_sizes(headers: pa.Array) -> pa.Array:
    """Return the bytes of each row's headers."""
    items = headers.flatten()
    sizes = pc.add(*(pc.fill_null(pc.binary_length(items.field(name)), 0) for name in ("key", "value")))
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    ends = pc.cumulative_sum(lengths)
    before = pa.concat_arrays([plain_array([0], pa.int64()), pc.cumulative_sum(pc.cast(sizes, pa.int64()))])
    return pc.subtract(before.take(ends), before.take(pc.subtract(ends, lengths)))
