"""Removes surplus replicas: copies that reassignments left behind at brokers that are no longer replicas.

A path that was surplus may be needed again: its partition moves back, and replication takes the copy that is still
there for its own. So a removal begins with a commit (``protocol.decide.locations``). It cordons the broker, so that no
replica can be added to it (again) and rely on a file that is about to be deleted; and it makes worthless what was seen
there before, so that a stopped job does not add one later on what it saw then. A reader that was about to read such a
copy looks up the replicas and reads another.

Rules: a file is deleted only if no partition with a replica at this broker has a live segment in it, now or when the
removal began; if a replica in sync was seen to have it, and has it right before the deletion, so that no fault of a
location can make this the only copy; and a history segment only when the topic's Delta table shows the log since. The
removal that cordoned the broker lifts that, unless another one has begun since: that may be stopped between any two
steps. So of two at the same time, the older one stops, and the broker stays cordoned, as it does if the job is killed,
until ``brokers uncordon``. At a remote storage the cordon lasts longer than a deletion can be on its way
(``coordinator.removals``); a removal that begins meanwhile takes it over. A broker that an operator has cordoned, also
meanwhile, stays cordoned; ``brokers.register_broker`` cordons one whose location has files.
Not for: files without live segments (``sweep``, ``vacuum``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sparklog.coordinator.broker_listings import BrokerListings
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.live_files import AddedFile, LiveFiles, LivePartition, read_live_partitions
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.coordinator.ownership import check_owned
from sparklog.coordinator.removals import (
    describe_lasting_cordon,
    may_repeat_requests,
    note_begin,
    note_going_on,
    note_removal,
    read_newest_removal,
)
from sparklog.delta.listing import tables_of
from sparklog.errors import BrokerNotAvailableError
from sparklog.log.parallel import map_parallel
from sparklog.maintenance.gc.recent_look import RecentLook
from sparklog.maintenance.gc.sweep import DELETED_TOGETHER, why_listed, why_not_there
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.brokers import find_broker
from sparklog.protocol.decide.locations import Removal, begin_removal, end_removal, may_remove
from sparklog.protocol.file_names import log_path_of
from sparklog.store.base import ObjectInfo, Store
from sparklog.types import TopicPartition


@in_one_timeline
def remove_surplus_replicas(
    coordinator: Coordinator, broker: int, dry_run: bool = False, problems: list[str] | None = None
) -> list[ObjectInfo]:
    """Delete the copies at a broker that no replica needs, unless it is a ``dry_run``; return them. Those that a table
    may list are kept, and ``problems`` gets the reasons, and why the broker stays cordoned.

    Raises BrokerIdNotRegisteredError, BrokerNotAvailableError if it is offline, another location, or another root's,
    StorageError.
    """
    problems = [] if problems is None else problems
    state = coordinator.refresh()
    if not find_broker(state, broker).online:
        raise BrokerNotAvailableError(f"broker {broker} is offline; its surplus copies stay for now", broker=broker)
    store = coordinator.brokers.store_of(state, broker)
    candidates = _find_surplus(coordinator, store, broker)
    if dry_run or not candidates:
        return candidates
    earlier = read_newest_removal(coordinator.store, broker) if state.brokers[broker].cordoned else None
    notes = [note_begin(coordinator.store, broker, coordinator.log.ids.write_id())]
    removal = coordinator.submit(partial(begin_removal, broker=broker, earlier=earlier))
    deleted: list[ObjectInfo] = []
    try:
        note, may_go_on = note_going_on(coordinator.store, broker, coordinator.log.ids.write_id(), notes[0])
        notes.append(note)
        # or it has moved in between, and this store is the former location
        if not may_go_on or removal.url != state.brokers[broker].url:
            return []
        surplus = _find_unlisted(coordinator, _find_surplus(coordinator, store, broker, removal.kept), problems)
        held = _find_held(coordinator, broker, surplus, problems)
        for batch in _delete(coordinator, store, removal, surplus, held, problems):
            deleted += batch
        return deleted
    finally:
        if deleted and may_repeat_requests(store) and removal.cordons and may_remove(coordinator.refresh(), removal):
            note_removal(coordinator.store, removal)  # a deletion that was sent twice may still be on its way
        elif not coordinator.submit(partial(end_removal, removal=removal)):
            problems.append(describe_lasting_cordon(broker))
        map_parallel(coordinator.store.delete, notes, coordinator.store.parallel_requests)


class _Held(NamedTuple):
    """Who was seen to have the files, by path: for each partition with a live segment in it, the brokers with the sizes
    of the ``.log``; and the version of the state of the look."""

    version: int
    holders: dict[str, list[dict[int, int]]]

    def is_there(self, coordinator: Coordinator, path: str) -> bool:
        """Return whether for each partition one of these brokers still has a file, and has lost nothing since."""
        state = coordinator.state
        return all(
            any(
                broker in state.brokers
                and state.brokers[broker].lost_files_at <= self.version
                and not why_not_there(coordinator, state, broker, AddedFile(path, frozenset([broker]), size))
                for broker, size in sizes.items()
            )
            for sizes in self.holders[path]
        )


def _delete(
    coordinator: Coordinator,
    store: Store,
    removal: Removal,
    surplus: list[ObjectInfo],
    held: _Held,
    problems: list[str],
) -> Iterator[list[ObjectInfo]]:
    """Delete those of these copies that others hold while the removal may continue; yield each batch before it is
    deleted."""
    surplus = [info for info in surplus if log_path_of(info.key) in held.holders]
    for start in range(0, len(surplus), DELETED_TOGETHER):
        together = surplus[start : start + DELETED_TOGETHER]
        batch = _Batch(coordinator, store, removal, held, problems, {log_path_of(info.key) for info in together})
        batch.recent.look()
        if not may_remove(coordinator.state, removal):
            return
        together = [info for info in together if batch.is_surplus(info)]
        yield together
        map_parallel(batch.delete, together, store.parallel_requests)


@dataclass
class _Batch:
    """Copies that are deleted together, by path."""

    coordinator: Coordinator
    store: Store
    removal: Removal
    held: _Held
    problems: list[str]
    surplus: set[str]

    def __post_init__(self) -> None:
        self.recent = RecentLook(self.coordinator.log.clock, self._look)

    def _look(self) -> Store:
        """Keep all of them if the removal has ended, else those that the replicas have lost that had them."""
        coordinator, broker = self.coordinator, self.removal.broker
        if not may_remove(coordinator.refresh(), self.removal):
            self.surplus = set()
            return self.store
        coordinator.log.make_durable()
        check_owned(coordinator, broker)
        paths = sorted(self.surplus)
        are_there = map_parallel(partial(self.held.is_there, coordinator), paths, coordinator.store.parallel_requests)
        lost = {path for path, is_there in zip(paths, are_there, strict=True) if not is_there}
        if lost:
            self.problems.append(
                f"broker {broker}: {len(lost)} files are kept, such as {min(lost)}: the replicas that had them were "
                "lost meanwhile; `sparklog fsck` says what is missing there"
            )
        self.surplus -= lost
        return self.store

    def is_surplus(self, info: ObjectInfo) -> bool:
        return log_path_of(info.key) in self.surplus

    def delete(self, info: ObjectInfo) -> None:
        self.recent.look()
        if self.is_surplus(info):
            self.recent.delete(info.key)


def _find_unlisted(coordinator: Coordinator, surplus: list[ObjectInfo], problems: list[str]) -> list[ObjectInfo]:
    """Return the copies that no table lists: one of a partition whose replicas have moved lists those at the old
    broker until it is published again."""
    tables, state, kept = Tables(coordinator), coordinator.state, set[str]()
    for topic in tables_of(log_path_of(info.key) for info in surplus):
        why = why_listed(tables, state, topic)
        if why:
            kept.add(topic)
            problems.append(why)
    return [info for info in surplus if not kept.intersection(tables_of([log_path_of(info.key)]))]


def _find_held(coordinator: Coordinator, broker: int, surplus: list[ObjectInfo], problems: list[str]) -> _Held:
    """Return who has the files that, for each partition with a live segment in them, a replica in sync has."""
    state = coordinator.refresh()
    listings, paths = BrokerListings(coordinator, state), {log_path_of(info.key) for info in surplus}
    held = _Held(state.version, {path: [] for path in paths})
    lacked: set[str] = set()
    for partition in read_live_partitions(coordinator, state) if paths else ():
        needed = paths.intersection(segment.path for segment in partition.segments)
        holders: dict[str, dict[int, int]] = {path: {} for path in needed}
        for replica in partition.state.isr if needed else ():
            for path, (size, _) in listings.sizes_if_listed(replica, needed).items():
                holders[path][replica] = size
        missing = {path for path, sizes in holders.items() if not sizes}
        if missing:
            problems.append(
                f"broker {broker}: {len(missing)} files of {partition.topic}-{partition.number} are kept, such as "
                f"{min(missing)}: none of the replicas in sync, {list(partition.state.isr)}, was seen to have them; "
                "`sparklog fsck` says what is missing there"
            )
            lacked |= missing
        for path, sizes in holders.items():
            held.holders[path].append(sizes)
    for path in lacked:
        del held.holders[path]
    return held


def _find_surplus(
    coordinator: Coordinator, store: Store, broker: int, kept: Collection[TopicPartition] = ()
) -> list[ObjectInfo]:
    """Return the copies at a broker that no partition with a replica there needs, nor one of ``kept``."""

    def partitions() -> Iterator[LivePartition]:
        for partition in read_live_partitions(coordinator, coordinator.refresh()):
            yield partition.with_replica(broker) if (partition.topic, partition.number) in kept else partition

    surplus = LiveFiles(partitions()).without_replica(broker)
    return [info for info in store.list() if log_path_of(info.key) in surplus]
