"""Write batches to segment files: columns become Arrow, a run for each partition, durable but not yet visible.

Rules: one file for the partitions of a topic that go to the same brokers. A batch becomes one record batch, or several
if its columns would exceed the size of an Arrow column. Not for: commits and retries (``sender``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.producer.futures import Sizes
from sparklog.client.producer.record_accumulator import PendingBatch
from sparklog.client.producer.topic_routing import TopicMetadata
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidRecordError, SparklogError
from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.layout import segment_key
from sparklog.log.records.replicated_file import discard
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.acks import ACKS_ALL, brokers_to_write, check_copies, needs
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.state import State
from sparklog.records.record_checks import Headers

NO_IDENTITY = ProducerIdentity(-1, -1)
"""The identity of a producer that is not idempotent."""


class PartitionRun(NamedTuple):
    """The batches of one partition, and the sequence of their first record (-1 without a producer id)."""

    partition: int
    batches: Sequence[PendingBatch]
    base_sequence: int


def write_files(
    coordinator: Coordinator,
    topic: TopicMetadata,
    runs: Sequence[PartitionRun],
    identity: ProducerIdentity = NO_IDENTITY,
    acks: int = ACKS_ALL,
    skipped: int = 0,
) -> list[PartitionAppend]:
    """Write these runs; return what a commit has to name of them, in the order given.

    The files are durable on return, and not visible before a commit names them. ``skipped`` as in ``brokers_to_write``.
    Sets the sizes of the batches, which the records' metadata need. Raises StorageError, the errors of
    ``brokers_to_write`` and ``check_copies``, and InvalidRecordError for values that cannot be stored; the files are
    deleted then.
    """
    state = coordinator.state  # of one version: the stores, and the version in the names, which says what they hold
    groups = group_by_brokers(coordinator, state, topic.name, [run.partition for run in runs], acks, skipped)
    for run in runs:
        for batch in run.batches:
            _to_columns(batch)
    appends: dict[int, PartitionAppend] = {}
    try:
        for brokers, partitions in groups:
            runs_of_file = [run for run in runs if run.partition in partitions] if len(groups) > 1 else runs
            written = _write_file(coordinator, state, topic, runs_of_file, identity, brokers)
            appends.update(zip((run.partition for run in runs_of_file), written, strict=True))
        for partition, append in appends.items():  # as the commit would, which may be after the records were released
            check_copies(needs(coordinator.state, topic.name, partition, acks), topic.name, partition, append.run)
    except SparklogError:
        discard((append.run for append in appends.values()), partial(coordinator.brokers.store_of, state))
        raise
    return [appends[run.partition] for run in runs]


def group_by_brokers(
    coordinator: Coordinator,
    state: State,
    topic: str,
    partitions: Sequence[int],
    acks: int = ACKS_ALL,
    skipped: int = 0,
) -> list[tuple[tuple[int, ...], set[int]]]:
    """Group the partitions that can share a file, since their records go to the same brokers.

    Returns the brokers and partitions of each group. Errors as ``brokers_to_write``.
    """
    resting = coordinator.brokers.resting(state)
    groups: dict[frozenset[int], tuple[tuple[int, ...], set[int]]] = {}
    for partition in partitions:
        brokers = brokers_to_write(state, topic, partition, acks, resting, skipped)
        groups.setdefault(frozenset(brokers), (brokers, set()))[1].add(partition)
    return list(groups.values())


def _write_file(
    coordinator: Coordinator,
    state: State,
    topic: TopicMetadata,
    runs: Sequence[PartitionRun],
    identity: ProducerIdentity,
    brokers: Sequence[int],
) -> list[PartitionAppend]:
    batches = [batch.columns for run in runs for batch in run.batches if batch.columns is not None]
    has_key = any("key" in columns.schema.names for columns in batches)
    has_headers = any("headers" in columns.schema.names for columns in batches)
    names = columns_present(has_key, has_headers)
    store_of = partial(coordinator.brokers.store_of, state)
    writer = SegmentFileWriter(
        store_of(brokers[0]),
        _key(coordinator, state, topic, runs[0].partition),
        codec=topic.rules.codec,
        level=topic.rules.codec_level,
        has_key=has_key,
        has_headers=has_headers,
        broker=brokers[0],
        replicas=[(broker, store_of(broker)) for broker in brokers[1:]],
    )
    try:
        for run in runs:
            target = RunTarget(
                topic.name,
                topic.topic_id,
                run.partition,
                *identity,
                run.base_sequence,
            )
            writer.start_run(target)
            for batch in run.batches:
                assert batch.columns is not None
                writer.write(_with_columns(batch.columns, names))
    except (SparklogError, pa.ArrowException, ValueError):
        writer.abort()
        raise
    appends = writer.finish()
    for broker in writer.failed:
        coordinator.brokers.failed(broker)
    return appends


def _key(coordinator: Coordinator, state: State, topic: TopicMetadata, partition: int) -> str:
    current = state.find_partition(topic.name, partition)
    expected = 0 if current is None else current.log_end_offset
    return segment_key(topic.name, partition, expected, state.version, coordinator.log.ids.write_id())


# -- columns


def _to_columns(batch: PendingBatch) -> None:
    """Convert a batch's lists to Arrow, keep the sizes for metadata, and free the lists. Idempotent."""
    if batch.columns is None:
        batch.stamps = array("q", batch.times)
        try:
            columns, batch.sizes = _from_lists(batch)
        except (pa.ArrowException, UnicodeError, TypeError, ValueError, OverflowError) as error:
            raise InvalidRecordError(
                f"a record for {batch.topic_partition} cannot be stored: {error}; correct the serializer's result",
                **batch.topic_partition._asdict(),
            ) from error
        batch.columns, batch.rows = columns, columns.num_rows
        batch.values, batch.times, batch.keys, batch.header_list = [], [], None, None


def _from_lists(batch: PendingBatch) -> tuple[pa.RecordBatch, Sizes]:
    columns: dict[str, pa.Array] = {}
    key_sizes, header_sizes = None, None
    if batch.keys is not None:
        columns["key"], key_sizes = _binary(batch.keys)
    columns["value"], value_sizes = _binary(batch.values)
    columns["timestamp"] = timestamp_array(batch.stamps)
    if batch.header_list is not None:
        columns["headers"] = headers_array(batch.header_list)
        header_sizes = [-1 if headers is None else _headers_size(headers) for headers in batch.header_list]
    records = pa.RecordBatch.from_arrays(list(columns.values()), schema=record_schema(tuple(columns)))
    return records, (key_sizes, value_sizes, header_sizes)


def _binary(values: Sequence[bytes | None]) -> tuple[pa.Array, Sequence[int]]:
    """Return a binary column and the length of each value."""
    column = binary_column(values)
    return column.array, _Lengths(column.offsets, column.missing)


class _Lengths(Sequence[int]):
    """The lengths of a column's values, -1 for null, stored in four bytes each."""

    def __init__(self, offsets: array[int], missing: Sequence[int]) -> None:
        self._offsets = offsets
        self._missing = frozenset(missing)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        return -1 if index in self._missing else self._offsets[index + 1] - self._offsets[index]


def _headers_size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _with_columns(columns: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the records with all columns of the file; columns that the batch lacks are null."""
    if columns.schema.names == list(names):
        return columns
    schema = record_schema(tuple(names))
    arrays = [
        columns.column(field.name) if field.name in columns.schema.names else pa.nulls(columns.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
