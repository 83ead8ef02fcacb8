"""Which brokers get the replicas of new partitions: Kafka's round-robin with a shift.

The first replica of partition p is at broker ``start + p``, the others follow at a distance that grows by one after
each round over the brokers; so leaders are spread evenly, and the followers of one broker's partitions over all others.
Kafka chooses start and shift at random; here they are derived from the topic's id, so that a decision stays pure.
(``AdminUtils.assignReplicasToBrokersRackUnaware``.) Not for: moving existing replicas (``reassignment``).

Worked example: 5 brokers, replication factor 3, start 0, shift 0::

    partition 0   0 1 2      partition 5   0 2 3
    partition 1   1 2 3      partition 6   1 3 4
    partition 2   2 3 4      partition 7   2 4 0
    partition 3   3 4 0      partition 8   3 0 1
    partition 4   4 0 1      partition 9   4 1 2
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from sparklog.protocol.state import State


def available_brokers(state: State) -> list[int]:
    """Return the brokers that may get new replicas: online and not cordoned."""
    return sorted(number for number, broker in state.brokers.items() if broker.online and not broker.cordoned)


def spread(
    brokers: Sequence[int], partitions: int, factor: int, *, start: int, shift: int, first: int = 0
) -> list[list[int]]:
    """Return one replica list for each of the partitions ``first`` to ``first + partitions - 1``.

    ``factor`` is at most ``len(brokers)``; ``start`` and ``shift`` are indexes into ``brokers``.
    """
    count = len(brokers)
    assignment: list[list[int]] = []
    for partition in range(first, first + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (partition + start) % count
        followers = [(leader + 1 + (shift + number) % (count - 1)) % count for number in range(factor - 1)]
        assignment.append([brokers[index] for index in (leader, *followers)])
    return assignment


def start_and_shift(topic_id: str, brokers: int) -> tuple[int, int]:
    """Return start and shift of a new topic: pseudo-random but deterministic, so that every process decides alike."""
    hashed = zlib.crc32(topic_id.encode())
    return hashed % brokers, hashed // brokers % brokers


def start_and_shift_after(replicas: Sequence[int], brokers: Sequence[int]) -> tuple[int, int]:
    """Return start and shift of partitions added to a topic whose partition 0 has these replicas, as in Kafka."""
    start = next((index for index, broker in enumerate(brokers) if broker >= replicas[0]), 0)
    return start, start
