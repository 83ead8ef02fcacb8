"""The sticky assignors: balanced, and as many partitions as possible keep their owner.

The rules are those of Kafka's ``AbstractStickyAssignor``, without racks:

* A member's claim to own a partition counts if the partition exists. If two members claim the same partition, the one
  with the later generation owns it; if their generations are equal, neither does, and any member may get it.
* If all members subscribe to the same topics, each gets ``partitions // members`` or one more, and keeps up to that
  number of its own (``_assign_equal``).
* Otherwise every partition goes to the subscriber that has the fewest, and then partitions move one at a time from a
  member to a subscriber that has at least two fewer, until none can (``_Balancer``).

Kafka's mistakes are corrected:

* Kafka checks whether the topic of an owned partition exists, not whether the partition does. Here partitions that no
  longer exist have no owner.
* Kafka ignores a member without topics if it happens to come first, treats the subscriptions as equal, and assigns
  partitions to it. Here the subscriptions differ.
* Kafka returns partitions to their owner of an earlier generation without checking whether it still subscribes to the
  topic, or fails. Here, if a member would keep such a partition, the assignment is repeated without such claims.

There is no proof that Kafka's way of moving partitions terminates, and this runs wherever the state of a group is read:
it stops after ``MOVES_PER_PARTITION`` times as many moves as there are partitions. Thousands of random groups needed
at most one per partition.

Rules: pure. Not for: when to rebalance, or waiting until a partition is released (``rebalance``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from sparklog.protocol.group.subscriptions import (
    MemberSubscription,
    java_sorted,
    partition_hash,
    slot,
    slots,
    table_order,
)
from sparklog.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]

MOVES_PER_PARTITION = 20


class Claims(NamedTuple):
    """The owned partitions, after contradictions have been resolved.

    ``owned`` has each member in the order of the assignor; its partitions are the keys of a dict, in order.
    ``contested`` are partitions that two members of the same generation claimed.
    """

    owned: dict[str, dict[TopicPartition, None]]
    contested: set[TopicPartition]


def assign(
    topics: Mapping[str, int], members: Mapping[str, MemberSubscription], order: Sequence[str], *, grouped: bool
) -> Assignment:
    """Return the target of a sticky assignor.

    ``grouped`` is the order of a member's owned partitions: by topic in the order of a hash table (``sticky``), or
    sorted (``cooperative-sticky``).
    """
    reported = {member: _select_existing(members[member].owned, topics, grouped) for member in order}
    claims = _resolve(reported, members)
    if _all_equal(members):
        return _assign_equal(topics, claims)
    assigned = _Balancer(topics, members, claims).run()
    if all({partition.topic for partition in mine} <= set(members[member].topics) for member, mine in assigned.items()):
        return assigned
    return _Balancer(topics, {member: _drop_unsubscribed(members[member]) for member in order}, claims).run()


def _drop_unsubscribed(subscription: MemberSubscription) -> MemberSubscription:
    owned = tuple(partition for partition in subscription.owned if partition.topic in subscription.topics)
    return subscription._replace(owned=owned)


def changing_owner(
    target: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, MemberSubscription], order: Sequence[str]
) -> set[TopicPartition]:
    """Return the partitions of a target that another member must release before their new owner may have them."""
    claims = _resolve({member: members[member].owned for member in order}, members)
    if _all_equal(members):
        owner = {
            partition: member
            for member, owned in claims.owned.items()
            for partition in owned
            if partition not in claims.contested
        }
        moving = {
            partition
            for member, partitions in target.items()
            for partition in partitions
            if owner.get(partition, member) != member
        }
        return moving | claims.contested
    claimed = set(chain.from_iterable(subscription.owned for subscription in members.values()))
    return {
        partition
        for member, partitions in target.items()
        for partition in claimed.intersection(partitions) - set(members[member].owned)
    }


def _select_existing(
    owned: Sequence[TopicPartition], topics: Mapping[str, int], grouped: bool
) -> Sequence[TopicPartition]:
    """Return the owned partitions that exist and have a subscriber, in the order in which an assignor gets them."""
    existing = [partition for partition in owned if 0 <= partition.partition < topics.get(partition.topic, 0)]
    if grouped:
        # Kafka puts a topic into this table ahead of those that are in the same slot.
        topics_owned = list(dict.fromkeys(partition.topic for partition in owned))
        rank = {topic: number for number, topic in enumerate(table_order(reversed(topics_owned)))}
        return sorted(existing, key=lambda partition: rank[partition.topic])
    rank = {topic: number for number, topic in enumerate(java_sorted({partition.topic for partition in existing}))}
    return sorted(existing, key=lambda partition: (rank[partition.topic], partition.partition))


def _resolve(reported: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, MemberSubscription]) -> Claims:
    holder: dict[TopicPartition, str] = {}
    claims = Claims({}, set())
    for member, claimed in reported.items():
        mine = claims.owned[member] = {}
        generation = max(members[member].generation, -1)
        for partition in claimed:
            other = holder.get(partition)
            if other is None:
                holder[partition] = member
                mine[partition] = None
                continue
            others = max(members[other].generation, -1)
            if generation < others:
                continue
            claims.owned[other].pop(partition, None)
            holder[partition] = member
            if generation > others:
                mine[partition] = None
            else:
                claims.contested.add(partition)
    return claims


def _all_equal(members: Mapping[str, MemberSubscription]) -> bool:
    first, *others = members.values()
    topics = frozenset(first.topics)
    return all(other.topics == first.topics or frozenset(other.topics) == topics for other in others)


def _assign_equal(topics: Mapping[str, int], claims: Claims) -> Assignment:
    """Give every member ``least`` partitions, and ``extra`` members one more, first those that already have more."""
    least, extra = divmod(sum(topics.values()), len(claims.owned))
    names = java_sorted(topics)
    rank = {topic: number for number, topic in enumerate(names)}
    assigned: Assignment = {}
    below: list[str] = []
    level: list[str] = []
    for member, owned in claims.owned.items():
        mine = [partition for partition in owned if partition not in claims.contested]
        mine.sort(key=lambda partition: (partition.partition, rank[partition.topic]))
        if len(mine) < least:
            below.append(member)
        elif len(mine) > least and extra:
            extra -= 1
            del mine[least + 1 :]
        else:
            level.append(member)
            del mine[least:]
        assigned[member] = mine
    kept = set(chain.from_iterable(assigned.values()))
    everything = (TopicPartition(topic, partition) for topic in names for partition in range(topics[topic]))
    _assign_free([partition for partition in everything if partition not in kept], assigned, least, below, level)
    return assigned


def _assign_free(
    free: Sequence[TopicPartition], assigned: Assignment, least: int, below: Sequence[str], level: Sequence[str]
) -> None:
    """Assign free partitions in turn to the members below ``least``, then one each to those that have exactly that."""
    hungry = deque(java_sorted(below))
    full = deque(java_sorted(level))
    for partition in free:
        member = (hungry or full).popleft()
        assigned[member].append(partition)
        count = len(assigned[member])
        if count < least:
            hungry.append(member)
        elif count == least:
            full.append(member)


class _Moves:
    """The moves of partitions between members in this rebalance, so that no two partitions of a topic are swapped."""

    def __init__(self) -> None:
        self._pair: dict[TopicPartition, tuple[int, int]] = {}
        self._moved: dict[tuple[str, int, int], dict[TopicPartition, None]] = {}
        self._slots: dict[tuple[str, int, int], int] = {}

    def record(self, partition: TopicPartition, source: int, destination: int) -> None:
        """Record a move of ``partition``; with an earlier move it counts as a single move from its first owner."""
        pair = self._pair.pop(partition, None)
        if pair is not None:
            self._forget(partition, pair)
            source = pair[0]
            if source == destination:
                return
        self._pair[partition] = (source, destination)
        key = (partition.topic, source, destination)
        moved = self._moved.setdefault(key, {})
        moved[partition] = None
        self._slots[key] = max(self._slots.get(key, 0), slots(len(moved)))

    def _forget(self, partition: TopicPartition, pair: tuple[int, int]) -> None:
        key = (partition.topic, *pair)
        del self._moved[key][partition]
        if not self._moved[key]:
            del self._moved[key], self._slots[key]

    def instead(self, partition: TopicPartition, source: int, destination: int) -> TopicPartition:
        """Return the partition to move instead of ``partition``: one of its topic that moved the opposite way, if
        any."""
        if partition in self._pair:
            source = self._pair[partition][0]
        key = (partition.topic, destination, source)
        came = self._moved.get(key)
        if not came:
            return partition
        size = self._slots[key]
        return min(came, key=lambda each: slot(partition_hash(each.topic, each.partition), size))


class _Balancer:
    """The assignment for differing subscriptions. For one run; not thread-safe.

    Members are numbers, in the order of their ids. ``_queue`` has (partitions, member) of those that may still gain or
    lose some, fewest first; ``_held`` counts the partitions of each member by topic during moves.
    """

    def __init__(self, topics: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Claims) -> None:
        self._names = java_sorted(members)
        self._number = {name: number for number, name in enumerate(self._names)}
        self._topics = topics
        self._wanted = [frozenset(members[name].topics).intersection(topics) for name in self._names]
        self._subscribers: dict[str, set[int]] = {topic: set() for topic in topics}
        for number, wanted in enumerate(self._wanted):
            for topic in wanted:
                self._subscribers[topic].add(number)
        owned = [claims.owned[name] for name in self._names]
        self._assigned = [
            {partition: None for partition in mine if partition.topic in wanted}
            for mine, wanted in zip(owned, self._wanted, strict=True)
        ]
        self._revoking = any(len(mine) < len(was) for mine, was in zip(self._assigned, owned, strict=True))
        self._owner = {partition: number for number, mine in enumerate(self._assigned) for partition in mine}
        self._earlier = self._earlier_owners(members, list(claims.owned))
        self._queue = sorted((len(mine), number) for number, mine in enumerate(self._assigned))
        self._held: list[Counter[str]] = []
        self._moves = _Moves()
        self._moves_left = MOVES_PER_PARTITION * sum(topics.values())
        self._fewest: dict[str, tuple[int, int]] = {}
        self._balanced: bool | None = None

    def _earlier_owners(
        self, members: Mapping[str, MemberSubscription], order: Sequence[str]
    ) -> dict[TopicPartition, int]:
        """Return the owner of each partition in the latest generation before the current one."""
        current = max(max(members[name].generation, -1) for name in order)
        latest: dict[TopicPartition, tuple[int, int]] = {}
        for name in order:
            generation = max(members[name].generation, -1)
            if generation == current:
                continue
            for partition in members[name].owned:
                if partition not in latest or generation > latest[partition][0]:
                    latest[partition] = (generation, self._number[name])
        return {partition: number for partition, (_, number) in latest.items()}

    def run(self) -> Assignment:
        everything = [
            TopicPartition(topic, partition)
            for topic in sorted(java_sorted(self._topics), key=lambda topic: len(self._subscribers[topic]))
            for partition in range(self._topics[topic])
        ]
        free = [partition for partition in everything if partition not in self._owner]
        fresh = not self._owner
        for partition in free:
            self._assign(partition)
        movable = frozenset(topic for topic, subscribers in self._subscribers.items() if len(subscribers) > 1)
        self._queue = [entry for entry in self._queue if self._may_change(entry[1], movable)]
        may_change = {number for _, number in self._queue}
        self._earlier = {partition: number for partition, number in self._earlier.items() if number in may_change}
        self._held = [Counter(partition.topic for partition in mine) for mine in self._assigned]
        before = [dict(mine) for mine in self._assigned]
        if not self._revoking:
            self._move([partition for partition in free if partition.topic in movable])
        moved = self._move([partition for partition in everything if partition.topic in movable])
        if moved and not fresh and self._imbalance(self._assigned) >= self._imbalance(before):
            self._assigned = before
        return {name: list(mine) for name, mine in zip(self._names, self._assigned, strict=True)}

    def _assign(self, partition: TopicPartition) -> None:
        """Assign a free partition to the subscriber with the fewest."""
        subscribers = self._subscribers[partition.topic]
        for index, (count, number) in enumerate(self._queue):
            if number in subscribers:
                del self._queue[index]
                insort(self._queue, (count + 1, number))
                self._assigned[number][partition] = None
                self._owner[partition] = number
                return

    def _may_change(self, number: int, movable: frozenset[str]) -> bool:
        """Return whether a member could get more partitions, or has one that another member could have."""
        possible = sum(self._topics[topic] for topic in self._wanted[number])
        mine = self._assigned[number]
        return len(mine) < possible or any(partition.topic in movable for partition in mine)

    def _imbalance(self, assigned: Sequence[Mapping[TopicPartition, None]]) -> int:
        """Return the sum of the differences over all pairs of members that may change."""
        counts = sorted(len(assigned[number]) for _, number in self._queue)
        return sum(count * (2 * index - len(counts) + 1) for index, count in enumerate(counts))

    def _move(self, candidates: Sequence[TopicPartition]) -> bool:
        """Move partitions until the assignment is balanced or no move helps; return whether any moved."""
        moved = False
        again = True
        while again and self._moves_left:
            again = False
            for partition in candidates:
                if not self._moves_left or self._is_balanced():
                    break
                destination = self._find_better_owner(partition)
                if destination is not None:
                    self._reassign(partition, destination)
                    again = moved = True
        return moved

    def _find_better_owner(self, partition: TopicPartition) -> int | None:
        """Return a subscriber with at least two partitions fewer than the owner, preferring the earlier owner."""
        most = len(self._assigned[self._owner[partition]]) - 1
        earlier = self._earlier.get(partition)
        if earlier is not None and len(self._assigned[earlier]) < most:
            return earlier
        count, number = self._find_fewest(partition.topic)
        return number if count < most else None

    def _find_fewest(self, topic: str) -> tuple[int, int]:
        entry = self._fewest.get(topic)
        if entry is None:
            subscribers = self._subscribers[topic]
            entry = self._fewest[topic] = next(entry for entry in self._queue if entry[1] in subscribers)
        return entry

    def _is_balanced(self) -> bool:
        """Return whether no partition has a subscriber with at least two fewer than its owner. Cached until the next
        move."""
        if self._balanced is None:
            self._balanced = self._queue[0][0] >= self._queue[-1][0] - 1 or not any(
                self._could_give(count, number) for count, number in reversed(self._queue)
            )
        return self._balanced

    def _could_give(self, count: int, number: int) -> bool:
        if count - 1 <= self._queue[0][0]:
            return False
        return any(self._find_fewest(topic)[0] < count - 1 for topic in self._held[number])

    def _reassign(self, partition: TopicPartition, destination: int) -> None:
        self._moves_left -= 1
        partition = self._moves.instead(partition, self._owner[partition], destination)
        source = self._owner[partition]
        self._requeue(source, -1)
        self._requeue(destination, 1)
        self._moves.record(partition, source, destination)
        del self._assigned[source][partition]
        self._assigned[destination][partition] = None
        self._owner[partition] = destination
        self._held[destination][partition.topic] += 1
        self._held[source][partition.topic] -= 1
        if not self._held[source][partition.topic]:
            del self._held[source][partition.topic]
        self._fewest.clear()
        self._balanced = None

    def _requeue(self, number: int, change: int) -> None:
        count = len(self._assigned[number])
        del self._queue[bisect_left(self._queue, (count, number))]
        insort(self._queue, (count + change, number))
