"""A violation of an invariant, and a history indexed so that violations are quick to find; see ``checks`` for the
invariants. Not for: checking."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from sparklog.testing.history import (
    COMMIT_OFFSETS,
    COMMITTED,
    OFFSET_LOG,
    OK,
    POLL,
    READ,
    RESET_OFFSETS,
    SEND,
    TRANSACTION,
    History,
    Operation,
    Write,
)
from sparklog.types import TopicPartition

FINDINGS = (
    (LOST_WRITE := "lost write"),
    (UNSEEN := "unseen"),
    (DUPLICATE := "duplicate"),
    (INCONSISTENT_OFFSETS := "inconsistent offsets"),
    (ABORTED_READ := "aborted read"),
    (TORN_TRANSACTION := "torn transaction"),
    (NON_MONOTONIC_POLL := "non-monotonic poll"),
    (SKIPPED_POLL := "skipped poll"),
    (ZOMBIE_WRITE := "zombie write"),
    (TWO_OWNERS := "two owners"),
    (GROUP_OFFSET_BACK := "group offset going back"),
)


class Finding(NamedTuple):
    """One violation: its kind (one of ``FINDINGS``), what is wrong, and the operations that prove it."""

    kind: str
    message: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.message}", *map(str, self.operations)])


GroupPartition = tuple[str, TopicPartition]


class CommittedOffset(NamedTuple):
    """An offset that an operation committed, may have committed, or read; ``time`` is that of the request."""

    offset: int
    time: float
    operation: Operation


class Timeline:
    """Offsets by time; finds the highest before a time."""

    def __init__(self, offsets: Iterable[CommittedOffset]) -> None:
        self.offsets = sorted(offsets, key=lambda committed: committed.time)
        self._times = [committed.time for committed in self.offsets]
        self._highest: list[CommittedOffset] = []
        for committed in self.offsets:
            before = self._highest[-1] if self._highest else committed
            self._highest.append(max(before, committed, key=lambda candidate: candidate.offset))

    def highest_before(self, time: float) -> CommittedOffset | None:
        """Return the highest offset before this time, excluding it."""
        count = bisect_left(self._times, time)
        return self._highest[count - 1] if count else None


class Index:
    """A history, indexed for the checks. Immutable once built.

    ``writer`` of each value; ``read_at`` where each value was read; ``values`` read at each offset; ``highest`` offset
    that was read; ``existing`` offsets that are known to hold a record, ascending. ``compacted`` are the partitions in
    which records with a later record of the same key may be gone.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.writer: dict[str, tuple[Operation, Write]] = {}
        self.read_at: dict[str, dict[tuple[TopicPartition, int], Operation]] = defaultdict(dict)
        self.values: dict[TopicPartition, dict[int, dict[str, Operation]]] = defaultdict(lambda: defaultdict(dict))
        self.finals: dict[TopicPartition, tuple[Operation, int, int]] = {}
        self.final_values: set[str] = set()
        self.acknowledged: list[tuple[Operation, Write]] = []
        for operation in history.of(SEND, TRANSACTION):
            for write in operation.writes:
                self.writer[write.value] = (operation, write)
                if operation.outcome == OK:
                    self.acknowledged.append((operation, write))
        for operation in history.of(POLL, READ):
            self._take_reads(operation)
        self.compacted = {
            read.topic_partition for operation in history.of(POLL, READ) for read in operation.reads if read.compacted
        }
        self.last_of_key = self._last_of_key()
        self.highest = {partition: max(offsets) for partition, offsets in self.values.items() if offsets}
        self.existing = self._existing()

    def _take_reads(self, operation: Operation) -> None:
        for read in operation.reads:
            values = self.values[read.topic_partition]
            for offset, value in read.records:
                values[offset].setdefault(value, operation)
                self.read_at[value].setdefault((read.topic_partition, offset), operation)
            if operation.kind == READ and operation.final:
                self.finals[read.topic_partition] = (operation, read.start, read.end)
                self.final_values.update(value for _, value in read.records)

    # -- offsets of groups

    @cached_property
    def commits(self) -> dict[GroupPartition, Timeline]:
        """All commits of offsets that may have happened, by the time of the request."""
        found: dict[GroupPartition, list[CommittedOffset]] = defaultdict(list)
        for operation in self.history.of(COMMIT_OFFSETS, RESET_OFFSETS, TRANSACTION):
            if operation.may_have_happened:
                for position in operation.offsets:
                    key = (position.group or operation.group, position.topic_partition)
                    found[key].append(CommittedOffset(position.offset, operation.asked, operation))
        return {key: Timeline(commits) for key, commits in found.items()}

    @cached_property
    def acknowledged_commits(self) -> dict[GroupPartition, Timeline]:
        """All acknowledged commits of offsets, by the time of the acknowledgement."""
        return {
            key: Timeline(
                CommittedOffset(committed.offset, committed.operation.completed, committed.operation)
                for committed in commits.offsets
                if committed.operation.outcome == OK
            )
            for key, commits in self.commits.items()
        }

    @cached_property
    def final_offsets(self) -> dict[GroupPartition, tuple[Operation, int]]:
        """The committed offsets of each group in the final reads."""
        return {
            (position.group or operation.group, position.topic_partition): (operation, position.offset)
            for operation in self.history.of(COMMITTED)
            if operation.final and operation.outcome == OK
            for position in operation.offsets
        }

    @cached_property
    def logged_offsets(self) -> dict[tuple[str, TopicPartition, int], Operation]:
        """The offsets that were ever in the commit log, each with the operation that read it there."""
        return {
            (position.group or operation.group, position.topic_partition, position.offset): operation
            for operation in self.history.of(OFFSET_LOG)
            for position in operation.offsets
        }

    def _existing(self) -> dict[TopicPartition, list[int]]:
        known: dict[TopicPartition, set[int]] = defaultdict(set)
        for partition, offsets in self.values.items():
            known[partition].update(offsets)
        for _, write in self.acknowledged:
            if write.offset >= self.first_kept(write.topic_partition):
                known[write.topic_partition].add(write.offset)
        for partition in self.compacted:  # of no other record is it certain
            known[partition].intersection_update(
                offset for (at, _), offset in self.last_of_key.items() if at == partition
            )
        return {partition: sorted(offset for offset in offsets if offset >= 0) for partition, offsets in known.items()}

    def _last_of_key(self) -> dict[tuple[TopicPartition, str], int]:
        """Return the highest offset of each key that was acknowledged or read."""
        found: dict[tuple[TopicPartition, str], int] = {}
        for _, write in self.writer.values():
            if write.topic_partition in self.compacted:
                offsets = [
                    write.offset,
                    *(at for partition, at in self.read_at.get(write.value, ()) if partition == write.topic_partition),
                ]
                key = (write.topic_partition, write.key)
                found[key] = max(found.get(key, -1), *offsets)
        return found

    def is_superseded(self, write: Write) -> bool:
        """Return whether compaction may have removed a record, since a later one has its key."""
        return (
            write.topic_partition in self.compacted
            and self.offset_of(write) < self.last_of_key[write.topic_partition, write.key]
        )

    def first_kept(self, partition: TopicPartition) -> int:
        """Return the log start offset at the end of the run; records below it were deleted."""
        return self.finals[partition][1] if partition in self.finals else 0

    def between(self, partition: TopicPartition, start: int, end: int) -> list[int]:
        """Return the offsets in ``[start, end)`` that hold a record."""
        offsets = self.existing.get(partition, [])
        lower = max(start, self.first_kept(partition))
        return offsets[bisect_left(offsets, lower) : bisect_left(offsets, end)]

    def offset_of(self, write: Write) -> int:
        """Return the offset of a write, or -1 if it is unknown."""
        if write.offset >= 0:
            return write.offset
        return next(
            (offset for partition, offset in self.read_at.get(write.value, ()) if partition == write.topic_partition),
            -1,
        )
