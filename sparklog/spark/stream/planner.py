"""What a streaming read asks the cluster: where it starts, what is new, and which segments a batch is made of.

Lives in the process that Spark keeps for a query, and holds the state of the cluster from trigger to trigger: a look
for news is one refresh of the commit log, two small reads.

Rules: ``stream_offsets`` decides; here decisions meet the cluster, the clock and ``failOnDataLoss``. A consumer group
is told what was read for others to see; the query itself never reads it, and no failure to tell it stops a query.
Not for: Spark's classes (``stream_reader``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.errors import SparklogError
from sparklog.protocol.state import BrokerState, State
from sparklog.spark.broker_stores import readable_stores
from sparklog.spark.options import Subscription
from sparklog.spark.source.filters import Pruning
from sparklog.spark.source.planning import Plan, PlannedRange, announced_read, plan, planned_range, select
from sparklog.spark.source.ranges import split_ranges
from sparklog.spark.stream.offsets import (
    Loss,
    PartitionLog,
    StreamOffsets,
    available,
    batch_ranges,
    begins,
    check_cluster,
    check_target,
    loss_message,
    parse,
    prorated,
    raise_losses,
)
from sparklog.spark.stream.options import StreamOptions
from sparklog.store.base import Store
from sparklog.types import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)


class StreamPlanner:
    """One query's view of the cluster. Not thread-safe.

    Raises ClusterNotFoundError and others as ``open_cluster`` when it is made.
    """

    def __init__(self, options: StreamOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        address = options.source.address
        self._coordinator: Coordinator = shared_cluster(address.root, address.storage_options)
        self._stores: dict[int, Store] = {}
        self._brokers: Mapping[int, BrokerState] | None = None
        self._target: StreamOffsets | None = None
        self._latest: StreamOffsets | None = None
        self._last_batch_at: float | None = None
        self._reported: list[Loss] = []
        self._missing: list[str] = []

    @property
    def stores(self) -> Mapping[int, Store]:
        """The stores of all brokers."""
        brokers = self._coordinator.state.brokers
        if self._brokers is not brokers:
            self._brokers = brokers
            self._stores = readable_stores(self._coordinator)
        return self._stores

    # -- offsets

    def initial(self) -> dict[str, Any]:
        """Where a new query starts, without ids (see ``stream_offsets``).

        Raises InvalidOptionError, DataLossError, OffsetOutOfRangeError and UnknownTopicOrPartitionError where the
        starting offsets do not fit the topics.
        """
        coordinator, source = self._coordinator, self._options.source
        starts = plan(coordinator, lambda fetcher: Plan(coordinator, fetcher, source, Pruning()).starts())
        return StreamOffsets({**starts, **self._committed(starts)}).to_json()

    def _committed(self, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, if the query is to start there; offsets of a topic created again do not count."""
        state = self._coordinator.state
        group = state.groups.get(self._options.start_of_group)
        if group is None:
            return {}
        logs = _logs_of(state, of)
        known = {TopicPartition(one.topic, one.partition): one for one in group.offsets.values()}
        found = {where: known[where] for where in logs if where in known}
        found = {where: one for where, one in found.items() if one.topic_id == logs[where].topic_id}
        start = StreamOffsets({where: one.offset for where, one in found.items()})
        starts, losses = begins(start, {where: logs[where] for where in found})
        self._lose(losses)
        return starts

    def latest(self, raw_start: Mapping[str, Any], most: int | None, read_all: bool = False) -> dict[str, Any]:
        """Where the next batch ends: about ``most`` records after the start, or at what there is.

        The start itself if there is nothing new, or less than ``minOffsetsPerTrigger``; ``read_all`` ignores that.
        Raises DataLossError, InvalidRequestError for another cluster's start, UnknownTopicOrPartitionError.
        """
        start = self._parsed(raw_start)
        state = self._coordinator.refresh()
        if start.cluster_id:  # Spark's own ``commit`` comes a batch later, and never for the last one
            self.commit(raw_start)
        logs = self._logs(state, {where.topic for where in start.partitions})
        if self._target is not None:
            check_target(self._target, logs)
            known = {*self._target.partitions, *start.partitions}
            logs = {where: log for where, log in logs.items() if where in known}
        starts, losses = begins(start, logs)
        self._lose(losses)
        ends = {where: log.end for where, log in logs.items()}
        self._latest = self._offsets(ends, logs)
        if self._target is not None:
            ends = dict(self._target.partitions)
        if not ends:  # all topics are gone, and that was accepted: nothing to read, nothing to forget
            return dict(raw_start)
        if not read_all and self._target is None and self._is_too_early(available(starts, ends)):
            return dict(raw_start)
        if most is not None:
            ends = prorated(starts, ends, most)
        return self._offsets(ends, logs).to_json()

    def fix_end(self) -> None:
        """For Trigger.AvailableNow: read up to what there is now, whatever comes later."""
        topics = self._options.source.subscription.topic_names
        logs = self._logs(self._coordinator.refresh(), topics)  # what is missing is for ``latest`` to judge
        self._target = self._offsets({where: log.end for where, log in logs.items()}, logs)

    def report(self) -> dict[str, Any] | None:
        """The ends of the logs as of the last ``latest``; None before."""
        return None if self._latest is None else StreamOffsets(self._latest.partitions).to_json()

    def commit(self, raw_end: Mapping[str, Any]) -> None:
        """Commit ``end`` to the consumer group, if there is one and it stands elsewhere."""
        if not self._options.group:
            return
        try:
            end = self._parsed(raw_end)
            offsets = self._uncommitted(end, self._coordinator.state)
            if offsets:
                self._coordinator.commit_offsets(self._options.group, offsets)
        except SparklogError as error:
            logger.warning("consumer group %s was not told what was read: %s", self._options.group, error)

    def _uncommitted(self, end: StreamOffsets, state: State) -> dict[tuple[str, int], int]:
        group = state.groups.get(self._options.group)
        known = {} if group is None else {key: one.offset for key, one in group.offsets.items()}
        found = {}
        for where, offset in end.partitions.items():
            topic = state.topics.get(where.topic)
            if topic is None or end.topic_ids.get(where.topic, topic.topic_id) != topic.topic_id:
                continue
            if known.get(f"{topic.topic_id}:{where.partition}") != offset:
                found[(where.topic, where.partition)] = offset
        return found

    # -- a batch

    def ranges(self, raw_start: Mapping[str, Any], raw_end: Mapping[str, Any]) -> list[PlannedRange]:
        """What each task of a batch reads. Raises DataLossError, InvalidRequestError for another cluster's offsets."""
        start, end = self._parsed(raw_start), self._parsed(raw_end)
        state = self._coordinator.state
        logs = _logs_of(state, end.partitions)
        if any(offset > logs[where].end for where, offset in end.partitions.items() if where in logs):
            state = self._coordinator.refresh()  # a batch of an earlier run, planned on a newer state than this one's
            logs = _logs_of(state, end.partitions)
        found, losses = batch_ranges(start, end, logs)
        self._lose(losses)
        source = self._options.source
        pieces = split_ranges(found, source.min_partitions, source.max_records_per_partition)
        return [self._with_segments(state, piece) for piece in pieces]

    def _with_segments(self, state: State, one: OffsetRange) -> PlannedRange:
        held = self._coordinator.segments(one.topic, state).partition(one.partition)
        return planned_range(state, one, held.between(one.start, one.end))

    def announced(self, planned: Sequence[PlannedRange]) -> ReaderLease | None:
        """The announcement that the tasks of a batch keep alive. Stored once for many batches."""
        return announced_read(self._coordinator, planned, self._options.source.reader_lease_ms)

    # -- helpers

    def _parsed(self, raw: Mapping[str, Any]) -> StreamOffsets:
        offsets = parse(raw)
        check_cluster(offsets, self._coordinator.state.cluster_id, self._coordinator.store.root)
        return offsets

    def _logs(self, state: State, may_be_missing: Iterable[str]) -> dict[TopicPartition, PartitionLog]:
        """The subscribed partitions. Raises UnknownTopicOrPartitionError for a missing topic not among those named.

        Without ``failOnDataLoss`` any may be missing: the offsets of a topic that was deleted say no more that it was
        there once.
        """
        subscription = self._options.source.subscription
        if subscription.pattern:
            return _logs_of(state, select(state, subscription))
        missing = [name for name in subscription.topic_names if name not in state.topics]
        if self._options.source.fail_on_data_loss:
            for name in set(missing) - set(may_be_missing):
                state.topic(name)
        self._say_missing(missing)
        if subscription.assign:  # ``select`` would warn of what does not exist at every trigger
            return _logs_of(state, subscription.assign)
        kept = tuple(name for name in subscription.topics if name not in missing)
        return _logs_of(state, select(state, Subscription(topics=kept)))

    def _say_missing(self, topics: list[str]) -> None:
        if topics and topics != self._missing:
            logger.warning("topics %s do not exist; this query reads the others", ", ".join(topics))
        self._missing = topics

    def _offsets(
        self, ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, PartitionLog]
    ) -> StreamOffsets:
        ids = {where.topic: logs[where].topic_id for where in ends}
        return StreamOffsets(ends, self._coordinator.state.cluster_id, ids)

    def _is_too_early(self, records: int) -> bool:
        """Whether to wait for ``minOffsetsPerTrigger`` records. The first batch, and one long due, do not wait."""
        least = self._options.min_offsets
        if least is None:
            return False
        now, last = self._clock.monotonic(), self._last_batch_at
        due = last is None or (now - last) * 1000 >= self._options.max_trigger_delay_ms
        if not due and records < least:
            return True
        self._last_batch_at = now
        return False

    def _lose(self, losses: Sequence[Loss]) -> None:
        """Fail with what was lost, or with ``failOnDataLoss=false`` say it once and go on."""
        if self._options.source.fail_on_data_loss:
            raise_losses(losses)
        if losses and list(losses) != self._reported:
            logger.warning("%s; going on with what there is, since failOnDataLoss is false", loss_message(losses))
        self._reported = list(losses)


def _logs_of(state: State, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
    """What there is of these partitions; those that do not exist are left out."""
    found = {}
    for where in wanted:
        topic = state.topics.get(where.topic)
        if topic is not None and where.partition < len(topic.partitions):
            log = topic.partitions[where.partition]
            found[where] = PartitionLog(topic.topic_id, log.log_start_offset, log.high_watermark)
    return found
