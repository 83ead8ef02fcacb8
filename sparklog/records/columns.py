"""Records as columns of a file's types, without importing pandas or numpy (``format.plain_arrays``)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.format.schema import HEADERS, KEY, TIMESTAMP, VALUE, record_schema
from sparklog.records.record_checks import Headers


def to_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    stamps_us: Sequence[int],
    headers: Sequence[Headers],
) -> pa.RecordBatch:
    """Return records as a batch, without the columns ``key`` and ``headers`` if none has any."""
    columns: dict[str, pa.Array] = {}
    if any(key is not None for key in keys):
        columns[KEY] = binary_column(keys).array
    columns[VALUE] = binary_column(values).array
    columns[TIMESTAMP] = timestamp_array(stamps_us)
    if any(headers):
        columns[HEADERS] = headers_array([part or None for part in headers])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=record_schema(tuple(columns)))
