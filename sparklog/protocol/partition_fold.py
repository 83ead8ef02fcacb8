"""The fold of one partition: how its state changes with appends, changes of segments, and changes of replicas.

Rules: pure. Offsets never change and are never reused: replacements and deletions keep the log end offset. Only
replicas that hold every live segment are in sync, so each run that becomes part of the log removes replicas without a
copy of it from the ISR. ``..._problem`` describes a contradiction with the state; it is empty if there is none.
Not for: whether a change is allowed (``decide``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from immutables import Map
from msgspec.structs import replace

from sparklog import limits
from sparklog.protocol.commits import Append, ChangePartition, DeleteSegments, ReplaceSegments, Run
from sparklog.protocol.state import PartitionProducer, PartitionState, SegmentChange, SequenceRange


def holders(run: Run) -> tuple[int, ...]:
    """Return the brokers that hold a run's file."""
    return tuple(run.replicas) or (run.broker,)


def in_sync_after(isr: tuple[int, ...], run: Run) -> tuple[int, ...]:
    """Return the replicas still in sync once this run is part of the log."""
    return still_in_sync(isr, holders(run))


def still_in_sync(isr: Sequence[int], written: Collection[int]) -> tuple[int, ...]:
    """Return the replicas still in sync once a run that was written to these brokers is part of the log."""
    return tuple(broker for broker in isr if broker in written)


def followed_from(partition: PartitionState, run: Run) -> dict[int, int]:
    """Return for each replica that is not in sync the offset from which on it got every append, including this one."""
    written = holders(run)
    behind = [broker for broker in partition.replicas if broker in written and broker not in partition.isr]
    return {broker: partition.followed_from.get(broker, partition.log_end_offset) for broker in behind}


def replacement_problem(partition: PartitionState, action: ReplaceSegments) -> str:
    """Check that the new segments are in order and inside the range, and that counts fit. Empty if so."""
    start, end, removed = action.start_offset, action.end_offset, action.removed
    if not start < end <= partition.log_end_offset:
        return f"offsets {start} to {end} are not part of a log that ends at {partition.log_end_offset}"
    if removed.segments > partition.segments or removed.size_bytes > partition.size_bytes:
        return f"{removed.segments} segments of {removed.size_bytes} bytes are more than there are"
    if removed.unfit > partition.unfit:
        return f"{removed.unfit} records that do not fit are more than there are"
    at = start
    for added in action.added:
        base, next_offset = added.base_offset, added.end_offset
        if base < at or next_offset > end or not 1 <= added.run.records <= next_offset - base:
            return f"{added.run.records} records for offsets {base} to {next_offset}, expected within {at} to {end}"
        at = next_offset
    return ""


def apply_replacement(partition: PartitionState, action: ReplaceSegments, version: int) -> PartitionState:
    isr = partition.isr
    for added in action.added:
        isr = in_sync_after(isr, added.run)
    return replace(
        partition,
        isr=isr,
        leader=partition.leader if partition.leader in isr else -1,
        segments=partition.segments - action.removed.segments + len(action.added),
        size_bytes=partition.size_bytes - action.removed.size_bytes + sum(a.run.size_bytes for a in action.added),
        unfit=partition.unfit - action.removed.unfit + sum(added.unfit for added in action.added),
        cleaned_offset=partition.cleaned_offset if action.cleaned_offset < 0 else action.cleaned_offset,
        changes=_with_change(partition, SegmentChange(version, action.start_offset, action.end_offset)),
    )


def deletion_problem(partition: PartitionState, action: DeleteSegments) -> str:
    if action.end_offset > partition.log_end_offset:
        return f"the log ends at {partition.log_end_offset}, before {action.end_offset}"
    if action.removed.segments > partition.segments or action.removed.size_bytes > partition.size_bytes:
        return f"{action.removed.segments} segments of {action.removed.size_bytes} bytes are more than there are"
    if action.removed.unfit > partition.unfit:
        return f"{action.removed.unfit} records that do not fit are more than there are"
    return ""


def apply_deletion(partition: PartitionState, action: DeleteSegments, version: int) -> PartitionState:
    return replace(
        partition,
        log_start_offset=max(partition.log_start_offset, action.end_offset),
        segments=partition.segments - action.removed.segments,
        size_bytes=partition.size_bytes - action.removed.size_bytes,
        unfit=partition.unfit - action.removed.unfit,
        changes=_with_change(partition, SegmentChange(version, 0, action.end_offset)),
    )


def _with_change(partition: PartitionState, change: SegmentChange) -> tuple[SegmentChange, ...]:
    return (*partition.changes, change)[-limits.SEGMENT_CHANGES_KEPT :]


def leadership_problem(partition: PartitionState, action: ChangePartition) -> str:
    if not action.replicas or len(set(action.replicas)) != len(action.replicas):
        return f"replicas {action.replicas}"
    if not set(action.isr) <= set(action.replicas):
        return f"in-sync replicas {action.isr} are not all replicas {action.replicas}"
    if action.leader >= 0 and action.leader not in action.isr:
        return f"leader {action.leader} is not in sync ({action.isr})"
    if action.leader_epoch < partition.leader_epoch:
        return f"leader epoch {action.leader_epoch} is before {partition.leader_epoch}"
    return ""


def apply_leadership(partition: PartitionState, action: ChangePartition) -> PartitionState:
    return replace(
        partition,
        leader=action.leader,
        leader_epoch=action.leader_epoch,
        isr=tuple(action.isr),
        replicas=tuple(action.replicas),
        adding=tuple(action.adding),
        removing=tuple(action.removing),
        followed_from={
            broker: offset
            for broker, offset in partition.followed_from.items()
            if broker in action.replicas and broker not in action.isr
        },
    )


# -- appends


def apply_append(partition: PartitionState, action: Append, timestamp_ms: int) -> PartitionState:
    """Return the partition after an append, with the producer's latest appends."""
    run = action.run
    newest_us = timestamp_ms * 1000 if action.log_append_time else run.max_timestamp_us
    producers = partition.producers
    if action.producer_id >= 0:
        producers = _with_producer(partition, action, timestamp_ms)
    return replace(
        partition,
        isr=partition.isr if len(partition.isr) == 1 else in_sync_after(partition.isr, run),
        log_end_offset=partition.log_end_offset + run.records,
        segments=partition.segments + 1,
        size_bytes=partition.size_bytes + run.size_bytes,
        max_timestamp_us=max(partition.max_timestamp_us, newest_us),
        producers=producers,
        followed_from=followed_from(partition, run) if len(partition.replicas) > 1 else {},
    )


def _with_producer(partition: PartitionState, action: Append, timestamp_ms: int) -> Map[int, PartitionProducer]:
    """Return the partition's producers after an append."""
    producer = partition.producers.get(action.producer_id)
    earlier = producer.appends if producer is not None and producer.epoch == action.producer_epoch else ()
    latest = SequenceRange(
        action.base_sequence,
        last_sequence(action.base_sequence, action.run.records),
        action.base_offset,
        action.run.records,
    )
    updated = PartitionProducer(
        epoch=action.producer_epoch,
        appends=(*earlier, latest)[-limits.IDEMPOTENT_BATCHES_KEPT :],
        timestamp_ms=timestamp_ms,
    )
    return partition.producers.set(action.producer_id, updated)


def last_sequence(base_sequence: int, records: int) -> int:
    """Return the sequence of the last of ``records`` records; sequences wrap to 0 after 2^31 - 1, as in Kafka."""
    return (base_sequence + records - 1) % 2**31
