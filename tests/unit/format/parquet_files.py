"""History segments in memory, with their index, which tests read, damage and forge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparklog.format import schema
from sparklog.format.index import Index, decode_index
from sparklog.format.parquet.reader import ParquetSegmentReader


class StoredFile:
    """The bytes of a file, and of its index."""

    def __init__(self, data: bytes, index_bytes: bytes) -> None:
        self.data = bytearray(data)
        self.index_bytes = index_bytes

    @property
    def index(self) -> Index:
        return decode_index(self.index_bytes, "x.index")

    def reader(self) -> ParquetSegmentReader:
        return ParquetSegmentReader(self.read_at, self.index, "x.parquet")

    def read_at(self, position: int, size: int) -> pa.Buffer:
        return pa.py_buffer(bytes(self.data[position : position + size]))


def records_of(values: list[bytes | None]) -> pa.RecordBatch:
    fields = schema.record_schema()
    nulls = [None] * len(values)
    content: dict[str, list[Any]] = {"key": nulls, "value": values, "timestamp": [1] * len(values), "headers": nulls}
    return pa.RecordBatch.from_arrays([pa.array(content[field.name], field.type) for field in fields], schema=fields)
