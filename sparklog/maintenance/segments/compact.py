"""Compaction: a log keeps the latest record of each key, under the offset it always had.

    counts = compact(coordinator, InProcess())

One task takes one partition: it finds the latest record of each key (``latest_records``), drops tombstones whose time
has come, and writes what survives into new files, except for large ones that nothing is taken from. All changes of a
partition are committed together or not at all, with how far the pass came.

Rules: which partitions, up to where, and how files are made up is decided by ``protocol.compaction`` on one state; the
dirtiest come first. A partition that another job got in the way of is left out, and planned again next time.
Not for: merging without removing (``roll``), and deletion by age and size (``retention``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.format import schema
from sparklog.maintenance.runner import TaskRunner
from sparklog.maintenance.segments.files import Places, Source, SourceMissingError, delete_files
from sparklog.maintenance.segments.merge import Kept, Target, write_file
from sparklog.maintenance.segments.offset_map import LatestRecords, find_latest
from sparklog.maintenance.segments.replacement import (
    Counts,
    Replaced,
    SegmentReplacement,
    missing_source,
    places_of,
    target_of,
)
from sparklog.protocol.commits import LiveSegment
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.plan import compaction, rolling
from sparklog.protocol.plan.compaction import NO_HORIZON, LogToClean, Output, Pass, Survey
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State


class CompactTask(NamedTuple):
    """A pass over ``segments``, which begin a partition. ``number`` is for whoever made the task; ``memory_bytes`` is
    what it may use for keys."""

    number: int
    segments: Sequence[Segment]
    cleaning: Pass
    places: Places
    target: Target
    memory_bytes: int


class Change(NamedTuple):
    """The segments inside ``[start_offset, end_offset)`` give way to these."""

    start_offset: int
    end_offset: int
    added: list[LiveSegment]


class Compacted(NamedTuple):
    """What a task made. ``missing`` instead, where a file was gone: another job may have been here first."""

    number: int
    changes: list[Change]
    missing: str = ""


def compact(coordinator: Coordinator, runner: TaskRunner, topics: Collection[str] | None = None) -> Counts:
    """Clean what is due in all compacted topics, or in these. What a task raises is raised once the others are
    committed.

    Errors as ``SegmentReplacement``; StorageError, CorruptionError where no replica is intact;
    UnknownTopicOrPartitionError.
    """
    state = coordinator.refresh()
    replacing = SegmentReplacement(coordinator, state)
    planned = list(_plan(coordinator, state, topics))
    with replacing.committed_at_the_end():
        for result in runner.run(compact_partition, (one.task for one in planned)):
            replacing.take(partial(_replaced, coordinator, state, planned[result.number], result))
    return replacing.counts


# -- planning and committing


class _Planned(NamedTuple):
    topic: str
    task: CompactTask


def _plan(coordinator: Coordinator, state: State, topics: Collection[str] | None) -> Iterator[_Planned]:
    """A task for each partition that is due, the dirtiest first."""
    cluster = ClusterConfig.resolve(state.configs)
    if not cluster.get("log.cleaner.enable"):
        return
    memory_bytes = cast(int, cluster.get("log.cleaner.dedupe.buffer.size"))
    now_ms = coordinator.expiry_time_ms()
    due: list[tuple[str, int, LogToClean, Pass]] = []
    for name in sorted(state.topics if topics is None else topics):
        topic = state.topic(name)
        config = TopicConfig.resolve(topic.configs, state.configs)
        rules = compaction.rules_of(config)
        if rules is None:
            continue
        for partition, held in enumerate(topic.partitions):
            if not held.segments or held.leader < 0:
                continue
            live = coordinator.segments(name, state).partition(partition)
            groups = rolling.groups(live, rolling.rules_of(config, topic.topic_id, partition))
            log = compaction.log_to_clean(groups, held, rules, now_ms)
            if log is not None and compaction.is_due(log, rules):
                due.append((name, partition, log, Pass(log.first_dirty_offset, now_ms, rules)))
    due.sort(key=lambda one: -one[2].dirty_ratio)
    for number, (name, partition, log, cleaning) in enumerate(due):
        places = places_of(coordinator, state.partition(name, partition))
        assert places is not None
        target = target_of(coordinator, state, name, partition)
        yield _Planned(name, CompactTask(number, tuple(log.segments), cleaning, places, target, memory_bytes))


def _replaced(coordinator: Coordinator, state: State, planned: _Planned, result: Compacted) -> list[Replaced]:
    """What a task's result is to be put in the place of. Raises as ``missing_source`` where it found a file missing."""
    topic, task = planned
    if result.missing:
        raise missing_source(coordinator, state, topic, task.segments, result.missing)
    topic_id = state.topic(topic).topic_id
    found: list[Replaced] = []
    for number, change in enumerate(result.changes):
        old = [one for one in task.segments if change.start_offset <= one.base_offset < change.end_offset]
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
        found.append(Replaced(replacement, old, task.places))
    return found


# -- the task


def compact_partition(task: CompactTask) -> Compacted:
    """Write what survives of a partition. Raises StorageError, or CorruptionError where no replica is intact."""
    sources = [Source(segment, task.places) for segment in task.segments]
    written: list[LiveSegment] = []
    try:
        kept = _kept(sources, task)
        surveys = [Survey(source.segment, kept.records(source), _has_tombstones(source)) for source in sources]
        outputs = compaction.outputs(surveys, task.cleaning)
        by_offset = {source.segment.base_offset: source for source in sources}
        for output in outputs:
            if output.rewrite:
                members = [by_offset[member.segment.base_offset] for member in output.members]
                made = write_file(members, task.places, task.target, kept)
                written.append(made.live(True, output.delete_horizon_ms if made.tombstones else NO_HORIZON))
    except BaseException as error:
        delete_files(task.places, [live.run.path for live in written])
        if isinstance(error, SourceMissingError):
            return Compacted(task.number, [], error.path)
        raise
    return Compacted(task.number, _changes(task.segments, outputs, written))


def _kept(sources: Sequence[Source], task: CompactTask) -> Kept:
    """The latest record of each key, without the tombstones whose time has come."""
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


def _changes(segments: Iterable[Segment], outputs: Sequence[Output], written: Sequence[LiveSegment]) -> list[Change]:
    """The stretches of a log in which segments are replaced; between them are those that stay."""
    stays = {output.members[0].segment.base_offset for output in outputs if not output.rewrite}
    found: list[Change] = []
    for kept, run in groupby(segments, key=lambda segment: segment.base_offset in stays):
        if not kept:
            stretch = list(run)
            start, end = stretch[0].base_offset, stretch[-1].end_offset
            found.append(Change(start, end, [live for live in written if start <= live.base_offset < end]))
    return found
