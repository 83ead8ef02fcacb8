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
from dataclasses import dataclass
from itertools import groupby

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import DataLossError
from sparklog.format import schema
from sparklog.log.records.replicated_file import discard
from sparklog.maintenance.runner import TaskRunner
from sparklog.maintenance.segments.files import Source
from sparklog.maintenance.segments.latest_records import LatestRecords, find_latest
from sparklog.maintenance.segments.merge import (
    Kept,
    RangeReplacement,
    SegmentTask,
    TaskResult,
    has_tombstones,
    write_file,
)
from sparklog.maintenance.segments.replacement import Counts, SegmentReplacement, replicas_of, target_of
from sparklog.protocol.commits import LiveSegment
from sparklog.protocol.plan import compaction, rolling
from sparklog.protocol.plan.compaction import CompactionPass, LogToClean, Output, Survey
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State


@dataclass(frozen=True)
class CompactTask(SegmentTask):
    """A cleaning pass over the first segments of a partition. ``memory_bytes`` limits the memory for keys."""

    cleaning: CompactionPass
    memory_bytes: int


@in_one_timeline
def compact(coordinator: Coordinator, runner: TaskRunner, topics: Collection[str] | None = None) -> Counts:
    """Clean the partitions that are due, of all compacted topics or of these. Errors of tasks are raised after the
    other tasks are committed.

    Errors as ``SegmentReplacement``; StorageError, CorruptionError if no replica is intact;
    UnknownTopicOrPartitionError.
    """
    state = coordinator.refresh()
    tasks = _plan(coordinator, state, topics)
    return SegmentReplacement(coordinator, state).run(runner, compact_partition, tasks, cleans=True)


# -- planning


def _plan(coordinator: Coordinator, state: State, topics: Collection[str] | None) -> Iterator[CompactTask]:
    """Return a task for each partition that is due, the dirtiest first."""
    cluster = ClusterConfig.resolve(state.configs)
    if not cluster.log_cleaner_enable:
        return
    memory_bytes = cluster.log_cleaner_dedupe_buffer_size
    now_ms = coordinator.log.expiry_clock.now_ms()
    due: list[tuple[str, int, LogToClean, CompactionPass]] = []
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
                due.append((name, number, log, CompactionPass(log.first_dirty_offset, now_ms, rules)))
    due.sort(key=lambda item: -item[2].dirty_ratio)
    for task_number, (name, number, log, cleaning) in enumerate(due):
        replicas = replicas_of(coordinator, state.partition(name, number))
        target = target_of(coordinator, state, name, number)
        yield CompactTask(task_number, tuple(log.segments), replicas, target, cleaning, memory_bytes)


# -- the task


def compact_partition(task: CompactTask) -> TaskResult:
    """Write the records of a partition that are kept. Raises StorageError, or CorruptionError if no replica is
    intact."""
    written: list[LiveSegment] = []
    try:
        with task.sources() as sources:
            kept = _find_kept(sources, task)
            surveys = [Survey(source.segment, kept.records(source), has_tombstones(source)) for source in sources]
            outputs = compaction.outputs(surveys, task.cleaning)
            by_offset = {source.segment.base_offset: source for source in sources}
            for output in outputs:
                if output.rewrite:
                    members = [by_offset[member.segment.base_offset] for member in output.members]
                    horizon_ms = output.delete_horizon_ms
                    written.append(write_file(members, task.replicas, task.target, True, kept, horizon_ms))
    except BaseException as error:
        discard([live.run for live in written], task.replicas.stores.__getitem__)
        if isinstance(error, DataLossError):
            return TaskResult(task.number, [], error.path)
        raise
    return TaskResult(task.number, _list_changes(task.segments, outputs, written))


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
    for number, entry in source.entries():
        if entry.null_values and kept.rows(source, source.row(entry), entry.count).true_count:
            values = source.read(number, [schema.VALUE]).column(0)
            survivors.remove(kept.first[source.segment.base_offset] + source.row(entry), values.is_null())
    source.close()


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
