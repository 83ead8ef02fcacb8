"""Appends records for a test: one call is one commit.

    append_records(coordinator, "orders", [Record(key=b"k", value=b"v", partition=1)])

Not for: programs, which use ``Producer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.producer.table_appender import TableAppender
from sparklog.coordinator import Coordinator
from sparklog.records.columns import to_columns


class Record(NamedTuple):
    """One record. Without a partition its key chooses one; the default of ``timestamp_us`` (epoch) is now."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_us: int | None = None
    partition: int | None = None


def append_records(
    coordinator: Coordinator, topic: str, records: Sequence[Record], *, compression: str = "none", acks: int = -1
) -> None:
    """Append records in one commit, which is not numbered. Errors as ``TableAppender``."""
    if not records:
        return
    now_us = coordinator.log.clock.now_ms() * 1000
    stamps = [now_us if record.timestamp_us is None else record.timestamp_us for record in records]
    keys, values = [record.key for record in records], [record.value for record in records]
    rows = to_columns(keys, values, stamps, [record.headers for record in records])
    if any(record.partition is not None for record in records):
        rows = rows.append_column("partition", pa.array([record.partition for record in records], pa.int32()))
    appender = TableAppender(coordinator, topic, compression_type=compression, acks=acks, enable_idempotence=False)
    appender.attempt(appender.stage(rows))
