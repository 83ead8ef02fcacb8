"""A cluster in memory and small appends to it, for the tests in this folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest, AppendResult, PartitionAppend
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State


@contextmanager
def commits_held(coordinator: Coordinator) -> Iterator[None]:
    """Requests submitted inside the block wait; they are committed together when it ends."""
    deciding, released = threading.Event(), threading.Event()

    def wait(_: State) -> Decision[None]:
        deciding.set()
        released.wait()
        return Decision([], None)

    holder = threading.Thread(target=coordinator.submit, args=(wait,))
    holder.start()
    deciding.wait()
    try:
        yield
    finally:
        released.set()
        holder.join()


def write_values(
    coordinator: Coordinator, topic: str, partition: int, values: list[bytes], **more: Any
) -> PartitionAppend:
    """Write a segment file with these values, without committing it."""
    state = coordinator.state
    key = segment_key(topic, partition, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    writer.start_run(RunTarget(topic, state.topic(topic).topic_id, partition, **more))
    stamps = pa.array([coordinator.log.clock.now_ms() * 1000] * len(values), pa.timestamp("us", tz="UTC"))
    writer.write(pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), stamps], names=["value", "timestamp"]))
    return writer.finish()[0]


def append_values(coordinator: Coordinator, topic: str, partition: int, values: list[bytes]) -> AppendResult:
    item = write_values(coordinator, topic, partition, values)
    return coordinator.append(AppendRequest(appends=[item]))


def read_values(coordinator: Coordinator, topic: str, partition: int, start: int = 0) -> list[tuple[int, bytes]]:
    """Every (offset, value) of a partition from ``start`` on, read through segments, index and checksums."""
    state = coordinator.refresh()
    end = state.partition(topic, partition).log_end_offset
    segments = coordinator.segments(topic, state).partition(partition).between(start, end)
    records_read: list[tuple[int, bytes]] = []
    for records in Fetcher(lambda broker: coordinator.store).read(topic, segments, start, end, ["value"]):
        values = records.batch.column(0).to_pylist()
        records_read += zip(records.all_offsets(), values, strict=True)
    return records_read
