"""Checks of records and transactions; see ``sparklog.testing.checks`` for the meaning of each kind of finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sparklog.testing.findings import (
    ABORTED_READ,
    DUPLICATE,
    INCONSISTENT_OFFSETS,
    LOST_WRITE,
    TORN_TRANSACTION,
    UNSEEN,
    Finding,
    Index,
)
from sparklog.testing.history import COMMIT_OFFSETS, FAIL, READ, RESET_OFFSETS, TRANSACTION, Operation, Write
from sparklog.types import TopicPartition

# -- writes and reads


def lost_writes(index: Index) -> Iterator[Finding]:
    """Jepsen's rule: every acknowledged record below the highest offset that was read must have been read."""
    for operation, write in index.acknowledged:
        if (
            write.value in index.read_at
            or write.offset < index.first_kept(write.topic_partition)
            or index.is_superseded(write)
        ):
            continue
        top = index.highest.get(write.topic_partition, -1)
        if 0 <= write.offset < top:
            reader = next(iter(index.values[write.topic_partition][top].values()))
            message = (
                f"{write.value} at {write.topic_partition} offset {write.offset} was never read, but offset {top} was"
            )
            yield Finding(LOST_WRITE, message, (operation, reader))


def unseen(index: Index) -> Iterator[Finding]:
    """The final read, if there is one, must contain every record that was acknowledged or ever read."""
    for operation, write in index.acknowledged:
        final = index.finals.get(write.topic_partition)
        if final is None or write.value in index.read_at or operation.completed >= final[0].invoked:
            continue
        if index.is_superseded(write):
            continue
        if not 0 <= write.offset < index.highest.get(write.topic_partition, -1) and not 0 <= write.offset < final[1]:
            message = f"{write.value} at {write.topic_partition} offset {write.offset} was acknowledged, but never read"
            yield Finding(UNSEEN, message, (operation, final[0]))
    for value, partitions in index.read_at.items():
        if value in index.final_values or (value in index.writer and index.is_superseded(index.writer[value][1])):
            continue
        for (partition, offset), reader in partitions.items():
            final = index.finals.get(partition)
            if final is not None and offset >= final[1] and reader.completed < final[0].invoked:
                message = f"{value} at {partition} offset {offset} was read once, but is not in the final read"
                yield Finding(UNSEEN, message, (reader, final[0]))
                break


def duplicates(index: Index) -> Iterator[Finding]:
    for value, partitions in index.read_at.items():
        if len(partitions) > 1:
            where = ", ".join(f"{partition} offset {offset}" for partition, offset in sorted(partitions))
            proof = [index.writer[value][0]] if value in index.writer else []
            yield Finding(DUPLICATE, f"{value} is at {where}", (*proof, *partitions.values()))


def inconsistent_offsets(index: Index) -> Iterator[Finding]:
    for partition, offsets in index.values.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                message = f"{partition} offset {offset} holds {' and '.join(sorted(values))}"
                yield Finding(INCONSISTENT_OFFSETS, message, tuple(values.values()))
    told: dict[tuple[TopicPartition, int], tuple[Operation, Write]] = {}
    for operation, write in index.acknowledged:
        if write.offset < 0:
            continue
        other = told.setdefault((write.topic_partition, write.offset), (operation, write))
        if other[1].value != write.value:
            both = f"{other[1].value} and {write.value}"
            message = f"{both} were both acknowledged at {write.topic_partition} offset {write.offset}"
            yield Finding(INCONSISTENT_OFFSETS, message, (other[0], operation))
        partitions = index.read_at.get(write.value)
        if partitions and (write.topic_partition, write.offset) not in partitions:
            where = ", ".join(f"{partition} offset {offset}" for partition, offset in partitions)
            message = (
                f"{write.value} was acknowledged at {write.topic_partition} offset {write.offset}, and read at {where}"
            )
            yield Finding(INCONSISTENT_OFFSETS, message, (operation, *partitions.values()))


def aborted_reads(index: Index) -> Iterator[Finding]:
    for value, partitions in index.read_at.items():
        written = index.writer.get(value)
        first = min(partitions.values(), key=lambda reader: reader.completed)
        if written is None:
            yield Finding(ABORTED_READ, f"{value} was read, but never sent", (first,))
            continue
        writer = written[0]
        if writer.outcome == FAIL:
            yield Finding(ABORTED_READ, f"{value} was read, but its write failed", (writer, first))
        elif not writer.may_have_happened:
            yield Finding(ABORTED_READ, f"{value} was read, but its transaction was never committed", (writer, first))
        elif first.completed < writer.asked:
            yield Finding(ABORTED_READ, f"{value} was read before its commit was requested", (writer, first))


# -- transactions


def torn_transactions(index: Index) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    for finding in (*_torn_in_snapshots(index), *_torn_in_polls(index), *_torn_from_offsets(index)):
        key = (finding.operations[0].process, finding.operations[0].number)
        if key not in seen:  # once per transaction
            seen.add(key)
            yield finding


def _torn_in_snapshots(index: Index) -> Iterator[Finding]:
    """Each read of ranges is at one version of the cluster: it contains all of a transaction or nothing."""
    for snapshot in index.history.of(READ):
        values = {value for read in snapshot.reads for _, value in read.records}
        starts = {read.topic_partition: read.start for read in snapshot.reads}
        touched: dict[tuple[str, int], Operation] = {}
        for value in values:
            writer = index.writer.get(value)
            if writer is not None and writer[0].kind == TRANSACTION:
                touched[writer[0].process, writer[0].number] = writer[0]
        for transaction in touched.values():
            for write in transaction.writes:
                if write.value in values or write.topic_partition not in starts or index.is_superseded(write):
                    continue
                offset = index.offset_of(write)
                if offset >= starts[write.topic_partition] or (offset < 0 and starts[write.topic_partition] == 0):
                    visible = next(w.value for w in transaction.writes if w.value in values)
                    message = f"{visible} is visible, but {write.value} of {write.topic_partition} is not"
                    yield Finding(TORN_TRANSACTION, message, (transaction, snapshot))
                    break


def _torn_in_polls(index: Index) -> Iterator[Finding]:
    """One write of a transaction was read, and reads went past another one that was never read."""
    for transaction in index.history.of(TRANSACTION):
        visible = [write for write in transaction.writes if write.value in index.read_at]
        if not visible or len(visible) == len(transaction.writes):
            continue
        for write in transaction.writes:
            if index.is_superseded(write):
                continue
            past = (
                index.first_kept(write.topic_partition) <= write.offset < index.highest.get(write.topic_partition, -1)
            )
            if write.offset >= 0 and past and write.value not in index.read_at:
                message = f"{visible[0].value} was read, but all reads of {write.topic_partition} skipped {write.value}"
                reader = next(iter(index.read_at[visible[0].value].values()))
                yield Finding(TORN_TRANSACTION, message, (transaction, reader))
                break


def _torn_from_offsets(index: Index) -> Iterator[Finding]:
    """With a final read of the group: the offsets of a transaction are committed if and only if its writes are
    visible."""
    sources = _sources_of_offsets(index)
    for transaction in index.history.of(TRANSACTION):
        covered = [write for write in transaction.writes if write.topic_partition in index.finals]
        visible = [write for write in covered if write.value in index.final_values]
        for position in transaction.offsets:
            group, partition, offset = position.group or transaction.group, position.topic_partition, position.offset
            reader, final = index.final_offsets.get((group, partition), (None, -1))
            if reader is not None and visible and final < offset:
                message = f"{visible[0].value} is visible, but {group} has {final} of {partition}, not {offset}"
                yield Finding(TORN_TRANSACTION, message, (transaction, reader))
            there = index.logged_offsets.get((group, partition, offset)) or (reader if final == offset else None)
            if covered and not visible and there is not None and sources[group, partition, offset] == 1:
                message = f"{group} has offset {offset} of {partition}, but {covered[0].value} is not visible"
                yield Finding(TORN_TRANSACTION, message, (transaction, there))


def _sources_of_offsets(index: Index) -> Counter[tuple[str, TopicPartition, int]]:
    """Count the operations that may have committed each offset."""
    return Counter(
        (position.group or operation.group, position.topic_partition, position.offset)
        for operation in index.history.of(TRANSACTION, COMMIT_OFFSETS, RESET_OFFSETS)
        for position in operation.offsets
    )
