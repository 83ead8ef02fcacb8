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
from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.format.schema import HEADERS, KEY, TIMESTAMP, VALUE, record_schema


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
    keys, values, headers, stamps, partitions = zip(*records, strict=True)
    now_us = coordinator.log.clock.now_ms() * 1000
    columns = {KEY: binary_column(keys).array} if any(key is not None for key in keys) else {}
    columns[VALUE] = binary_column(values).array
    columns[TIMESTAMP] = timestamp_array([now_us if stamp is None else stamp for stamp in stamps])
    if any(headers):
        columns[HEADERS] = headers_array([part or None for part in headers])
    rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=record_schema(tuple(columns)))
    rows = rows.append_column("partition", pa.array(partitions, pa.int32()))
    appender = TableAppender(coordinator, topic, compression_type=compression, acks=acks, enable_idempotence=False)
    appender.attempt(appender.stage(rows))
