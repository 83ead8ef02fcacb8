"""Verification of a whole ``.log`` against the checksums of its ``.index``, reading each byte once, front to back.

The checksums of an index tile its file: the part before the first message, each message's metadata and sections, and
the footer. So every byte is summed exactly once, in large reads, and nothing is decompressed or decoded; only the few
bytes of a message's metadata are parsed, to compare the record count with the index.

Rules: damage is recorded and skipped, so that one pass finds all of it; only a failed read raises.
Not for: reading records (``segment_reader``), or comparing a file with the commit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from sparklog.errors import SparklogError
from sparklog.format import codecs, schema
from sparklog.format.checksum import combine, crc32c
from sparklog.format.index import BatchEntry, Index, Region
from sparklog.format.message import parse_record_batch
from sparklog.format.open_segment import open_segment
from sparklog.format.segment_reader import ReadAt

READ_BYTES = 1024 * 1024
"""bytes of one read: as fast as any other size from the page cache of a local disk, and fits the processor's cache."""

_NOTHING = pa.py_buffer(b"")


class Damage(NamedTuple):
    """A fault of one record batch, or of the file around them (``batch`` -1)."""

    batch: int
    position: int
    what: str


class Verification(NamedTuple):
    """Result of one pass over a file; ``crc32c`` is the checksum of its ``bytes_read`` bytes as they are.

    If the file is ``cut_short``, the last damage is that of the batch in which it ends, and later ones are missing.
    ``offsets``: the first and the last offset of each intact batch, in a file that has explicit ones (relative to the
    run's base offset) or is Parquet (absolute).
    """

    damage: list[Damage]
    crc32c: int
    bytes_read: int
    cut_short: bool
    offsets: dict[int, tuple[int, int]]


def regions(index: Index) -> Iterator[Region]:
    """Yield all regions of a ``.log``, in order: its header, the parts of every message that has them, its footer."""
    yield index.summary.header
    for number, entry in enumerate(index.entries):
        yield from (region for region in entry.regions(number) if region.length)
    yield index.summary.footer


def first_cut(index: Index, size: int) -> int:
    """Return the first batch that a ``.log`` of this size lacks, or has in part; -1 if it has all of them. A file that
    ends before its first batch lacks all."""
    for region in regions(index):
        if region.position + region.length > size:
            return 0 if region.position < index.summary.header_length and len(index) else region.batch
    return -1


def verify(read_at: ReadAt, index: Index, path: str) -> Verification:
    """Read a whole ``.log`` and compare it with its index. Raises the errors of ``read_at``, and CorruptIndexError."""
    damage: list[Damage] = []
    stream = _Pass(read_at, index.summary.log_length)
    total = 0
    for region in regions(index):
        is_metadata = region.name == "metadata"
        actual, metadata = stream.take(region.length, keep=is_metadata)
        total = combine(total, actual, region.length)
        if stream.ended:
            what = f"the file ends at byte {stream.position}, and {index.summary.log_length} were written"
            damage.append(Damage(first_cut(index, stream.position), stream.position, what))
            break
        if actual != region.crc32c:
            damage.append(Damage(region.batch, region.position, _describe_mismatch(region, actual)))
        elif is_metadata and not index.summary.is_parquet:
            fault = record_count_fault(metadata, index.entry(region.batch))
            if fault:
                damage.append(Damage(region.batch, region.position, fault))
    else:
        damage += _check_around(read_at, index, path, damage)
    offsets = {}
    if (index.summary.has_offsets or index.summary.is_parquet) and not stream.ended:
        offsets = _read_offsets(read_at, index, path, damage)
    return Verification(damage, total, stream.position, stream.ended, offsets)


def _describe_mismatch(region: Region, actual: int) -> str:
    return (
        f"the checksum of its {region.name} ({region.length} bytes at {region.position}) is {actual:#010x}, the index "
        f"says {region.crc32c:#010x}"
    )


def _check_around(read_at: ReadAt, index: Index, path: str, found: list[Damage]) -> list[Damage]:
    """Check schema, footer and end of a file whose checksums around the batches are right."""
    if any(damage.batch < 0 for damage in found):
        return []
    try:
        open_segment(read_at, index, path).check_file()
    except SparklogError as error:
        return [Damage(-1, 0, error.message)]
    return []


def _read_offsets(read_at: ReadAt, index: Index, path: str, found: list[Damage]) -> dict[int, tuple[int, int]]:
    """Read stored offsets, which have to be decoded; the reader checks that they rise within a batch. Values that are
    elided have to be made, and the reader checks that they are those of the index."""
    damaged = {damage.batch for damage in found}
    reader = open_segment(read_at, index, path)
    offsets: dict[int, tuple[int, int]] = {}
    for number, entry in enumerate(index.entries):
        if number in damaged:
            continue
        try:
            column = reader.read_offsets(number)
            if index.summary.elides_values:
                reader.read(number, [schema.VALUE])
        except SparklogError as error:
            found.append(Damage(number, entry.position, error.message))
            continue
        offsets[number] = column[0].as_py(), column[-1].as_py()
    return offsets


def record_count_fault(metadata: bytes, entry: BatchEntry) -> str:
    """Return how a message's own metadata contradicts the index; empty if they agree."""
    try:
        message = parse_record_batch(metadata)
    except ValueError as error:
        return f"its metadata cannot be read: {error}"
    rows = 1 if codecs.is_envelope(entry.codec) else entry.count
    if message.rows != rows:
        return f"it has {message.rows} rows, the index says {rows}"
    if message.body_length != entry.length - entry.metadata_length:
        return f"it states a body of {message.body_length} bytes, the index says otherwise"
    return ""


class _Pass:
    """Sums the bytes of a file stretch by stretch, reading ``READ_BYTES`` at a time. Not thread-safe."""

    def __init__(self, read_at: ReadAt, length: int) -> None:
        self.position = 0
        self.ended = False
        self._read_at = read_at
        self._length = length
        self._data = _NOTHING

    def take(self, length: int, keep: bool = False) -> tuple[int, bytes]:
        """Return the sum of the next bytes, and with ``keep`` these bytes; set ``ended`` if the file has fewer."""
        total, kept = 0, b""
        while length:
            if not self._data.size:
                self._data = _NOTHING  # releases the previous bytes, so that their memory is reused
                self._data = self._read_at(self.position, min(READ_BYTES, self._length - self.position))
                if not self._data.size:
                    self.ended = True
                    break
            part = self._data.slice(0, min(length, self._data.size))
            self._data = self._data.slice(part.size)
            total = crc32c(part, total)
            if keep:
                kept += part.to_pybytes()
            self.position += part.size
            length -= part.size
            del part
        return total, kept
