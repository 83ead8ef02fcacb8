"""An incremental checksum of the live segments, so that anyone can prove that none was lost or made up.

Each run of batches that is part of the log has a 128-bit BLAKE2b hash; the checksum is their sum modulo 2^128. Adding
or removing a run costs one hash, whatever the size of the cluster, and the order does not matter. This is AdHash
(Bellare and Micciancio, "A New Paradigm for Collision-Free Hashing", 1997), here against accidents, not adversaries.
"""

from __future__ import annotations

from hashlib import blake2b

from sparklog.protocol.commits import Run

EMPTY = 0
_MODULUS = 1 << 128


def run_hash(topic_id: str, partition: int, base_offset: int, run: Run) -> int:
    """The hash of one run as part of a partition, in [0, 2^128)."""
    text = (
        f"{topic_id}|{partition}|{base_offset}|{run.records}|{run.broker}|{run.path}"
        f"|{run.first_batch}|{run.batches}|{run.first_row}|{run.size_bytes}"
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")


def add(checksum: int, other: int) -> int:
    """The checksum of both sets together."""
    return (checksum + other) % _MODULUS


def subtract(checksum: int, other: int) -> int:
    """The checksum of the first set without the second."""
    return (checksum - other) % _MODULUS


def to_text(checksum: int) -> str:
    """32 hexadecimal digits, as a commit stores it."""
    return f"{checksum:032x}"


def from_text(text: str) -> int:
    """The inverse of ``to_text``."""
    return int(text, 16)
