"""Which partition a record goes to.

``default`` is Kafka's: a key goes to ``(murmur2(key) & 0x7fffffff) % partitions``, so that it lands where Kafka's Java
client puts it (``BuiltInPartitioner.partitionForKey``, ``Utils.murmur2``). Records without a key are spread by
``StickyPartitions``: a whole batch goes to one partition, the next batch to the one with the fewest rows so far.
``integer_key`` sends a key that is a decimal number to that number modulo the partition count.

Pure. Hashing whole Arrow arrays uses numpy, which comes with pyarrow's users that write in bulk (the ``spark`` extra);
without it the same numbers come from the scalar code, more slowly.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_INTEGER = re.compile(rb"[+-]?[0-9]+\Z")
_EASY_INTEGER = "^-?[0-9]{1,18}$"
_ANY_INTEGER = "^[+-]?[0-9]+$"


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of ``data`` as Java's signed int."""
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
    """The partition of one key, 0 to ``partitions - 1``, where Kafka's Java producer puts it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_for_integer_key(key: bytes, partitions: int) -> int:
    """The partition of one key that may be a decimal number; any other key goes where ``default`` puts it.

    A number is ASCII digits with an optional sign; the modulus is never negative, so -1 of 8 is 7.
    """
    return int(key) % partitions if _INTEGER.match(key) else partition_for_key(key, partitions)


def partition_keys(keys: pa.Array, partitions: int) -> pa.Array:
    """The partition of each key (binary or string) as int32; null where the key is null."""
    keys = _as_binary(keys)
    numpy = _numpy()
    if numpy is None or len(keys) == 0:
        found = [None if key is None else partition_for_key(key, partitions) for key in keys.to_pylist()]
        return pa.array(found, pa.int32())
    positive = _murmur2_all(numpy, keys) & numpy.uint32(0x7FFFFFFF)
    chosen = (positive % numpy.uint32(partitions)).astype(numpy.int32)
    if keys.null_count:
        return pa.array(chosen, mask=keys.is_null().to_numpy(zero_copy_only=False))
    return pa.array(chosen)


def partition_integer_keys(keys: pa.Array, partitions: int) -> pa.Array:
    """Like ``partition_keys``, with keys that are decimal numbers taken modulo the partition count."""
    keys = _as_binary(keys)
    numpy = _numpy()
    easy = pc.match_substring_regex(keys, _EASY_INTEGER)
    if numpy is None or len(keys) == 0 or pc.any(pc.and_not(pc.match_substring_regex(keys, _ANY_INTEGER), easy)).as_py():
        found = [None if key is None else partition_for_integer_key(key, partitions) for key in keys.to_pylist()]
        return pa.array(found, pa.int32())
    text = pc.if_else(pc.fill_null(easy, False), keys, None).cast(pa.string())
    numbers = pc.fill_null(text.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    modulus = pa.array(numpy.mod(numbers, partitions).astype(numpy.int32))
    return pc.if_else(easy, modulus, partition_keys(keys, partitions))


def _as_binary(keys: pa.Array) -> pa.Array:
    return keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary())


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _murmur2_all(numpy: Any, keys: pa.Array) -> Any:
    """murmur2 of each key as uint32; nulls give some number.

    Longest keys first, so that those with another word left are always a prefix: one vector operation per word of the
    longest key, whatever the mix of lengths.
    """
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = numpy.frombuffer(offsets_buffer, numpy.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = numpy.frombuffer(data_buffer if data_buffer is not None else b"", numpy.uint8)
    padded = numpy.concatenate([data[offsets[0] : offsets[-1]], numpy.zeros(4, numpy.uint8)])
    starts = (offsets[:-1] - offsets[0]).astype(numpy.int64)
    lengths = offsets[1:] - offsets[:-1]
    order = None
    if lengths.min() != lengths.max():
        order = numpy.argsort(-lengths, kind="stable")
        starts, lengths = starts[order], lengths[order]
    hashed = _murmur2_sorted(numpy, padded, starts, lengths)
    if order is None:
        return hashed
    result = numpy.empty_like(hashed)
    result[order] = hashed
    return result


def _murmur2_sorted(numpy: Any, data: Any, starts: Any, lengths: Any) -> Any:
    """The hashes of keys in order of falling length. ``data`` has 4 bytes after the last key."""
    multiplier = numpy.uint32(_MULTIPLIER)
    words = numpy.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    hashed = numpy.uint32(SEED) ^ lengths.astype(numpy.uint32)
    whole = lengths >> 2
    for number in range(int(whole[0])):
        # whole falls, so the keys that have this word are the first ones
        count = int(numpy.searchsorted(-whole, -number, side="left")) if whole[-1] <= number else len(whole)
        word = words[starts[:count] + 4 * number] * multiplier
        word ^= word >> numpy.uint32(_SHIFT)
        word *= multiplier
        hashed[:count] = (hashed[:count] * multiplier) ^ word
    _mix_tails(numpy, hashed, words, starts, lengths)
    hashed ^= hashed >> numpy.uint32(13)
    hashed *= multiplier
    hashed ^= hashed >> numpy.uint32(15)
    return hashed


def _mix_tails(numpy: Any, hashed: Any, words: Any, starts: Any, lengths: Any) -> None:
    """The last one to three bytes of the keys whose length is no multiple of four."""
    odd = numpy.flatnonzero(lengths & 3)
    if not len(odd):
        return
    left = (lengths[odd] & 3).astype(numpy.uint32)
    tail = words[starts[odd] + (lengths[odd] & ~3)] & ((numpy.uint32(1) << (left * numpy.uint32(8))) - numpy.uint32(1))
    hashed[odd] = (hashed[odd] ^ tail) * numpy.uint32(_MULTIPLIER)


class StickyPartitions:
    """Where records without a key go: each batch as a whole to the partition with the fewest rows so far.

    ``first`` is the partition that gets the first batch; give each writer another one. Not thread-safe.
    """

    def __init__(self, partitions: int, first: int = 0) -> None:
        self._rows = [0] * partitions
        self._first = first % partitions

    def next_partition(self, rows: int) -> int:
        """The partition for a batch of this many rows."""
        count = len(self._rows)
        chosen = min(range(count), key=lambda partition: (self._rows[partition], (partition - self._first) % count))
        self._rows[chosen] += rows
        return chosen
