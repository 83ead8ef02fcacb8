"""Plan a streaming read: look up in the cluster where it starts, the new records, and the segments of a batch.

Runs in the process that Spark keeps for a query, and holds the state of the cluster from trigger to trigger: polling is
one refresh of the commit log, two small reads.

Commits are removed, on a busy cluster ten minutes after they were made, and a process that has not read them cannot
tell whether the root was restored meanwhile. So a thread reads the log between triggers, too.

Rules: ``stream.offsets`` decides; this module applies the cluster, the clock and ``failOnDataLoss``. Offsets are
committed to a consumer group so that other tools see them, best effort; a running query never reads them.
Not for: Spark's classes (``stream.reader``).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.coordinator.kept_reading import start_reading
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.errors import SparklogError
from sparklog.log.records.fetch import Fetcher
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, find_offset, split_offsets, topic_ids
from sparklog.protocol.state import BrokerState, State
from sparklog.spark.broker_stores import readable_stores
from sparklog.spark.options import TopicSubscription
from sparklog.spark.source.filters import Pruning
from sparklog.spark.source.planning import PlannedRange, ReadPlan, lease_read, plan, plan_range, select
from sparklog.spark.source.ranges import split_ranges
from sparklog.spark.stream.offsets import (
    Loss,
    OtherTimeline,
    PartitionLog,
    PlannedAt,
    StreamOffsets,
    batch_start,
    check_cluster,
    check_target,
    count_records,
    describe_losses,
    find_batch_ranges,
    find_logs,
    find_starts,
    parse,
    prorate,
    raise_losses,
    uncommitted_offsets,
    with_first_start,
)
from sparklog.spark.stream.options import StreamOptions
from sparklog.spark.stream.other_timeline import find_other_timeline
from sparklog.store.base import Store
from sparklog.types import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)


class StreamPlanner:
    """One query's view of the cluster. Not thread-safe.

    The constructor opens the cluster: errors as ``open_cluster``, such as ClusterNotFoundError. ``close`` it; one that
    is dropped is closed.
    """

    def __init__(self, options: StreamOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._coordinator: Coordinator = shared_cluster(*options.source.address)
        self._stores: dict[int, Store] = {}
        self._brokers: Mapping[int, BrokerState] | None = None
        self._target: StreamOffsets | None = None
        self._latest: StreamOffsets | None = None
        self._start_ids: Mapping[str, str] = {}
        self._last_batch_at: float | None = None
        self._reported: list[Loss] = []
        self._missing: list[str] = []
        self._of_this_timeline: tuple[PlannedAt | None, int] = (None, self._coordinator.log.unlinked_jumps)
        """The commit of the offsets that were checked last, None before the first, and the timeline of the log then, by
        ``unlinked_jumps``."""
        self._end_reading = start_reading(self._coordinator)
        weakref.finalize(self, self._end_reading)

    def close(self) -> None:
        """Read the log no more between triggers. Waits for nothing; idempotent."""
        self._end_reading()

    @property
    def stores(self) -> Mapping[int, Store]:
        """The stores of all brokers that can be opened."""
        brokers = self._coordinator.state.brokers
        if self._brokers is not brokers:
            self._brokers = brokers
            self._stores = readable_stores(self._coordinator)
        return self._stores

    # -- offsets

    def initial(self) -> dict[str, Any]:
        """Return the offsets at which a new query starts, without ids (see ``stream.offsets``). This planner keeps
        the ids: the topics may be created again before its first batch.

        Raises InvalidOptionError, DataLossError, OffsetOutOfRangeError and UnknownTopicOrPartitionError if the starting
        offsets do not fit the topics.
        """
        coordinator, source = self._coordinator, self._options.source

        def look_up(fetcher: Fetcher) -> tuple[State, dict[TopicPartition, int]]:
            found = ReadPlan(coordinator, fetcher, source, Pruning())
            return found.state, found.starts()

        state, starts = plan(coordinator, look_up)
        self._start_ids = topic_ids(state, starts)
        return StreamOffsets({**starts, **self._committed(state, starts)}).to_json()

    def _committed(self, state: State, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets if the query is to start there, without those of deleted topics."""
        logs = find_logs(state, of) if self._options.start_of_group in state.groups else {}
        offsets = {
            partition: committed.offset
            for partition in logs
            if (committed := state.committed(self._options.start_of_group, *partition)) is not None
        }
        starts, losses = find_starts(StreamOffsets(offsets), {partition: logs[partition] for partition in offsets})
        self._handle_losses(losses)
        return starts

    def latest(self, raw_start: Mapping[str, Any], most: int | None, read_all: bool = False) -> dict[str, Any]:
        """Return the end of the next batch: about ``most`` records after the start, or the ends of the logs.

        Return the start itself if there are no new records, or fewer than ``minOffsetsPerTrigger``, which ``read_all``
        ignores. Raises DataLossError, InvalidRequestError for another cluster's start, UnknownTopicOrPartitionError.
        """
        start = self._parse(raw_start)
        self._coordinator.refresh()
        self._coordinator.log.make_durable()  # Spark notes the offsets
        state, timeline = self._coordinator.log.state_in_timeline()
        logs = self._logs(state, {partition.topic for partition in start.partitions})
        if self._target is not None:
            check_target(self._target, logs)
            wanted = {*self._target.partitions, *start.partitions}
            logs = {partition: log for partition, log in logs.items() if partition in wanted}
        other_timeline = self._find_other_timeline(start, timeline)
        starts, losses = find_starts(start, logs, other_timeline)
        self._handle_losses(losses)
        if start.cluster_id and not other_timeline:  # Spark calls ``commit`` one batch later, and never for the last
            self.commit(raw_start)
        ends = {partition: log.end for partition, log in logs.items()}
        self._latest = self._offsets(state, ends, logs)
        if self._target is not None:
            ends = dict(self._target.partitions)
        if not ends:  # all topics were deleted, and the loss was accepted: keep the offsets, there is nothing to read
            return dict(raw_start)
        if not read_all and self._target is None and self._is_too_early(count_records(starts, ends)):
            return dict(raw_start)
        if most is not None:
            ends = prorate(starts, ends, most)
        end = self._offsets(state, ends, logs)
        if not start.cluster_id:  # that of a new query, empty if its topics did not exist
            end = with_first_start(start, end)
        elif replace(start, planned_at=end.planned_at, first_start=None) == end:  # nothing is new
            end = start  # Spark compares offsets as text
        return end.to_json()

    def first_end(self) -> dict[str, Any]:
        """Return the ends of the logs, for a process's first batch if Spark does not say where that starts: the query
        may be new, or go on from a checkpoint. Losses are found once the batch is planned.

        Raises UnknownTopicOrPartitionError.
        """
        start: StreamOffsets | None = None
        with suppress(SparklogError):  # the starting offsets of a query that goes on need not fit the topics any more
            start = self._parse(self.initial())
        state = self._coordinator.refresh()
        logs = self._logs(state, ())
        end = self._offsets(state, {partition: log.end for partition, log in logs.items()}, logs)
        self._latest = end
        return (end if start is None else with_first_start(start, end)).to_json()

    def fix_end(self) -> None:
        """Fix the end of the query at the current ends of the logs, for Trigger.AvailableNow."""
        topics = self._options.source.subscription.topic_names
        state = self._coordinator.refresh()
        logs = self._logs(state, topics)  # ``latest`` handles missing topics
        self._target = self._offsets(state, {partition: log.end for partition, log in logs.items()}, logs)

    def report(self) -> dict[str, Any] | None:
        """Return the ends of the logs as of the last ``latest``; None before the first."""
        return None if self._latest is None else StreamOffsets(self._latest.partitions).to_json()

    def commit(self, raw_end: Mapping[str, Any]) -> None:
        """Commit ``end`` to the consumer group, if there is one and its offsets differ, unless it may be of another
        timeline. Best effort."""
        if not self._options.group:
            return
        try:
            end, timeline = self._parse(raw_end), self._coordinator.log.unlinked_jumps  # read before the check
            other_timeline = self._find_other_timeline(end, timeline)
            if other_timeline is None:
                return commit_ends(self._coordinator, self._options.group, [end], timeline)
            problem = other_timeline.why
        except SparklogError as error:
            problem = str(error)
        logger.warning("could not commit offsets to consumer group %s: %s", self._options.group, problem)

    # -- a batch

    def ranges(self, raw_start: Mapping[str, Any], raw_end: Mapping[str, Any]) -> list[PlannedRange]:
        """Return the ranges that the tasks of a batch read. Raises DataLossError, InvalidRequestError for another
        cluster's offsets."""
        end = self._parse(raw_end)
        start = batch_start(self._parse(raw_start), end)
        state = self._coordinator.state
        logs = find_logs(state, end.partitions)
        if any(offset > logs[partition].end for partition, offset in end.partitions.items() if partition in logs):
            state = self._coordinator.refresh()  # a batch of an earlier run, planned on a newer state than this one
            logs = find_logs(state, end.partitions)
        timeline = self._coordinator.log.unlinked_jumps
        ranges, losses = find_batch_ranges(start, end, logs, self._find_other_timeline(end, timeline))
        self._handle_losses(losses)
        source = self._options.source
        pieces = split_ranges(ranges, source.min_partitions, source.max_records_per_partition)
        return [self._with_segments(state, piece) for piece in pieces]

    def _with_segments(self, state: State, span: OffsetRange) -> PlannedRange:
        segments = self._coordinator.segments(span.topic, state).partition(span.partition)
        return plan_range(state, span, segments.between(span.start, span.end))

    def take_lease(self, ranges: Sequence[PlannedRange]) -> ReaderLease | None:
        """Return the reader lease that the tasks of a batch renew. Stored once for many batches."""
        return lease_read(self._coordinator, ranges, self._options.source.reader_lease_ms)

    # -- helpers

    def _parse(self, raw: Mapping[str, Any]) -> StreamOffsets:
        offsets = parse(raw)
        if not (offsets.cluster_id or offsets.topic_ids):  # those of ``initial``
            offsets = replace(offsets, topic_ids=self._start_ids)
        check_cluster(offsets, self._coordinator.state.cluster_id, self._coordinator.store.root)
        return offsets

    def _logs(self, state: State, may_be_missing: Iterable[str]) -> dict[TopicPartition, PartitionLog]:
        """Return the logs of the subscribed partitions. Raises UnknownTopicOrPartitionError for a missing topic that is
        not in ``may_be_missing``.

        With ``failOnDataLoss=false`` any topic may be missing: after a loss was accepted, the offsets no longer show
        that a deleted topic existed.
        """
        subscription = self._options.source.subscription
        if subscription.pattern:
            return find_logs(state, select(state, subscription))
        missing = [name for name in subscription.topic_names if name not in state.topics]
        if self._options.source.fail_on_data_loss:
            for name in set(missing) - set(may_be_missing):
                state.topic(name)
        self._warn_of_missing(missing)
        if subscription.assign:  # ``select`` would warn about missing partitions at every trigger
            return find_logs(state, subscription.assign)
        kept = tuple(name for name in subscription.topics if name not in missing)
        return find_logs(state, select(state, TopicSubscription(topics=kept)))

    def _warn_of_missing(self, topics: list[str]) -> None:
        if topics and topics != self._missing:
            logger.warning("topics %s do not exist; this query reads the others", ", ".join(topics))
        self._missing = topics

    def _offsets(
        self, state: State, ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, PartitionLog]
    ) -> StreamOffsets:
        ids = {partition.topic: logs[partition].topic_id for partition in ends}
        return StreamOffsets(ends, state.cluster_id, ids, PlannedAt(state.version, state.digest))

    def _find_other_timeline(self, offsets: StreamOffsets, timeline: int) -> OtherTimeline | None:
        """As ``find_other_timeline``. This process knows more: the ``timeline`` of the log when it last checked offsets
        or was created."""
        found = (offsets.planned_at, timeline)
        if found == self._of_this_timeline:
            return None
        other = find_other_timeline(self._coordinator.log, offsets, has_jumped=self._of_this_timeline[1] != timeline)
        if other is None:
            self._of_this_timeline = found
        return other

    def _is_too_early(self, records: int) -> bool:
        """Return whether to wait for ``minOffsetsPerTrigger`` records. The first batch does not wait, nor does one
        after ``maxTriggerDelay``."""
        least = self._options.min_offsets
        if least is None:
            return False
        now, last = self._clock.monotonic(), self._last_batch_at
        is_due = last is None or (now - last) * 1000 >= self._options.max_trigger_delay_ms
        if not is_due and records < least:
            return True
        self._last_batch_at = now
        return False

    def _handle_losses(self, losses: Sequence[Loss]) -> None:
        """Raise DataLossError if there are losses, or with ``failOnDataLoss=false`` log them once."""
        if self._options.source.fail_on_data_loss:
            raise_losses(losses)
        if losses and list(losses) != self._reported:
            logger.warning("%s; continuing with what there is, since failOnDataLoss is false", describe_losses(losses))
        self._reported = list(losses)


def commit_ends(coordinator: Coordinator, group: str, ends: Iterable[StreamOffsets], timeline: int) -> None:
    """Commit the offsets at which a batch ended in its sources, if the group's differ. ``timeline`` is the log's, by
    ``unlinked_jumps``, in which they were found. Errors as ``commit_group_offsets``, and UnlinkedHistoryError."""
    state = coordinator.state
    offsets = uncommitted_offsets(ends, state, group)
    for part in split_offsets(offsets) if offsets else ():
        # another instance of the query may have committed others while this one was suspended
        replaces = {partition: find_offset(state, group, *partition) for partition in part}
        ids = topic_ids(state, part)
        commit = GroupCommit(group=group, offsets=part, topic_ids=ids, timeline=timeline, replaces=replaces)
        coordinator.submit(partial(commit_group_offsets, commit=commit), timelines=[commit.timeline])
