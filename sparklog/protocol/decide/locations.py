"""Decisions about locations whose files change outside of the log: replaced, moved, or cleaned of surplus copies.

The log knows which brokers hold a file, and not what happens to their locations. So a command that changes what a
location holds commits that first, or with it: ``ChangeBroker`` with ``lost_files`` or another address. From that
version on, nothing counts that was written or seen there before (``brokers.may_lack``, ``replicas.expand_isr``).

Rules: as in ``decide``. What was seen at a location is an argument, with the version that it was compared with.
Not for: registering and removing brokers (``brokers``); the effects are in ``coordinator.brokers`` and
``maintenance.gc.surplus_replicas``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparklog.errors import BrokerNotAvailableError
from sparklog.protocol.commits import Action, ChangeBroker
from sparklog.protocol.decide.brokers import NO_LINKS, check_still_at, find_broker, move_broker, online_brokers
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.elections import PartitionChange, every_partition, find_changes
from sparklog.protocol.decide.segments import changed_since
from sparklog.protocol.plan.reassignment import replicas_on
from sparklog.protocol.state import PartitionState, State
from sparklog.types import TopicPartition

SHOWN = 5
"""Partitions or files that an error names."""


def replace_location(state: State, broker: int, url: str) -> Decision[None]:
    """Record that a broker's files are lost: another location has its address ``url`` from now on.

    The broker leaves every ISR with another replica. Raises as ``brokers.check_still_at``.
    """
    check_still_at(state, broker, url)
    changes = find_changes(state, online_brokers(state), [broker])
    return Decision([ChangeBroker(broker=broker, lost_files=True), *changes], None)


# -- moves


class SeenLocation(NamedTuple):
    """What a location was found to hold of a partition at ``version``, when its log ended at ``log_end_offset``:
    ``missing`` are the live files that it lacks."""

    topic_id: str
    log_end_offset: int
    version: int
    missing: tuple[str, ...] = ()


Holdings = Mapping[TopicPartition, SeenLocation]
"""What a location holds, by partition."""


class Move(NamedTuple):
    """The result of a move. ``unseen`` are partitions that have changed since they were looked at: then nothing is
    committed, look at them again. ``behind`` are those that the broker leaves the ISR of."""

    moved: bool = False
    unseen: tuple[TopicPartition, ...] = ()
    behind: tuple[TopicPartition, ...] = ()


def move_location(
    state: State,
    broker: int,
    url: str,
    root: str,
    seen: Holdings,
    real: Mapping[str, str] = NO_LINKS,
    is_last: bool = False,
) -> Decision[Move]:
    """Set the URL of a broker, whose files were ``seen`` there. Where it is in sync and files are missing at the new
    location, it leaves the ISR with the move, if another replica in sync is online.

    A partition that has changed since it was looked at is ``unseen``; in the last of several looks (``is_last``) it
    counts as one whose newest files are missing. ``real`` as in ``brokers.check_apart``. Raises
    BrokerNotAvailableError, which names missing files, if the broker is the last one to hold them, and the errors of
    ``brokers.move_broker``.
    """
    moved = move_broker(state, broker, url, root, real)
    if not moved.result:
        return Decision([], Move())
    online = online_brokers(state)
    changes: list[Action] = []
    unseen: list[TopicPartition] = []
    alone: dict[TopicPartition, tuple[str, ...]] = {}
    behind: list[TopicPartition] = []
    for name in every_partition(state):
        partition = state.partition(*name)
        if broker not in partition.isr:
            continue
        found = seen.get(name)
        is_seen = found is not None and still_holds(state, name, partition, found)
        if not is_seen and not is_last:
            unseen.append(name)
            continue
        missing = found.missing if found is not None and is_seen else ("its newest files",)
        if not missing:
            continue
        if not any(other in online for other in partition.isr if other != broker):
            alone[name] = missing
            continue
        change = PartitionChange(state.topics[name.topic], name.partition, online)
        change.leave_isr([broker])
        action = change.finish()
        if action is not None:
            changes.append(action)
            behind.append(name)
    if alone:
        raise _lacks_files(broker, url, alone)
    if unseen:
        return Decision([], Move(unseen=tuple(unseen)))
    return Decision([*moved.actions, *changes], Move(True, behind=tuple(behind)))


def still_holds(state: State, name: TopicPartition, partition: PartitionState, seen: SeenLocation) -> bool:
    """Return whether the partition has the live files that it had when the location was looked at."""
    return (
        state.topics[name.topic].topic_id == seen.topic_id
        and partition.log_end_offset == seen.log_end_offset
        and not changed_since(partition, seen.version, 0, partition.log_end_offset)
    )


def _lacks_files(broker: int, url: str, alone: Mapping[TopicPartition, tuple[str, ...]]) -> BrokerNotAvailableError:
    partitions = ", ".join(map(str, list(alone)[:SHOWN])) + (", …" if len(alone) > SHOWN else "")
    files = [path for missing in alone.values() for path in missing]
    shown = ", ".join(files[:SHOWN]) + (", …" if len(files) > SHOWN else "")
    return BrokerNotAvailableError(
        f"{url} lacks {len(files)} live files ({shown}) of {partitions}, of which broker {broker} is the only replica "
        "in sync that is online; nothing was changed: stop the writers, copy these files from the old location, and "
        "move the broker then",
        path=url,
        broker=broker,
    )


# -- another owner


def lose_evidence(state: State) -> list[Action]:
    """Return the actions by which nothing counts any more that was seen at a location before: another root may have
    deleted there what this one needs, or an older copy was mounted while nobody checked it."""
    return [ChangeBroker(broker=broker, lost_files=True) for broker in sorted(state.brokers)]


class Verified(NamedTuple):
    """What was found of a partition at ``version``: the replicas in sync that ``hold`` all live files, and those that
    ``lack`` some; of the others it is not known."""

    topic_id: str
    version: int
    hold: tuple[int, ...]
    lack: tuple[int, ...] = ()


class LocationVerification(NamedTuple):
    """The result of ``verify_isr``: partitions whose ISR shrank, those without a replica that holds all files, and
    those that have changed since they were looked at."""

    shrunk: tuple[TopicPartition, ...] = ()
    unheld: tuple[TopicPartition, ...] = ()
    unseen: tuple[TopicPartition, ...] = ()


def verify_isr(state: State, found: Mapping[TopicPartition, Verified]) -> Decision[LocationVerification]:
    """Let replicas that were not found to hold all files leave the ISR, where another one was; where none was, those
    leave that lack some, if it is not known of another one: it may have the only copy. Where all lack some, the ISR
    stays as it is. What was appended since does not matter: its commit names who has it."""
    online = online_brokers(state)
    changes: list[Action] = []
    shrunk: list[TopicPartition] = []
    unheld: list[TopicPartition] = []
    unseen: list[TopicPartition] = []
    for name, verified in found.items():
        partition = state.find_partition(*name)
        if partition is None or state.topics[name.topic].topic_id != verified.topic_id:
            continue
        if changed_since(partition, verified.version, 0, partition.log_end_offset):
            unseen.append(name)
            continue
        hold = [broker for broker in partition.isr if broker in verified.hold]
        if not hold:
            unheld.append(name)
            hold = [broker for broker in partition.isr if broker not in verified.lack]
        change = PartitionChange(state.topics[name.topic], name.partition, online)
        change.leave_isr([broker for broker in partition.isr if broker not in hold])
        action = change.finish()
        if hold and action is not None:
            changes.append(action)
            shrunk.append(name)
    return Decision(changes, LocationVerification(tuple(shrunk), tuple(unheld), tuple(unseen)))


# -- removal of surplus copies


class Removal(NamedTuple):
    """A removal of surplus copies from a broker that began at ``version``. ``kept`` are the partitions with a replica
    there at that version: their files stay. ``cordons``: it has cordoned the broker, and lifts that when it is done."""

    broker: int
    url: str
    version: int
    kept: Collection[TopicPartition]
    cordons: bool


def begin_removal(state: State, broker: int, earlier: Removal | None = None) -> Decision[Removal]:
    """Begin to remove surplus copies from a broker: no replica can be added to it until the removal ends, and nothing
    counts that was seen there before. If the broker is cordoned by an ``earlier`` removal that has deleted everything,
    this one lifts that.

    A stopped job that saw a copy before it became surplus could otherwise add a replica that relies on it later. Raises
    BrokerIdNotRegisteredError, BrokerNotAvailableError if the same commit begins another removal there.
    """
    former = find_broker(state, broker)
    if former.lost_files_at > state.version:  # two removals of one version could not be told apart
        raise BrokerNotAvailableError(
            f"the location of broker {broker} changes at this moment; its surplus copies stay for now", broker=broker
        )
    change = ChangeBroker(broker=broker, lost_files=True, cordoned=None if former.cordoned else True)
    kept = frozenset(replicas_on(state, broker))
    cordons = not former.cordoned or (earlier is not None and may_remove(state, earlier))
    return Decision([change], Removal(broker, former.url, state.version + 1, kept, cordons))


def may_remove(state: State, removal: Removal) -> bool:
    """Return whether a removal may continue: its broker is still cordoned and where it was, and nobody has begun
    another removal since, or found that files are lost there."""
    broker = state.brokers.get(removal.broker)
    return (
        broker is not None and broker.cordoned and broker.url == removal.url and broker.lost_files_at == removal.version
    )


def end_removal(state: State, removal: Removal) -> Decision[bool]:
    """Lift the cordon of a removal; the result is False if it has to stay, since another removal may rely on it.

    A broker has one version before which nothing counts. If that is not the removal's own, another one may have begun
    since, and may be stopped at any step.
    """
    broker = state.brokers.get(removal.broker)
    if not removal.cordons or broker is None or not broker.cordoned:
        return Decision([], True)
    if not may_remove(state, removal):
        return Decision([], False)
    return Decision([ChangeBroker(broker=removal.broker, cordoned=False)], True)
