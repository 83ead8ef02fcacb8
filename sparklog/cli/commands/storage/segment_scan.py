"""What is really in a ``.log`` file: its messages one after the other, found without trusting its ``.index``.

The index is only asked where the file itself cannot say where the next message begins, because the one before is
damaged. What is found is then compared with the index, entry by entry.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

import pyarrow as pa

from sparklog.format.checksum import crc32c
from sparklog.format.index import BatchEntry, Index
from sparklog.format.message import PREFIX_LENGTH, parse_record_batch, prefix
from sparklog.format.segment_reader import ReadAt

_MAGIC = b"ARROW1\x00\x00"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Found(NamedTuple):
    """One message as it is in the file: bytes from ``position`` on, and what is wrong with it.

    ``rows`` is -1 where the message does not tell (an envelope) or cannot be read.
    """

    position: int
    length: int
    rows: int
    crc32c: int
    fault: str = ""


class Scan(NamedTuple):
    """All messages of a file, where they end, and why no more were found if that is not the proper end."""

    messages: list[Found]
    end: int
    fault: str


def scan(read_at: ReadAt, size: int, index: Index | None) -> Scan:
    """Go through a file of ``size`` bytes."""
    messages: list[Found] = []
    try:
        position = _first_message(read_at)
    except ValueError as error:
        if index is None:
            return Scan([], 0, f"it does not start as an Arrow file: {error}")
        position = index.summary.header_length
    while True:
        start = read_at(position, PREFIX_LENGTH).to_pybytes()
        if start == _END_OF_STREAM:
            return Scan(messages, position, "")
        found = _message(read_at, position, size)
        if found.fault:
            known = entry_at(index, position)
            if known is None:
                return Scan(messages, position, found.fault)
            length = known[1].length
            found = Found(position, length, -1, crc32c(read_at(position, length)), found.fault)
        messages.append(found)
        position += found.length


def _first_message(read_at: ReadAt) -> int:
    """The position after the schema."""
    if read_at(0, len(_MAGIC)).to_pybytes() != _MAGIC:
        raise ValueError("its first bytes are not ARROW1")
    length = prefix(read_at(len(_MAGIC), PREFIX_LENGTH))
    pa.ipc.read_schema(read_at(len(_MAGIC), length))
    return len(_MAGIC) + length


def _message(read_at: ReadAt, position: int, size: int) -> Found:
    try:
        length = prefix(read_at(position, PREFIX_LENGTH))
        if position + length > size:
            raise ValueError(f"its metadata of {length} bytes goes beyond the end of the file at {size}")
        message = parse_record_batch(read_at(position, length))
        length += message.body_length
        if position + length > size:
            raise ValueError(f"its {length} bytes go beyond the end of the file at {size}")
    except (ValueError, pa.ArrowException) as error:
        return Found(position, 0, -1, 0, str(error))
    return Found(position, length, message.rows, crc32c(read_at(position, length)))


def entry_at(index: Index | None, position: int) -> tuple[int, BatchEntry] | None:
    """The number and the index's entry of the message at this position, if it has one."""
    if index is None:
        return None
    batches = range(len(index))  # the entries tile the file in order
    number = bisect.bisect_left(batches, position, key=lambda batch: index.entry(batch).position)
    if number == len(index) or index.entry(number).position != position:
        return None
    return number, index.entry(number)
