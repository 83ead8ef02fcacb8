"""``Consumer``: reads topics, alone or in a group, with the interface of kafka-python's ``KafkaConsumer``.

    with Consumer("orders", bootstrap_servers="/data/log", group_id="billing") as consumer:
        for record in consumer:
            print(record.offset, record.value)

Its arguments are in ``arguments`` and ``consumer_config``. ``poll_batches`` hands out Arrow record batches.

Rules: one thread at a time may use a consumer: IllegalStateError otherwise, as after a fork. Any thread may call
``close`` and ``wakeup``, and ask what it has (``assignment``, ``subscription``, ``paused``, ``highwater``,
``group_metadata``, ``metrics``). Positions move when records are handed out.

Not for: who owns what in a group (``coordinator.membership``), reading (``fetcher``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sparklog.client.consumer.config import DEFAULT_CONFIG, consumer_config
from sparklog.client.consumer.fetcher import ReadAhead, Taken
from sparklog.client.consumer.group_session import CommitFuture, GroupSession
from sparklog.client.consumer.metrics import metrics_of_consumer
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
    as_partition,
    as_partitions,
    as_seconds,
    committable,
    positive,
)
from sparklog.client.consumer.unknown_topics import UnknownTopics
from sparklog.client.deadlines import Repeatable
from sparklog.client.representation import Facts, Shown
from sparklog.errors import (
    CommitConflictError,
    IndeterminateCommitError,
    InvalidArgumentTypeError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
)
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC, is_internal_topic
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparklog.client.arguments import ConsumerArguments

_TRANSIENT = (StorageUnavailableError, IndeterminateCommitError, CommitConflictError)
"""What ``poll`` waits out when it happens in managing the group: the same is tried again."""

POLL_PATIENCE_SECONDS = 0.5
"""How long ``poll`` may take with a shorter timeout, for what it cannot do without: a look at the log, or to join."""

ALL_WAITING = None
"""``max_records`` of ``poll_batches``: whatever has been read ahead."""


class Consumer(Shown, PositionCalls):
    """Reads records of topics. See this module for what it may be used from.

    Errors are those of ``sparklog.errors``. Any call may raise StorageError and CorruptMetadataError; those that read
    records DataLossError, CorruptRecordError and CorruptIndexError as well. ``config`` has all arguments.

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     _ = producer.send("orders", b"v")
        >>> with sparklog.Consumer("orders", bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        ...     record = next(consumer)
        >>> record.value
        b'v'
    """

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = DEFAULT_CONFIG

    def __init__(self, *topics: str, **configs: Unpack[ConsumerArguments]) -> None:
        """``topics`` are subscribed to.

        Raises InvalidClientConfigurationError, ClusterNotFoundError, InvalidTopicError.
        """
        self._config, self._coordinator = consumer_config(configs)
        self.config = self._config.shown
        self._clock = self._coordinator.log.clock
        self._alone = OneThread()
        self._subscription = Subscription(self._config.allow_internal)
        self._metrics = metrics_of_consumer(self._clock, self._subscription, self._config, configs)
        self._reader = ConsumerReader(self._coordinator)
        self._read_ahead = ReadAhead(
            self._coordinator,
            ConsumerReader(self._coordinator),
            partition_bytes=self._config.max_partition_fetch_bytes,
            total_bytes=self._config.fetch_max_bytes,
            backoff=self._config.tail_backoff,
            backoff_max=self._config.tail_backoff_max,
            metrics=self._metrics,
        )
        self._newest = Repeatable(self._coordinator.refresh, "reading the commit log")
        self._positions = Positions(
            self._coordinator,
            self._reader,
            self._read_ahead,
            self._subscription,
            self._config,
            self._newest.call_within,
        )
        self._unknown = UnknownTopics(
            self._coordinator, self._subscription, self._config.client_id, self._config.group_id
        )
        self._group = None
        if self._config.group_id:
            both = self._subscription, self._read_ahead
            self._group = GroupSession(self._coordinator, self._config, *both, self._metrics)
        self._closing = False
        self._assigned_at: State | None = None
        self._in_hand: list[Taken] = []
        self._iterator: Iterator[ConsumerRecord] | None = None
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close. After an exception without a commit, since the record that it came from may not be processed."""
        self.close(autocommit=kind is None)

    def __del__(self) -> None:
        """Nobody has this consumer any more: its threads end. Nothing is committed, as in kafka-python, and the group
        finds out by the session timeout. Takes no locks, since the garbage collector runs anywhere."""
        for part in (getattr(self, name, None) for name in ("_read_ahead", "_group", "_positions")):
            if part is not None:
                part.abandon()

    def _facts(self) -> Facts:
        return self._subscription.facts(self._coordinator.store.root, self._config.group_id, self._alone.closed)

    # -- what to read

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe to topics by name, or to all whose name matches a regular expression, instead of what was before.

        A group decides on the partitions; without a group this consumer has all of them. Topics may come later.
        Raises IllegalStateError after ``assign`` and for both, InvalidArgumentError for neither, InvalidTopicError.

            >>> consumer.subscribe(["orders"])
            >>> sorted(consumer.subscription())
            ['orders']
        """
        with self._alone:
            self._subscription.subscribe(topics, pattern, listener)
            self._positions.stale = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions instead of those before, without a group's doing. Those that stay go on as they are.
        None at all is ``unsubscribe()``. What was read is committed first (``enable_auto_commit``), within
        ``request_timeout_ms``.

        Raises IllegalStateError after ``subscribe``, InvalidArgumentTypeError.

            >>> consumer.assign([sparklog.TopicPartition("orders", 0)])
            >>> [str(partition) for partition in consumer.assignment()]
            ['orders-0']
        """
        partitions = as_partitions(partitions)
        if not partitions:
            return self.unsubscribe()
        with self._alone:
            self._put_back()
            if self._group is not None and self._subscription.manual:
                self._group.commit_last(self._config.auto_commit, self._config.request_timeout)
            before = set(self._subscription.positions)
            self._subscription.assign(partitions)
            self._forget(before - set(self._subscription.positions))
            self._positions.stale = True

    def unsubscribe(self) -> None:
        """Commit what has changed (with ``enable_auto_commit``), leave the group, have no topics and no partitions.

        Where the storage does not answer, each of the first two is given up after ``request_timeout_ms``: the session
        timeout takes this member out of the group then.
        """
        with self._alone:
            self._put_back()
            if self._group is not None:
                self._group.commit_last(self._config.auto_commit, self._config.request_timeout)
                if self._subscription.automatic:
                    self._group.leave_quietly(self._config.request_timeout)
            self._forget(set(self._subscription.positions))
            self._subscription.unsubscribe()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._read_ahead.forget(place)

    def assignment(self) -> set[TopicPartition]:
        """The partitions it has now. Any thread may ask."""
        self._alone.check_process()
        return set(self._subscription.positions)

    def subscription(self) -> set[str] | None:
        """The topics it subscribes to, None where it does not. Any thread may ask."""
        self._alone.check_process()
        if not self._subscription.automatic:
            return None
        return set(self._subscription.matching(self._coordinator.state.topics))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until ``resume``; positions and ownership stay. Raises IllegalStateError."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these again. Raises IllegalStateError."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Sequence[TopicPartition], paused: bool) -> None:
        with self._alone:
            self._put_back()
            for position in [self._subscription.at(one) for one in partitions]:
                position.paused = paused
                self._read_ahead.pause(position.place, paused)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused. Any thread may ask."""
        self._alone.check_process()
        return {place for place, position in self._subscription.positions.items() if position.paused}

    # -- records

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, as soon as there are any, and none after ``timeout_ms`` or where nothing is assigned.

        At most ``max_records`` (default ``max_poll_records``), and so many where as many are there to be read within
        ``fetch_max_wait_ms``; with a timeout of 0 what has been read ahead. Without ``update_offsets`` the same
        ones come again. Takes part in the group's rebalances and calls the listener. Raises NoOffsetForPartitionError,
        OffsetOutOfRangeError, FencedInstanceIdError, KafkaError where the listener failed, and as it is what a
        deserializer raises: the same record comes next.

            >>> _ = producer.send("orders", b"v").get()
            >>> consumer.subscribe(["orders"])
            >>> for partition, records in consumer.poll(timeout_ms=10_000).items():
            ...     print(partition, [record.value for record in records])
            orders-0 [b'v']
        """
        most = self._config.max_poll_records if max_records is None else positive("max_records", max_records)
        with self._alone:
            records: dict[TopicPartition, list[ConsumerRecord]] = {}
            ends: list[tuple[Taken, int]] = []
            found = self._poll(as_seconds(timeout_ms), most, self._config.fetch_max_wait)
            for number, taken in enumerate(found):
                if not taken.batches.batch.num_rows:
                    ends.append((taken, taken.batches.end_offset))
                    continue
                made = self._records_of(found[number:], found[:number])
                if made:
                    records.setdefault(taken.stream.place, []).extend(made)
                    ends.append((taken, made[-1].offset + 1))
                if len(made) < taken.batches.batch.num_rows:
                    break
            for taken, end in ends:
                self._advance(taken, end, update_offsets)
            return records

    def poll_batches(self, timeout_ms: float = 0, max_records: int | None = ALL_WAITING) -> list[RecordBatches]:
        """The same as Arrow record batches, not deserialised; ``max_records`` default: all that has been read ahead.

        >>> _ = producer.send("orders", b"v").get()
        >>> consumer.assign([sparklog.TopicPartition("orders", 0)])
        >>> for found in consumer.poll_batches(timeout_ms=10_000):
        ...     print(found.partition, found.batch.column("value").to_pylist())
        0 [b'v']
        """
        most = None if max_records is None else positive("max_records", max_records)
        with self._alone:
            found = self._poll(as_seconds(timeout_ms), most)
            for taken in found:
                self._advance(taken, taken.batches.end_offset, True)
            return [taken.batches for taken in found if taken.batches.batch.num_rows]

    def _poll(self, timeout: float, most: int | None, gather: float = 0.0) -> list[Taken]:
        """What there is, as soon as there is something; but then wait up to ``gather`` seconds for the rest of it."""
        self._put_back()
        deadline = self._clock.monotonic() + timeout
        patience = deadline + max(POLL_PATIENCE_SECONDS - timeout, 0)
        if self._group is not None:
            self._group.polling(True)
        try:
            while True:
                seen = self._coordinator.state
                pause = self._update(patience)
                left = max(deadline - self._clock.monotonic(), 0)
                taken = [] if self._waits_for_group() else self._gather(most, min(gather, left))
                left = deadline - self._clock.monotonic()
                if any(one.batches.batch.num_rows for one in taken) or left <= 0 or self._closing:
                    return taken
                for one in taken:  # compaction took out what was to be read: there is nothing to return of it
                    self._advance(one, one.batches.end_offset, True)
                if not taken and self._read_ahead.wait(seen, min(left, pause)):
                    return taken
        finally:
            if self._group is not None:
                self._group.polling(False)

    def _update(self, patience: float) -> float:
        """Do what is due beside reading; how many seconds until something is due again."""
        subscription, pause = self._subscription, 60.0

        def left() -> float:  # in parts, so that ``close`` and ``wakeup`` find it between two of them
            return min(max(patience - self._clock.monotonic(), 0), POLL_PATIENCE_SECONDS)

        try:
            if self._group is not None:
                pause = self._update_group(self._group, left())
            elif subscription.automatic:
                self._assign_all()
            self._positions.update(left())
            self._unknown.warn()
        except (*_TRANSIENT, KafkaTimeoutError) as error:
            self._read_ahead.log_retry(error)
            pause = self._config.retry_backoff
        self._read_ahead.start()
        return pause

    def _update_group(self, group: GroupSession, seconds: float) -> float:
        before = self._subscription.positions
        try:
            if self._subscription.automatic:
                group.update(seconds)
        finally:  # also where it took part in one thing, and the next one failed
            if self._subscription.positions is not before:
                self._positions.stale = True
        group.raise_listener_error()
        group.call_back()
        group.auto_commit()
        return min(self._config.auto_commit_interval, self._config.session_timeout_ms / 1000)

    def _assign_all(self) -> None:
        """Without a group all partitions are this consumer's."""
        state = self._coordinator.state
        if state is self._assigned_at and not self._positions.stale:
            return
        self._assigned_at = state
        topics = [*state.topics, CONSUMER_OFFSETS_TOPIC]
        wanted = {
            TopicPartition(name, number)
            for name in self._subscription.matching(topics)
            for number in range(self._reader.partitions(name))
        }
        known = set(self._subscription.positions)
        if wanted != known:
            self._forget(known - wanted)
            self._subscription.remove(known - wanted)
            self._subscription.add(wanted)
            self._positions.stale = True

    def _waits_for_group(self) -> bool:
        """Whether it is not known yet whose the partitions are: nothing is returned meanwhile, as in kafka-python."""
        return self._group is not None and self._subscription.automatic and self._group.waits

    def _gather(self, most: int | None, seconds: float) -> list[Taken]:
        if seconds and most is not None:
            self._read_ahead.gather(most, seconds, self._config.look_age)
        try:
            return self._read_ahead.take(most)
        except OffsetOutOfRangeError as error:
            self._positions.reset_after(error)
            return []

    def _records_of(self, found: Sequence[Taken], before: Sequence[Taken] = ()) -> list[ConsumerRecord]:
        """The records of the first of these, up to one that cannot be deserialised; what follows is given back then.

        That record's error is raised where no other record comes ``before`` it. Where the program is interrupted in a
        deserializer, all of these are given back, with those before.
        """
        config, batches = self._config, found[0].batches
        try:
            try:
                return to_consumer_records(batches, config.deserialize_key, config.deserialize_value)
            except DeserializerFailure as failed:
                good, failure = batches.rows_before(failed.offset), failed
            part = batches.slice(0, good)
            made = to_consumer_records(part, config.deserialize_key, config.deserialize_value) if good else []
        except BaseException:
            everything = [*before, *found]
            self._give_back(everything, everything[0].batches.base_offset)
            raise
        self._give_back(found, failure.offset)
        if not made and not before:
            raise failure.error
        return made

    def _give_back(self, found: Sequence[Taken], offset: int) -> None:
        """Put back all of these, the first from ``offset`` on."""
        for later in reversed(found[1:]):
            self._read_ahead.give_back(later, later.batches.base_offset)
        self._read_ahead.give_back(found[0], offset)

    def _advance(self, taken: Taken, end: int, update_offsets: bool) -> None:
        position = self._subscription.positions.get(taken.stream.place)
        if position is None:
            return
        if not update_offsets:
            self._read_ahead.read_from(position.place, position.position or 0, position.paused)
            return
        position.position = end
        if taken.batches.batch.num_rows:
            self._measure(taken, taken.batches.rows_before(end))
            position.epoch = taken.batches.leader_epoch

    def _measure(self, taken: Taken, records: int) -> None:
        """So many of these records are handed out."""
        end = self._reader.end_offset(*taken.stream.place)
        self._metrics.handed_out(taken.batches, taken.size, records, end or 0)

    # -- iteration

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._iterate() if type(self).__next__ is _NEXT else self  # where it is wrapped, call it

    def __next__(self) -> ConsumerRecord:
        if self._iterator is None:
            self._iterator = self._iterate()
        try:
            return next(self._iterator)
        except BaseException:
            self._iterator = None
            raise

    def _iterate(self) -> Iterator[ConsumerRecord]:
        """Records one by one; each moves the position past itself. Ends after ``consumer_timeout_ms`` without one."""
        while not self._alone.closed:
            with self._alone:
                found = self._next_records()
            if found is None:
                return
            position, records = found
            guard = position.guard
            for record in records:
                if position.guard is not guard:
                    break
                position.position = record[3] + 1
                yield record

    def _next_records(self) -> tuple[PartitionPosition, list[ConsumerRecord]] | None:
        """The next records of one partition; the rest of what a poll gave stays in hand."""
        self._drop_finished()
        while True:
            if not self._in_hand:
                self._in_hand = self._poll(self._config.consumer_timeout, self._config.max_poll_records)
            if not self._in_hand:
                return None
            found, self._in_hand = self._in_hand, []
            if not found[0].batches.batch.num_rows:
                self._advance(found[0], found[0].batches.end_offset, True)
                self._in_hand = found[1:]
                continue
            records = self._records_of(found)
            position = self._subscription.positions.get(found[0].stream.place)
            if position is not None and records:
                self._measure(found[0], len(records))
                position.epoch = found[0].batches.leader_epoch
                if len(records) < found[0].batches.batch.num_rows:  # the others have been given back
                    batches = found[0].batches
                    found = [found[0]._replace(batches=batches.slice(0, len(records)))]
                self._in_hand = found
                return position, records
            self._in_hand = found[1:]

    def _drop_finished(self) -> None:
        """Go on with what comes after the records in hand, or with them where an iteration was left early."""
        if not self._in_hand:
            return
        first = self._in_hand[0]
        position = self._subscription.positions.get(first.stream.place)
        if position is None or (position.position or 0) >= first.batches.end_offset:
            self._in_hand = self._in_hand[1:]
        else:
            self._put_back()

    def _put_back(self) -> None:
        """What iteration has in hand and has not returned is read again by whoever asks next."""
        found, self._in_hand = self._in_hand, []
        if not found:
            return
        position = self._subscription.positions.get(found[0].stream.place)
        offset = found[0].batches.end_offset
        if position is not None:
            offset = offset if position.position is None else position.position
            position.guard = object()
        self._give_back(found, offset)

    # -- commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets, or the position in every partition, and return when they are durable.

        Raises IllegalStateError without a group, CommitFailedError where the group has given the partitions to others,
        FencedInstanceIdError, UnknownTopicTimeoutError.

            >>> _ = producer.send("orders", b"v").get()
            >>> first = sparklog.TopicPartition("orders", 0)
            >>> consumer.assign([first])
            >>> record = next(consumer)
            >>> consumer.commit()
            >>> consumer.committed(first)
            1
        """
        with self._alone:
            group = self._grouped("commit")
            given = self._offsets(offsets, group)
            self._retrying(lambda seconds: group.commit(given, seconds), timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object] | None = None,
    ) -> CommitFuture:
        """The same without waiting. The callback gets the offsets, and an exception or True, in a later call."""
        with self._alone:
            group = self._grouped("commit_async")
            return group.commit_async(self._offsets(offsets, group), callback or self._config.commit_callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, for ``send_offsets_to_transaction``; without a group, nobody. Any thread
        may ask."""
        self._alone.check_process()
        return ConsumerGroupMetadata(None) if self._group is None else self._group.metadata()

    def _offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, group: GroupSession
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return group.positions()
        if not isinstance(offsets, Mapping):
            raise InvalidArgumentTypeError("offsets is a dict of OffsetAndMetadata by TopicPartition")
        return {as_partition(place): committable(as_partition(place), at) for place, at in offsets.items()}

    def _retrying(self, action: Callable[[float], None], timeout_ms: float | None) -> None:
        """Try again what the storage did not answer, for as long as the caller's patience lasts."""
        seconds = self._config.api_timeout if timeout_ms is None else as_seconds(timeout_ms)
        deadline = self._clock.monotonic() + seconds
        while True:
            try:
                return action(max(deadline - self._clock.monotonic(), 0))
            except _TRANSIENT:
                if self._clock.monotonic() + self._config.retry_backoff >= deadline:
                    raise
                self._clock.sleep(self._config.retry_backoff)

    # -- the cluster

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """The topics that exist, but for internal ones."""
        with self._alone:
            return {name for name in self._refresh(timeout_ms).topics if not is_internal_topic(name)}

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """The numbers of a topic's partitions, none where it does not exist."""
        with self._alone:
            self._refresh(timeout_ms)
            return set(range(self._reader.partitions(topic)))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> bool:
        """Whether the cluster is there: always, once the consumer has been made."""
        return True

    def bootstrap_connected(self) -> bool:
        """Whether the cluster was found: always, once the consumer has been made."""
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What the consumer measures: values by group and name, as in kafka-python; see docs/clients.md.

            consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]

        With ``raw`` objects by ``MetricName``, also of single topics, whose ``value()`` is the value at that time.
        Empty with ``metrics_enabled=False``. Asks no storage; any thread may call it.
        """
        self._alone.check_process()
        return self._metrics.raw() if raw else self._metrics.values()

    # -- closing

    def wakeup(self) -> None:
        """End a ``poll`` or an iteration of another thread, or the next one. Any thread may call this."""
        self._alone.check_process()
        self._read_ahead.wake()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit what has changed (with ``enable_auto_commit`` and ``autocommit``), leave the group, stop reading.

        Any thread may call this: a ``poll`` that is under way returns first. Doing it twice is fine. In a forked child
        it does nothing.
        """
        if self._alone.inherited:
            return
        seconds = self._config.request_timeout if timeout_ms is None else as_seconds(timeout_ms)
        self._closing = True
        self._read_ahead.wake()
        self._alone.enter(wait=True)
        try:
            if self._alone.closed:
                return
            self._put_back()
            self._alone.closed = True
            if self._group is not None:
                self._group.close(autocommit, seconds)
        finally:
            self._read_ahead.close(seconds)
            self._positions.close(seconds)
            self._metrics.close()
            self._config.close_deserializers()
            self._alone.__exit__()


_NEXT = Consumer.__next__
