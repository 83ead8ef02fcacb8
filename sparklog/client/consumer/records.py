"""Records as ``Consumer`` returns them: kafka-python's ``ConsumerRecord``, built column by column, and Arrow batches.

Building a record takes about half a microsecond: the columns become lists in C, and ``map`` builds the tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.client.config import Converter
from sparklog.client.representation import shorten, table
from sparklog.client.user_code import add_note
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.records.records import all_offsets, offset_after, offset_at, rows_before, slice_offsets
from sparklog.protocol.decide.append import Begun
from sparklog.types import TopicPartition

SHOWN_RECORDS = 5
"""Records of a batch that a notebook shows."""


class ConsumerRecord(NamedTuple):
    """One record. ``timestamp`` is milliseconds since the epoch, ``timestamp_type`` 0 for CreateTime and 1 for
    LogAppendTime. Sizes are bytes, -1 if the record has no such part. ``checksum`` is None, as in Kafka since message
    format 2.

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

    Their offsets are ``[base_offset, base_offset + batch.num_rows)``, or if compaction has left gaps between them,
    those in ``offsets`` (int64).
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
        partition = f"{self.topic}-{self.partition}"
        try:
            span = f"offsets=[{self.base_offset},{self.end_offset})"
            return f"<RecordBatches {partition} {span} records={self.batch.num_rows} bytes={self.batch.nbytes}>"
        except Exception:  # ``batch`` may be any object
            return f"<RecordBatches {partition}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the first records."""
        try:
            few = to_consumer_records(self.slice(0, SHOWN_RECORDS))
            rows = [[record.offset, record.timestamp, shorten(record.key), shorten(record.value)] for record in few]
        except Exception:
            rows = []
        return table(repr(self)[1:-1], ["offset", "timestamp (ms)", "key", "value"], rows)

    @property
    def end_offset(self) -> int:
        """Return the offset after the last of these records."""
        return offset_after(self.base_offset, self.batch.num_rows, self.offsets)

    def slice(self, first: int, rows: int | None = None) -> RecordBatches:
        """Return ``rows`` of these records from row ``first`` on, by default all."""
        base_offset, offsets = slice_offsets(self.base_offset, self.offsets, first, rows)
        return self._replace(base_offset=base_offset, batch=self.batch.slice(first, rows), offsets=offsets)

    def rows_before(self, offset: int) -> int:
        """Return the number of these records below an offset."""
        return rows_before(self.base_offset, self.batch.num_rows, self.offsets, offset)


class MemberState:
    """The ``state`` of a consumer: not in its group yet, in a group that rebalances, or in a stable group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class _Identity(NamedTuple):
    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


class ConsumerGroupMetadata(_Identity):
    """The identity of a consumer in its group, which is checked when a transaction commits its offsets.

    ``group_id`` is None for a consumer without a group. ``topic_ids`` are those of the topics that it has read, by
    name: offsets of a topic that was created again since are refused. ``timeline`` is that of the log in which its
    coordinator ``reader`` found its positions: offsets are refused once that has left it. A producer of another
    coordinator, also in another process, compares ``read_up_to``."""

    topic_ids: Mapping[str, str] = {}
    timeline: int | None = None
    reader: str = ""
    log: CommitLog | None = None
    """That of the coordinator; None in another process, which was sent what this one had read."""
    _sent: Begun | None = None

    @property
    def read_up_to(self) -> Begun | None:
        """The newest commit that the consumer's coordinator has read in the timeline of its positions; None if it has
        left that, or there is none."""
        if self.log is None or self.timeline is None:
            return self._sent
        newest = self.log.newest_commit(self.timeline)
        return None if newest is None else Begun(*newest, self.reader)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "reader": "", "log": None, "_sent": self.read_up_to}


class DeserializerFailure(Exception):
    """A deserializer raised ``error`` at ``offset``. The consumer returns the records before it, then raises ``error``
    itself."""

    def __init__(self, offset: int, error: Exception) -> None:
        super().__init__(offset, error)
        self.offset, self.error = offset, error


def to_consumer_records(
    batches: RecordBatches, deserialize_key: Converter | None = None, deserialize_value: Converter | None = None
) -> list[ConsumerRecord]:
    """Return Arrow records as Python objects. Raises DeserializerFailure."""
    topic, partition, base_offset, batch, timestamp_type, leader_epoch, offsets = batches
    keys, values = _column(batch, "key"), _column(batch, "value")
    stamps = [stamp // 1000 for stamp in batch.column("timestamp").view("int64").to_pylist()]
    headers, header_sizes = _headers(batch)
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    if deserialize_key is not None or deserialize_value is not None:
        headers = list(headers)
        if deserialize_key is not None:
            keys = _deserialize(deserialize_key, "key", batches, keys or [None] * batch.num_rows, headers)
        if deserialize_value is not None:
            values = _deserialize(deserialize_value, "value", batches, values or [None] * batch.num_rows, headers)
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


_RECORD: Callable[[Iterable[Any]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)  # ``_make``, all in C


def _column(batch: pa.RecordBatch, name: str) -> list[Any] | None:
    """Return the values of a column, or None if no record has one."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column.to_pylist()


def _sizes(values: list[Any] | None) -> Iterable[int]:
    if values is None:
        return repeat(-1)
    if None in values:
        return [-1 if value is None else len(value) for value in values]
    return map(len, values)


def _headers(batch: pa.RecordBatch) -> tuple[Iterable[list[Any]], Iterable[int]]:
    """Return the headers of each record, as a list per record, and their sizes in bytes."""
    cells = _column(batch, "headers")
    if cells is None:
        return map(list, repeat((), batch.num_rows)), repeat(-1)
    headers = [[(header["key"], header["value"]) for header in cell or ()] for cell in cells]
    return headers, [
        sum(len(name.encode()) + len(value or b"") for name, value in cell) if cell else -1 for cell in headers
    ]


def _deserialize(
    deserialize: Converter, what: str, batches: RecordBatches, values: list[Any], headers: list[list[Any]]
) -> list[Any]:
    topic = batches.topic
    deserialized: list[Any] = []
    try:
        for value, record_headers in zip(values, headers, strict=True):
            deserialized.append(deserialize(topic, record_headers, value))
    except Exception as error:
        row = len(deserialized)
        if _succeeds(lambda: deserialize(topic, headers[row], values[row])):  # else it is the record's own error
            raise  # of a signal's handler, such as a time limit
        offset = offset_at(batches.base_offset, batches.offsets, row)
        add_note(
            error,
            f"the {what}_deserializer failed at offset {offset} of {topic}-{batches.partition}; fix it, or seek past "
            f"the record: consumer.seek(TopicPartition({topic!r}, {batches.partition}), {offset + 1})",
        )
        raise DeserializerFailure(offset, error) from error
    return deserialized


def _succeeds(action: Callable[[], object]) -> bool:
    try:
        action()
    except Exception:
        return False
    return True
