"""Checks of consumers, groups and fences; see ``sparklog.testing.checks`` for the meaning of each kind of finding.

Ownership is an interval: from the end of the assignment in which a member learnt that it owns a partition to the
beginning of the revocation, or of the next assignment without it. A consumer's polls of a partition belong together as
long as it owns the partition and does not seek.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from sparklog.testing.findings import (
    GROUP_OFFSET_BACK,
    NON_MONOTONIC_POLL,
    SKIPPED_POLL,
    TWO_OWNERS,
    ZOMBIE_WRITE,
    CommittedOffset,
    Finding,
    GroupPartition,
    Index,
    Timeline,
)
from sparklog.testing.history import (
    ASSIGN,
    COMMIT_OFFSETS,
    COMMITTED,
    FAIL,
    INIT_PRODUCER,
    OFFSET_LOG,
    OK,
    POLL,
    RESET_OFFSETS,
    REVOKE,
    SEEK,
    SEND,
    TRANSACTION,
    History,
    Operation,
)
from sparklog.types import TopicPartition

EARLIEST = "earliest"


# -- polls


class _Progress(NamedTuple):
    """How far a consumer has read a partition: the next offset (-1: any), and the operation that set it."""

    next: int
    since: Operation


def polls(index: Index) -> Iterator[Finding]:
    """Check each consumer's polls of each partition, in the order in which it got them."""
    readers: dict[str, list[Operation]] = defaultdict(list)
    for operation in index.history.of(ASSIGN, REVOKE, SEEK, POLL):
        if operation.outcome == OK:
            readers[operation.reader].append(operation)
    for operations in readers.values():
        # Callbacks run within a poll, before it returns records: the order of the ends counts.
        operations.sort(key=lambda operation: (operation.completed, operation.order))
        yield from _polls_of_one(index, operations)


def first_polls(history: History) -> Iterator[tuple[Operation, TopicPartition, int]]:
    """Yield the first offset that a member got of each newly assigned partition, in groups that begin at the
    earliest."""
    fresh: dict[str, dict[TopicPartition, Operation]] = defaultdict(dict)
    owned: dict[str, set[TopicPartition]] = defaultdict(set)
    done = (o for o in history.of(ASSIGN, REVOKE, SEEK, POLL) if o.outcome == OK)
    for operation in sorted(done, key=lambda operation: (operation.completed, operation.order)):
        reader = operation.reader
        if operation.kind == POLL:
            for read in operation.reads:
                assign = fresh[reader].pop(read.topic_partition, None) if read.records else None
                if assign is not None:
                    yield assign, read.topic_partition, read.records[0][0]
            continue
        for partition in (*operation.partitions, *(position.topic_partition for position in operation.positions)):
            if operation.kind != ASSIGN or partition not in owned[reader]:
                fresh[reader].pop(partition, None)
            if operation.kind == ASSIGN and operation.reset == EARLIEST and partition not in owned[reader]:
                fresh[reader][partition] = operation
        if operation.kind == REVOKE:
            owned[reader].difference_update(operation.partitions)
        elif operation.kind == ASSIGN:
            owned[reader] = set(operation.partitions)


def _polls_of_one(index: Index, operations: Iterable[Operation]) -> Iterator[Finding]:
    progress: dict[TopicPartition, _Progress] = {}
    for operation in operations:
        if operation.kind == POLL:
            yield from _poll(index, operation, progress)
            continue
        begins = {position.topic_partition: position.offset for position in operation.positions}
        if operation.kind == ASSIGN:
            for partition in [partition for partition in progress if partition not in operation.partitions]:
                del progress[partition]
            begins = {
                partition: begins.get(partition, -1) for partition in operation.partitions if partition not in progress
            }
        if operation.kind == REVOKE:
            for partition in operation.partitions:
                progress.pop(partition, None)
        progress.update({partition: _Progress(offset, operation) for partition, offset in begins.items()})
        yield from _skipped_before(index, operation, begins)


def _poll(index: Index, poll: Operation, progress: dict[TopicPartition, _Progress]) -> Iterator[Finding]:
    for read in poll.reads:
        at = progress.get(read.topic_partition, _Progress(-1, poll))
        for offset, _ in read.records:
            if at.next >= 0 and offset < at.next:
                message = f"{poll.reader} got {read.topic_partition} offset {offset} when {at.next} was next"
                yield Finding(NON_MONOTONIC_POLL, message, (at.since, poll))
            elif at.next >= 0 and offset > at.next:
                between = index.between(read.topic_partition, at.next, offset)
                if between:
                    got = f"{poll.reader} got {read.topic_partition} offset {offset}"
                    message = f"{got} when {at.next} was next: {_list(between)}"
                    yield Finding(SKIPPED_POLL, f"{message} exist", (at.since, poll))
            elif at.next < 0 and at.since.kind == ASSIGN:
                yield from _skipped_before(index, at.since, {read.topic_partition: offset}, poll)
            at = _Progress(offset + 1, poll)
        progress[read.topic_partition] = at


def _skipped_before(
    index: Index, assign: Operation, begins: dict[TopicPartition, int], poll: Operation | None = None
) -> Iterator[Finding]:
    """A group that starts at the earliest begins no later than the highest offset that may have been committed."""
    if assign.kind != ASSIGN or not assign.group or assign.reset != EARLIEST:
        return
    until = (poll or assign).completed
    for partition, begin in begins.items():
        if begin <= 0:
            continue
        commits = index.commits.get((assign.group, partition))
        top = commits.highest_before(until) if commits else None
        highest = top.offset if top else 0
        between = index.between(partition, highest, begin)
        if between:
            possible = f"{assign.group} can have committed {highest} at most"
            message = f"{assign.reader} begins {partition} at {begin}, and {possible}: {_list(between)} exist"
            yield Finding(SKIPPED_POLL, message, (assign, *([poll] if poll else ())))


def _list(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    return shown if len(offsets) <= 5 else f"{shown} and {len(offsets) - 5} more"


# -- offsets of groups


def group_offsets_going_back(index: Index) -> Iterator[Finding]:
    """Offsets read or committed after an acknowledged commit must not be below it."""
    resets = _resets(index.history)
    for key, observed in _observations(index.history).items():
        if key not in index.acknowledged_commits:
            continue
        for seen in observed:
            top = index.acknowledged_commits[key].highest_before(seen.time)
            if top is not None and seen.offset < top.offset and not _reset_between(top, seen, resets.get(key, [])):
                message = f"{key[0]} had committed {top.offset} of {key[1]}, and later has {seen.offset}"
                yield Finding(GROUP_OFFSET_BACK, message, (top.operation, seen.operation))
    yield from _fallen_in_log(index.history, resets)


def _reset_between(top: CommittedOffset, seen: CommittedOffset, resets: Iterable[Operation]) -> bool:
    return any(top.operation.invoked < reset.completed and reset.invoked < seen.operation.completed for reset in resets)


def _observations(history: History) -> dict[GroupPartition, list[CommittedOffset]]:
    """Return commits that took effect, first offsets of new owners, and offsets that were read."""
    found: dict[GroupPartition, list[CommittedOffset]] = defaultdict(list)
    for assign, partition, offset in first_polls(history):
        found[assign.group, partition].append(CommittedOffset(offset, assign.asked, assign))
    for operation in history.of(COMMIT_OFFSETS, TRANSACTION, COMMITTED, ASSIGN):
        if operation.outcome != OK:
            continue
        owned = operation.kind == ASSIGN and operation.group and operation.reset == EARLIEST
        for position in operation.positions if owned else operation.offsets:
            key = (position.group or operation.group, position.topic_partition)
            found[key].append(CommittedOffset(position.offset, operation.asked, operation))
    return found


def _resets(history: History) -> dict[GroupPartition, list[Operation]]:
    """Return the operations after which a group may go back: resets by an administrator, and seeks of members."""
    found: dict[GroupPartition, list[Operation]] = defaultdict(list)
    for operation in history.of(RESET_OFFSETS, SEEK):
        if operation.outcome != FAIL:
            for position in (*operation.positions, *operation.offsets):
                found[position.group or operation.group, position.topic_partition].append(operation)
    return found


def _fallen_in_log(history: History, resets: dict[GroupPartition, list[Operation]]) -> Iterator[Finding]:
    for operation in history.of(OFFSET_LOG):
        highest: dict[GroupPartition, int] = {}
        for position in operation.offsets:
            key = (position.group or operation.group, position.topic_partition)
            top = highest.get(key, 0)
            if position.offset < top and key not in resets:
                message = f"in the commit log, {key[0]} has {position.offset} of {key[1]} after {top}"
                yield Finding(GROUP_OFFSET_BACK, message, (operation,))
            highest[key] = max(top, position.offset)


# -- fences


def zombie_producers(index: Index) -> Iterator[Finding]:
    """Check producers: each ``init_producer`` of a process begins an instance; a later one of the same id fences it."""
    instances: dict[str, list[Operation]] = defaultdict(list)
    for operation in index.history.of(INIT_PRODUCER):
        if operation.outcome == OK and operation.transactional_id:
            instances[operation.transactional_id].append(operation)
    for operation in index.history.of(SEND, TRANSACTION):
        own = _instance_of(operation, instances.get(operation.transactional_id, []))
        if own is None or operation.outcome == FAIL:
            continue
        visible = next((write.value for write in operation.writes if write.value in index.read_at), None)
        if operation.outcome != OK and visible is None:
            continue
        for newer in instances[operation.transactional_id]:
            if _is_newer(newer, own) and newer.completed < operation.asked:
                what = "was acknowledged" if operation.outcome == OK else f"is visible ({visible})"
                message = f"{operation.transactional_id} of {operation.reader} had been fenced, and its write {what}"
                yield Finding(ZOMBIE_WRITE, message, (own, newer, operation))
                break


def _is_newer(one: Operation, other: Operation) -> bool:
    by_epoch = one.producer_id == other.producer_id >= 0 and one.epoch > other.epoch >= 0
    return one.invoked > other.completed or by_epoch


def _instance_of(operation: Operation, instances: list[Operation]) -> Operation | None:
    """Return the ``init_producer`` of this operation's producer: the latest of the same process before it."""
    own = [init for init in instances if init.reader == operation.reader and init.completed <= operation.invoked]
    return max(own, key=lambda init: init.completed, default=None)


def zombie_members(index: Index) -> Iterator[Finding]:
    """Check that no member commits offsets for a partition that another owned in a newer generation by then."""
    assigned: dict[GroupPartition, list[CommittedOffset]] = defaultdict(list)
    for assign in index.history.of(ASSIGN):
        if assign.group:
            for partition in assign.partitions:
                assigned[assign.group, partition].append(CommittedOffset(assign.generation, assign.completed, assign))
    newest = {key: Timeline(generations) for key, generations in assigned.items()}
    for operation in index.history.of(COMMIT_OFFSETS, TRANSACTION):
        if operation.outcome != OK or not operation.member or operation.generation < 0:
            continue
        for position in operation.offsets:
            known = newest.get((position.group or operation.group, position.topic_partition))
            top = known.highest_before(operation.asked) if known else None
            if top is None or top.offset <= operation.generation or top.operation.owner == operation.owner:
                continue
            message = f"{operation.member} of generation {operation.generation} committed {position.topic_partition}"
            message = f"{message}, which {top.operation.member} owned in generation {top.offset}"
            yield Finding(ZOMBIE_WRITE, message, (top.operation, operation))
            break


# -- ownership


class _Owned(NamedTuple):
    start: float
    end: float
    owner: str
    assign: Operation


def two_owners(index: Index) -> Iterator[Finding]:
    for (group, partition, generation), intervals in _ownership(index.history).items():
        intervals.sort(key=lambda interval: interval[:3])
        for number, earlier in enumerate(intervals):
            for later in intervals[number + 1 :]:
                if later.start >= earlier.end:
                    break
                if later.owner != earlier.owner:
                    message = f"{earlier.owner} and {later.owner} own {partition} in generation {generation} of {group}"
                    yield Finding(TWO_OWNERS, message, (earlier.assign, later.assign))


def _ownership(history: History) -> dict[tuple[str, TopicPartition, int], list[_Owned]]:
    """Return the intervals of ownership of each group's partitions, by generation."""
    owned: dict[tuple[str, TopicPartition, int], list[_Owned]] = defaultdict(list)
    events: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.of(ASSIGN, REVOKE):
        events[operation.reader].append(operation)
    for operations in events.values():
        operations.sort(key=lambda operation: (operation.invoked, operation.order))
        for number, assign in enumerate(operations):
            if assign.kind != ASSIGN or not assign.group:
                continue
            ends = dict.fromkeys(assign.partitions, inf)
            for later in operations[number + 1 :]:
                if later.kind == ASSIGN:
                    ends = {partition: min(end, later.invoked) for partition, end in ends.items()}
                    break
                for partition in later.partitions:
                    ends[partition] = min(ends.get(partition, inf), later.invoked)
            for partition in assign.partitions:
                interval = _Owned(assign.completed, ends[partition], assign.owner, assign)
                owned[assign.group, partition, assign.generation].append(interval)
    return owned
