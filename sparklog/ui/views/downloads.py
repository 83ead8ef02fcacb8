"""Files of records to download: lines of JSON, CSV, and Parquet.

    b"".join(to_csv("orders", records))

A null key or value has no size (``key_bytes``, ``value_bytes``), an empty one has 0; Parquet has their bytes as they
are. Sizes are those in the log, also of what was cut.

Rules: pure. Not for: how many records a file has (``record_pages``), pages (``records``).
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.ui.views.records import FoundRecord
from sparklog.ui.views.text import time

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_json_lines(topic: str, records: Iterable[FoundRecord]) -> Iterator[bytes]:
    """Yield each record as a line of JSON; bytes that are no UTF-8 are ``{"base64": …}``."""
    for record in records:
        yield msgspec.json.encode(_document(topic, record)) + b"\n"


def _document(topic: str, record: FoundRecord) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_us // 1000,
        "key": _as_json(record.key),
        "key_bytes": _size(record.key, record.key_size),
        "value": _as_json(record.value),
        "value_bytes": _size(record.value, record.value_size),
        "headers": [[name, _as_json(value)] for name, value in record.headers],
    }


def _size(data: bytes | None, whole: int) -> int | None:
    return None if data is None else whole


def _as_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "key_bytes", "value", "value_bytes", "headers")


def to_csv(topic: str, records: Iterable[FoundRecord]) -> Iterator[bytes]:
    """Yield the records as lines of CSV. A text that a spreadsheet would take for a formula gets a ``'`` in front."""
    yield _csv_line(COLUMNS)
    for record in records:
        stamp = time(record.timestamp_us // 1000, exact=True)
        headers = msgspec.json.encode([[name, _as_json(value)] for name, value in record.headers]).decode()
        key = _as_csv(record.key), _size(record.key, record.key_size)
        value = _as_csv(record.value), _size(record.value, record.value_size)
        yield _csv_line([topic, record.partition, record.offset, stamp, *key, *value, headers])


def _as_csv(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_line(cells: Sequence[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
PARQUET = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        ("key", pa.binary()),
        ("key_bytes", pa.int64()),
        ("value", pa.binary()),
        ("value_bytes", pa.int64()),
        pa.field("headers", pa.list_(pa.field("element", _HEADER, nullable=False)), nullable=False),
    ]
)
"""The columns of a download as Parquet. Bytes are bytes: null, empty, and what is no text stay what they are."""
_GROUP_ROWS = 1000


def to_parquet(topic: str, records: Sequence[FoundRecord]) -> Iterator[bytes]:
    """Yield the records as a Parquet file, in pieces."""
    sink = _Pieces()
    with pq.ParquetWriter(sink, PARQUET, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, len(records), _GROUP_ROWS):
            rows = [_row(topic, record) for record in records[start : start + _GROUP_ROWS]]
            writer.write_table(pa.Table.from_pylist(rows, PARQUET))
            yield sink.take()
    yield sink.take()


class _Pieces(io.RawIOBase):
    """A file that is given away in pieces while it is written. Not thread-safe."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _row(topic: str, record: FoundRecord) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_us,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key": record.key,
        "key_bytes": _size(record.key, record.key_size),
        "value": record.value,
        "value_bytes": _size(record.value, record.value_size),
        "headers": headers,
    }
