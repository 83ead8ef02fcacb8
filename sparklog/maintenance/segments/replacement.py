"""Replaces segments with those that tasks wrote from them, with one commit for many partitions.

    counts = SegmentReplacement(coordinator, state).run(runner, merge_segments, tasks)

The listing of the retired files is stored first, then the commit names it (``log.commits.retired_files``). Files of
replacements that are skipped, since another job changed the same offsets in the meantime, are deleted immediately: no
reader ever saw them. If the outcome of a commit is unknown, the files are kept, and left to a vacuum.

Rules: a crash at any step leaves the log either unchanged or changed completely, and files and listings that no commit
names.
Not for: planning what replaces what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import DELTA, TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.begun_files import find_missing_copy
from sparklog.errors import (
    DataLossError,
    IndeterminateCommitError,
    InvalidRequestError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageError,
)
from sparklog.log.commits.retired_files import delete_unnamed, files_of, write_removed
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.replicated_file import discard
from sparklog.maintenance.runner import StopRequested, TaskRunner, raise_first
from sparklog.maintenance.segments.files import FETCHED_AHEAD, ReplicaStores
from sparklog.maintenance.segments.merge import RangeReplacement, SegmentTask, Target, TaskResult
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import (
    LeftOut,
    Replacement,
    SegmentsRequest,
    SegmentsResult,
    change_segments,
    changed_since,
    delete_delay_ms,
    has_forgotten,
    removed,
)
from sparklog.protocol.plan.compaction import rules_of
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State

Task = TypeVar("Task", bound=SegmentTask)

SEGMENTS_PER_COMMIT = 4000
"""Maximum number of new segments in one commit: some 1.5 MB of the 4 MiB that a commit may have."""

BYTES_PER_COMMIT = 4 * 1024**3
"""Bytes of new segments after which a running job commits, so that not all its work is lost if it is killed."""

COMMIT_AFTER_SECONDS = 10.0
"""A pass that takes longer than this commits what it has: little is lost if it is killed, or if a commit fails."""


class PreparedReplacement(NamedTuple):
    """A replacement with the segments that it removes from the log, and the stores of its files. ``read`` are those
    that it was decided on, if these are more."""

    change: Replacement
    old: Sequence[Segment]
    replicas: ReplicaStores
    read: Sequence[Segment] = ()


@dataclass
class Counts:
    """What a job did: files removed from the log and added to it, bytes of their records, records in the new files that
    do not fit the topic's schema, and what was skipped."""

    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    records_removed: int = 0
    records_that_do_not_fit: int = 0
    commits: int = 0
    left_out: list[str] = field(default_factory=list)


class ConflictError(Exception):
    """A file that a task was to read was deleted, since another job has changed the same segments."""


class SegmentReplacement:
    """Collects replacements that were planned at ``state``, and commits them. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self.counts = Counts()
        self._coordinator = coordinator
        self._state = state
        self._pending: list[PreparedReplacement] = []
        self._pending_segments = self._pending_bytes = 0
        self._clock = coordinator.log.clock
        self._committed_at = self._clock.monotonic()
        self._errors: list[Exception] = []

    def run(
        self,
        runner: TaskRunner,
        function: Callable[[Task], TaskResult],
        planned: Iterable[Task],
        cleans: bool = False,
    ) -> Counts:
        """Run the tasks, and commit their changes, even if an error or a stop request ends them; then raise the first
        error. ``cleans``: the changes of a task are committed together, with the offset up to which it cleaned.

        Raises also StorageError, IndeterminateCommitError, CommitConflictError.
        """
        tasks = list(planned)
        try:
            for result in runner.run(function, tasks):
                self._take(tasks[result.number], result, cleans)
        except Exception as error:
            self._errors.insert(0, error)
        except StopRequested:
            self.finish()
            raise
        self.finish()
        raise_first(self._errors)
        return self.counts

    def _take(self, task: SegmentTask, result: TaskResult, cleans: bool) -> None:
        """Add the replacements of a task. Errors are collected and raised at the end."""
        try:
            if result.missing:
                raise self._missing_source_error(task, result.missing)
            self.add(*self._prepare(task, result.changes, cleans))
        except ConflictError as conflict:
            self.counts.left_out.append(str(conflict))
        except Exception as error:
            self._errors.append(error)

    def _missing_source_error(self, task: SegmentTask, path: str) -> ConflictError | DataLossError:
        """Return the error for a missing file of a task.

        Jobs have no reader lease: a file that is deleted while a job reads it was replaced or deleted by another job,
        and the result would be refused anyway. If no job changed these segments, the file is lost.
        """
        topic, partition, state = task.target.topic, task.target.partition, self._state
        newest_topic = self._coordinator.refresh().topics.get(topic)
        start_offset, end_offset = task.segments[0].base_offset, task.segments[-1].end_offset
        if (
            newest_topic is None
            or newest_topic.topic_id != state.topic(topic).topic_id
            or changed_since(newest_topic.partitions[partition], state.version, start_offset, end_offset)
        ):
            return ConflictError(f"skipped {topic}-{partition}: another job changed it; the next run retries it")
        return DataLossError(
            f"{topic}-{partition}: {path} is missing; run `sparklog fsck` to find out what else is",
            topic=topic,
            partition=partition,
            path=path,
        )

    def _prepare(
        self, task: SegmentTask, changes: Sequence[RangeReplacement], cleans: bool
    ) -> Iterator[PreparedReplacement]:
        topic, topic_id = task.target.topic, self._state.topic(task.target.topic).topic_id
        for number, (start, end, added) in enumerate(changes, 1):
            old = [segment for segment in task.segments if start <= segment.base_offset < end]
            change = Replacement(
                topic=topic,
                topic_id=topic_id,
                partition=task.target.partition,
                start_offset=start,
                end_offset=end,
                removed=removed(topic_id, old),
                added=added,
                cleaned_offset=task.segments[-1].end_offset if cleans and number == len(changes) else -1,
                together=cleans,
                decided_on=(task.segments[0].base_offset, task.segments[-1].end_offset) if cleans else None,
            )
            yield PreparedReplacement(change, old, task.replicas, task.segments if cleans else ())

    def add(self, *replacements: PreparedReplacement) -> None:
        """Add replacements that are committed together; first commit the pending ones if they are many, or if the last
        commit was long ago. Errors as ``finish``."""
        added = [live for replacement in replacements for live in replacement.change.added]
        are_many = self._pending_segments + len(added) > SEGMENTS_PER_COMMIT or self._pending_bytes > BYTES_PER_COMMIT
        if are_many or self._is_late():
            self.finish()
        self._pending += replacements
        self._pending_segments += len(added)
        self._pending_bytes += sum(live.run.size_bytes for live in added)

    def finish(self) -> None:
        """Commit the pending replacements. Raises StorageError, IndeterminateCommitError, CommitConflictError."""
        if self._pending and self._is_late():
            self._coordinator.log.catch_up()  # others may have made hundreds of commits meanwhile
        pending, self._pending = self._pending, []
        self._pending_segments = self._pending_bytes = 0
        self._committed_at = self._clock.monotonic()
        remaining = self._by_delay(_join_adjacent(pending))
        try:
            while remaining:
                self._commit(*remaining.pop())
        except SparklogError:
            for replacements, _ in remaining:  # they were not committed
                for replacement in replacements:
                    _delete_new_files(replacement)
            raise

    def _by_delay(self, replacements: Sequence[PreparedReplacement]) -> list[tuple[list[PreparedReplacement], int]]:
        """Group replacements by the time for which the files of their topic are kept."""
        by_topic: dict[str, list[PreparedReplacement]] = {}
        for replacement in replacements:
            by_topic.setdefault(replacement.change.topic, []).append(replacement)
        by_delay: dict[int, list[PreparedReplacement]] = {}
        for topic, of_topic in by_topic.items():
            by_delay.setdefault(self._delay_ms(topic, of_topic), []).extend(of_topic)
        return [(group, delay_ms) for delay_ms, group in by_delay.items()]

    def _is_late(self) -> bool:
        return self._clock.monotonic() - self._committed_at > COMMIT_AFTER_SECONDS

    def _commit(self, replacements: Sequence[PreparedReplacement], delay_ms: int) -> None:
        try:
            done = self._submit(replacements, delay_ms)
        except IndeterminateCommitError:
            raise
        except InvalidRequestError as error:  # one topic's changes cannot be stored: those of the others can
            topics = {replacement.change.topic for replacement in replacements}
            for topic in sorted(topics) if len(topics) > 1 else ():
                self._commit([each for each in replacements if each.change.topic == topic], delay_ms)
            if len(topics) == 1:
                for replacement in replacements:
                    _delete_new_files(replacement)
                self._errors.append(InvalidRequestError(f"topic {topics.pop()}: {error.message}", **error.context))
            return
        except SparklogError:  # certainly nothing was committed
            for replacement in replacements:
                _delete_new_files(replacement)
            raise
        self.counts.commits += bool(done)
        for replacement in replacements:
            if any(change is replacement.change for change in done):
                self._count(replacement)
            else:
                _delete_new_files(replacement)

    def _submit(self, replacements: Sequence[PreparedReplacement], delay_ms: int) -> Sequence[object]:
        """Store the listing and commit; return the changes that were made."""
        coordinator, version, unchanged_at = self._coordinator, self._state.version, self._look_again(replacements)
        retired = [file for each in replacements for file in files_of(self._partition(each.change), each.old)]
        listing = write_removed(coordinator.store, coordinator.log.ids, version, retired, delay_ms)
        changes = [replacement.change for replacement in replacements]
        history = _has_history(replacements)
        request = SegmentsRequest(
            version=version,
            unchanged_at=unchanged_at,
            changes=changes,
            files=listing,
            has_history=history,
        )
        with delete_unnamed(coordinator.log, [listing]):
            self._check_exist(request)
            result = coordinator.submit(partial(_decide, planned=self._state, request=request))
        for skipped in result.left_out:
            partition = f"{skipped.change.topic}-{skipped.change.partition}"
            self.counts.left_out.append(f"skipped {partition}: {skipped.why}; the next run retries it")
        return result.done

    def _check_exist(self, request: SegmentsRequest) -> None:
        """Raise StorageError unless the new files of the changes that would be made exist: root and locations may have
        been restored since they were written, from a copy that includes the newest commit."""
        error = self._find_missing(request)
        if error is not None:  # a vacuum may have fenced this job and deleted them meanwhile
            error = self._find_missing(request)
        if isinstance(error, ObjectNotFoundError):
            raise StorageError(
                f"nothing was replaced: a file that was just written is missing ({error.message}); was "
                f"{self._coordinator.store.root} restored meanwhile? The next run does it again",
                path=error.path,
            ) from error
        if error is not None:
            raise error

    def _find_missing(self, request: SegmentsRequest) -> StorageError | None:
        state = self._coordinator.refresh()
        done = _decide(state, self._state, request).result.done
        runs = [live.run for change in done if isinstance(change, Replacement) for live in change.added]
        return find_missing_copy(state, self._coordinator.brokers.store_of, runs)

    def _look_again(self, replacements: Sequence[PreparedReplacement]) -> int:
        """Return the newest version if the state has forgotten changes since the plan, and the segments that decided
        the replacements are still those of the plan; else -1. The state keeps the latest changes of a partition only: a
        long job would be rejected at each pass while others change later segments."""
        state = self._coordinator.refresh()
        forgotten = False
        for change, *_ in replacements:
            topic = state.topics.get(change.topic)
            if topic is None or topic.topic_id != change.topic_id:
                return -1
            forgotten = forgotten or has_forgotten(topic.partitions[change.partition], self._state.version)
        if not forgotten:
            return -1
        for change, old, _, read in replacements:
            log_start = state.partition(change.topic, change.partition).log_start_offset
            planned = [segment for segment in read if segment.end_offset > log_start] or list(old)
            start, end = min(planned[0].base_offset, old[0].base_offset), planned[-1].end_offset
            try:
                live = self._coordinator.segments(change.topic, state).partition(change.partition).between(start, end)
            except OffsetOutOfRangeError:  # deleted meanwhile
                return -1
            if live != planned:
                return -1
        return state.version

    def _count(self, replacement: PreparedReplacement) -> None:
        counts, added = self.counts, replacement.change.added
        counts.files_in += len(replacement.old)
        counts.records_removed += sum(segment.records for segment in replacement.old)
        counts.records_removed -= sum(live.run.records for live in added)
        counts.records_that_do_not_fit += sum(live.unfit for live in added)
        counts.bytes_in += sum(segment.size_bytes for segment in replacement.old)
        counts.files_out += len(added)
        counts.bytes_out += sum(live.run.size_bytes for live in added)

    def _partition(self, change: Replacement) -> PartitionState:
        return self._state.partition(change.topic, change.partition)

    def _delay_ms(self, topic: str, replacements: Sequence[PreparedReplacement]) -> int:
        config = TopicConfig.resolve(self._state.topic(topic).configs, self._state.configs)
        return delete_delay_ms(config, _has_history(replacements))


def _has_history(replacements: Iterable[PreparedReplacement]) -> bool:
    return any(segment.is_history for replacement in replacements for segment in replacement.old)


def _decide(state: State, planned: State, request: SegmentsRequest) -> Decision[SegmentsResult]:
    """Return the changes that are still valid.

    Compactions are left out if the topic is no longer compacted, its compaction settings have changed, or the cleaner
    has been disabled (``log.cleaner.enable``). Kafka aborts a running cleaning in these cases, too.
    """
    enabled = ClusterConfig.resolve(state.configs).log_cleaner_enable
    left_out = [
        LeftOut(change, "the topic's rules of compaction have changed" if enabled else "log.cleaner.enable is false")
        for change in request.changes
        if isinstance(change, Replacement)
        and change.together
        and not (enabled and _rules(state, change) == _rules(planned, change))
    ]
    refused = [change for change, _ in left_out]
    remaining = [change for change in request.changes if change not in refused]
    decision = change_segments(state, replace(request, changes=remaining))
    return Decision(decision.actions, SegmentsResult(decision.result.done, [*left_out, *decision.result.left_out]))


def _rules(state: State, change: Replacement) -> object:
    topic = state.topics.get(change.topic)
    return None if topic is None else rules_of(TopicConfig.resolve(topic.configs, state.configs))


def _join_adjacent(replacements: Sequence[PreparedReplacement]) -> list[PreparedReplacement]:
    """Join adjacent replacements, since the state of a partition records only a few changes."""
    joined: list[PreparedReplacement] = []
    for replacement in sorted(
        replacements, key=lambda each: (each.change.topic, each.change.partition, each.change.start_offset)
    ):
        before, change = joined[-1].change if joined else None, replacement.change
        if before is None or change.together or before.together or not _are_adjacent(before, change):
            joined.append(replacement)
            continue
        old = [*joined[-1].old, *replacement.old]
        both = replace(
            before,
            end_offset=change.end_offset,
            removed=removed(change.topic_id, old),
            added=[*before.added, *change.added],
        )
        joined[-1] = PreparedReplacement(both, old, replacement.replicas)
    return joined


def _are_adjacent(before: Replacement, change: Replacement) -> bool:
    same_partition = (before.topic_id, before.partition) == (change.topic_id, change.partition)
    return same_partition and before.end_offset == change.start_offset


def _delete_new_files(replacement: PreparedReplacement) -> None:
    discard([added.run for added in replacement.change.added], replacement.replicas.stores.__getitem__)


def replicas_of(coordinator: Coordinator, partition: PartitionState) -> ReplicaStores:
    """Return the stores to read and write a partition that has a leader: all in-sync replicas, the leader first.

    Raises StorageError, UnsupportedStoreError for a location that cannot be opened.
    """
    brokers = replicas_in_sync(partition)
    stores = {broker: coordinator.store_of(broker) for broker in brokers}
    ahead = any(store.parallel_requests > 1 for store in stores.values())
    return ReplicaStores(stores, brokers, brokers, FETCHED_AHEAD if ahead else 0, coordinator.log.clock)


def target_of(coordinator: Coordinator, state: State, topic: str, partition: int) -> Target:
    """Return how the files of a partition are written, by the topic's configs."""
    config = TopicConfig.resolve(state.topic(topic).configs, state.configs)
    kind = config.compression_type
    codec = {"producer": None, "uncompressed": "none"}.get(kind, kind)
    return Target(
        topic,
        partition,
        state.version,
        coordinator.log.ids,
        codec,
        None if codec is None else config.compression_level(codec),
        config.index_interval_bytes,
        config.history_format == DELTA,
        find_record_schema(state.topic(topic), config),
    )
