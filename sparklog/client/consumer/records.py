"""Records as ``Consumer`` hands them out: kafka-python's ``ConsumerRecord``, made by columns, and Arrow batches.

Making a record costs about half a microsecond: the columns become lists in C, and the tuples are made by ``map``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.client.consumer.config import Deserialize
from sparklog.client.representation import shorten, table
from sparklog.client.user_code import add_note
from sparklog.log.records.records import all_offsets, offset_after, offset_at, rows_before, slice_offsets
from sparklog.types import TopicPartition

SHOWN_RECORDS = 5
"""records of a batch that a notebook shows."""


class ConsumerRecord(NamedTuple):
    """One record. ``timestamp`` is milliseconds since the epoch, ``timestamp_type`` 0 for CreateTime and 1 for
    LogAppendTime. Sizes are bytes, -1 for what the record does not have. ``checksum`` is None, as with Kafka since
    message format 2.

        >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", key=b"k", value=b"v").get()
        >>> with sparklog.Consumer("orders", bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        ...     record = next(consumer)
        >>> record.topic, record.partition, record.offset, record.key, record.value
        ('orders', 0, 0, b'k', b'v')
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class RecordBatches(NamedTuple):
    """Records of one partition as Arrow: key, value, timestamp (in microseconds, UTC) and headers.

    Their offsets are ``[base_offset, base_offset + batch.num_rows)``, or where compaction has left gaps between them
    those in ``offsets``, int64.
    """

    topic: str
    partition: int
    base_offset: int
    batch: pa.RecordBatch
    timestamp_type: int
    leader_epoch: int
    offsets: pa.Array | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        try:
            span = f"offsets=[{self.base_offset},{self.end_offset})"
            return f"<RecordBatches {place} {span} records={self.batch.num_rows} bytes={self.batch.nbytes}>"
        except Exception:  # whatever was put in place of a batch
            return f"<RecordBatches {place}>"

    def _repr_html_(self) -> str:
        """A table of the first records."""
        try:
            few = to_consumer_records(self.slice(0, SHOWN_RECORDS))
            rows = [[record.offset, record.timestamp, shorten(record.key), shorten(record.value)] for record in few]
        except Exception:
            rows = []
        return table(repr(self)[1:-1], ["offset", "timestamp (ms)", "key", "value"], rows)

    @property
    def end_offset(self) -> int:
        """The offset after the last of these records."""
        return offset_after(self.base_offset, self.batch.num_rows, self.offsets)

    def slice(self, first: int, rows: int | None = None) -> RecordBatches:
        """So many of these records from row ``first`` on, all by default."""
        base_offset, offsets = slice_offsets(self.base_offset, self.offsets, first, rows)
        return self._replace(base_offset=base_offset, batch=self.batch.slice(first, rows), offsets=offsets)

    def rows_before(self, offset: int) -> int:
        """How many of these records are before an offset."""
        return rows_before(self.base_offset, self.batch.num_rows, self.offsets, offset)


class MemberState:
    """The ``state`` of a consumer that has not joined its group, whose group rebalances, and that owns partitions."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group: what a transaction that commits its offsets is checked against.

    ``group_id`` is None of a consumer without a group."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


class DeserializerFailure(Exception):
    """A deserializer of the program's raised ``error`` at ``offset``. The consumer hands out the records before that
    one, and raises the error itself."""

    def __init__(self, offset: int, error: Exception) -> None:
        super().__init__(offset, error)
        self.offset, self.error = offset, error


def to_consumer_records(
    batches: RecordBatches, deserialize_key: Deserialize | None = None, deserialize_value: Deserialize | None = None
) -> list[ConsumerRecord]:
    """Arrow records as Python objects. Raises DeserializerFailure."""
    topic, partition, base_offset, batch, timestamp_type, leader_epoch, offsets = batches
    names = batch.schema.names
    keys = _column(batch, names, "key")
    values = _column(batch, names, "value")
    stamps = [stamp // 1000 for stamp in batch.column("timestamp").view("int64").to_pylist()]
    headers, header_sizes = _headers(batch, names)
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    if deserialize_key is not None or deserialize_value is not None:
        headers = list(headers)
        if deserialize_key is not None:
            keys = _deserialized(deserialize_key, "key", batches, keys or [None] * batch.num_rows, headers)
        if deserialize_value is not None:
            values = _deserialized(deserialize_value, "value", batches, values or [None] * batch.num_rows, headers)
    columns = zip(
        repeat(topic),
        repeat(partition),
        repeat(leader_epoch),
        all_offsets(base_offset, batch.num_rows, offsets),
        stamps,
        repeat(timestamp_type),
        keys if keys is not None else repeat(None),
        values if values is not None else repeat(None),
        headers,
        repeat(None),
        key_sizes,
        value_sizes,
        header_sizes,
        strict=False,
    )
    return list(map(_RECORD, columns))


_RECORD: Callable[[Iterable[Any]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)  # _make, but all in C


def _column(batch: pa.RecordBatch, names: list[str], name: str) -> list[Any] | None:
    """The values, None where no record has one."""
    if name not in names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column.to_pylist()


def _sizes(values: list[Any] | None) -> Iterable[int]:
    if values is None:
        return repeat(-1)
    if None in values:
        return [-1 if value is None else len(value) for value in values]
    return map(len, values)


def _headers(batch: pa.RecordBatch, names: list[str]) -> tuple[Iterable[list[Any]], Iterable[int]]:
    """Each record's headers as a list of its own, and their size in bytes."""
    cells = _column(batch, names, "headers")
    if cells is None:
        return map(list, repeat((), batch.num_rows)), repeat(-1)
    headers = [[(header["key"], header["value"]) for header in cell or ()] for cell in cells]
    return headers, [
        sum(len(name.encode()) + len(value or b"") for name, value in cell) if cell else -1 for cell in headers
    ]


def _deserialized(
    deserialize: Deserialize, what: str, batches: RecordBatches, values: list[Any], headers: list[list[Any]]
) -> list[Any]:
    topic = batches.topic
    made: list[Any] = []
    try:
        for value, its_headers in zip(values, headers, strict=True):
            made.append(deserialize(topic, its_headers, value))
    except Exception as error:
        offset = offset_at(batches.base_offset, batches.offsets, len(made))
        add_note(
            error,
            f"the {what}_deserializer failed at offset {offset} of {topic}-{batches.partition}; mend it, or seek past "
            f"the record: consumer.seek(TopicPartition({topic!r}, {batches.partition}), {offset + 1})",
        )
        raise DeserializerFailure(offset, error) from error
    return made
