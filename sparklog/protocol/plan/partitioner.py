"""Partitioners: which partition a record goes to.

``default`` is Kafka's: a key goes to ``(murmur2(key) & 0x7fffffff) % partitions``, so that it lands where Kafka's Java
client puts it (``BuiltInPartitioner.partitionForKey``, ``Utils.murmur2``). Records without a key are spread by
``StickyPartitions``: a whole batch goes to one partition, the next batch to the one with the fewest rows so far.
``integer_key`` sends a key that is a decimal number to that number modulo the partition count.

Rules: pure. Hashing whole Arrow arrays uses numpy, which the extras ``spark`` and ``performance`` install; without it
the scalar code gives the same numbers, at a tenth of the rate. Not for: validating records.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError

SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_INTEGER = re.compile(rb"[+-]?[0-9]+\Z")
_EASY_INTEGER = "^-?[0-9]{1,18}$"
_ANY_INTEGER = "^[+-]?[0-9]+$"
_DIGITS_AT_ONCE = 1000
"""Python refuses to convert thousands of digits at a time, and keys are untrusted."""
_ROWS_AT_ONCE = 32768
"""rows. Their working set fits a core's cache: measured twice as fast as a million rows at once."""
_FEW_ROWS = 16
"""rows. For fewer, a vector operation per word costs more than hashing the keys one by one."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of ``data`` as Java's signed int."""
    length = len(data)
    value = (SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> _SHIFT)) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ (value >> 13)) * _MULTIPLIER & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value >> 31 else value


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of one key, 0 to ``partitions - 1``, as Kafka's Java producer does."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_for_integer_key(key: bytes, partitions: int) -> int:
    """Return the partition of one key that may be a decimal number; for any other key that of ``default``.

    A number is ASCII digits with an optional sign; the modulus is never negative, so -1 of 8 is 7.
    """
    if not _INTEGER.match(key):
        return partition_for_key(key, partitions)
    digits = key.lstrip(b"+-")
    value = 0
    for start in range(0, len(digits), _DIGITS_AT_ONCE):
        piece = digits[start : start + _DIGITS_AT_ONCE]
        value = (value * pow(10, len(piece), partitions) + int(piece)) % partitions
    return -value % partitions if key.startswith(b"-") else value


def partition_keys(keys: pa.Array, partitions: int) -> pa.Array:
    """Return the partition of each key (binary or string) as int32; null where the key is null."""
    keys = _as_binary(keys)
    numpy = _numpy()
    if numpy is None or len(keys) == 0:
        chosen_one_by_one = [None if key is None else partition_for_key(key, partitions) for key in keys.to_pylist()]
        return pa.array(chosen_one_by_one, pa.int32())
    chosen = numpy.empty(len(keys), numpy.int32)
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        hashed = _murmur2_all(numpy, keys.slice(start, _ROWS_AT_ONCE))
        hashed &= numpy.uint32(0x7FFFFFFF)
        hashed %= numpy.uint32(partitions)
        chosen[start : start + _ROWS_AT_ONCE] = hashed
    hashes = _int32_array(chosen)
    return pc.if_else(keys.is_valid(), hashes, pa.nulls(1, pa.int32())[0]) if keys.null_count else hashes


def partition_integer_keys(keys: pa.Array, partitions: int) -> pa.Array:
    """Return the partition of each key as ``partition_keys``; decimal numbers are taken modulo the partition count."""
    keys = _as_binary(keys)
    numpy = _numpy()
    if numpy is None or len(keys) == 0:
        return _partition_integers_one_by_one(keys, partitions)
    easy = pc.fill_null(pc.match_substring_regex(keys, _EASY_INTEGER), False)
    others = pc.if_else(easy, None, keys)
    chosen = partition_keys(others, partitions)
    if pc.any(easy).as_py():
        text = pc.if_else(easy, keys, None).cast(pa.string())
        numbers = pc.fill_null(text.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        chosen = pc.if_else(easy, _int32_array(numpy.mod(numbers, partitions).astype(numpy.int32)), chosen)
    hard = pc.fill_null(pc.match_substring_regex(others, _ANY_INTEGER), False)
    if pc.any(hard).as_py():
        chosen = pc.replace_with_mask(chosen, hard, _partition_integers_one_by_one(keys.filter(hard), partitions))
    return chosen


def _partition_integers_one_by_one(keys: pa.Array, partitions: int) -> pa.Array:
    chosen = [None if key is None else partition_for_integer_key(key, partitions) for key in keys.to_pylist()]
    return pa.array(chosen, pa.int32())


def _int32_array(values: Any) -> pa.Array:
    """Return numpy's 32-bit integers as an array, which ``pa.array`` does with pandas (``format.plain_arrays``)."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _as_binary(keys: pa.Array) -> pa.Array:
    """Return the keys as binary, with 64-bit offsets if they had such, else with 32-bit ones."""
    if pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type):
        return keys.cast(pa.large_binary())
    return keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary())


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _murmur2_all(numpy: Any, keys: pa.Array) -> Any:
    """Return murmur2 of each key as uint32; nulls give an arbitrary number.

    Keys are sorted by falling number of words, so that those with another word left are always a prefix: one vector
    operation per word, whatever the mix of lengths. The few longest keys are hashed one by one, so that a single large
    one among many does not cost a vector operation for each of its words.
    """
    _, offsets_buffer, data_buffer = keys.buffers()
    kind = numpy.int64 if pa.types.is_large_binary(keys.type) else numpy.int32
    offsets = numpy.frombuffer(offsets_buffer, kind)[keys.offset : keys.offset + len(keys) + 1]
    data = numpy.frombuffer(data_buffer if data_buffer is not None else b"", numpy.uint8)
    padded = numpy.concatenate([data[offsets[0] : offsets[-1]], numpy.zeros(4, numpy.uint8)])
    starts = (offsets[:-1] - offsets[0]).astype(numpy.int64)
    lengths = numpy.diff(offsets)
    order = _by_words(numpy, lengths >> 2)
    if order is None:
        return _murmur2_sorted(numpy, padded, starts, lengths)
    result = numpy.empty(len(keys), numpy.uint32)
    result[order] = _murmur2_sorted(numpy, padded, starts[order], lengths[order])
    return result


def _by_words(numpy: Any, words: Any) -> Any:
    """Return the order by falling number of words; None if all have the same."""
    most = words.max()
    if words.min() == most:
        return None
    falling = most - words
    # Numbers of 16 bits and less are sorted by radix.
    kind = numpy.uint8 if most < 2**8 else numpy.uint16 if most < 2**16 else falling.dtype
    return numpy.argsort(falling.astype(kind), kind="stable")


def _murmur2_sorted(numpy: Any, data: Any, starts: Any, lengths: Any) -> Any:
    """Return the hashes of keys sorted by falling number of words. ``data`` has 4 bytes after the last key."""
    multiplier = numpy.uint32(_MULTIPLIER)
    words = numpy.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    hashed = lengths.astype(numpy.uint32)
    hashed ^= numpy.uint32(SEED)
    left = numpy.flip(lengths >> 2)
    # Keys of one length lie at equal distances, and their words are read without an index of positions.
    width = int(lengths[0]) if lengths.min() == lengths.max() else 0
    number, count = 0, len(left) - int(numpy.searchsorted(left, 0, side="right"))
    while count >= _FEW_ROWS:
        word = words[4 * number :: width][:count] if width else words[starts[:count] + 4 * number]
        word = word * multiplier
        word ^= word >> numpy.uint32(_SHIFT)
        word *= multiplier
        hashed[:count] *= multiplier
        hashed[:count] ^= word
        number += 1
        count = len(left) - int(numpy.searchsorted(left, number, side="right"))
    _mix_tails(numpy, hashed, words, starts, lengths)
    hashed ^= hashed >> numpy.uint32(13)
    hashed *= multiplier
    hashed ^= hashed >> numpy.uint32(15)
    for row in range(count):  # these have words left, so the value above is not their hash
        hashed[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes()) & _MASK
    return hashed


def _mix_tails(numpy: Any, hashed: Any, words: Any, starts: Any, lengths: Any) -> None:
    """Mix in the last one to three bytes of the keys whose length is not a multiple of four."""
    odd = numpy.flatnonzero(lengths & 3)
    if not len(odd):
        return
    left = (lengths[odd] & 3).astype(numpy.uint32)
    tail = words[starts[odd] + (lengths[odd] & ~3)] & ((numpy.uint32(1) << (left * numpy.uint32(8))) - numpy.uint32(1))
    hashed[odd] = (hashed[odd] ^ tail) * numpy.uint32(_MULTIPLIER)


def split_by_partition(chosen: pa.Array, partitions: int) -> tuple[pa.Array, list[int]]:
    """Group rows by partition: return their positions in that order, and the number of rows of each partition.

    Rows keep their order within a partition. The positions are int32, for ``take``. Raises InvalidRecordError for a
    null, or a partition that is not 0 to ``partitions - 1``.
    """
    if len(chosen) == 0:
        return pa.array([], pa.int32()), [0] * partitions
    bounds = pc.min_max(chosen).as_py()
    if chosen.null_count or bounds["min"] < 0 or bounds["max"] >= partitions:
        invalid = None if chosen.null_count else bounds["min"] if bounds["min"] < 0 else bounds["max"]
        raise InvalidRecordError(
            f"invalid partition {invalid} of a row: there are 0 to {partitions - 1}", partition=invalid
        )
    numpy = _numpy()
    if numpy is None:
        counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(chosen).to_pylist()}
        rows = [counts.get(partition, 0) for partition in range(partitions)]
        return pc.array_sort_indices(chosen).cast(pa.int32()), rows
    chosen = chosen.cast(pa.int32())
    numbers = numpy.frombuffer(chosen.buffers()[1], numpy.int32)[chosen.offset : chosen.offset + len(chosen)]
    # Sorted by radix up to 16 bits: for batches of 10,000 rows two to eight times as fast as Arrow's sort.
    kind = numpy.uint8 if partitions <= 2**8 else numpy.uint16 if partitions <= 2**16 else numpy.uint32
    order = numpy.argsort(numbers.astype(kind), kind="stable").astype(numpy.int32)
    return _int32_array(order), numpy.bincount(numbers, minlength=partitions).tolist()


class StickyPartitions:
    """Partitioner for records without a key: each whole batch goes to the partition with the fewest rows so far.

    ``first`` is the partition that gets the first batch; give each writer a different one. Not thread-safe.
    """

    def __init__(self, partitions: int, first: int = 0) -> None:
        self._rows = [0] * partitions
        self._first = first % partitions

    def next_partition(self, rows: int) -> int:
        """Return the partition for a batch of this many rows."""
        count = len(self._rows)
        chosen = min(range(count), key=lambda partition: (self._rows[partition], (partition - self._first) % count))
        self._rows[chosen] += rows
        return chosen
