"""Which records of a log are the latest of their keys, in bounded memory however many keys there are.

The keys are grouped by their bytes, never by a hash alone; of each key the number of the last record is kept. Where the
keys do not fit the memory allowed, a hash divides them into buckets, and the key column is read again for each: the
first reading halves its bucket whenever it grows too large, and the other half waits for a reading of its own. What
comes out is a bit for each record.

The hash is one of murmur2, whose low bits say the partition that a key is in, and so are the same for all keys here:
buckets go by its highest bits after a multiplication (Knuth, "The Art of Computer Programming", volume 3, 6.4).

Rules: only the key column is read; records without a key do not survive, as in Kafka's cleaner.
Not for: tombstones, and which segments are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format import schema
from sparklog.maintenance.segments.files import Source, ahead
from sparklog.protocol.plan.partitioner import partition_keys

MIN_MEMORY_BYTES = 64 * 1024
"""bytes. With less, tasks would do little but read the keys again."""

MAX_TABLE_BYTES = 512 * 1024 * 1024
"""bytes of distinct keys at a time at most, however much memory there is: Arrow's offsets into keys have 32 bits."""

_TABLES_IN_MEMORY = 4
"""Grouping takes this many times the memory of the keys that come out: those before, those that are added, a hash
table, and the result."""

_MAX_HASH_BITS = 24
_MULTIPLIER = 2654435761
_ROWS_PER_REGION = 1 << 22


class LatestRecords:
    """A bit for each of so many records: whether it survives. Not thread-safe."""

    def __init__(self, records: int) -> None:
        self._bits = bytearray((records + 7) // 8 + 8)

    @property
    def bits(self) -> pa.Buffer:
        """The bits as Arrow has them, lowest first; no copy."""
        return pa.py_buffer(self._bits)

    def add(self, numbers: pa.Array) -> None:
        """These records survive; int64."""
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

    def remove(self, first: int, gone: pa.BooleanArray) -> None:
        """Of the records from this number on, those that are marked do not survive."""
        for row in pc.indices_nonzero(gone).to_pylist():
            number = first + row
            self._bits[number >> 3] &= ~(1 << (number & 7)) & 0xFF


def find_latest(sources: Sequence[Source], first: dict[int, int], memory_bytes: int) -> LatestRecords:
    """The latest record of each key in these segments; ``first`` are their first records' numbers by base offset.

    ``memory_bytes`` is for keys; the result and what is being read come on top. Errors as ``Source.read``.
    """
    survivors = LatestRecords(sum(source.segment.records for source in sources))
    largest = min(max(memory_bytes, MIN_MEMORY_BYTES) // _TABLES_IN_MEMORY, MAX_TABLE_BYTES)
    waiting = [Bucket()]
    while waiting:
        bucket = waiting.pop()
        latest = _Latest(bucket, largest, waiting)
        for keys, numbers in _keys(sources, first):
            latest.add(keys, numbers)
        for found in latest.numbers():
            survivors.add(found)
    return survivors


class Bucket:
    """The keys whose hashes begin with these bits. Immutable."""

    def __init__(self, bits: int = 0, number: int = 0) -> None:
        self.bits = bits
        self.number = number

    def halves(self) -> tuple[Bucket, Bucket]:
        return Bucket(self.bits + 1, 2 * self.number), Bucket(self.bits + 1, 2 * self.number + 1)

    def holds(self, keys: pa.Array) -> pa.BooleanArray | None:
        """Which of the keys are in it; None for all of them."""
        if not self.bits:
            return None
        hashes = partition_keys(keys, 2**31 - 1).cast(pa.int64())
        mixed = pc.bit_wise_and(pc.multiply(hashes, _MULTIPLIER), 2**32 - 1)
        return pc.equal(pc.shift_right(mixed, 32 - self.bits), self.number)


class _Latest:
    """The last record of each key of a bucket, which is halved where its keys become too many."""

    def __init__(self, bucket: Bucket, largest: int, waiting: list[Bucket]) -> None:
        self._bucket = bucket
        self._largest = largest
        self._waiting = waiting
        self._known = _table(pa.array([], pa.binary()), pa.array([], pa.int64()))
        self._added: list[pa.Table] = []
        self._added_bytes = 0

    def add(self, keys: pa.Array, numbers: pa.Array) -> None:
        """Records in their order, none without a key."""
        table = self._in_bucket(_table(keys, numbers))
        if table.num_rows:
            self._added.append(table)
            self._added_bytes += table.nbytes
        if self._added_bytes >= max(self._known.nbytes, self._largest // 4):
            self._group()

    def numbers(self) -> Iterator[pa.Array]:
        """The numbers of the last records, in no order."""
        self._group()
        yield from self._known.column("number").chunks

    def _group(self) -> None:
        """Take in what was added. Doing so only when it is as much as what is known costs each record a few times."""
        if not self._added:
            return
        tables = pa.concat_tables([self._known, *self._added])
        self._added, self._added_bytes = [], 0
        grouped = tables.group_by("key", use_threads=False).aggregate([("number", "max")])
        self._known = grouped.rename_columns(["key", "number"])
        while self._known.nbytes > self._largest and self._bucket.bits < _MAX_HASH_BITS:
            self._bucket, other = self._bucket.halves()
            self._waiting.append(other)
            self._known = self._in_bucket(self._known)

    def _in_bucket(self, table: pa.Table) -> pa.Table:
        masks = [self._bucket.holds(chunk) for chunk in table.column("key").chunks]
        if not masks or masks[0] is None:
            return table
        return table.filter(pa.chunked_array(masks, pa.bool_())).combine_chunks()


def _table(keys: pa.Array, numbers: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "number": numbers})


def _keys(sources: Sequence[Source], first: dict[int, int]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys with their records' numbers, a stored batch at a time."""
    for source in ahead(sources):
        if schema.KEY not in source.columns:
            continue
        at = first[source.segment.base_offset]
        for number in source.batches:
            entry = source.entry(number)
            keys = source.read(number, [schema.KEY]).column(0)
            numbers = source.count_from(at + source.row(entry), entry.count)
            if keys.null_count:
                there = keys.is_valid()
                keys, numbers = keys.filter(there), numbers.filter(there)
            if len(keys):
                yield keys, numbers
        source.close()


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
