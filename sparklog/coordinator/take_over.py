"""Makes a root the owner of all locations of its brokers, by its operator's word: it was restored, moved, or continues
after a forced promotion (``brokers take-over``).

Rules: another root may have deleted files at the locations meanwhile, so nothing counts any more that was begun or seen
there before, and the replicas are verified. Not for: checks of who owns a location (``ownership``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.coordinator.ownership import broker_store, examine_owner, is_in_use
from sparklog.coordinator.verified_replicas import verify_replicas
from sparklog.errors import PolicyViolationError, SparklogError
from sparklog.log.owner_files import read_owner, read_root, write_epoch
from sparklog.protocol.commits import FenceWriters
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.locations import lose_evidence
from sparklog.protocol.decide.ownership import next_epoch
from sparklog.protocol.state import State


class TakenOver(NamedTuple):
    """The result of a take-over: the root's new epoch, and why locations could not be reached, by broker; those are
    taken over when they answer."""

    epoch: int
    unreached: dict[int, str]


def take_over(coordinator: Coordinator, force: bool = False) -> TakenOver:
    """Make this root the owner of all locations of its brokers, in the next epoch.

    Before and after the locations are claimed, it commits that all files begun so far are fenced, since another root
    may have deleted some of them: afterwards for those begun meanwhile, before for the case that this process is
    stopped between the two. A process that closes a root reads that root's epoch first: from the commit after the epoch
    on, none of a lower epoch closes it.

    Raises PolicyViolationError if the present owner of a location is another root that answers, unless ``force``d, and
    in any case if another root has claimed one since this one looked: repeated, it takes a later epoch than that one;
    ClusterMovedError if this root is closed, also meanwhile; and StorageError if it does not answer.
    """
    state = coordinator.refresh()
    own, epochs, owners = read_root(coordinator.store), [0], set[str]()
    for broker, registered in state.brokers.items():
        with suppress(SparklogError):
            store = broker_store(coordinator, state, broker)
            check_identity(store, state.cluster_id, broker, registered.url)
            record = read_owner(store, state.cluster_id)
            if record is not None:
                epochs.append(record.epoch)
                owners.add(record.root)
    for address in sorted(owners - {own.address}):
        if not force and is_in_use(coordinator, address, state.cluster_id):
            raise PolicyViolationError(
                f"{address} is a root of this cluster, answers, and owns locations of {own.address}; both would delete "
                "the other's files. Stop everything that uses it and rename it, or give --force (force=True)",
                path=address,
            )
    coordinator.submit(_fence_all_writers)
    epoch = next_epoch(own.epoch, *epochs)
    write_epoch(coordinator.store, epoch)
    coordinator.submit(_fence_all_writers)
    unreached: dict[int, str] = {}
    for broker, registered in sorted(state.brokers.items()):
        if registered.url:
            try:
                refusal = examine_owner(coordinator, broker, state).refusal
            except SparklogError as error:
                unreached[broker] = error.message
                continue
            if refusal is not None:  # it was promoted, or took over, and may have the same epoch
                raise PolicyViolationError(
                    f"another root has claimed locations since this command began: {refusal.message}", path=refusal.path
                )
    coordinator.submit(_fence_all_writers)
    verify_replicas(coordinator)
    return TakenOver(epoch, unreached)


def _fence_all_writers(state: State) -> Decision[None]:
    return Decision([FenceWriters(version=state.version), *lose_evidence(state)], None)
