"""Which brokers a write goes to, and which written files may become part of the log.

Exactly the replicas that hold every live segment are in sync. So a write that misses some of them removes these from
the ISR; one that misses the leader makes another replica the leader, in the commit that appends it; and one that misses
all of them cannot be appended.

Rules: as in ``decide``. A partition with a single replica, the usual case, costs a comparison of two numbers.
Not for: offsets and sequences (``append``), expanding the ISR (``replicas``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import NotEnoughReplicasError, NotLeaderOrFollowerError, StaleWriteError
from sparklog.protocol.commits import ChangePartition, Run
from sparklog.protocol.decide.brokers import is_online, may_lack
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.partition_fold import holders, in_sync_after
from sparklog.protocol.state import PartitionState, State

ACKS_ALL = -1
"""Kafka's ``acks``: every in-sync replica takes the records. 1 and 0 require only the leader."""


# -- before anything is written


def brokers_to_write(
    state: State, topic: str, partition: int, acks: int = ACKS_ALL, resting: Container[int] = (), skipped: int = 0
) -> tuple[int, ...]:
    """Return the brokers that records of a partition are written to: the leader, others in sync, then those that are
    catching up.

    With ``acks`` 1 or 0 it is the leader alone, or the next in-sync broker after ``skipped`` ones that have failed.
    Brokers that are ``resting`` are not written to until they are in sync again.

    Raises UnknownTopicOrPartitionError, NotLeaderOrFollowerError for a partition without a leader, and
    NotEnoughReplicasError where too few replicas are in sync.
    """
    partition_state = state.partition(topic, partition)
    leader = partition_state.leader
    if leader < 0:
        raise NotLeaderOrFollowerError(
            f"{topic}-{partition} has no leader: none of its replicas {list(partition_state.replicas)} that hold all "
            "records is online; bring back one of these brokers",
            topic=topic,
            partition=partition,
        )
    if len(partition_state.replicas) == 1:
        return (leader,)
    in_sync = [leader, *(broker for broker in partition_state.isr if broker != leader)]
    if acks != ACKS_ALL:
        return (in_sync[skipped % len(in_sync)],)
    _check_enough(state, state.topics[topic].configs, topic, partition, partition_state.replicas, partition_state.isr)
    behind = [
        broker
        for broker in partition_state.replicas
        if broker not in partition_state.isr and broker not in resting and is_online(state, broker)
    ]
    return (*in_sync, *behind)


class Needs(NamedTuple):
    """Condition for appending a file to a partition: at least ``least`` in-sync replicas hold it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    least: int


def needs(state: State, topic: str, partition: int, acks: int = ACKS_ALL) -> Needs:
    """Return what a file of a partition needs in this state. Raises UnknownTopicOrPartitionError."""
    partition_state = state.partition(topic, partition)
    least = _least(state, state.topics[topic].configs, partition_state.replicas) if acks == ACKS_ALL else 1
    return Needs(partition_state.replicas, partition_state.isr, least)


def check_copies(needed: Needs, topic: str, partition: int, run: Run) -> None:
    """Check that a written file is on enough brokers before its append is requested, while it can still be written
    again.

    Raises NotLeaderOrFollowerError, NotEnoughReplicasError.
    """
    in_sync = in_sync_after(needed.isr, run)
    if not in_sync:
        raise _on_none_in_sync(topic, partition, needed.isr, run)
    if len(in_sync) < needed.least:
        raise _not_enough(topic, partition, needed.replicas, in_sync, needed.least)


def _least(state: State, configs: Mapping[str, str], replicas: Sequence[int]) -> int:
    """Return how many in-sync replicas acks=all needs. As in Kafka, a partition with fewer replicas than
    ``min.insync.replicas`` needs all of them."""
    if len(replicas) == 1:
        return 1
    return min(TopicConfig.resolve(configs, state.configs).min_insync_replicas, len(replicas))


def _check_enough(
    state: State,
    configs: Mapping[str, str],
    topic: str,
    partition: int,
    replicas: Sequence[int],
    in_sync: Sequence[int],
) -> None:
    if len(in_sync) == len(replicas):
        return
    least = _least(state, configs, replicas)
    if len(in_sync) < least:
        raise _not_enough(topic, partition, replicas, in_sync, least)


def _not_enough(
    topic: str, partition: int, replicas: Sequence[int], in_sync: Sequence[int], least: int
) -> NotEnoughReplicasError:
    return NotEnoughReplicasError(
        f"{topic}-{partition} has {len(in_sync)} of its replicas {list(replicas)} in sync ({list(in_sync)}), and a "
        f"write with acks=all needs {least} (min.insync.replicas); bring the others back, or write with acks=1",
        topic=topic,
        partition=partition,
    )


def _on_none_in_sync(topic: str, partition: int, isr: Sequence[int], run: Run) -> NotLeaderOrFollowerError:
    return NotLeaderOrFollowerError(
        f"{run.path}, for {topic}-{partition}, is on brokers {list(holders(run))}, but not on an online broker of the "
        f"ISR ({list(isr)}); nothing was committed: write the records again",
        topic=topic,
        partition=partition,
        path=run.path,
    )


# -- when a file is appended


def check_not_stale(state: State, run: Run, topic: str, partition: int) -> None:
    """Raise StaleWriteError for a file at or below the fence of writers, which may be deleted at any time."""
    fence = state.writer_fence
    if fence <= NO_VERSION:
        return
    begun = begun_at(run.path)
    if begun <= fence:
        raise StaleWriteError(
            f"{run.path}, for {topic}-{partition}, was begun at version {begun} of the cluster, and uncommitted files "
            f"begun at version {fence} or before were fenced by a vacuum; nothing was committed: write the records "
            "again",
            topic=topic,
            partition=partition,
            path=run.path,
        )


def with_counted_copies(state: State, run: Run, topic: str, partition: int) -> Run:
    """Return the run without copies at locations that may lack the file (``may_lack``).

    A job that writes for an hour appends its files at the end; by then a disk may have been replaced and refilled with
    only the files that were part of the log, or a broker's id may be another location's. Raises
    NotLeaderOrFollowerError if no copy is left.
    """
    written = holders(run)
    kept = [broker for broker in written if not may_lack(state, broker, run.path)]
    if len(kept) == len(written):
        return run
    if not kept:
        raise NotLeaderOrFollowerError(
            f"{run.path}, for {topic}-{partition}, was written to brokers {list(written)}, whose locations were "
            "registered, replaced or moved since, or have lost files; nothing was committed: write the records again",
            topic=topic,
            partition=partition,
            path=run.path,
        )
    return replace(run, broker=run.broker if run.broker in kept else kept[0], replicas=kept)


def is_led_alone(partition: PartitionState, run: Run) -> bool:
    """Return whether the run is on the single replica of its partition: then leader and ISR do not change."""
    return partition.leader == run.broker and len(partition.replicas) == 1 and not run.replicas


def with_copies(
    state: State, configs: Mapping[str, str], topic: str, number: int, partition: PartitionState, run: Run, acks: int
) -> PartitionState:
    """Return the partition with its leader and ISR after an append: in-sync replicas without the file leave the ISR.

    ``configs`` are the topic's. A leader without a copy is replaced by the first replica that has one, in the next
    epoch. Raises NotLeaderOrFollowerError if no replica may lead, NotEnoughReplicasError if too few are in sync.
    """
    isr = in_sync_after(partition.isr, run)
    leader, epoch = partition.leader, partition.leader_epoch
    if leader not in isr:
        eligible = [broker for broker in partition.replicas if broker in isr and is_online(state, broker)]
        if not eligible:
            raise _on_none_in_sync(topic, number, partition.isr, run)
        leader, epoch = eligible[0], epoch + 1
    if acks == ACKS_ALL:
        _check_enough(state, configs, topic, number, partition.replicas, isr)
    return replace(partition, isr=isr, leader=leader, leader_epoch=epoch)


def make_partition_change(topic: str, topic_id: str, number: int, partition: PartitionState) -> ChangePartition:
    """Return the action that sets the leader, epoch, ISR and replicas of a partition to those of this state."""
    return ChangePartition(
        topic=topic,
        topic_id=topic_id,
        partition=number,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        replicas=list(partition.replicas),
        adding=list(partition.adding),
        removing=list(partition.removing),
    )
