"""What a consumer subscribes to, which partitions it has, and where in each it is.

Three ways exclude each other, as in Kafka: topics by name, topics by pattern (both with the group deciding on
partitions), and partitions given by the caller. Changing from one to another needs ``unsubscribe``.

Rules: no storage and no threads here; the consumer's thread owns it. Not for: membership, reading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sparklog.client.representation import Facts, join_names
from sparklog.errors import IllegalStateError, InvalidArgumentError, InvalidArgumentTypeError, NotAssignedError
from sparklog.protocol.names import is_internal_topic, validate_topic_name
from sparklog.types import OffsetAndMetadata, TopicPartition


class ConsumerRebalanceListener:
    """Told, within ``poll``, of partitions that a group gives to a consumer and takes from it.

    ``on_partitions_revoked``: they are still its own, and offsets may be committed. ``on_partitions_lost``: they may be
    others' already, so what was read and not committed is read again by them. Any object with these methods will do.

        >>> class Shows(sparklog.ConsumerRebalanceListener):
        ...     def on_partitions_assigned(self, assigned):
        ...         print(*assigned)
        >>> _ = producer.send("orders", b"v").get()
        >>> consumer.subscribe(["orders"], listener=Shows())
        >>> _ = consumer.poll(timeout_ms=10_000)
        orders-0
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """These partitions are about to go to other members."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These partitions were added; called after each rebalance, also with none."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """These partitions are gone already. By default the same as revoked, as in Kafka."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener:
    """The same with coroutines, each of which has ended when the rebalance continues."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """These partitions are about to go to other members."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These partitions were added; called after each rebalance, also with none."""

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """These partitions are gone already. By default the same as revoked, as in Kafka."""
        await self.on_partitions_revoked(lost)


def finish(answer: object) -> None:
    """Run what a listener answered to its end, if it is a coroutine; in a thread of its own where this one has a loop
    already."""
    if not isinstance(answer, Coroutine):
        return
    import asyncio  # costs more to import than most consumers need it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(answer)
    else:
        with ThreadPoolExecutor(1) as executor:
            executor.submit(asyncio.run, answer).result()


class PartitionPosition:
    """Where a consumer is in one partition. ``position`` is None until it is known.

    ``reset`` is how it is to be found where not by the committed offset. ``guard`` is another object after each change
    that makes records in hand invalid.
    """

    __slots__ = ("committed", "epoch", "guard", "paused", "place", "position", "reset")

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.position: int | None = None
        self.paused = False
        self.reset = ""
        self.epoch = -1
        self.committed: int | None = None
        self.guard = object()

    def move(self, position: int | None, reset: str = "") -> None:
        """Go on from this offset, or from what ``reset`` finds."""
        self.position = position
        self.reset = reset
        self.guard = object()


class Subscription:
    """The state of a consumer's subscription. One thread changes it, and any may read: ``positions`` is replaced as a
    whole, so that others see one assignment or the next."""

    def __init__(self, allow_internal: bool = False) -> None:
        self._allow_internal = allow_internal
        self.topics: frozenset[str] | None = None
        self.pattern: re.Pattern[str] | None = None
        self.listener: Any = None
        self.manual = False
        self._matched: tuple[re.Pattern[str], int, object, frozenset[str]] | None = None
        self.positions: dict[TopicPartition, PartitionPosition] = {}

    def facts(self, root: str, group_id: str, is_closed: bool) -> Facts:
        """What is shown of a consumer with it; any thread may ask."""
        assigned = [f"{place.topic}-{place.partition}" for place in list(self.positions)]
        return {
            "root": root,
            "group_id": group_id or None,
            "topics": join_names(self.topics) if self.topics else None,
            "pattern": self.pattern.pattern if self.pattern is not None else None,
            "assigned": join_names(assigned) or "none",
            "state": "closed" if is_closed else None,
        }

    @property
    def automatic(self) -> bool:
        """Whether a group is to decide on the partitions."""
        return self.topics is not None

    @property
    def subscription(self) -> set[str] | None:
        """The topics by name, as instrumentations for kafka-python ask for them."""
        return None if self.topics is None else set(self.topics)

    def subscribe(self, topics: Iterable[str], pattern: str | None, listener: object) -> None:
        """Replace the subscription. Raises IllegalStateError, InvalidTopicError, InvalidArgumentError and its kind."""
        if self.manual:
            raise IllegalStateError(
                "subscribe() after assign(): a consumer has either its own partitions or those a group gives it; "
                "call unsubscribe() first"
            )
        named = _names(topics)
        if not named and not pattern:
            raise InvalidArgumentError("subscribe() takes topics or a pattern; unsubscribe() ends a subscription")
        if named and pattern:
            raise IllegalStateError("subscribe() takes topics or a pattern, one of the two")
        for method in ("on_partitions_revoked", "on_partitions_assigned"):
            if listener is not None and not callable(getattr(listener, method, None)):
                raise InvalidArgumentTypeError(
                    f"the listener {listener!r} has no {method}(); use a ConsumerRebalanceListener"
                )
        self.pattern = _compiled(pattern) if pattern else None
        self.topics = frozenset(named)
        self.listener = listener

    def matching(self, topics: Iterable[str]) -> frozenset[str]:
        """What is subscribed to, given which topics exist. The same collection is gone through once."""
        pattern, matched = self.pattern, self._matched  # another thread may replace them
        if pattern is None:
            return self.topics or frozenset()
        if matched is None or matched[:2] != (pattern, id(topics)):
            found = (name for name in topics if pattern.match(name))
            allowed = frozenset(name for name in found if self._allow_internal or not is_internal_topic(name))
            matched = self._matched = (pattern, id(topics), topics, allowed)
        return matched[3]

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the caller's own partitions; positions of those that stay are kept. Raises as ``subscribe``."""
        if self.automatic:
            raise IllegalStateError(
                "assign() after subscribe(): a consumer has either its own partitions or those a group gives it; "
                "call unsubscribe() first"
            )
        wanted = {as_partition(one) for one in partitions}
        for place in wanted:
            validate_topic_name(place.topic)
        self.manual = True
        self.remove(self.positions.keys() - wanted)
        self.add(wanted)

    def unsubscribe(self) -> None:
        """Have no topics and no partitions."""
        self.remove(list(self.positions))
        self.topics, self.pattern, self.listener, self.manual = None, None, None, False

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        added = {place: PartitionPosition(place) for place in sorted(partitions) if place not in self.positions}
        self.positions = {**self.positions, **added}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions) & self.positions.keys()
        before = self.positions
        self.positions = {place: position for place, position in before.items() if place not in gone}
        for place in gone:
            before[place].move(None)

    def at(self, partition: object) -> PartitionPosition:
        """The position in a partition that is assigned. Raises NotAssignedError."""
        place = as_partition(partition)
        found = self.positions.get(place)
        if found is None:
            raise NotAssignedError(
                f"{place} is not assigned to this consumer; assign() it, or poll until its group gives it",
                topic=place.topic,
                partition=place.partition,
            )
        return found

    def chosen(self, partitions: Iterable[object]) -> list[PartitionPosition]:
        """The positions in these partitions, or in all that are assigned. Raises NotAssignedError."""
        found = [self.at(one) for one in partitions] or list(self.positions.values())
        if not found:
            raise NotAssignedError("no partitions are assigned; assign() some, or poll until a group gives some")
        return found


def as_partition(given: object) -> TopicPartition:
    """A (topic, partition) as a TopicPartition. Raises InvalidArgumentTypeError."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, partition = given
        if isinstance(topic, str) and isinstance(partition, int) and not isinstance(partition, bool) and partition >= 0:
            return given if isinstance(given, TopicPartition) else TopicPartition(topic, partition)
    raise InvalidArgumentTypeError(f"invalid TopicPartition: {given!r}; give a topic's name and a number from 0")


def as_offset(place: TopicPartition, offset: object) -> int:
    """An offset to read from. Raises InvalidArgumentError."""
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise InvalidArgumentError(
            f"offset {offset!r} of {place}: give a whole number from 0; seek_to_beginning() and seek_to_end() go to "
            "the ends",
            topic=place.topic,
            partition=place.partition,
        )
    return offset


def as_partitions(given: object) -> list[TopicPartition]:
    """Any collection of partitions. Raises InvalidArgumentTypeError."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgumentTypeError(f"give a list of TopicPartitions, not {given!r}")
    return [as_partition(one) for one in given]


def _names(topics: object) -> list[str]:
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, Iterable):
        raise InvalidArgumentTypeError(f"subscribe() takes a list of topics' names, not {topics!r}")
    return [validate_topic_name(name) for name in names]


def _compiled(pattern: object) -> re.Pattern[str]:
    if isinstance(pattern, re.Pattern):
        return pattern
    try:
        return re.compile(pattern)  # type: ignore[call-overload,no-any-return]
    except (re.error, TypeError) as error:
        raise InvalidArgumentError(f"invalid regular expression {pattern!r}: {error}") from error


def committable(place: TopicPartition, at: object) -> OffsetAndMetadata:
    """An offset to commit; no text and no leader epoch may be None. Raises InvalidArgumentError and its kind."""
    if isinstance(at, int):
        return OffsetAndMetadata(as_offset(place, at))
    if isinstance(at, tuple) and 1 <= len(at) <= 3:
        found = OffsetAndMetadata(*at)
        return found._replace(offset=as_offset(place, found.offset))
    raise InvalidArgumentTypeError(
        f"the offset of {place} is {at!r}: give an OffsetAndMetadata", topic=place.topic, partition=place.partition
    )


def as_seconds(timeout_ms: object) -> float:
    """Milliseconds as seconds. Raises InvalidArgumentError, InvalidArgumentTypeError."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise InvalidArgumentTypeError(f"timeout_ms={timeout_ms!r}: give milliseconds from 0, or math.inf")
    if not timeout_ms >= 0:
        raise InvalidArgumentError(f"timeout_ms={timeout_ms!r}: give milliseconds from 0, or math.inf")
    return min(timeout_ms / 1000, math.inf)


def positive(name: str, value: object) -> int:
    """A whole number from 1. Raises InvalidArgumentError, InvalidArgumentTypeError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentTypeError(f"{name}={value!r}: give a whole number from 1")
    if value < 1:
        raise InvalidArgumentError(f"{name}={value!r}: give a whole number from 1")
    return value
