"""Arrow tables as batches: checked and routed by column, and written to the file as columns.

A table has columns ``key``, ``value``, ``timestamp``, ``headers`` and ``partition``; only one of key and value is
required. Rows keep their order within a partition. All rows are checked before the first is sent.

Rules: routing is that of single records: an explicit partition first, then murmur2 of the key; rows with neither go in
pieces of about ``limits.TARGET_BATCH_BYTES`` to the partition that got the fewest of them so far.

Not for: single records (``record_checks``), writing the file (``batch_files``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.client.producer.record_checks import check_size, check_timestamp, neither_key_nor_value, no_key
from sparklog.client.producer.topic_metadata import TopicMetadata
from sparklog.errors import InvalidRecordError, SerializationError, UnknownTopicOrPartitionError
from sparklog.errors.suggestions import did_you_mean
from sparklog.format.schema import HEADERS, HEADERS_TYPE, KEY, TIMESTAMP, TIMESTAMP_TYPE, VALUE, record_schema
from sparklog.protocol.plan.partitioner import partition_keys, split_by_partition

PARTITION = "partition"
COLUMNS = (KEY, VALUE, TIMESTAMP, HEADERS, PARTITION)

_FEW_ROWS_PER_CHUNK = 4096
"""rows. A table with smaller chunks is first copied into larger ones: every chunk costs about fifty calls."""


class Piece:
    """Rows of one partition, as a record batch with a file's columns."""

    __slots__ = ("columns", "partition", "size")

    def __init__(self, partition: int, columns: pa.RecordBatch) -> None:
        self.partition = partition
        self.columns = columns
        self.size = columns.nbytes


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
        _check_rows(batch, topic, now_ms)
    return batches


def split_table(batches: Sequence[pa.RecordBatch], topic: TopicMetadata, chunk_bytes: int) -> Iterator[Piece]:
    """Yield the rows of checked batches by partition, in record batches of about ``limits.TARGET_BATCH_BYTES``.

    About ``chunk_bytes`` bytes are routed together.
    """
    for batch in batches:
        for part in _cut(batch, chunk_bytes):
            for number, columns in _route(part, topic):
                for piece in _cut(columns, limits.TARGET_BATCH_BYTES):
                    yield Piece(number if number >= 0 else topic.next_for_rows(piece.num_rows), piece)


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
    hint = ""
    if unknown:
        hint = f"; unknown column {unknown[0]!a}{did_you_mean(unknown[0], COLUMNS)}"
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
        raise SerializationError(
            f"column {name} of a table for topic {topic.name!r} is of type {column.type}, not {kind}: {error}; cast it",
            topic=topic.name,
        ) from error


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
        raise SerializationError(
            f"column timestamp of a table for topic {topic.name!r} is of type {column.type}, which has no time "
            "unit; cast it to pyarrow.timestamp('ms') or another unit",
            topic=topic.name,
        )
    typed = _cast(batch, TIMESTAMP, TIMESTAMP_TYPE, topic)
    return pc.fill_null(typed, now) if typed.null_count else typed


def _headers(batch: pa.RecordBatch, topic: TopicMetadata) -> pa.Array:
    column = _cast(batch, HEADERS, HEADERS_TYPE, topic)
    items = column.flatten()
    if items.null_count or items.field("key").null_count:
        raise SerializationError(
            f"column headers of a table for topic {topic.name!r} has a header that is null or has no key",
            topic=topic.name,
        )
    return column


# -- rows


def _check_rows(batch: pa.RecordBatch, topic: TopicMetadata, now_ms: int) -> None:
    names = batch.schema.names
    values = batch.column(VALUE)
    if values.null_count:
        empty = values.is_null() if KEY not in names else pc.and_(values.is_null(), batch.column(KEY).is_null())
        if pc.any(empty).as_py():
            raise neither_key_nor_value(topic.name)
    if topic.needs_key and (KEY not in names or batch.column(KEY).null_count):
        raise no_key(topic.name)
    if TIMESTAMP in names:
        for stamp in pc.min_max(batch.column(TIMESTAMP)).values():
            check_timestamp(stamp.value // 1000, topic, now_ms)
    _check_sizes(batch, topic)
    if PARTITION in names and batch.column(PARTITION).null_count < batch.num_rows:
        _check_partitions(batch.column(PARTITION), topic)


def _check_partitions(partitions: pa.Array, topic: TopicMetadata) -> None:
    low, high = (bound.as_py() for bound in pc.min_max(partitions).values())
    if low < 0 or high >= len(topic.queues):
        wrong = low if low < 0 else high
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} has partitions 0 to {len(topic.queues) - 1}, and a row of the table names {wrong}",
            topic=topic.name,
            partition=wrong,
        )


def _check_sizes(batch: pa.RecordBatch, topic: TopicMetadata) -> None:
    """Check the size of every row; row by row only if all headers added to the largest row exceed the limit."""
    sizes = [
        pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in (KEY, VALUE) if name in batch.schema.names
    ]
    total = sizes[0] if len(sizes) == 1 else pc.add(*sizes)
    headers = batch.column(HEADERS) if HEADERS in batch.schema.names else None
    largest = pc.max(total).as_py() or 0
    if headers is None or largest + headers.nbytes <= topic.max_record_bytes:
        return check_size(largest, topic)
    for row in range(batch.num_rows):
        cells = headers[row].as_py() or ()
        check_size(
            total[row].as_py() + sum(len(cell["key"].encode()) + len(cell["value"] or b"") for cell in cells), topic
        )
    return None


# -- routing


def _with_partition(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Return the batch with a column that names this partition; it may not have one already."""
    if PARTITION in batch.schema.names:
        raise InvalidRecordError(
            f"the table has a column partition, and partition={partition} is given too; omit one of them"
        )
    column = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return batch.append_column(pa.field(PARTITION, pa.int32()), column)


def _route(batch: pa.RecordBatch, topic: TopicMetadata) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order; -1 for rows that may go to any partition."""
    count = len(topic.queues)
    chosen = _choose_partitions(batch, count)
    if PARTITION in batch.schema.names:
        batch = batch.drop_columns([PARTITION])
    if chosen is None:
        yield (-1 if count > 1 else 0), batch
        return
    free = chosen.null_count
    if free:
        chosen = pc.fill_null(chosen, count)
    low, high = (bound.as_py() for bound in pc.min_max(chosen).values())
    if low == high:
        yield (low if low < count else -1), batch
        return
    order, rows = split_by_partition(chosen, count + 1)
    batch = batch.take(order)
    start = 0
    for number, length in enumerate(rows):
        if length:
            yield (number if number < count else -1), batch.slice(start, length)
        start += length


def _choose_partitions(batch: pa.RecordBatch, count: int) -> Any:
    """Return the partition of each row, null if any will do; None if any will do for all rows."""
    names = batch.schema.names
    explicit = batch.column(PARTITION) if PARTITION in names else None
    if explicit is not None and not explicit.null_count:
        return explicit
    if count == 1 and explicit is None:
        return None
    keys = batch.column(KEY) if KEY in names else None
    by_key = partition_keys(keys, count) if keys is not None and keys.null_count < len(keys) else None
    if explicit is None or by_key is None:
        return by_key if explicit is None else explicit
    return pc.coalesce(explicit, by_key)
