"""Which brokers a write goes to, and which written files may become part of the log.

In sync are exactly the replicas that hold every live segment. So a write that some of them do not get takes these out
of the ISR; one that the leader does not get makes another replica the leader, in the commit that appends it; and one
that none of them gets cannot be appended.

Rules: as in ``decide``. A partition with a single replica, which nearly all have, costs a comparison of two numbers.
Not for: offsets and sequences (``decide``), taking brokers back in.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import NotEnoughReplicasError, NotLeaderOrFollowerError, StaleWriteError
from sparklog.protocol.commits import ChangePartition, Run
from sparklog.protocol.decide.brokers import may_lack
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.partition_fold import holders, in_sync_after
from sparklog.protocol.state import PartitionState, State

ACKS_ALL = -1
"""Kafka's ``acks``: every replica in sync takes the records. 1 and 0 ask for the leader alone."""


# -- before anything is written


def brokers_to_write(
    state: State, topic: str, partition: int, acks: int = ACKS_ALL, resting: Container[int] = (), skipped: int = 0
) -> tuple[int, ...]:
    """The brokers that records of a partition go to: the leader, others in sync, then those that are to catch up.

    With ``acks`` 1 or 0 it is the leader alone, or where so many in sync are ``skipped`` as they have failed, the next
    of them. Brokers that are ``resting`` need not be written to before they are in sync again.

    Raises UnknownTopicOrPartitionError, NotLeaderOrFollowerError for a partition without a leader, and
    NotEnoughReplicasError where too few replicas are in sync.
    """
    found = state.partition(topic, partition)
    leader = found.leader
    if leader < 0:
        raise NotLeaderOrFollowerError(
            f"{topic}-{partition} has no leader: none of its replicas {list(found.replicas)} that hold all records is "
            "online; bring back one of these brokers",
            topic=topic,
            partition=partition,
        )
    if len(found.replicas) == 1:
        return (leader,)
    in_sync = [leader, *(broker for broker in found.isr if broker != leader)]
    if acks != ACKS_ALL:
        return (in_sync[skipped % len(in_sync)],)
    _check_enough(state, state.topics[topic].configs, topic, partition, found.replicas, found.isr)
    behind = [
        broker
        for broker in found.replicas
        if broker not in found.isr and broker not in resting and _is_online(state, broker)
    ]
    return (*in_sync, *behind)


class Needs(NamedTuple):
    """Who has to hold a file before it is appended to a partition: ``least`` of those in sync."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    least: int


def needs(state: State, topic: str, partition: int, acks: int = ACKS_ALL) -> Needs:
    """What a file of a partition needs, as far as is known now. Raises UnknownTopicOrPartitionError."""
    found = state.partition(topic, partition)
    least = _least(state, state.topics[topic].configs, found.replicas) if acks == ACKS_ALL else 1
    return Needs(found.replicas, found.isr, least)


def check_copies(needed: Needs, topic: str, partition: int, run: Run) -> None:
    """Whether a file that is written is on enough brokers, before it is asked for: then it can be written again.

    Raises NotLeaderOrFollowerError, NotEnoughReplicasError.
    """
    have = in_sync_after(needed.isr, run)
    if not have:
        raise _on_none_in_sync(topic, partition, needed.isr, run)
    if len(have) < needed.least:
        raise _not_enough(topic, partition, needed.replicas, have, needed.least)


def _least(state: State, configs: Mapping[str, str], replicas: Sequence[int]) -> int:
    """As in Kafka, a partition with fewer replicas than ``min.insync.replicas`` needs all of them."""
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
        f"{run.path}, for {topic}-{partition}, is on brokers {list(holders(run))}, and of those in sync ({list(isr)}) "
        "none that is online has it; nothing was committed: write the records again",
        topic=topic,
        partition=partition,
        path=run.path,
    )


# -- when it is to be appended


def check_not_stale(state: State, run: Run, topic: str, partition: int) -> None:
    """Raise StaleWriteError for a file at or below the fence of writers, which may be deleted at any time."""
    fence = state.writer_fence
    if fence <= NO_VERSION:
        return
    begun = begun_at(run.path)
    if begun <= fence:
        raise StaleWriteError(
            f"{run.path}, for {topic}-{partition}, was begun at version {begun} of the cluster, and files of version "
            f"{fence} and before were given up as left behind; nothing was committed: write the records again",
            topic=topic,
            partition=partition,
            path=run.path,
        )


def with_counted_copies(state: State, run: Run, topic: str, partition: int) -> Run:
    """The run without the copies whose location lost files after they were begun.

    A job that writes for an hour asks for its files at the end; a disk may have been replaced by then, and filled with
    what was part of the log. Raises NotLeaderOrFollowerError where no copy is left.
    """
    held = holders(run)
    kept = [broker for broker in held if not may_lack(state, broker, run.path)]
    if len(kept) == len(held):
        return run
    if not kept:
        raise NotLeaderOrFollowerError(
            f"{run.path}, for {topic}-{partition}, was written to brokers {list(held)}, whose locations have lost "
            "files since; nothing was committed: write the records again",
            topic=topic,
            partition=partition,
            path=run.path,
        )
    return replace(run, broker=run.broker if run.broker in kept else kept[0], replicas=kept)


def is_led_alone(partition: PartitionState, run: Run) -> bool:
    """Whether the run is on the single replica of its partition: then nobody's part in it changes."""
    return partition.leader == run.broker and len(partition.replicas) == 1 and not run.replicas


def with_copies(
    state: State, configs: Mapping[str, str], topic: str, number: int, partition: PartitionState, run: Run, acks: int
) -> PartitionState:
    """Who leads a partition and who is in sync once a run is appended: of those who were, who holds its file.

    ``configs`` are the topic's. A leader without a copy gives way to the first replica that has one, in the next epoch.
    Raises NotLeaderOrFollowerError where none may lead, NotEnoughReplicasError where too few are left.
    """
    isr = in_sync_after(partition.isr, run)
    leader, epoch = partition.leader, partition.leader_epoch
    if leader not in isr:
        able = [broker for broker in partition.replicas if broker in isr and _is_online(state, broker)]
        if not able:
            raise _on_none_in_sync(topic, number, partition.isr, run)
        leader, epoch = able[0], epoch + 1
    if acks == ACKS_ALL:
        _check_enough(state, configs, topic, number, partition.replicas, isr)
    return replace(partition, isr=isr, leader=leader, leader_epoch=epoch)


def _is_online(state: State, broker: int) -> bool:
    known = state.brokers.get(broker)
    return known is not None and known.online


def election(topic: str, topic_id: str, number: int, partition: PartitionState) -> ChangePartition:
    """The action that makes the leader, epoch and ISR of a partition what they are here."""
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
