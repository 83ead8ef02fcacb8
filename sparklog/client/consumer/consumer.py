"""``Consumer`` reads topics, alone or in a group, with the interface of kafka-python's ``KafkaConsumer``.

    with Consumer("orders", bootstrap_servers="/data/log", group_id="billing") as consumer:
        for record in consumer:
            print(record.offset, record.value)

Its arguments are in ``client.arguments`` and ``config``. ``poll_batches`` returns Arrow record batches.

Rules: only one thread at a time may use a consumer, and only in the process that created it; other calls raise
IllegalStateError. Any thread may call ``close``, ``wakeup`` and the methods that only report (``assignment``,
``subscription``, ``paused``, ``highwater``, ``group_metadata``, ``metrics``). Positions advance when records are
returned.

Not for: which member owns which partition (``coordinator.group_member``), reading (``fetcher``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeVar

from sparklog.client.consumer.config import DEFAULT_CONFIG, consumer_config
from sparklog.client.consumer.fetcher import FetchedChunk, ReadAhead
from sparklog.client.consumer.group_session import CommitFuture, GroupSession
from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.offset_calls import PositionCalls
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.one_thread import OneThread
from sparklog.client.consumer.positions import Positions
from sparklog.client.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    DeserializerFailure,
    RecordBatches,
    to_consumer_records,
)
from sparklog.client.consumer.subscription_state import (
    PartitionPosition,
    Subscription,
    as_committed_offset,
    as_partition,
    as_partitions,
    as_positive,
    as_seconds,
)
from sparklog.client.consumer.unknown_topics import UnknownTopics
from sparklog.client.deadlines import Repeatable, time_left
from sparklog.client.representation import Facts, Shown, join_names
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentTypeError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    RootReplacedError,
    SparklogError,
)
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC, is_internal_topic
from sparklog.protocol.state import State
from sparklog.retry import is_transient, pauses_until, retry
from sparklog.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparklog.client.arguments import ConsumerArguments

MIN_POLL_SECONDS = 0.5
"""Time that ``poll`` may take even with a shorter timeout, for work it depends on: refreshing the state, joining."""

ALL_BUFFERED = None
"""``max_records`` of ``poll_batches``: everything that has been read ahead."""


Delivered = TypeVar("Delivered")


class _Before(NamedTuple):
    """Where a partition was before a call moved its position past records that the call returns."""

    moved: PartitionPosition
    position: int | None
    epoch: int
    topic_id: str
    timeline: int | None


class Consumer(Shown, PositionCalls):
    """Reads records of topics. Not thread-safe; see the module for the methods that any thread may call.

    Errors are those of ``sparklog.errors``. Any call may raise StorageError and CorruptMetadataError; those that read
    records also DataLossError, CorruptRecordError and CorruptIndexError. ``config`` holds all arguments.

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     _ = producer.send("orders", b"v")
        >>> with sparklog.Consumer("orders", bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        ...     record = next(consumer)
        >>> record.value
        b'v'
    """

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = DEFAULT_CONFIG

    def __init__(self, *topics: str, **configs: Unpack[ConsumerArguments]) -> None:
        """Subscribe to ``topics``, if any are given.

        Raises InvalidClientConfigurationError, ClusterNotFoundError, InvalidTopicError.
        """
        self._config, self._coordinator = consumer_config(configs)
        self.config = self._config.shown
        self._clock = self._coordinator.log.clock
        self._thread_guard = OneThread()
        self._subscription = Subscription(self._config.allow_internal)
        self._metrics = ConsumerMetrics(self._clock, self._subscription, self._config)
        self._reader = ConsumerReader(self._coordinator)
        self._read_ahead = ReadAhead(self._coordinator, ConsumerReader(self._coordinator), self._config, self._metrics)
        self._refresh_call = Repeatable(self._coordinator.refresh, "reading the commit log", self._metrics.lock)
        self._positions = Positions(
            self._coordinator,
            self._reader,
            self._read_ahead,
            self._subscription,
            self._config,
            self._refresh_call.call_within,
        )
        self._unknown_topics = UnknownTopics(
            self._coordinator, self._subscription, self._config.client_id, self._config.group_id
        )
        self._group = None
        if self._config.group_id:
            self._group = GroupSession(
                self._coordinator, self._config, self._subscription, self._read_ahead, self._metrics, self._thread_guard
            )
        self._closing = False
        self._assigned_at: State | None = None
        self._undelivered: list[FetchedChunk] = []
        self._delivery: list[_Before] | None = None
        self._is_delivering = False
        """Whether a call is taking records, in whose middle this one may be called: by a handler or a deserializer."""
        self._closed_whole = False
        self._iterator: Iterator[ConsumerRecord] | None = None
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; after an exception without a commit, since the record that caused it may not have been processed."""
        self.close(autocommit=kind is None)

    def __copy__(self) -> NoReturn:
        raise TypeError("a Consumer cannot be copied, since its copy would close it: create another one")

    def __del__(self) -> None:
        """Stop the threads of a consumer that was not closed. As in kafka-python nothing is committed, and the group
        removes the member after its session timeout. Takes no locks, since the garbage collector runs anywhere."""
        for component in (getattr(self, name, None) for name in ("_read_ahead", "_group", "_positions")):
            if component is not None:
                component.abandon()

    def _facts(self) -> Facts:
        subscription = self._subscription
        return {
            "root": self._coordinator.store.root,
            "group_id": self._config.group_id or None,
            "topics": join_names(subscription.topics) if subscription.topics else None,
            "pattern": subscription.pattern.pattern if subscription.pattern is not None else None,
            "assigned": join_names([str(partition) for partition in subscription.positions]) or "none",
            "state": "closed" if self._thread_guard.closed else None,
        }

    # -- what to read

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe to topics by name, or to all that match a regular expression. Replaces the previous subscription.

        The group assigns the partitions; without a group this consumer reads all of them. Topics may be created later.
        Raises IllegalStateError after ``assign`` or with both topics and a pattern, InvalidArgumentError with neither,
        and InvalidTopicError.

            >>> consumer.subscribe(["orders"])
            >>> sorted(consumer.subscription())
            ['orders']
        """
        with self._thread_guard.enter():
            self._subscription.subscribe(topics, pattern, listener)
            self._positions.stale = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without assignment by a group. Partitions that were assigned before keep their
        positions. An empty list is the same as ``unsubscribe()``. With ``enable_auto_commit`` the positions so far are
        committed first, within ``request_timeout_ms``.

        Raises IllegalStateError after ``subscribe``, InvalidArgumentTypeError.

            >>> consumer.assign([sparklog.TopicPartition("orders", 0)])
            >>> [str(partition) for partition in consumer.assignment()]
            ['orders-0']
        """
        partitions = as_partitions(partitions)
        if not partitions:
            return self.unsubscribe()
        with self._thread_guard.enter():
            self._put_back()
            if self._group is not None and self._subscription.manual:
                self._group.commit_last(self._config.auto_commit, self._config.request_timeout)
            self._positions.stale = True  # first, as the forgetting, for an interrupt in between
            self._read_ahead.forget(*(self._subscription.positions.keys() - partitions))
            self._subscription.assign(partitions)

    def unsubscribe(self) -> None:
        """Commit changed positions (with ``enable_auto_commit``), leave the group, and drop all topics and partitions.

        Waits at most ``request_timeout_ms`` for the storage. A member that could not leave by then is removed by the
        group after its session timeout.
        """
        with self._thread_guard.enter():
            self._put_back()
            if self._group is not None:
                left = time_left(self._config.request_timeout)
                self._group.commit_last(self._config.auto_commit, left())
                if self._subscription.automatic:
                    self._group.leave(left())
            self._read_ahead.forget(*self._subscription.positions)
            self._subscription.unsubscribe()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions assigned now. Any thread may call this."""
        self._thread_guard.check_process()
        return set(self._subscription.positions)

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, or None without a subscription. Any thread may call this."""
        self._thread_guard.check_process()
        if not self._subscription.automatic:
            return None
        return set(self._subscription.matching(self._coordinator.state.topics))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``; they stay assigned. Raises IllegalStateError."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again. Raises IllegalStateError."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Sequence[TopicPartition], paused: bool) -> None:
        with self._thread_guard.enter():
            self._put_back()
            for position in [self._subscription.at(partition) for partition in partitions]:
                self._positions.pause(position, paused)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused. Any thread may call this."""
        self._thread_guard.check_process()
        return {partition for partition, position in self._subscription.positions.items() if position.paused}

    # -- records

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records by partition as soon as there are any; none after ``timeout_ms`` or if nothing is assigned.

        Returns at most ``max_records`` (default ``max_poll_records``), and waits up to ``fetch_max_wait_ms`` to reach
        that number if the log has as many; a timeout of 0 returns what has been read ahead. Without ``update_offsets``
        the next call returns the same records again. Takes part in rebalances of the group and calls the listener.

        Raises NoOffsetForPartitionError, OffsetOutOfRangeError, FencedInstanceIdError, KafkaError if the listener
        failed, and unchanged whatever a deserializer raises; the next call then starts at the same record.

            >>> _ = producer.send("orders", b"v").get()
            >>> consumer.subscribe(["orders"])
            >>> for partition, records in consumer.poll(timeout_ms=10_000).items():
            ...     print(partition, [record.value for record in records])
            orders-0 [b'v']
        """
        limit = self._config.max_poll_records if max_records is None else as_positive("max_records", max_records)
        seconds = as_seconds(timeout_ms)
        outer: list[bool] = []
        try:
            records = self._deliver(outer, self._put_back, lambda: self._poll_records(seconds, limit, update_offsets))
            self._delivery = None  # no signal's handler runs from here to the return
            return records
        finally:
            self._is_delivering = outer[0] if outer else self._is_delivering

    def _poll_records(
        self, seconds: float, limit: int, update_offsets: bool
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        ends: list[tuple[FetchedChunk, int]] = []
        chunks = self._poll(seconds, limit, self._config.fetch_max_wait)
        for number, chunk in enumerate(chunks):
            if not chunk.batches.batch.num_rows:
                ends.append((chunk, chunk.batches.end_offset))
                continue
            deserialized = self._deserialize_first(chunks[number:], chunks[:number])
            if deserialized:
                records.setdefault(chunk.stream.topic_partition, []).extend(deserialized)
                ends.append((chunk, deserialized[-1].offset + 1))
            if len(deserialized) < chunk.batches.batch.num_rows:
                break
        self._note_positions(chunk for chunk, _ in ends)
        for chunk, end in ends:
            self._advance(chunk, end, update_offsets)
        return records

    def poll_batches(self, timeout_ms: float = 0, max_records: int | None = ALL_BUFFERED) -> list[RecordBatches]:
        """As ``poll``, but return Arrow record batches, not deserialized; by default all that has been read ahead.

        >>> _ = producer.send("orders", b"v").get()
        >>> consumer.assign([sparklog.TopicPartition("orders", 0)])
        >>> for batches in consumer.poll_batches(timeout_ms=10_000):
        ...     print(batches.partition, batches.batch.column("value").to_pylist())
        0 [b'v']
        """
        limit = None if max_records is None else as_positive("max_records", max_records)
        seconds = as_seconds(timeout_ms)
        outer: list[bool] = []
        try:
            batches = self._deliver(outer, self._put_back, lambda: self._poll_tables(seconds, limit))
            self._delivery = None  # as in poll
            return batches
        finally:
            self._is_delivering = outer[0] if outer else self._is_delivering

    def _poll_tables(self, seconds: float, limit: int | None) -> list[RecordBatches]:
        chunks = self._poll(seconds, limit)
        batches = [chunk.batches for chunk in chunks if chunk.batches.batch.num_rows]
        self._note_positions(chunks)
        for chunk in chunks:
            self._advance(chunk, chunk.batches.end_offset, True)
        return batches

    def _deliver(self, outer: list[bool], prepare: Callable[[], None], take: Callable[[], Delivered]) -> Delivered:
        """Return what ``take`` returns after ``prepare``; the caller sets ``_delivery`` to None as it gets it, and then
        ``_is_delivering`` to what is added to ``outer``, if anything: a handler may be called as this returns.

        Raises IllegalStateError in a deserializer or a handler of a signal, while another call takes records.
        """
        with self._thread_guard.enter():
            if self._is_delivering and self._delivery is not None:
                raise IllegalStateError("records are being taken by the call of this consumer that this one is in")
            self._undo_interrupted()
            prepare()
            outer.append(self._is_delivering)
            self._is_delivering = True
            return take()

    def has_caught_up(self) -> bool:
        """Return whether all records of the assigned partitions were returned, as of the last check for commits."""
        with self._thread_guard.enter():
            return not (self._undelivered or self._positions.stale) and self._read_ahead.has_caught_up()

    def _note_positions(self, chunks: Iterable[FetchedChunk]) -> None:
        """Note where these partitions are before their records are returned, for ``_undo_interrupted``."""
        positions = (self._subscription.positions.get(chunk.stream.topic_partition) for chunk in chunks)
        delivery = [_Before(at, at.position, at.epoch, at.topic_id, at.timeline) for at in positions if at is not None]
        self._delivery = delivery
        for before in delivery:
            before.moved.returned_from = before.position or 0

    def _undo_interrupted(self) -> None:
        """If a call was interrupted (Ctrl-C, an alarm) after it took records, which its caller did not get, return to
        the positions before it, and read from there again."""
        if self._delivery is None or self._is_delivering:
            return
        for before in reversed(self._delivery):
            before.moved.position, before.moved.epoch = before.position, before.epoch
            before.moved.topic_id, before.moved.timeline = before.topic_id, before.timeline
        self._undelivered = []
        for at in self._subscription.positions.values():
            at.end_delivery()
            if at.position is not None:
                self._positions.read(at)
        self._positions.stale = True
        self._delivery = None

    def _poll(self, timeout: float, limit: int | None, gather: float = 0.0) -> list[FetchedChunk]:
        """Return chunks as soon as there are any, after waiting up to ``gather`` seconds more for further ones."""
        deadline = self._clock.monotonic() + timeout
        work_deadline = deadline + max(MIN_POLL_SECONDS - timeout, 0)
        if self._group is not None:
            self._group.set_polling(True)
        try:
            while True:
                seen = self._coordinator.state
                pause = self._update(work_deadline)
                left = max(deadline - self._clock.monotonic(), 0)
                chunks = [] if self._waits_for_group() else self._take(limit, min(gather, left))
                if not chunks:
                    self._delivery = None
                left = deadline - self._clock.monotonic()
                if any(chunk.batches.batch.num_rows for chunk in chunks) or left <= 0 or self._closing:
                    return chunks
                for chunk in chunks:  # compaction removed their records: only the positions advance
                    self._advance(chunk, chunk.batches.end_offset, True)
                if not chunks and self._read_ahead.wait(seen, min(left, pause)):
                    return chunks
        finally:
            if self._group is not None:
                self._group.set_polling(False)

    def _update(self, work_deadline: float) -> float:
        """Run group and position housekeeping; return the seconds until it is due again."""
        subscription, pause = self._subscription, 60.0

        def left() -> float:  # short steps, so that ``close`` and ``wakeup`` take effect between two of them
            return min(max(work_deadline - self._clock.monotonic(), 0), MIN_POLL_SECONDS)

        try:
            self._leave_timeline(left())
            if self._group is not None:
                pause = self._update_group(self._group, left())
            elif subscription.automatic:
                self._assign_all()
            self._positions.update(left())
            self._unknown_topics.warn()
        except SparklogError as error:
            if not is_transient(error) and not isinstance(error, KafkaTimeoutError):
                raise
            self._read_ahead.log_retry(error)
            pause = self._config.retry_backoff
        self._read_ahead.start()
        return pause

    def _leave_timeline(self, seconds: float) -> None:
        """Tell the program, by an error or by another membership, that what it has may be of a former timeline."""
        try:
            self._positions.leave_timeline()
        except RootReplacedError:
            self._positions.note_told()
            raise
        if self._subscription.left_timeline is not None:
            is_told_by_error = self._positions.needs_seek or not self._subscription.automatic
            if self._group is not None and not is_told_by_error:
                self._group.rejoin("commits were removed before it had read them", seconds)
            self._positions.note_told()

    def _update_group(self, group: GroupSession, seconds: float) -> float:
        before = self._subscription.positions
        try:
            if self._subscription.automatic:
                group.update(seconds)
        finally:  # also if a rebalance changed them and a later step failed
            if self._subscription.positions is not before:
                self._positions.stale = True
        group.raise_listener_error()
        group.run_callbacks()
        group.auto_commit()
        return min(self._config.auto_commit_interval, self._config.session_timeout_ms / 1000)

    def _assign_all(self) -> None:
        """Assign all partitions of the subscribed topics to this consumer, which has no group."""
        state = self._coordinator.state
        if state is self._assigned_at and not self._positions.stale:
            return
        topics = [*state.topics, CONSUMER_OFFSETS_TOPIC]
        wanted = {
            TopicPartition(name, number)
            for name in self._subscription.matching(topics)
            for number in range(self._reader.partitions(name))
        }
        assigned = set(self._subscription.positions)
        if wanted != assigned:
            self._positions.stale = True  # first, for an interrupt in between
            self._read_ahead.forget(*(assigned - wanted))
            self._subscription.remove(assigned - wanted)
            self._subscription.add(wanted)
        self._assigned_at = state  # last, for an interrupt in between

    def _waits_for_group(self) -> bool:
        """Return whether a join or a rebalance is in progress; until it is over ``poll`` returns no records, as in
        kafka-python."""
        return self._group is not None and self._subscription.automatic and self._group.is_rebalancing

    def _take(self, limit: int | None, seconds: float) -> list[FetchedChunk]:
        if seconds and limit is not None:
            self._read_ahead.gather(limit, seconds, self._config.max_check_age)
        self._delivery = []  # until the caller has the records
        try:
            return self._read_ahead.take(limit)
        except OffsetOutOfRangeError as error:
            self._positions.reset_out_of_range(error)
            return []

    def _deserialize_first(
        self, chunks: Sequence[FetchedChunk], before: Sequence[FetchedChunk] = ()
    ) -> list[ConsumerRecord]:
        """Return the records of the first chunk, up to one whose deserializer fails; the rest is given back then.

        The error is raised if no other record comes ``before`` the failed one. If the program is interrupted in a
        deserializer, all chunks are given back, including those ``before``.
        """
        config, batches = self._config, chunks[0].batches
        try:
            try:
                return to_consumer_records(batches, config.deserialize_key, config.deserialize_value)
            except DeserializerFailure as failed:
                good, failure = batches.rows_before(failed.offset), failed
            head = batches.slice(0, good)
            records = to_consumer_records(head, config.deserialize_key, config.deserialize_value) if good else []
        except BaseException:
            all_chunks = [*before, *chunks]
            self._give_back(all_chunks, all_chunks[0].batches.base_offset)
            raise
        self._give_back(chunks, failure.offset)
        if not records and not before:
            raise failure.error
        return records

    def _give_back(self, chunks: Sequence[FetchedChunk], offset: int) -> None:
        """Return these chunks to the fetch buffer, the first one from ``offset`` on."""
        for later in reversed(chunks[1:]):
            self._read_ahead.give_back(later, later.batches.base_offset)
        self._read_ahead.give_back(chunks[0], offset)

    def _advance(self, chunk: FetchedChunk, end: int, update_offsets: bool) -> None:
        position = self._subscription.positions.get(chunk.stream.topic_partition)
        if position is None:
            return
        if not update_offsets:
            self._positions.read(position)
            return
        position.position = end
        position.is_of(chunk.stream.topic_id)
        if chunk.batches.batch.num_rows:
            self._measure(chunk, chunk.batches.rows_before(end))
            position.epoch = chunk.batches.leader_epoch

    def _measure(self, chunk: FetchedChunk, records: int) -> None:
        """Record metrics of the first ``records`` records of a chunk, which are returned to the caller."""
        end = self._reader.end_offset(*chunk.stream.topic_partition)
        self._metrics.record_consumed(chunk.batches, chunk.size, records, end or 0)

    # -- iteration

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._iterate() if type(self).__next__ is _NEXT else self  # an instrumented __next__ has to be called

    def __next__(self) -> ConsumerRecord:
        if self._iterator is None:
            self._iterator = self._iterate()
        try:
            # Not by next(): a signal's handler may run as that returns, when the position is past the record.
            for record in self._iterator:
                return record
        except BaseException:
            self._iterator = None
            raise
        self._iterator = None
        raise StopIteration

    def _iterate(self) -> Iterator[ConsumerRecord]:
        """Yield records, moving the position past each; end after ``consumer_timeout_ms`` without one."""
        return chain.from_iterable(self._deliveries())

    def _deliveries(self) -> Iterator[Iterator[ConsumerRecord]]:
        while not self._thread_guard.closed:
            outer: list[bool] = []
            try:
                fetched = self._deliver(outer, self._drop_finished, self._next_records)
                self._delivery = None  # as in poll
            finally:
                self._is_delivering = outer[0] if outer else self._is_delivering
            if fetched is None:
                return
            yield fetched

    def _next_records(self) -> Iterator[ConsumerRecord] | None:
        """Return the next records of one partition; the other chunks of the poll stay in ``_undelivered``."""
        while True:
            if not self._undelivered:
                self._undelivered = self._poll(self._config.consumer_timeout, self._config.max_poll_records)
            if not self._undelivered:
                return None
            self._delivery = []
            chunks, self._undelivered = self._undelivered, []
            first = chunks[0]
            if not first.batches.batch.num_rows:
                self._advance(first, first.batches.end_offset, True)
                self._undelivered = chunks[1:]
                continue
            records = self._deserialize_first(chunks)
            position = self._subscription.positions.get(first.stream.topic_partition)
            if position is not None and records:
                position.returned_from = records[0].offset
                self._measure(first, len(records))
                position.epoch = first.batches.leader_epoch
                position.is_of(first.stream.topic_id)
                if len(records) < first.batches.batch.num_rows:  # the others have been given back
                    chunks = [first._replace(batches=first.batches.slice(0, len(records)))]
                self._undelivered = chunks
                return position.deliver(records)
            self._undelivered = chunks[1:]

    def _drop_finished(self) -> None:
        """Drop the first undelivered chunk once it is consumed; if an iteration ended early, give all chunks back."""
        if not self._undelivered:
            return
        first = self._undelivered[0]
        position = self._subscription.positions.get(first.stream.topic_partition)
        if position is None or (position.position or 0) >= first.batches.end_offset:
            self._undelivered = self._undelivered[1:]
        else:
            self._put_back()

    def _put_back(self) -> None:
        """Return unread records of the current iteration to the fetch buffer."""
        self._undo_interrupted()
        if not self._undelivered or self._is_delivering:
            return
        self._delivery = []  # until all are back
        chunks, self._undelivered = self._undelivered, []
        position = self._subscription.positions.get(chunks[0].stream.topic_partition)
        offset = chunks[0].batches.end_offset
        if position is not None:
            offset = offset if position.position is None else position.position
            position.end_delivery()
        self._give_back(chunks, offset)
        self._delivery = None

    # -- commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets, or the position in every partition, and return once they are durable.

        Raises IllegalStateError without a group, CommitFailedError if the group has assigned the partitions to others,
        FencedInstanceIdError, UnknownTopicTimeoutError.

            >>> _ = producer.send("orders", b"v").get()
            >>> first = sparklog.TopicPartition("orders", 0)
            >>> consumer.assign([first])
            >>> record = next(consumer)
            >>> consumer.commit()
            >>> consumer.committed(first)
            1
        """
        with self._thread_guard.enter():
            self._undo_interrupted()
            group = self._require_group("commit")
            to_commit = group.prepare(self._offsets_to_commit(offsets, group))
            deadline = self._clock.monotonic() + self._timeout_seconds(timeout_ms)
            pauses = pauses_until(deadline, self._config.retry_backoff, self._clock)
            retry(
                lambda: group.commit(to_commit, max(deadline - self._clock.monotonic(), 0)),
                self._clock,
                pauses,
                is_transient,
            )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object] | None = None,
    ) -> CommitFuture:
        """Commit without waiting. A later call of the consumer calls ``callback`` with the offsets, and an exception or
        True."""
        with self._thread_guard.enter():
            self._undo_interrupted()
            group = self._require_group("commit_async")
            to_commit = group.prepare(self._offsets_to_commit(offsets, group))
            return group.commit_async(to_commit, callback or self._config.commit_callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group, for ``send_offsets_to_transaction``; without a group
        ``group_id`` is None. Any thread may call this."""
        self._thread_guard.check_process()
        return ConsumerGroupMetadata(None) if self._group is None else self._group.metadata()

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, group: GroupSession
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            positions = group.positions()
            for before in self._delivery or ():  # the caller, a deserializer or a handler, has not got these records
                if before.position is None:
                    positions.pop(before.moved.topic_partition, None)
                elif before.moved.topic_partition in positions:
                    positions[before.moved.topic_partition] = OffsetAndMetadata(before.position, "", before.epoch)
            return positions
        if not isinstance(offsets, Mapping):
            raise InvalidArgumentTypeError("offsets is a dict of OffsetAndMetadata by TopicPartition")
        return {
            as_partition(partition): as_committed_offset(as_partition(partition), at)
            for partition, at in offsets.items()
        }

    # -- the cluster

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics, except internal ones."""
        with self._thread_guard.enter():
            return {name for name in self._refresh(timeout_ms).topics if not is_internal_topic(name)}

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic; an empty set if it does not exist."""
        with self._thread_guard.enter():
            self._refresh(timeout_ms)
            return set(range(self._reader.partitions(topic)))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> bool:
        """Return True: a consumer is created only on a cluster that exists."""
        return True

    def bootstrap_connected(self) -> bool:
        """Return True: a consumer is created only on a cluster that exists."""
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Return the metrics as values by group and name, as in kafka-python; see docs/clients.md.

            consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]

        With ``raw`` return metric objects by ``MetricName``, including those of single topics; their ``value()`` is
        the current value. Empty with ``metrics_enabled=False``. Does not access the storage; any thread may call this.
        """
        self._thread_guard.check_process()
        return self._metrics.raw() if raw else self._metrics.values()

    # -- closing

    def wakeup(self) -> None:
        """Interrupt a ``poll`` or an iteration in another thread, or else the next one. Any thread may call this."""
        self._thread_guard.check_process()
        self._read_ahead.wake()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit changed positions (with ``enable_auto_commit`` and ``autocommit``), leave the group, stop reading.

        Waits at most ``timeout_ms``, by default ``request_timeout_ms``, for all of it.

        Any thread may call this; a ``poll`` in progress returns first. Calling it again does nothing, nor does calling
        it in a forked child. After an interrupt of a call, the next one does what is left.
        """
        if self._thread_guard.inherited:
            return
        left = time_left(self._config.request_timeout if timeout_ms is None else as_seconds(timeout_ms))
        self._closing = True
        self._read_ahead.wake()
        guard = self._thread_guard
        with guard.enter_to_close():
            if self._closed_whole or guard.closing:  # a listener calls it during ``close``
                return
            try:
                guard.closing, guard.closed = threading.get_ident(), True
                self._is_delivering = False  # what a call that this interrupts has taken may never be processed
                self._put_back()
                if self._group is not None:
                    self._group.close(autocommit, left())
            finally:
                guard.closing = 0
                self._read_ahead.close(left())
                self._positions.close(left())
                self._metrics.close()
                self._config.close_deserializers()
            self._closed_whole = True  # not after an interrupt: the next call does the rest


_NEXT = Consumer.__next__
