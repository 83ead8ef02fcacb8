"""Writes lost segments again from the retired files that they were made of.

Rolling and compaction write new files, and keep those that they replaced for ``file.delete.delay.ms`` or longer. While
these are still there, the records of a new file that is damaged or missing at every broker are not lost. What they hold
is known from the log's own history: the segments of these offsets right before the commit that replaced them.

    sources = RetiredSources(store, state, stores)
    origin = sources.find(topic, segment)      # the replaced segments, or why they cannot be used
    rewrite_lost(coordinator, origin)          # merges them again, and replaces the lost segment by the result

Rules: every byte of the sources is verified before anything is written. The new file has a name of its own, and becomes
part of the log by a commit like that of any roll, which is refused if anybody changed these offsets since. Compaction
is undone for these offsets: records that it had removed come back, until the next one. So they have to be superseded
still, when that is committed: after a later compaction, which may have removed the tombstones, nothing would remove
them again.
Not for: files of which a sound copy is left at some broker (``file_repair``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptionError, SparklogError
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck.file_checks import FileCopy, LiveRun, check_copy
from sparklog.maintenance.fsck.kinds import Repair
from sparklog.maintenance.fsck.log_end import LogUntil
from sparklog.maintenance.fsck.metadata_checks import check_metadata
from sparklog.maintenance.segments.merge import MergeTask, merge_segments
from sparklog.maintenance.segments.replacement import PreparedReplacement, SegmentReplacement, replicas_of, target_of
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.plan.compaction import NO_HORIZON
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Store


class SourceOrigin(NamedTuple):
    """What a lost segment was made of: ``sources`` have its offsets, no more and no less, each with a sound copy at one
    of the ``brokers``; or ``why_not``. ``has_none``: it was written by a producer, and replaced nothing.
    ``compacted_with``: the segments of the partition when a compaction removed records of this one; else empty."""

    topic: str
    lost: Segment
    sources: tuple[Segment, ...] = ()
    why_not: str = ""
    has_none: bool = False
    compacted_with: tuple[Segment, ...] = ()
    brokers: tuple[int, ...] = ()


class RetiredSources:
    """Finds the origins of lost segments at a state. Not thread-safe. Reads only; costs nothing until it is asked."""

    def __init__(self, root: Store, state: State, stores: Mapping[int, Store], fast: bool = False) -> None:
        self._root = root
        self._state = state
        self._stores = stores
        self._fast = fast
        self._past: dict[int, Mapping[str, TopicSegments]] = {}
        self._origins: dict[tuple[str, Segment], SourceOrigin] = {}

    def find(self, topic: str, lost: Segment) -> SourceOrigin:
        """Return the origin of a live segment. A storage that fails is a reason why it has none."""
        if (topic, lost) not in self._origins:
            try:
                self._origins[topic, lost] = self._find(topic, lost)
            except SparklogError as error:
                self._origins[topic, lost] = SourceOrigin(topic, lost, why_not=str(error))
        return self._origins[topic, lost]

    def _find(self, topic: str, lost: Segment) -> SourceOrigin:
        listed = self._lists_before(lost.version).get(topic)
        if listed is None:
            return SourceOrigin(
                topic, lost, why_not=f"the segments before commit {lost.version} are not known any more"
            )
        before = [
            segment
            for segment in listed.partition(lost.partition)
            if segment.base_offset < lost.end_offset and segment.end_offset > lost.base_offset
        ]
        why_not = describe_uncovered(lost, before)
        compacted_with: tuple[Segment, ...] = ()
        if not why_not and sum(segment.records for segment in before) > lost.records:
            then = self._lists_before(lost.version + 1).get(topic)
            now = self._lists_before(self._state.version + 1).get(topic)
            if then is None or now is None:
                why_not = f"the segments at commit {lost.version} are not known any more"
            else:
                compacted_with = tuple(then.partition(lost.partition))
                why_not = describe_returning(
                    lost, compacted_with, now.partition(lost.partition), listed.partition(lost.partition)
                )
        if why_not:
            return SourceOrigin(topic, lost, why_not=why_not, has_none=not before)
        brokers = dict.fromkeys(self._find_sound(topic, segment) for segment in before)
        return SourceOrigin(topic, lost, tuple(before), compacted_with=compacted_with, brokers=tuple(brokers))

    def _lists_before(self, version: int) -> Mapping[str, TopicSegments]:
        """Return the segments of all topics right before a commit; none if commits or checkpoints of that time are
        gone."""
        if version not in self._past:
            metadata = check_metadata(cast(Store, LogUntil(self._root, version - 1)))
            same = {
                name: listed
                for name, listed in metadata.lists.items()
                if name in self._state.topics
                and metadata.state.topics[name].topic_id == self._state.topics[name].topic_id
            }
            self._past[version] = same if metadata.state.version == version - 1 else {}
        return self._past[version]

    def _find_sound(self, topic: str, segment: Segment) -> int:
        """Return a broker at which a segment can be read, one in sync if there is one: of a file that is retired, any
        copy is as good. Raises CorruptionError."""
        why_not = "no location can be read"
        for broker in dict.fromkeys((*self._state.topics[topic].partitions[segment.partition].isr, *self._stores)):
            if broker in self._stores:
                copy = FileCopy(segment.path, broker, (LiveRun(topic, segment),))
                result = check_copy(self._stores[broker], copy, self._fast)
                if result.is_sound:
                    return broker
                why_not = result.findings[0].message
        raise CorruptionError(f"the retired {segment.path} is not sound: {why_not}", path=segment.path)


def describe_uncovered(lost: Segment, before: list[Segment]) -> str:
    """Return why the segments before a replacement do not have exactly the offsets of a lost one; else an empty
    text. Pure."""
    if not before:
        return f"commit {lost.version} replaced nothing: no other file ever had these offsets"
    start, end = before[0].base_offset, before[-1].end_offset
    if (start, end) != (lost.base_offset, lost.end_offset):
        return f"the segments before commit {lost.version} had offsets {start} to {end - 1}, across its bounds"
    for first, second in pairwise(before):
        if first.end_offset != second.base_offset:
            return f"no segment before commit {lost.version} has offset {first.end_offset}"
    return ""


def describe_returning(
    lost: Segment, then: Sequence[Segment], now: Iterable[Segment], before: Iterable[Segment] = ()
) -> str:
    """Return why records that compaction removed from a lost segment would come back for good; empty if they would be
    removed again. ``then`` are the segments when the lost one was written, ``now`` the live ones. Pure.

    What supersedes a record was in the log then, at a later offset. It still is if the segments of these offsets are
    of the same offsets and have no fewer records, or have a record at each offset. Those of a merged segment cannot be
    counted: one tombstone that is gone and one record that a repair brought back are as many as before.

    The one exception is a compaction after a repair: it removes what the repair brought back, and may drop the
    tombstone with it, whose delete horizon is that of an earlier pass. It is seen in the segments right ``before``.
    """
    changed = set(before) - set(then)
    if any(each.base_offset >= lost.end_offset and each.delete_horizon_ms != NO_HORIZON for each in changed):
        return _returning(lost)
    later = [segment for segment in then if segment.base_offset >= lost.end_offset]
    end = max((segment.end_offset for segment in later), default=0)
    records = {(segment.base_offset, segment.end_offset): segment.records for segment in later}
    offsets = sum(segment.end_offset - segment.base_offset for segment in later)
    for segment in now:
        if lost.end_offset <= segment.base_offset < end:
            offsets -= min(segment.end_offset, end) - segment.base_offset
            expected = records.get((segment.base_offset, segment.end_offset))
            if segment.has_gaps and (expected is None or segment.records < expected):
                break
    else:
        if offsets <= 0:
            return ""
    return _returning(lost)


def _returning(lost: Segment) -> str:
    return (
        f"{lost.path} was compacted, and so were later records: keys that were deleted would come back with "
        "records whose tombstones are gone. The files that it was made of are kept; `sparklog dump-log` shows them"
    )


def refuse_rewrite(origin: SourceOrigin) -> Repair:
    """Return the repair that was not made for this reason."""
    what = f"offsets {origin.lost.base_offset} to {origin.lost.end_offset - 1} not written again from retired files"
    return Repair(what=what, path=origin.lost.path, done=False, why_not=origin.why_not)


def rewrite_lost(coordinator: Coordinator, origin: SourceOrigin, dry_run: bool = False) -> Repair:
    """Replace a lost segment by one that is written from its retired ``sources``. A failure is the reason of a refused
    repair, not an error; if it is not known whether it was made, the reason says so."""
    lost, sources = origin.lost, origin.sources
    files = len({source.path for source in sources})
    what = f"offsets {lost.base_offset} to {lost.end_offset - 1} written again from {files} retired files"
    if dry_run:
        return Repair(what=what, path=lost.path, done=False)
    try:
        why_not = _rewrite(coordinator, origin)
    except SparklogError as error:
        why_not = str(error)
    return Repair(what=what, path=lost.path, done=not why_not, why_not=why_not)


def _rewrite(coordinator: Coordinator, origin: SourceOrigin) -> str:
    """Write and commit; return why that was refused, empty if it was done. Raises SparklogError."""
    topic, lost = origin.topic, origin.lost
    state = coordinator.refresh()
    topic_id, partition = state.topic(topic).topic_id, state.partition(topic, lost.partition)
    live = list(coordinator.segments(topic, state).partition(lost.partition))
    if lost not in live:
        return "it is no longer part of the log: another process changed these offsets"
    if origin.compacted_with and (why_not := describe_returning(lost, origin.compacted_with, live)):
        return why_not
    if partition.leader < 0:
        return "no replica in sync is online"
    replicas = replicas_of(coordinator, partition)
    replicas = replicas._replace(
        stores={**replicas.stores, **{broker: coordinator.store_of(broker) for broker in origin.brokers}},
        read=tuple(dict.fromkeys((*origin.brokers, *replicas.read))),
    )
    target = target_of(coordinator, state, topic, lost.partition)
    result = merge_segments(MergeTask(0, origin.sources, replicas, target, lost.closed))
    if result.missing:
        return f"{result.missing} was deleted in the meantime"
    end = origin.compacted_with[-1].end_offset if origin.compacted_with else 0
    read = [segment for segment in live if lost.base_offset <= segment.base_offset < end]
    change = Replacement(
        topic=topic,
        topic_id=topic_id,
        partition=lost.partition,
        start_offset=lost.base_offset,
        end_offset=lost.end_offset,
        removed=removed(topic_id, [lost]),
        added=[added for each in result.changes for added in each.added],
        decided_on=(read[0].base_offset, read[-1].end_offset) if read else None,
    )
    replacement = SegmentReplacement(coordinator, state)
    replacement.add(PreparedReplacement(change, [lost], replicas, read))
    replacement.finish()
    return "; ".join(replacement.counts.left_out)
