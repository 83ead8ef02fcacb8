"""Finds the latest record of each key in a log, in bounded memory however many keys there are (Kafka's OffsetMap).

The keys are grouped by their bytes, never by a hash alone; for each key the number of its last record is kept. If the
keys do not fit into the memory allowed, a hash divides them into buckets, and the key column is read once for each
bucket: the first pass halves its bucket whenever it grows too large, and the other half is left to a pass of its own.
The result is a bit for each record.

The hash is murmur2, whose low bits determine the partition of a key and so are the same for all keys here: buckets use
its highest bits after a multiplication (Knuth, "The Art of Computer Programming", volume 3, 6.4).

Rules: only the key column is read; records without a key are removed, as by Kafka's cleaner.
Not for: tombstones, and which segments are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format import schema
from sparklog.maintenance.segments.files import Source, count_from, fetch_ahead
from sparklog.protocol.plan.partitioner import partition_keys

MIN_MEMORY_BYTES = 64 * 1024
"""Minimum memory in bytes. With less, tasks would mostly read the keys again."""

MAX_TABLE_BYTES = 512 * 1024 * 1024
"""Maximum bytes of distinct keys at a time, however much memory there is: Arrow's offsets into keys have 32 bits."""

_TABLES_IN_MEMORY = 4
"""Grouping takes this many times the memory of the resulting keys: the previous table, the added keys, a hash table,
and the result."""

_MAX_HASH_BITS = 24
_MULTIPLIER = 2654435761
_ROWS_PER_REGION = 1 << 22


class LatestRecords:
    """A bit for each record: whether it is the latest of its key. Not thread-safe."""

    def __init__(self, records: int) -> None:
        self._bits = bytearray((records + 7) // 8 + 8)

    @property
    def bits(self) -> pa.Buffer:
        """The bits in Arrow's order, lowest first; not a copy."""
        return pa.py_buffer(self._bits)

    def add(self, numbers: pa.Array) -> None:
        """Set the bits of these records; int64."""
        numpy = _numpy()
        if numpy is None:
            for number in numbers.to_pylist():
                self._bits[number >> 3] |= 1 << (number & 7)
            return
        ordered = numpy.sort(numbers.to_numpy(zero_copy_only=False))
        first = 0
        while first < len(ordered):
            start = int(ordered[first]) // 8 * 8
            last = int(numpy.searchsorted(ordered, start + _ROWS_PER_REGION))
            self._set(numpy, start, ordered[first:last] - start)
            first = last

    def _set(self, numpy: Any, start: int, numbers: Any) -> None:
        flags = numpy.zeros(int(numbers[-1]) + 1, numpy.uint8)
        flags[numbers] = 1
        packed = numpy.packbits(flags, bitorder="little")
        view = numpy.frombuffer(self._bits, numpy.uint8)[start // 8 : start // 8 + len(packed)]
        view |= packed

    def remove(self, first: int, removed: pa.BooleanArray) -> None:
        """Clear the bits of the records marked in ``removed``, which begins with record number ``first``."""
        for row in pc.indices_nonzero(removed).to_pylist():
            number = first + row
            self._bits[number >> 3] &= ~(1 << (number & 7)) & 0xFF


def find_latest(sources: Sequence[Source], first: dict[int, int], memory_bytes: int) -> LatestRecords:
    """Find the latest record of each key in these segments; ``first`` has the number of each segment's first record by
    base offset.

    ``memory_bytes`` limits the memory for keys; the result and the batches being read come on top. Errors as
    ``Source.read``.
    """
    survivors = LatestRecords(sum(source.segment.records for source in sources))
    max_table_bytes = min(max(memory_bytes, MIN_MEMORY_BYTES) // _TABLES_IN_MEMORY, MAX_TABLE_BYTES)
    pending = [Bucket()]
    while pending:
        bucket = pending.pop()
        latest = _LatestInBucket(bucket, max_table_bytes, pending)
        for keys, numbers in _read_keys(sources, first):
            latest.add(keys, numbers)
        for chunk in latest.numbers():
            survivors.add(chunk)
    return survivors


class Bucket(NamedTuple):
    """The keys whose hashes begin with the ``bits`` bits of ``number``."""

    bits: int = 0
    number: int = 0

    def halves(self) -> tuple[Bucket, Bucket]:
        return Bucket(self.bits + 1, 2 * self.number), Bucket(self.bits + 1, 2 * self.number + 1)

    def holds(self, keys: pa.Array) -> pa.BooleanArray | None:
        """Return which of the keys are in the bucket; None for all of them."""
        if not self.bits:
            return None
        hashes = partition_keys(keys, 2**31 - 1).cast(pa.int64())
        mixed = pc.bit_wise_and(pc.multiply(hashes, _MULTIPLIER), 2**32 - 1)
        return pc.equal(pc.shift_right(mixed, 32 - self.bits), self.number)


class _LatestInBucket:
    """The last record of each key of a bucket, which is halved when its keys become too many.

    The other halves are appended to ``pending``.
    """

    def __init__(self, bucket: Bucket, max_table_bytes: int, pending: list[Bucket]) -> None:
        self._bucket = bucket
        self._max_table_bytes = max_table_bytes
        self._pending = pending
        self._grouped = _table(pa.array([], pa.binary()), pa.array([], pa.int64()))
        self._added: list[pa.Table] = []
        self._added_bytes = 0

    def add(self, keys: pa.Array, numbers: pa.Array) -> None:
        """Add records in offset order, all with keys."""
        table = self._select_bucket(_table(keys, numbers))
        if table.num_rows:
            self._added.append(table)
            self._added_bytes += table.nbytes
        if self._added_bytes >= max(self._grouped.nbytes, self._max_table_bytes // 4):
            self._group()

    def numbers(self) -> Iterator[pa.Array]:
        """Return the numbers of the last records, in no particular order."""
        self._group()
        yield from self._grouped.column("number").chunks

    def _group(self) -> None:
        """Group the added records. Doing so only once they are as large as the grouped table processes each record only
        a few times."""
        if not self._added:
            return
        tables = pa.concat_tables([self._grouped, *self._added])
        self._added, self._added_bytes = [], 0
        grouped = tables.group_by("key", use_threads=False).aggregate([("number", "max")])
        self._grouped = grouped.rename_columns(["key", "number"])
        while self._grouped.nbytes > self._max_table_bytes and self._bucket.bits < _MAX_HASH_BITS:
            self._bucket, other = self._bucket.halves()
            self._pending.append(other)
            self._grouped = self._select_bucket(self._grouped)

    def _select_bucket(self, table: pa.Table) -> pa.Table:
        masks = [self._bucket.holds(chunk) for chunk in table.column("key").chunks]
        if not masks or masks[0] is None:
            return table
        return table.filter(pa.chunked_array(masks, pa.bool_())).combine_chunks()


def _table(keys: pa.Array, numbers: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "number": numbers})


def _read_keys(sources: Sequence[Source], first: dict[int, int]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Return keys with the numbers of their records, a stored batch at a time."""
    for source in fetch_ahead(sources):
        if schema.KEY not in source.columns:
            continue
        first_number = first[source.segment.base_offset]
        for number, entry in source.entries():
            keys = source.read(number, [schema.KEY]).column(0)
            numbers = count_from(first_number + source.row(entry), entry.count)
            if keys.null_count:
                has_key = keys.is_valid()
                keys, numbers = keys.filter(has_key), numbers.filter(has_key)
            if len(keys):
                yield keys, numbers
        source.close()


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
