"""Arrow tables as batches: checked and routed by column, and written to the file as columns.

A table has columns ``key``, ``value``, ``timestamp``, ``headers`` and ``partition``; only one of key and value is
required. Rows keep their order within a partition. All rows are checked before the first is sent.

Rules: routing is that of single records: an explicit partition first, then murmur2 of the key; rows with neither go in
pieces of about ``limits.TARGET_BATCH_BYTES`` to the partition that got the fewest of them so far.

Not for: what a topic accepts (``records.row_checks``), writing the file (``batch_files``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.client.producer.record_accumulator import memory_error
from sparklog.client.producer.topic_routing import TopicMetadata
from sparklog.errors import InvalidRecordError, SerializationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.format.schema import HEADERS, HEADERS_TYPE, KEY, TIMESTAMP, TIMESTAMP_TYPE, VALUE, record_schema
from sparklog.protocol.plan.partitioner import split_by_partition
from sparklog.records.record_checks import neither_key_nor_value
from sparklog.records.row_checks import check_partitions, check_rows, row_sizes

PARTITION = "partition"
COLUMNS = (KEY, VALUE, TIMESTAMP, HEADERS, PARTITION)

_ROUTED_BYTES = 64
"""bytes by which a row can grow at most when it is routed: bits of null values, of which a slice may have none."""

_FEW_ROWS_PER_CHUNK = 4096
"""rows. A table with smaller chunks is first copied into larger ones: every chunk costs about fifty calls."""


def check_table(table: object, topic: TopicMetadata, partition: int | None, now_ms: int) -> list[pa.RecordBatch]:
    """Return a table's rows in batches with a file's columns and, last, the partition if table or caller name it.

    Raises SerializationError for unknown columns or wrong types, InvalidRecordError, InvalidTimestampError,
    MessageSizeTooLargeError and UnknownTopicOrPartitionError for rows that the topic does not accept.
    """
    batches = [_typed(batch, topic, now_ms) for batch in _chunks(table, topic) if batch.num_rows]
    if partition is not None:
        number = topic.queue_of_partition(partition).topic_partition.partition
        batches = [_with_partition(batch, number) for batch in batches]
    for batch in batches:
        _check_not_empty(batch, topic)
        check_batch(batch, topic, now_ms)
    return batches


def check_batch(batch: pa.RecordBatch, topic: TopicMetadata, now_ms: int) -> None:
    """Check that the topic has the partitions that rows name, and accepts the rows; errors as ``row_checks``."""
    if PARTITION in batch.schema.names:
        check_partitions(batch.column(PARTITION), topic.name, len(topic.queues))
    check_rows(batch, topic.rules, now_ms)


def check_memory(batches: Sequence[pa.RecordBatch], topic: TopicMetadata, buffer_memory: int) -> None:
    """Raise MessageSizeTooLargeError for a row that needs more than all of ``buffer_memory``."""
    for batch in batches:
        if batch.nbytes <= buffer_memory:
            continue
        for row in pc.indices_nonzero(pc.greater(row_sizes(batch), buffer_memory // 2)).to_pylist():
            size = batch.slice(row, 1).nbytes + _ROUTED_BYTES
            if size > buffer_memory:
                raise memory_error(f"topic {topic.name!r}", size, buffer_memory, topic=topic.name)


def _check_not_empty(batch: pa.RecordBatch, topic: TopicMetadata) -> None:
    """Raise InvalidRecordError for a row with neither key nor value, as kafka-python's ``send`` does."""
    values = batch.column(VALUE)
    if values.null_count:
        has_key = KEY in batch.schema.names
        empty = pc.and_(values.is_null(), batch.column(KEY).is_null()) if has_key else values.is_null()
        if pc.any(empty).as_py():
            raise neither_key_nor_value(topic.name)


def split_table(
    batches: Sequence[pa.RecordBatch], topic: TopicMetadata, chunk_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of checked batches by partition, in record batches of about ``limits.TARGET_BATCH_BYTES`` with a
    file's columns.

    About ``chunk_bytes`` bytes are routed together.
    """
    for batch in batches:
        together = chunk_bytes if _names_partitions(batch) else min(chunk_bytes, limits.TARGET_BATCH_BYTES)
        for part in _cut(batch, together):
            for number, columns in _route(part, topic):
                for piece in _cut(columns, limits.TARGET_BATCH_BYTES):
                    yield number, piece


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of about ``size`` bytes, at most twice that except for single rows."""
    count = max(1, min(batch.num_rows, -(-batch.nbytes // max(size, 1))))
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        if part.num_rows > 1 and part.nbytes > 2 * size:  # rows of very different sizes
            yield from _cut(part, size)
        else:
            yield part


# -- columns


def _chunks(table: object, topic: TopicMetadata) -> list[pa.RecordBatch]:
    if isinstance(table, pa.RecordBatch):
        return [table]
    if not isinstance(table, pa.Table):
        raise SerializationError(
            f"send_batch() for topic {topic.name!r} takes a pyarrow Table or RecordBatch, not {type(table).__name__}",
            topic=topic.name,
        )
    batches: list[pa.RecordBatch] = table.to_batches()
    if len(batches) > 1 and table.num_rows < len(batches) * _FEW_ROWS_PER_CHUNK:
        batches = table.combine_chunks().to_batches()
    return batches


def _typed(batch: pa.RecordBatch, topic: TopicMetadata, now_ms: int) -> pa.RecordBatch:
    names = batch.schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names) or not {KEY, VALUE} & set(names):
        raise _bad_columns(names, unknown, topic)
    columns: dict[str, pa.Array] = {}
    if KEY in names:
        columns[KEY] = _cast(batch, KEY, pa.binary(), topic)
    columns[VALUE] = _cast(batch, VALUE, pa.binary(), topic) if VALUE in names else pa.nulls(len(batch), pa.binary())
    columns[TIMESTAMP] = _stamps(batch, topic, now_ms)
    if HEADERS in names:
        columns[HEADERS] = _headers(batch, topic)
    schema = record_schema(tuple(columns))
    if PARTITION in names:
        columns[PARTITION] = _cast(batch, PARTITION, pa.int32(), topic)
        schema = schema.append(pa.field(PARTITION, pa.int32()))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _bad_columns(names: Sequence[str], unknown: Sequence[str], topic: TopicMetadata) -> SerializationError:
    hint = f"; unknown column {unknown[0]!a}{did_you_mean(unknown[0], COLUMNS)}" if unknown else ""
    return SerializationError(
        f"a table for topic {topic.name!r} has the columns {', '.join(names) or 'none'}; it takes "
        f"{', '.join(COLUMNS)}, each once, and needs key or value{hint}",
        topic=topic.name,
    )


def _cast(batch: pa.RecordBatch, name: str, kind: pa.DataType, topic: TopicMetadata) -> pa.Array:
    column = batch.column(name)
    if column.type == kind:
        return column
    try:
        if kind == pa.binary() and not _is_text_or_bytes(column.type):
            raise pa.ArrowTypeError(f"{column.type} is neither bytes nor text")
        return column.cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise _bad_column(name, topic, f"is of type {column.type}, not {kind}: {error}; cast it") from error


def _bad_column(name: str, topic: TopicMetadata, what: str) -> SerializationError:
    return SerializationError(f"column {name} of a table for topic {topic.name!r} {what}", topic=topic.name)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text_or_bytes(kind.value_type)
    tests = (
        "binary",
        "large_binary",
        "fixed_size_binary",
        "binary_view",
        "string",
        "large_string",
        "string_view",
        "null",
    )
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _stamps(batch: pa.RecordBatch, topic: TopicMetadata, now_ms: int) -> pa.Array:
    now = pa.scalar(now_ms * 1000, TIMESTAMP_TYPE)
    if TIMESTAMP not in batch.schema.names:
        return pa.repeat(now, batch.num_rows)
    column = batch.column(TIMESTAMP)
    if not pa.types.is_timestamp(column.type) and not pa.types.is_null(column.type):
        raise _bad_column(
            TIMESTAMP,
            topic,
            f"is of type {column.type}, which has no time unit; cast it to pyarrow.timestamp('ms') or another unit",
        )
    typed = _cast(batch, TIMESTAMP, TIMESTAMP_TYPE, topic)
    return pc.fill_null(typed, now) if typed.null_count else typed


def _headers(batch: pa.RecordBatch, topic: TopicMetadata) -> pa.Array:
    column = _cast(batch, HEADERS, HEADERS_TYPE, topic)
    items = column.flatten()
    if items.null_count or items.field("key").null_count:
        raise _bad_column(HEADERS, topic, "has a header that is null or has no key")
    return column


# -- routing


def _with_partition(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Return the batch with a column that names this partition; it may not have one already."""
    if PARTITION in batch.schema.names:
        raise InvalidRecordError(
            f"the table has a column partition, and partition={partition} is given too; omit one of them"
        )
    column = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return batch.append_column(pa.field(PARTITION, pa.int32()), column)


def _names_partitions(batch: pa.RecordBatch) -> bool:
    """Return whether any row has a partition or a key."""
    columns = [batch.column(name) for name in (PARTITION, KEY) if name in batch.schema.names]
    return any(column.null_count < len(column) for column in columns)


def _route(batch: pa.RecordBatch, topic: TopicMetadata) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order."""
    names = batch.schema.names
    keys = batch.column(KEY) if KEY in names and batch.column(KEY).null_count < batch.num_rows else None
    chosen = topic.routing.choose(batch.num_rows, keys, batch.column(PARTITION) if PARTITION in names else None)
    if PARTITION in names:
        batch = batch.drop_columns([PARTITION])
    if isinstance(chosen, int):
        yield chosen, batch
        return
    low, high = (bound.as_py() for bound in pc.min_max(chosen).values())
    if low == high:
        yield low, batch
        return
    order, rows = split_by_partition(chosen, len(topic.queues))
    batch = batch.take(order)
    start = 0
    for number, length in enumerate(rows):
        if length:
            yield number, batch.slice(start, length)
        start += length
