"""An incremental checksum of the live segments, which proves that none was lost or added.

Each run of batches that is part of the log has a 128-bit BLAKE2b hash; the checksum is their sum modulo 2^128. Adding
or removing a run costs one hash, whatever the size of the cluster, and the order does not matter. This is AdHash
(Bellare and Micciancio, "A New Paradigm for Collision-Free Hashing", 1997). Not for: protection against adversaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from sparklog.protocol.commits import LiveSegment, Run
from sparklog.protocol.segments import Segment

EMPTY = 0
_MODULUS = 1 << 128


def run_hash(topic_id: str, partition: int, base_offset: int, run: Run) -> int:
    """Return the hash of one run that an append makes part of a partition, in [0, 2^128)."""
    return _hash(topic_id, partition, base_offset, base_offset + run.records, run)


def replacement_hash(topic_id: str, partition: int, added: LiveSegment) -> int:
    """Return the hash of a segment that replaces others."""
    return _hash(topic_id, partition, added.base_offset, added.end_offset, added.run)


def segment_hash(topic_id: str, segment: Segment) -> int:
    """Return the hash of a live segment: the same as when it was added."""
    return _hash(topic_id, segment.partition, segment.base_offset, segment.end_offset, segment)


def _hash(topic_id: str, partition: int, base_offset: int, end_offset: int, run: Run | Segment) -> int:
    gaps = "" if end_offset - base_offset == run.records else f"|{end_offset}"
    text = (
        f"{topic_id}|{partition}|{base_offset}|{run.records}|{run.broker}|{run.path}"
        f"|{run.first_batch}|{run.batches}|{run.first_row}|{run.size_bytes}{gaps}"
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")


def total(hashes: Iterable[int]) -> int:
    """Return the checksum of a set."""
    return sum(hashes) % _MODULUS


def add(checksum: int, other: int) -> int:
    """Return the checksum of both sets together; with ``-other`` that of the first set without the second."""
    return (checksum + other) % _MODULUS


def to_text(checksum: int) -> str:
    """Format as 32 hexadecimal digits, as stored in commits."""
    return f"{checksum:032x}"


def from_text(text: str) -> int:
    """Parse the result of ``to_text``."""
    return int(text, 16)
