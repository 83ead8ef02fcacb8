"""What an assignor is given, and the order in which Kafka's Java clients go through it.

Kafka's assignors keep members and topics in hash tables and go through them in the order of the table. Who keeps a
partition and who gives one up depends on that order, so that whoever wants the same result needs the same order:
``table_order`` computes it from the hash codes that Java gives to strings. It is the same on every machine and in
every run, and does not depend on the order in which the caller lists its members.

One detail is left out: Java reorganizes a table in which nine names or more fall into the same slot. Such names have
to be made on purpose; they are then gone through in another order than Java's, and always in the same.

Pure. Not for: deciding anything (``assignors``, ``sticky``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from sparklog.types import TopicPartition

_FEWEST_SLOTS = 16
_MASK = 0xFFFFFFFF


class Subscription(NamedTuple):
    """What a member asks for and what it says it has.

    Attributes:
        topics: what it subscribes to; the order does not matter.
        owned: the partitions it was assigned last.
        generation: the generation in which it was assigned them; -1 if it does not know.
        instance_id: ``group.instance.id`` of a static member, else "".
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str = ""


@lru_cache(maxsize=1 << 16)
def java_hash(text: str) -> int:
    """``String.hashCode`` as an unsigned number: over UTF-16 code units."""
    data = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in memoryview(data).cast("H") if data else ():
        value = (value * 31 + unit) & _MASK
    return value


def partition_hash(topic: str, partition: int) -> int:
    """``TopicPartition.hashCode`` as an unsigned number."""
    return (31 * (31 + partition) + java_hash(topic)) & _MASK


def slots(entries: int) -> int:
    """The size of a Java hash table that has held this many entries: three in four slots taken at most."""
    size = _FEWEST_SLOTS
    while entries * 4 > size * 3:
        size *= 2
    return size


def slot(hashed: int, size: int) -> int:
    """Where a Java hash table of this size keeps a hash code."""
    return (hashed ^ (hashed >> 16)) & (size - 1)


def table_order(names: Iterable[str]) -> list[str]:
    """The distinct names as a Java hash table gives them back after they were put into it in this order."""
    distinct = list(dict.fromkeys(names))
    size = slots(len(distinct))
    return sorted(distinct, key=lambda name: slot(java_hash(name), size))


def java_sorted(names: Iterable[str]) -> list[str]:
    """The names in the order of ``String.compareTo``: by UTF-16 code units."""
    names = list(names)
    if all(name.isascii() for name in names):
        return sorted(names)
    return sorted(names, key=java_key)


def java_key(name: str) -> bytes:
    """A sort key that compares like ``String.compareTo``."""
    return name.encode("utf-16-be", "surrogatepass")


def member_order(members: Iterable[str]) -> list[str]:
    """The members in the order in which an assignor goes through them."""
    return table_order(java_sorted(members))


def subscribed_partitions(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], order: Iterable[str]
) -> dict[str, int]:
    """The number of partitions of each topic that exists and that somebody subscribes to, as an assignor keeps them."""
    lists = dict.fromkeys(members[member].topics for member in order)
    named = table_order(topic for topics in lists for topic in java_sorted(topics))
    return {topic: partitions[topic] for topic in table_order(topic for topic in named if partitions.get(topic, 0) > 0)}
