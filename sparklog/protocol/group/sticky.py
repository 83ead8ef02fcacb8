"""The sticky assignors: balanced, and as much as possible stays where it is.

The rules are those of Kafka's ``AbstractStickyAssignor``, without racks:

* What a member says it owns counts if the partition exists. Of two members that claim the same partition the one of
  the later generation is right; if both are of the same generation neither is, and the partition goes to anybody.
* If all members subscribe to the same topics, each gets ``partitions // members`` or one more, and keeps of its own up
  to that (``_equal_subscriptions``).
* Else every partition goes to the subscriber that has the fewest, and then partitions move one at a time from a member
  to a subscriber that has at least two less, until none can (``_Balancer``).

What Kafka gets wrong is done rightly:

* Kafka looks whether the topic of an owned partition exists, not whether the partition does. Here partitions that no
  longer exist are nobody's.
* Kafka passes over a member without topics if it happens to come first, takes the subscriptions for equal, and gives it
  partitions. Here the subscriptions differ.
* Kafka gives partitions back to their owner of an earlier generation without asking whether it still subscribes to the
  topic, or fails. Here all is done again without such claims if a member would be left with such a partition.

Nothing shows that Kafka's way of moving partitions always ends, and this runs wherever the state of a group is read: it
stops after ``_MOVES_PER_PARTITION`` times as many moves as there are partitions, wherever it has got to. Thousands of
random groups needed at most one per partition.

Pure. Not for: when to rebalance, or waiting until a partition was given up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from sparklog.protocol.group.subscriptions import Subscription, java_sorted, partition_hash, slot, slots, table_order
from sparklog.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]

_MOVES_PER_PARTITION = 20


class Claims(NamedTuple):
    """Who owns what, after contradictions were resolved.

    ``owned`` has each member in the order of the assignor; its partitions are the keys of a dict, in order.
    ``contested`` are partitions that two members of one generation claimed.
    """

    owned: dict[str, dict[TopicPartition, None]]
    contested: set[TopicPartition]


def assign(
    topics: Mapping[str, int], members: Mapping[str, Subscription], order: Sequence[str], *, grouped: bool
) -> Assignment:
    """The target of a sticky assignor.

    ``grouped`` says how a member lists what it owns: by topic in the order of a hash table (``sticky``), or sorted
    (``cooperative-sticky``).
    """
    reported = {member: _reported(members[member].owned, topics, grouped) for member in order}
    claims = _resolve(reported, members)
    if _all_equal(members):
        return _equal_subscriptions(topics, claims)
    assigned = _Balancer(topics, members, claims).run()
    if all({one.topic for one in mine} <= set(members[member].topics) for member, mine in assigned.items()):
        return assigned
    return _Balancer(topics, {member: _subscribed(members[member]) for member in order}, claims).run()


def _subscribed(subscription: Subscription) -> Subscription:
    owned = tuple(one for one in subscription.owned if one.topic in subscription.topics)
    return subscription._replace(owned=owned)


def changing_owner(
    target: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, Subscription], order: Sequence[str]
) -> set[TopicPartition]:
    """The partitions of a target that somebody else has to give up before their new owner may have them."""
    claims = _resolve({member: members[member].owned for member in order}, members)
    if _all_equal(members):
        owner = {one: member for member, owned in claims.owned.items() for one in owned if one not in claims.contested}
        moving = {one for member, given in target.items() for one in given if owner.get(one, member) != member}
        return moving | claims.contested
    claimed = set(chain.from_iterable(subscription.owned for subscription in members.values()))
    return {one for member, given in target.items() for one in claimed.intersection(given) - set(members[member].owned)}


def _reported(owned: Sequence[TopicPartition], topics: Mapping[str, int], grouped: bool) -> Sequence[TopicPartition]:
    """The partitions that exist and somebody subscribes to, in the order in which an assignor gets them."""
    existing = [one for one in owned if 0 <= one.partition < topics.get(one.topic, 0)]
    if grouped:
        # Kafka puts a topic into this table ahead of those that are in the same slot.
        found = list(dict.fromkeys(one.topic for one in owned))
        place = {topic: number for number, topic in enumerate(table_order(reversed(found)))}
        return sorted(existing, key=lambda one: place[one.topic])
    place = {topic: number for number, topic in enumerate(java_sorted({one.topic for one in existing}))}
    return sorted(existing, key=lambda one: (place[one.topic], one.partition))


def _resolve(reported: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, Subscription]) -> Claims:
    holder: dict[TopicPartition, str] = {}
    claims = Claims({}, set())
    for member, claimed in reported.items():
        mine = claims.owned[member] = {}
        generation = max(members[member].generation, -1)
        for one in claimed:
            other = holder.get(one)
            if other is None:
                holder[one] = member
                mine[one] = None
                continue
            others = max(members[other].generation, -1)
            if generation < others:
                continue
            claims.owned[other].pop(one, None)
            holder[one] = member
            if generation > others:
                mine[one] = None
            else:
                claims.contested.add(one)
    return claims


def _all_equal(members: Mapping[str, Subscription]) -> bool:
    first, *others = members.values()
    topics = frozenset(first.topics)
    return all(other.topics == first.topics or frozenset(other.topics) == topics for other in others)


def _equal_subscriptions(topics: Mapping[str, int], claims: Claims) -> Assignment:
    """Everybody gets ``least`` partitions, and ``extra`` members one more: first of those that have more already."""
    least, extra = divmod(sum(topics.values()), len(claims.owned))
    names = java_sorted(topics)
    place = {topic: number for number, topic in enumerate(names)}
    assigned: Assignment = {}
    below: list[str] = []
    level: list[str] = []
    for member, owned in claims.owned.items():
        mine = [one for one in owned if one not in claims.contested]
        mine.sort(key=lambda one: (one.partition, place[one.topic]))
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
    _deal([one for one in everything if one not in kept], assigned, least, below, level)
    return assigned


def _deal(
    free: Sequence[TopicPartition], assigned: Assignment, least: int, below: Sequence[str], level: Sequence[str]
) -> None:
    """Give what is free in turn to the members below ``least``, then one each to those that have just that."""
    hungry = deque(java_sorted(below))
    full = deque(java_sorted(level))
    for one in free:
        member = (hungry or full).popleft()
        assigned[member].append(one)
        count = len(assigned[member])
        if count < least:
            hungry.append(member)
        elif count == least:
            full.append(member)


class _Moves:
    """Which partitions of a topic moved from whom to whom in this rebalance, so that no two of them swap places."""

    def __init__(self) -> None:
        self._pair: dict[TopicPartition, tuple[int, int]] = {}
        self._moved: dict[tuple[str, int, int], dict[TopicPartition, None]] = {}
        self._slots: dict[tuple[str, int, int], int] = {}

    def record(self, one: TopicPartition, source: int, destination: int) -> None:
        """``one`` moves; if it moved before that counts as one way from where it was at first."""
        pair = self._pair.pop(one, None)
        if pair is not None:
            self._forget(one, pair)
            source = pair[0]
            if source == destination:
                return
        self._pair[one] = (source, destination)
        key = (one.topic, source, destination)
        moved = self._moved.setdefault(key, {})
        moved[one] = None
        self._slots[key] = max(self._slots.get(key, 0), slots(len(moved)))

    def _forget(self, one: TopicPartition, pair: tuple[int, int]) -> None:
        key = (one.topic, *pair)
        del self._moved[key][one]
        if not self._moved[key]:
            del self._moved[key], self._slots[key]

    def instead(self, one: TopicPartition, source: int, destination: int) -> TopicPartition:
        """What to move in place of ``one``: a partition of its topic that came the opposite way, if there is any."""
        if one in self._pair:
            source = self._pair[one][0]
        key = (one.topic, destination, source)
        came = self._moved.get(key)
        if not came:
            return one
        size = self._slots[key]
        return min(came, key=lambda each: slot(partition_hash(each.topic, each.partition), size))


class _Balancer:
    """The assignment for differing subscriptions. Made for one run; not thread-safe.

    Members are numbers in here, in the order of their ids. ``_queue`` has (partitions, member) of those that may still
    gain or lose some, fewest first; ``_held`` counts the partitions of each member by topic while some move.
    """

    def __init__(self, topics: Mapping[str, int], members: Mapping[str, Subscription], claims: Claims) -> None:
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
            {one: None for one in mine if one.topic in wanted} for mine, wanted in zip(owned, self._wanted, strict=True)
        ]
        self._revoking = any(len(mine) < len(was) for mine, was in zip(self._assigned, owned, strict=True))
        self._owner = {one: number for number, mine in enumerate(self._assigned) for one in mine}
        self._earlier = self._earlier_owners(members, list(claims.owned))
        self._queue = sorted((len(mine), number) for number, mine in enumerate(self._assigned))
        self._held: list[Counter[str]] = []
        self._moves = _Moves()
        self._moves_left = _MOVES_PER_PARTITION * sum(topics.values())
        self._fewest: dict[str, tuple[int, int]] = {}
        self._balanced: bool | None = None

    def _earlier_owners(self, members: Mapping[str, Subscription], order: Sequence[str]) -> dict[TopicPartition, int]:
        """The owner of each partition in the latest generation before the current one."""
        current = max(max(members[name].generation, -1) for name in order)
        found: dict[TopicPartition, tuple[int, int]] = {}
        for name in order:
            generation = max(members[name].generation, -1)
            if generation == current:
                continue
            for one in members[name].owned:
                if one not in found or generation > found[one][0]:
                    found[one] = (generation, self._number[name])
        return {one: number for one, (_, number) in found.items()}

    def run(self) -> Assignment:
        everything = [
            TopicPartition(topic, partition)
            for topic in sorted(java_sorted(self._topics), key=lambda topic: len(self._subscribers[topic]))
            for partition in range(self._topics[topic])
        ]
        free = [one for one in everything if one not in self._owner]
        fresh = not self._owner
        for one in free:
            self._assign(one)
        movable = frozenset(topic for topic, subscribers in self._subscribers.items() if len(subscribers) > 1)
        self._queue = [entry for entry in self._queue if self._may_change(entry[1], movable)]
        may_change = {number for _, number in self._queue}
        self._earlier = {one: number for one, number in self._earlier.items() if number in may_change}
        self._held = [Counter(one.topic for one in mine) for mine in self._assigned]
        before = [dict(mine) for mine in self._assigned]
        if not self._revoking:
            self._move([one for one in free if one.topic in movable])
        moved = self._move([one for one in everything if one.topic in movable])
        if moved and not fresh and self._imbalance(self._assigned) >= self._imbalance(before):
            self._assigned = before
        return {name: list(mine) for name, mine in zip(self._names, self._assigned, strict=True)}

    def _assign(self, one: TopicPartition) -> None:
        """Give a free partition to the subscriber with the fewest."""
        subscribers = self._subscribers[one.topic]
        for place, (count, number) in enumerate(self._queue):
            if number in subscribers:
                del self._queue[place]
                insort(self._queue, (count + 1, number))
                self._assigned[number][one] = None
                self._owner[one] = number
                return

    def _may_change(self, number: int, movable: frozenset[str]) -> bool:
        """Whether a member could get more, or has something that another one could have."""
        possible = sum(self._topics[topic] for topic in self._wanted[number])
        mine = self._assigned[number]
        return len(mine) < possible or any(one.topic in movable for one in mine)

    def _imbalance(self, assigned: Sequence[Mapping[TopicPartition, None]]) -> int:
        """The sum of the differences between the members of each pair that may change."""
        counts = sorted(len(assigned[number]) for _, number in self._queue)
        return sum(count * (2 * place - len(counts) + 1) for place, count in enumerate(counts))

    def _move(self, candidates: Sequence[TopicPartition]) -> bool:
        """Move partitions until all is balanced or no move helps; whether any moved."""
        moved = False
        again = True
        while again and self._moves_left:
            again = False
            for one in candidates:
                if not self._moves_left or self._is_balanced():
                    break
                destination = self._better_owner(one)
                if destination is not None:
                    self._reassign(one, destination)
                    again = moved = True
        return moved

    def _better_owner(self, one: TopicPartition) -> int | None:
        """A subscriber with at least two partitions less than the owner, the owner of an earlier generation first."""
        most = len(self._assigned[self._owner[one]]) - 1
        earlier = self._earlier.get(one)
        if earlier is not None and len(self._assigned[earlier]) < most:
            return earlier
        count, number = self._with_fewest(one.topic)
        return number if count < most else None

    def _with_fewest(self, topic: str) -> tuple[int, int]:
        found = self._fewest.get(topic)
        if found is None:
            subscribers = self._subscribers[topic]
            found = self._fewest[topic] = next(entry for entry in self._queue if entry[1] in subscribers)
        return found

    def _is_balanced(self) -> bool:
        """Whether no partition has a subscriber with at least two less than its owner. Known until the next move."""
        if self._balanced is None:
            self._balanced = self._queue[0][0] >= self._queue[-1][0] - 1 or not any(
                self._could_give(count, number) for count, number in reversed(self._queue)
            )
        return self._balanced

    def _could_give(self, count: int, number: int) -> bool:
        if count - 1 <= self._queue[0][0]:
            return False
        return any(self._with_fewest(topic)[0] < count - 1 for topic in self._held[number])

    def _reassign(self, one: TopicPartition, destination: int) -> None:
        self._moves_left -= 1
        one = self._moves.instead(one, self._owner[one], destination)
        source = self._owner[one]
        self._requeue(source, -1)
        self._requeue(destination, 1)
        self._moves.record(one, source, destination)
        del self._assigned[source][one]
        self._assigned[destination][one] = None
        self._owner[one] = destination
        self._held[destination][one.topic] += 1
        self._held[source][one.topic] -= 1
        if not self._held[source][one.topic]:
            del self._held[source][one.topic]
        self._fewest.clear()
        self._balanced = None

    def _requeue(self, number: int, change: int) -> None:
        count = len(self._assigned[number])
        del self._queue[bisect_left(self._queue, (count, number))]
        insort(self._queue, (count + change, number))
