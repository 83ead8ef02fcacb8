"""Scans the messages of a ``.log`` file without trusting its ``.index``.

The index is used only to find the next message after a damaged one.

Rules: sizes are bounded by the file's before anything is read.
Not for: reading records (``segment_reader``).
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

import pyarrow as pa

from sparklog.format import schema
from sparklog.format.checksum import crc32c
from sparklog.format.index import MAX_MESSAGE_BYTES, BatchEntry, Index
from sparklog.format.message import (
    END_OF_STREAM,
    MAGIC,
    MAGIC_LENGTH,
    PREFIX_LENGTH,
    Message,
    parse_record_batch,
    prefix,
)
from sparklog.format.parquet.file_schema import ENCODINGS
from sparklog.format.parquet.pages import MAGIC as PARQUET_MAGIC
from sparklog.format.parquet.pages import read_pages
from sparklog.format.segment_reader import ReadAt


class ScannedMessage(NamedTuple):
    """A message of the file: the bytes from ``position`` on, and its fault.

    ``rows`` is -1 if the message does not contain the number (an envelope) or cannot be read.
    """

    position: int
    length: int
    rows: int
    crc32c: int
    fault: str = ""


class FileScan(NamedTuple):
    """All messages of a file, the position after them, and the fault there unless it is the proper end."""

    messages: list[ScannedMessage]
    end: int
    fault: str


def scan(read_at: ReadAt, size: int, index: Index | None) -> FileScan:
    """Scan a file of ``size`` bytes. Of a Parquet file, whose row groups do not say where they end, the index does."""
    messages: list[ScannedMessage] = []
    if index is not None and index.summary.is_parquet:
        return FileScan([_scan_row_group(read_at, entry) for entry in index.entries], index.summary.footer_position, "")
    try:
        position = read_header(read_at, size)[1].size
    except ValueError as error:
        if index is None:
            return FileScan([], 0, f"it does not begin like an Arrow file: {error}")
        position = index.summary.header_length
    while True:
        start = read_at(position, PREFIX_LENGTH).to_pybytes()
        if start == END_OF_STREAM:
            return FileScan(messages, position, "")
        rows, fault = -1, ""
        try:
            metadata, message = read_message(read_at, position, size)
            length, rows = metadata.size + message.body_length, message.rows
        except (ValueError, pa.ArrowException) as error:
            fault = str(error)
            indexed = entry_at(index, position)
            if indexed is None:
                return FileScan(messages, position, fault)
            length = indexed[1].length
        messages.append(ScannedMessage(position, length, rows, crc32c(read_at(position, length)), fault))
        position += length


def _scan_row_group(read_at: ReadAt, entry: BatchEntry) -> ScannedMessage:
    data = read_at(entry.position, entry.length)
    (timestamps,) = (region for region in entry.regions() if region.name == schema.TIMESTAMP)
    section = data.slice(timestamps.position - entry.position, timestamps.length)
    rows, fault = -1, ""
    try:
        rows = sum(page.values for page in read_pages(section, ENCODINGS[schema.TIMESTAMP], entry.count))
    except ValueError as error:
        fault = f"the pages of its timestamps cannot be read: {error}"
    return ScannedMessage(entry.position, entry.length, rows, crc32c(data), fault)


def read_header(read_at: ReadAt, size: int) -> tuple[pa.Schema, pa.Buffer]:
    """Return the stored schema of a file of ``size`` bytes, and the bytes before the first message. Raises
    ValueError."""
    start = read_at(0, MAGIC_LENGTH).to_pybytes()
    if start != MAGIC.ljust(MAGIC_LENGTH, b"\0"):
        what = "it is a Parquet file, of which only the index says where row groups end"
        raise ValueError(what if start.startswith(PARQUET_MAGIC) else "its first bytes are not ARROW1")
    length = prefix(read_at(MAGIC_LENGTH, PREFIX_LENGTH))
    if length > size:
        raise ValueError(f"it states a schema of {length} bytes")
    header = read_at(0, MAGIC_LENGTH + length)
    try:
        return pa.ipc.read_schema(header.slice(MAGIC_LENGTH)), header
    except TimeoutError:  # a time limit, of a signal's handler: Arrow raises none
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error


def read_message(read_at: ReadAt, position: int, size: int) -> tuple[pa.Buffer, Message]:
    """Return the bytes of the metadata of the message at a position, and what they say; the body follows them. Raises
    ValueError."""
    length = prefix(read_at(position, PREFIX_LENGTH))
    if position + length > size:
        raise ValueError(f"its metadata of {length} bytes extends beyond the end of the file at {size}")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"its metadata has {length} bytes, above the limit of {MAX_MESSAGE_BYTES} for a message")
    metadata = read_at(position, length)
    message = parse_record_batch(metadata)
    length += message.body_length
    if position + length > size:
        raise ValueError(f"its {length} bytes extend beyond the end of the file at {size}")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message has {length} bytes, above the limit of {MAX_MESSAGE_BYTES}")
    return metadata, message


def entry_at(index: Index | None, position: int) -> tuple[int, BatchEntry] | None:
    """Return the number and index entry of the message at this position, None without an entry."""
    if index is None:
        return None
    batches = range(len(index))  # the entries tile the file in order
    number = bisect.bisect_left(batches, position, key=lambda batch: index.entry(batch).position)
    if number == len(index) or index.entry(number).position != position:
        return None
    return number, index.entry(number)
