"""Turning batches into a file: columns become Arrow, a run for each partition, durable and invisible.

Rules: one file for a topic. A batch becomes one record batch, or several where its columns would pass what an Arrow
column can hold. Not for: commits and retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.accumulator import Headers, PendingBatch
from sparklog.client.topic_metadata import TopicMetadata
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidRecordError, SparklogError
from sparklog.format.schema import HEADERS_TYPE, TIMESTAMP_TYPE, columns_present, record_schema
from sparklog.log.append import RunTarget, SegmentFileWriter
from sparklog.log.layout import segment_key
from sparklog.protocol.decide import PartitionAppend

_FEW_ROWS = 64
"""rows up to which Python's own loops beat a call of Arrow's functions."""


class PartitionRun(NamedTuple):
    """The batches of one partition, and the sequence of their first record (-1 without a producer id)."""

    partition: int
    batches: Sequence[PendingBatch]
    base_sequence: int


def write_file(
    coordinator: Coordinator,
    topic: TopicMetadata,
    runs: Sequence[PartitionRun],
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> list[PartitionAppend]:
    """All runs in one file, in the order given; what a commit has to name. Durable on return, and nobody sees it yet.

    Fills in what the records' metadata need. Raises StorageError; InvalidRecordError where a column is no column.
    """
    for run in runs:
        for batch in run.batches:
            _to_columns(batch, topic.name)
    batches = [batch.columns for run in runs for batch in run.batches if batch.columns is not None]
    has_key = any("key" in columns.schema.names for columns in batches)
    has_headers = any("headers" in columns.schema.names for columns in batches)
    names = columns_present(has_key, has_headers)
    writer = SegmentFileWriter(
        coordinator.store,
        _key(coordinator, topic, runs[0].partition),
        codec=topic.codec,
        level=topic.level,
        has_key=has_key,
        has_headers=has_headers,
    )
    try:
        for run in runs:
            target = RunTarget(
                topic.name,
                topic.topic_id,
                run.partition,
                topic.log_append_time,
                producer_id,
                producer_epoch,
                run.base_sequence,
            )
            writer.start_run(target)
            for batch in run.batches:
                assert batch.columns is not None
                writer.write(_with_columns(batch.columns, names))
    except (SparklogError, pa.ArrowException, ValueError):
        writer.abort()
        raise
    return writer.finish()


def _key(coordinator: Coordinator, topic: TopicMetadata, partition: int) -> str:
    found = coordinator.state.topics.get(topic.name)
    known = found is not None and partition < len(found.partitions)
    expected = found.partitions[partition].log_end_offset if found is not None and known else 0
    return segment_key(topic.name, partition, expected, coordinator.log.ids.write_id())


# -- columns


def _to_columns(batch: PendingBatch, topic: str) -> None:
    """Make Arrow of a batch's lists, which are let go, and keep the sizes that metadata tell. Does nothing twice."""
    if batch.columns is None:
        try:
            batch.columns = _from_lists(batch)
        except (pa.ArrowException, UnicodeError, TypeError, ValueError, OverflowError) as error:
            raise InvalidRecordError(
                f"a record for {batch.topic_partition} cannot be stored: {error}; correct what the serializer returns",
                topic=topic,
                partition=batch.topic_partition.partition,
            ) from error
        batch.rows = batch.columns.num_rows
        batch.values, batch.keys, batch.header_list = [], None, None


def _from_lists(batch: PendingBatch) -> pa.RecordBatch:
    values, keys, headers = batch.values, batch.keys, batch.header_list
    stamps = batch.stamps
    columns: dict[str, pa.Array] = {}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    columns["value"] = pa.array(values, pa.binary())
    columns["timestamp"] = _timestamps(stamps)
    if headers is not None:
        columns["headers"] = pa.array([_header_cell(one) for one in headers], HEADERS_TYPE)
    batch.sizes = (
        None if keys is None else _sizes(keys, columns["key"]),
        _sizes(values, columns["value"]),
        None if headers is None else [-1 if one is None else _headers_size(one) for one in headers],
    )
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=record_schema(tuple(columns)))


def _timestamps(milliseconds: Sequence[int]) -> pa.Array:
    if len(milliseconds) <= _FEW_ROWS:
        return pa.array([stamp * 1000 for stamp in milliseconds], TIMESTAMP_TYPE)
    return pc.multiply_checked(pa.array(milliseconds, pa.int64()), 1000).view(TIMESTAMP_TYPE)


def _sizes(values: Sequence[bytes | None], column: pa.Array) -> Sequence[int]:
    """bytes of each, -1 for null; as Arrow, 4 bytes each, where there are many."""
    if len(values) <= _FEW_ROWS:
        return [-1 if value is None else len(value) for value in values]
    return _Sizes(pc.binary_length(column))


class _Sizes(Sequence[int]):
    """An Arrow column of lengths as a sequence, -1 for null."""

    def __init__(self, lengths: pa.Array) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        length = self._lengths[index].as_py()
        return -1 if length is None else int(length)


def _header_cell(headers: Headers | None) -> list[dict[str, object]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]


def _headers_size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _with_columns(columns: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The same records with all columns of the file; what a batch lacks is null."""
    if columns.schema.names == list(names):
        return columns
    schema = record_schema(tuple(names))
    arrays = [
        columns.column(field.name) if field.name in columns.schema.names else pa.nulls(columns.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
