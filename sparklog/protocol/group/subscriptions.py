"""The input of an assignor, and the order in which Kafka's Java clients iterate over it.

Kafka's assignors keep members and topics in hash tables and iterate in the order of the table. Which member keeps or
loses a partition depends on that order, so the same result requires the same order: ``table_order`` computes it from
Java's hash codes of strings. It is deterministic, and independent of the order in which the caller lists its members.

One detail is omitted: Java reorganizes a table in which nine names or more fall into the same slot. Such names only
occur on purpose; their order then differs from Java's, but is still deterministic.

Rules: pure. Not for: assigning partitions (``assignors``, ``sticky``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from sparklog.types import TopicPartition

_FEWEST_SLOTS = 16
_MASK = 0xFFFFFFFF


class MemberSubscription(NamedTuple):
    """What a member subscribes to, and what it claims to own.

    Attributes:
        topics: the topics it subscribes to, in any order.
        owned: the partitions of its last assignment.
        generation: the generation of that assignment; -1 if it does not know.
        instance_id: ``group.instance.id`` of a static member, else "".
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str = ""


@lru_cache(maxsize=1 << 16)
def java_hash(text: str) -> int:
    """Return ``String.hashCode`` as an unsigned number: over UTF-16 code units."""
    data = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in memoryview(data).cast("H") if data else ():
        value = (value * 31 + unit) & _MASK
    return value


def partition_hash(topic: str, partition: int) -> int:
    """Return ``TopicPartition.hashCode`` as an unsigned number."""
    return (31 * (31 + partition) + java_hash(topic)) & _MASK


def slots(entries: int) -> int:
    """Return the size of a Java hash table that has held this many entries: at most three in four slots are used."""
    size = _FEWEST_SLOTS
    while entries * 4 > size * 3:
        size *= 2
    return size


def slot(hashed: int, size: int) -> int:
    """Return the slot of a hash code in a Java hash table of this size."""
    return (hashed ^ (hashed >> 16)) & (size - 1)


def table_order(names: Iterable[str]) -> list[str]:
    """Return the distinct names in the iteration order of a Java hash table to which they were added in this order."""
    distinct = list(dict.fromkeys(names))
    size = slots(len(distinct))
    return sorted(distinct, key=lambda name: slot(java_hash(name), size))


def java_sorted(names: Iterable[str]) -> list[str]:
    """Return the names in the order of ``String.compareTo``: by UTF-16 code units."""
    names = list(names)
    if all(name.isascii() for name in names):
        return sorted(names)
    return sorted(names, key=java_key)


def java_key(name: str) -> bytes:
    """Return a sort key that compares like ``String.compareTo``."""
    return name.encode("utf-16-be", "surrogatepass")


def member_order(members: Iterable[str]) -> list[str]:
    """Return the members in the iteration order of an assignor."""
    return table_order(java_sorted(members))


def subscribed_partitions(
    partitions: Mapping[str, int], members: Mapping[str, MemberSubscription], order: Iterable[str]
) -> dict[str, int]:
    """Return the partition count of each existing topic with a subscriber, in the order of an assignor."""
    lists = dict.fromkeys(members[member].topics for member in order)
    named = table_order(topic for topics in lists for topic in java_sorted(topics))
    return {topic: partitions[topic] for topic in table_order(topic for topic in named if partitions.get(topic, 0) > 0)}
