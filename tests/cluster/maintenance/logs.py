"""Logs for the tests of maintenance: records are appended one file at a time, and read back as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.segments import Segment

MINUTE_US = 60_000_000

Headers = Sequence[tuple[str, bytes]]


class Written(NamedTuple):
    """A record to append; ``minute`` and ``microsecond`` are its timestamp."""

    key: bytes | None = None
    value: bytes | None = b"v"
    minute: int = 0
    headers: Headers | None = None
    microsecond: int = 0


class Read(NamedTuple):
    """A record as it is read."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_us: int
    headers: Sequence[tuple[str, bytes | None]]


def batch_of(records: Sequence[Written], columns: Sequence[str]) -> pa.RecordBatch:
    fields = record_schema(columns)
    values: Mapping[str, list[object]] = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "timestamp": [record.minute * MINUTE_US + record.microsecond for record in records],
        "headers": [
            None if record.headers is None else [{"key": key, "value": value} for key, value in record.headers]
            for record in records
        ],
    }
    return pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in fields], schema=fields)


def append(
    coordinator: Coordinator,
    topic: str,
    *batches: Sequence[Written],
    partition: int = 0,
    codec: str = "none",
    log_append_time: bool = False,
    **producer: int,
) -> None:
    """Append one file of these batches in one commit; from the first with ``log_append_time`` on, with its time."""
    if log_append_time:
        changes = {"message.timestamp.type": "LogAppendTime"}
        coordinator.submit(partial(alter_configs, topic=topic, changes=changes))
    state = coordinator.refresh()
    topic_state = state.topic(topic)
    key = segment_key(
        topic,
        partition,
        topic_state.partitions[partition].log_end_offset,
        state.version,
        coordinator.log.ids.write_id(),
    )
    has_key = any(record.key is not None for batch in batches for record in batch)
    has_headers = any(record.headers is not None for batch in batches for record in batch)
    writer = SegmentFileWriter(coordinator.store, key, codec=codec, has_key=has_key, has_headers=has_headers)
    writer.start_run(RunTarget(topic, topic_state.topic_id, partition, **producer))
    for batch in batches:
        writer.write(batch_of(batch, columns_present(has_key, has_headers)))
    coordinator.append(AppendRequest(appends=writer.finish()))


def records(coordinator: Coordinator, topic: str, partition: int = 0, start: int | None = None) -> list[Read]:
    """All records of a partition."""
    state = coordinator.refresh()
    state_of_partition = state.partition(topic, partition)
    with LogReader(coordinator) as reader:
        log_records = reader.records(
            topic,
            partition,
            state_of_partition.log_start_offset if start is None else start,
            state_of_partition.log_end_offset,
        )
        return [
            Read(record.offset, record.key, record.value, record.timestamp_us, list(record.headers))
            for record in log_records
        ]


def live(coordinator: Coordinator, topic: str, partition: int = 0) -> list[Segment]:
    """The live segments of a partition."""
    return list(coordinator.segments(topic, coordinator.refresh()).partition(partition))


def log_files(coordinator: Coordinator) -> list[str]:
    """All files of segments in the cluster's root."""
    return [info.key for info in coordinator.store.list() if info.key.endswith((".log", ".parquet"))]
