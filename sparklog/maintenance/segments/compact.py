"""Compaction: keeps the latest record of each key in a log, with its original offset.

    counts = compact(coordinator, InProcess())

One task cleans one partition: it finds the latest record of each key (``latest_records``), drops tombstones whose
retention has ended, and writes the remaining records to new files, except for large files from which nothing is
removed. All changes of a partition are committed together or not at all, with the offset up to which it was cleaned.

Rules: ``protocol.plan.compaction`` decides on one state which partitions to clean, up to which offset, and how to
divide the result into files; the dirtiest partitions come first. A partition that another job changed in the meantime
is skipped; the next run retries it.
Not for: merging without removing (``roll``), and deletion by age and size (``retention``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import DataLossError
from sparklog.format import schema
from sparklog.log.records.replicated_file import discard
from sparklog.maintenance.runner import TaskRunner
from sparklog.maintenance.segments.files import ReplicaStores, Source
from sparklog.maintenance.segments.latest_records import LatestRecords, find_latest
from sparklog.maintenance.segments.merge import Kept, Target, write_file
from sparklog.maintenance.segments.replacement import (
    Counts,
    PreparedReplacement,
    SegmentReplacement,
    missing_source_error,
    replicas_of,
    target_of,
)
from sparklog.protocol.commits import LiveSegment
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.plan import compaction, rolling
from sparklog.protocol.plan.compaction import NO_HORIZON, LogToClean, Output, Pass, Survey
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State


class CompactTask(NamedTuple):
    """A cleaning pass over ``segments``, the first of a partition. ``number`` identifies the task to its planner;
    ``memory_bytes`` limits the memory for keys."""

    number: int
    segments: Sequence[Segment]
    cleaning: Pass
    replicas: ReplicaStores
    target: Target
    memory_bytes: int


class RangeReplacement(NamedTuple):
    """The segments ``added`` in place of those inside ``[start_offset, end_offset)``."""

    start_offset: int
    end_offset: int
    added: list[LiveSegment]


class CompactResult(NamedTuple):
    """The new segments; or the path of a ``missing`` file, which another job may have deleted in the meantime."""

    number: int
    changes: list[RangeReplacement]
    missing: str = ""


def compact(coordinator: Coordinator, runner: TaskRunner, topics: Collection[str] | None = None) -> Counts:
    """Clean the partitions that are due, of all compacted topics or of these. Errors of tasks are raised after the
    other tasks are committed.

    Errors as ``SegmentReplacement``; StorageError, CorruptionError if no replica is intact;
    UnknownTopicOrPartitionError.
    """
    state = coordinator.refresh()
    replacement = SegmentReplacement(coordinator, state)
    planned_tasks = list(_plan(coordinator, state, topics))
    with replacement.committed_at_the_end():
        for result in runner.run(compact_partition, (planned.task for planned in planned_tasks)):
            replacement.take(partial(_build_replacements, coordinator, state, planned_tasks[result.number], result))
    return replacement.counts


# -- planning and committing


class _Planned(NamedTuple):
    topic: str
    task: CompactTask


def _plan(coordinator: Coordinator, state: State, topics: Collection[str] | None) -> Iterator[_Planned]:
    """Return a task for each partition that is due, the dirtiest first."""
    cluster = ClusterConfig.resolve(state.configs)
    if not cluster.log_cleaner_enable:
        return
    memory_bytes = cluster.log_cleaner_dedupe_buffer_size
    now_ms = coordinator.log.expiry_clock.now_ms()
    due: list[tuple[str, int, LogToClean, Pass]] = []
    for name in sorted(state.topics if topics is None else topics):
        topic = state.topic(name)
        config = TopicConfig.resolve(topic.configs, state.configs)
        rules = compaction.rules_of(config)
        if rules is None:
            continue
        for number, partition in enumerate(topic.partitions):
            if not partition.segments or partition.leader < 0:
                continue
            live = coordinator.segments(name, state).partition(number)
            groups = rolling.groups(live, rolling.rules_of(config, topic.topic_id, number))
            log = compaction.log_to_clean(groups, partition, rules, now_ms)
            if log is not None and compaction.is_due(log, rules):
                due.append((name, number, log, Pass(log.first_dirty_offset, now_ms, rules)))
    due.sort(key=lambda item: -item[2].dirty_ratio)
    for task_number, (name, number, log, cleaning) in enumerate(due):
        replicas = replicas_of(coordinator, state.partition(name, number))
        assert replicas is not None
        target = target_of(coordinator, state, name, number)
        yield _Planned(name, CompactTask(task_number, tuple(log.segments), cleaning, replicas, target, memory_bytes))


def _build_replacements(
    coordinator: Coordinator, state: State, planned: _Planned, result: CompactResult
) -> list[PreparedReplacement]:
    """Return the replacements of a task. Raises ``missing_source_error`` if the task found a file missing."""
    topic, task = planned
    if result.missing:
        raise missing_source_error(coordinator, state, topic, task.segments, result.missing)
    topic_id = state.topic(topic).topic_id
    replacements: list[PreparedReplacement] = []
    for number, change in enumerate(result.changes):
        old = [segment for segment in task.segments if change.start_offset <= segment.base_offset < change.end_offset]
        replacement = Replacement(
            topic=topic,
            topic_id=topic_id,
            partition=task.target.partition,
            start_offset=change.start_offset,
            end_offset=change.end_offset,
            removed=removed(topic_id, old),
            added=change.added,
            cleaned_offset=task.segments[-1].end_offset if number == len(result.changes) - 1 else -1,
            together=True,
        )
        replacements.append(PreparedReplacement(replacement, old, task.replicas))
    return replacements


# -- the task


def compact_partition(task: CompactTask) -> CompactResult:
    """Write the records of a partition that are kept. Raises StorageError, or CorruptionError if no replica is
    intact."""
    sources = [Source(task.target.topic, segment, task.replicas) for segment in task.segments]
    written: list[LiveSegment] = []
    try:
        kept = _find_kept(sources, task)
        surveys = [Survey(source.segment, kept.records(source), _has_tombstones(source)) for source in sources]
        outputs = compaction.outputs(surveys, task.cleaning)
        by_offset = {source.segment.base_offset: source for source in sources}
        for output in outputs:
            if output.rewrite:
                members = [by_offset[member.segment.base_offset] for member in output.members]
                file = write_file(members, task.replicas, task.target, kept)
                written.append(file.live(True, output.delete_horizon_ms if file.tombstones else NO_HORIZON))
    except BaseException as error:
        discard([live.run for live in written], task.replicas.stores.__getitem__)
        if isinstance(error, DataLossError):
            return CompactResult(task.number, [], error.path)
        raise
    return CompactResult(task.number, _list_changes(task.segments, outputs, written))


def _find_kept(sources: Sequence[Source], task: CompactTask) -> Kept:
    """Find the latest record of each key, without the tombstones whose retention has ended."""
    first: dict[int, int] = {}
    records = 0
    for source in sources:
        first[source.segment.base_offset] = records
        records += source.segment.records
    survivors = find_latest(sources, first, task.memory_bytes)
    kept = Kept(survivors.bits, first)
    for source in sources:
        if task.cleaning.drops_tombstones(source.segment):
            _drop_tombstones(source, kept, survivors)
    return kept


def _drop_tombstones(source: Source, kept: Kept, survivors: LatestRecords) -> None:
    for number in source.batches:
        entry = source.entry(number)
        if entry.null_values and kept.rows(source, source.row(entry), entry.count).true_count:
            values = source.read(number, [schema.VALUE]).column(0)
            survivors.remove(kept.first[source.segment.base_offset] + source.row(entry), values.is_null())
    source.close()


def _has_tombstones(source: Source) -> bool:
    return any(source.entry(number).null_values for number in source.batches)


def _list_changes(
    segments: Iterable[Segment], outputs: Sequence[Output], written: Sequence[LiveSegment]
) -> list[RangeReplacement]:
    """Return the ranges of a log in which segments are replaced; the segments between them are unchanged."""
    unchanged = {output.members[0].segment.base_offset for output in outputs if not output.rewrite}
    changes: list[RangeReplacement] = []
    for is_unchanged, group in groupby(segments, key=lambda segment: segment.base_offset in unchanged):
        if not is_unchanged:
            replaced = list(group)
            start, end = replaced[0].base_offset, replaced[-1].end_offset
            changes.append(RangeReplacement(start, end, [live for live in written if start <= live.base_offset < end]))
    return changes
