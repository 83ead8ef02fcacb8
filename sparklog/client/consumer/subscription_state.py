"""The subscription of a consumer: its topics, its partitions, and its position in each.

Three modes exclude each other, as in Kafka: topics by name, topics by pattern (in both the group assigns partitions),
and partitions assigned by the caller. Switching between them needs ``unsubscribe``.

Rules: no storage and no threads here; the consumer's thread owns it. Not for: membership, reading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparklog.errors import IllegalStateError, InvalidArgumentError, InvalidArgumentTypeError, NotAssignedError
from sparklog.log.elapsed import Moment
from sparklog.protocol.names import is_internal_topic, validate_topic_name
from sparklog.threads import Threads
from sparklog.types import OffsetAndMetadata, TopicPartition, as_python, number, whole

if TYPE_CHECKING:
    from sparklog.client.consumer.one_thread import OneThread
    from sparklog.client.consumer.records import ConsumerRecord
    from sparklog.client.deadlines import DeadlineCall

_MOST_LOOKED_UP = 1000
"""offsets that a consumer was told of a partition, and that are remembered; the newest ones."""

_ONE_MODE = "a consumer has either assigned or subscribed partitions; call unsubscribe() first"


class ConsumerRebalanceListener:
    """Called within ``poll`` when the group assigns partitions to a consumer or revokes them.

    In ``on_partitions_revoked`` the consumer still owns the partitions and may commit offsets. In
    ``on_partitions_lost`` other members may own them already, and read again whatever was not committed. Any object
    with these methods will do.

        >>> class Shows(sparklog.ConsumerRebalanceListener):
        ...     def on_partitions_assigned(self, assigned):
        ...         print(*assigned)
        >>> _ = producer.send("orders", b"v").get()
        >>> consumer.subscribe(["orders"], listener=Shows())
        >>> _ = consumer.poll(timeout_ms=10_000)
        orders-0
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Called before these partitions are assigned to other members."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Called after each rebalance with the partitions that were added, which may be none."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Called after these partitions were lost. Calls ``on_partitions_revoked`` by default, as in Kafka."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener:
    """A rebalance listener with coroutines; the rebalance waits for each of them to end."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Called before these partitions are assigned to other members."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Called after each rebalance with the partitions that were added, which may be none."""

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Called after these partitions were lost. Calls ``on_partitions_revoked`` by default, as in Kafka."""
        await self.on_partitions_revoked(lost)


def run_to_end(result: object, guard: OneThread) -> None:
    """Run the result of a listener to its end if it is a coroutine; in another thread, which may use the consumer, if
    this one already has a running event loop."""
    if not isinstance(result, Coroutine):
        return
    import asyncio  # expensive to import, and most consumers do not need it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(result)
    else:
        with Threads(1) as executor:
            executor.submit(guard.lent(partial(asyncio.run, result))).result()


class OffsetOrigin(NamedTuple):
    """Whose offset it is: the id of the topic, empty if unknown, and the timeline of the log
    (``CommitLog.unlinked_jumps``) in which it was found."""

    topic_id: str
    timeline: int


class LookedUp(NamedTuple):
    """Offsets that the caller of a consumer was told, and whose they are. ``offsets`` is None if any may be meant."""

    origin: OffsetOrigin
    offsets: tuple[int, ...] | None


class StartOffset(NamedTuple):
    """The offset to start from in a partition, the committed offset that it comes from, if any, and whose it is."""

    offset: int
    committed: OffsetAndMetadata | None
    origin: OffsetOrigin


class PartitionPosition:
    """The position of a consumer in one partition, and what depends on it; ``position`` is None until it is known.

    ``reset`` is the reset policy that finds it, if not the committed offset; ``search`` is a lookup in progress.
    ``epoch`` is the leader epoch of the last record before it, -1 if unknown. ``topic_id`` is that of the topic whose
    offset it is, empty if unknown: a topic that is created again begins at 0. ``timeline`` is that of the log in which
    the position was found, None if none was. ``reached`` is the highest position before the last move, -1 if there was
    none: the caller may have read the records before it. ``looked_up`` says which offsets the caller has looked up
    since records were returned, None if it has not; ``returned_from`` is the first offset of these records.
    ``kept_at`` is when this consumer has committed the position last, None if it has not.
    """

    __slots__ = (
        "_delivery",
        "committed",
        "epoch",
        "kept_at",
        "looked_up",
        "paused",
        "position",
        "reached",
        "reset",
        "returned_from",
        "search",
        "timeline",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.topic_partition = partition
        self.position: int | None = None
        self.paused = False
        self.reset = ""
        self.epoch = -1
        self.topic_id = ""
        self.timeline: int | None = None
        self.reached = -1
        self.returned_from = 0
        self.looked_up: LookedUp | None = None
        self.committed: int | None = None
        self.kept_at: Moment | None = None
        self.search: DeadlineCall[StartOffset | None] | None = None
        self._delivery = object()

    def move(self, position: int | None, reset: str = "") -> None:
        """Continue from this offset, or from the one that ``reset`` finds."""
        self.reached = self._highest()
        self.position = position
        self.reset = reset
        self.end_delivery()
        if self.search is not None:
            self.search.cancel()
            self.search = None

    def start(self, at: StartOffset) -> None:
        """Continue from where a lookup has found the start."""
        self.move(at.offset)
        self.is_of(at.origin.topic_id)
        self.timeline = at.origin.timeline
        if at.committed is not None:
            self.committed = at.committed.offset
            self.epoch = -1 if at.committed.leader_epoch is None else at.committed.leader_epoch

    def is_of(self, topic_id: str) -> None:
        """Note of which topic the position is now: an offset that was committed of another one says nothing of it."""
        if self.topic_id not in ("", topic_id):
            self.committed, self.reached = None, -1
        self.topic_id, self.looked_up = topic_id, None

    def note_lookup(self, origin: OffsetOrigin, offsets: tuple[int, ...] | None) -> None:
        """Note offsets that the caller is told; None if it is told to seek to any of them."""
        before = self.looked_up
        if before is not None and before.origin == origin:
            kept = before.offsets
            offsets = None if offsets is None or kept is None else (*offsets, *kept)[:_MOST_LOOKED_UP]
        self.looked_up = LookedUp(origin, offsets)

    def find_origin(self, offset: int) -> OffsetOrigin | None:
        """Return what the caller has looked up offsets in, if it seeks to one of them, or to one that it has counted
        from them; None if it seeks to an offset of the topic that it reads. One that it was not told, and that is among
        the records that it got last, is that of a record; in a timeline that was left that of any record it has got."""
        found = self.looked_up
        if found is None:
            return None
        is_told = found.offsets is None or offset in found.offsets
        returned_from = self.returned_from if self.timeline == found.origin.timeline else 0
        return found.origin if is_told or not returned_from <= offset <= self._highest() else None

    def _highest(self) -> int:
        return max(self.reached, -1 if self.position is None else self.position)

    def deliver(self, records: Iterable[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """Yield records, moving the position past each; end when it was moved or ``end_delivery`` was called."""
        self._delivery = delivery = object()  # now: a handler may end it before the first record

        def records_left() -> Iterator[ConsumerRecord]:
            for record in records:
                end = record[3] + 1
                if self._delivery is delivery:  # no signal's handler runs from here to the program that gets the record
                    self.position = end
                    yield record
                else:
                    return

        return records_left()

    def end_delivery(self) -> None:
        """Yield no more of the records that are being delivered."""
        self._delivery = object()


class Subscription:
    """The state of a consumer's subscription. One thread changes it and any may read it: ``positions`` is replaced as a
    whole, so readers see either the old assignment or the new one."""

    def __init__(self, allow_internal: bool = False) -> None:
        self._allow_internal = allow_internal
        self.topics: frozenset[str] | None = None
        self.pattern: re.Pattern[str] | None = None
        self.listener: Any = None
        self.manual = False
        self.left_timeline: int | None = None
        """The timeline in which positions were found that were dropped, until ``poll`` has told the caller."""
        self._match_cache: tuple[re.Pattern[str], int, object, frozenset[str]] | None = None
        self.positions: dict[TopicPartition, PartitionPosition] = {}

    @property
    def automatic(self) -> bool:
        """Return whether the consumer has subscribed to topics, so that its partitions are assigned for it."""
        return self.topics is not None

    @property
    def subscription(self) -> set[str] | None:
        """Return the topics by name; instrumentations for kafka-python read this attribute."""
        return None if self.topics is None else set(self.topics)

    def subscribe(self, topics: Iterable[str], pattern: str | None, listener: object) -> None:
        """Replace the subscription. Raises IllegalStateError, InvalidTopicError, InvalidArgumentError and its
        subclasses."""
        if self.manual:
            raise IllegalStateError(f"subscribe() after assign(): {_ONE_MODE}")
        names = _topic_names(topics)
        if not names and not pattern:
            raise InvalidArgumentError("subscribe() takes topics or a pattern; unsubscribe() ends a subscription")
        if names and pattern:
            raise IllegalStateError("subscribe() takes topics or a pattern, not both")
        for method in ("on_partitions_revoked", "on_partitions_assigned"):
            if listener is not None and not callable(getattr(listener, method, None)):
                raise InvalidArgumentTypeError(
                    f"the listener {listener!r} has no {method}(); use a ConsumerRebalanceListener"
                )
        self.pattern = _compile(pattern) if pattern else None
        self.topics = frozenset(names)
        self.listener = listener

    def matching(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the subscribed topics among those that exist. The match is cached per collection."""
        pattern, matched = self.pattern, self._match_cache  # another thread may replace them
        if pattern is None:
            return self.topics or frozenset()
        if matched is None or matched[:2] != (pattern, id(topics)):
            matches = (name for name in topics if pattern.match(name))
            allowed = frozenset(name for name in matches if self._allow_internal or not is_internal_topic(name))
            matched = self._match_cache = (pattern, id(topics), topics, allowed)
        return matched[3]

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the partitions assigned by hand; those that stay keep their positions. Raises as ``subscribe``."""
        if self.automatic:
            raise IllegalStateError(f"assign() after subscribe(): {_ONE_MODE}")
        wanted = {as_partition(partition) for partition in partitions}
        for partition in wanted:
            validate_topic_name(partition.topic)
        self.manual = True
        self.remove(self.positions.keys() - wanted)
        self.add(wanted)

    def unsubscribe(self) -> None:
        """Drop all topics and partitions."""
        self.remove(list(self.positions))
        self.topics, self.pattern, self.listener, self.manual, self.left_timeline = None, None, None, False, None

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        added = {
            partition: PartitionPosition(partition)
            for partition in sorted(partitions)
            if partition not in self.positions
        }
        self.positions = {**self.positions, **added}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        removed = set(partitions) & self.positions.keys()
        before = self.positions
        self.positions = {partition: position for partition, position in before.items() if partition not in removed}
        for partition in removed:
            before[partition].move(None)

    def at(self, partition: object) -> PartitionPosition:
        """Return the position in an assigned partition. Raises NotAssignedError."""
        topic_partition = as_partition(partition)
        position = self.positions.get(topic_partition)
        if position is None:
            raise NotAssignedError(
                f"{topic_partition} is not assigned to this consumer; assign() it, or poll until its group assigns it",
                **topic_partition._asdict(),
            )
        return position

    def at_all(self, partitions: Iterable[object]) -> list[PartitionPosition]:
        """Return the positions in these partitions, or in all assigned ones. Raises NotAssignedError."""
        positions = [self.at(partition) for partition in partitions] or list(self.positions.values())
        if not positions:
            raise NotAssignedError("no partitions are assigned; assign() some, or poll until the group assigns some")
        return positions


def as_partition(given: object) -> TopicPartition:
    """Return a (topic, partition) as a TopicPartition. Raises InvalidArgumentTypeError."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, partition = given
        if type(given) is TopicPartition and type(topic) is str and type(partition) is int and partition >= 0:
            return given
        found = whole(partition)
        if isinstance(topic, str) and found is not None and found >= 0:
            return TopicPartition(as_python(topic), found)
    raise InvalidArgumentTypeError(f"invalid TopicPartition: {given!r}; give a topic name and a number from 0")


def as_offset(partition: TopicPartition, offset: object) -> int:
    """Return a checked offset. Raises InvalidArgumentError."""
    found = whole(offset)
    if found is None or not 0 <= found < 2**63:
        raise InvalidArgumentError(
            f"invalid offset {offset!r} for {partition}: give a whole number from 0, or call seek_to_beginning() or "
            "seek_to_end()",
            **partition._asdict(),
        )
    return found


def as_partitions(given: object) -> list[TopicPartition]:
    """Return a collection of partitions as a list. Raises InvalidArgumentTypeError."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgumentTypeError(f"give a list of TopicPartitions, not {given!r}")
    return [as_partition(partition) for partition in given]


def _topic_names(topics: object) -> list[str]:
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, Iterable):
        raise InvalidArgumentTypeError(f"subscribe() takes a list of topic names, not {topics!r}")
    return [validate_topic_name(as_python(name)) for name in names]


def _compile(pattern: object) -> re.Pattern[str]:
    try:
        return re.compile(pattern)  # type: ignore[call-overload,no-any-return]
    except (re.error, TypeError) as error:
        raise InvalidArgumentError(f"invalid regular expression {pattern!r}: {error}") from error


def as_committed_offset(partition: TopicPartition, at: object) -> OffsetAndMetadata:
    """Return an offset to commit; its metadata and leader epoch may be None. Raises InvalidArgumentError and its
    subclasses."""
    if isinstance(at, bool) or whole(at) is not None:
        return OffsetAndMetadata(as_offset(partition, at))
    if isinstance(at, tuple) and 1 <= len(at) <= 3:
        offset, metadata, epoch = OffsetAndMetadata(*at)
        epoch = epoch if whole(epoch) is None else whole(epoch)
        return OffsetAndMetadata(as_offset(partition, offset), as_python(metadata), epoch)
    raise InvalidArgumentTypeError(
        f"invalid offset {at!r} for {partition}: give an OffsetAndMetadata", **partition._asdict()
    )


def as_seconds(timeout_ms: object) -> float:
    """Return milliseconds as seconds. Raises InvalidArgumentError, InvalidArgumentTypeError."""
    given = number(timeout_ms)
    if given is None:
        raise InvalidArgumentTypeError(f"timeout_ms={timeout_ms!r}: give milliseconds from 0, or math.inf")
    if not given >= 0:
        raise InvalidArgumentError(f"timeout_ms={timeout_ms!r}: give milliseconds from 0, or math.inf")
    return min(given / 1000, math.inf)


def as_positive(name: str, value: object) -> int:
    """Return a checked whole number from 1. Raises InvalidArgumentError, InvalidArgumentTypeError."""
    given = whole(value)
    if given is None:
        raise InvalidArgumentTypeError(f"{name}={value!r}: give a whole number from 1")
    if given < 1:
        raise InvalidArgumentError(f"{name}={value!r}: give a whole number from 1")
    return given
