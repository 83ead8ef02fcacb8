"""Removes surplus replicas: copies that reassignments left behind at brokers that are no longer replicas.

While the job searches and deletes, the broker is cordoned, so that no replica can be assigned to it (again) and rely on
a file that is about to be deleted. A reader that was about to read such a copy looks up the replicas and reads another.

Rules: a file is deleted only if no partition with a replica at this broker has a live segment in it, and a history
segment only when the topic's Delta table shows the log since. A broker that was
cordoned before stays cordoned; if the job is killed, the broker stays cordoned until the next run, or
``brokers uncordon``.
Not for: files without live segments (``sweep``, ``vacuum``).
"""

from __future__ import annotations

from sparklog.coordinator.brokers import cordon_broker
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.live_files import LiveFiles, read_live_partitions
from sparklog.coordinator.ownership import check_owned
from sparklog.errors import BrokerNotAvailableError
from sparklog.log.parallel import map_parallel
from sparklog.maintenance.gc.sweep import why_listed
from sparklog.maintenance.tables import Tables, tables_of
from sparklog.protocol.decide.brokers import find_broker
from sparklog.protocol.file_names import log_path_of
from sparklog.store.base import ObjectInfo, Store


def remove_surplus_replicas(
    coordinator: Coordinator, broker: int, dry_run: bool = False, problems: list[str] | None = None
) -> list[ObjectInfo]:
    """Delete the copies at a broker that no replica needs, unless it is a ``dry_run``; return them. Those that a table
    may list are kept, and ``problems`` gets the reasons.

    Raises BrokerIdNotRegisteredError, BrokerNotAvailableError if it is offline, another location, or another root's,
    StorageError.
    """
    if not find_broker(coordinator.refresh(), broker).online:
        raise BrokerNotAvailableError(f"broker {broker} is offline; its surplus copies stay for now", broker=broker)
    store = coordinator.store_of(broker)
    candidates = _find_surplus(coordinator, store, broker)
    if dry_run or not candidates:
        return candidates
    cordoned = cordon_broker(coordinator, broker)
    try:
        surplus = _find_surplus(coordinator, store, broker)  # as of a state in which no replica can be added to it
        surplus = _find_unlisted(coordinator, surplus, [] if problems is None else problems)
        check_owned(coordinator, broker)
        map_parallel(store.delete, [info.key for info in surplus], store.parallel_requests)
        return surplus
    finally:
        if cordoned:
            cordon_broker(coordinator, broker, False)


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


def _find_surplus(coordinator: Coordinator, store: Store, broker: int) -> list[ObjectInfo]:
    surplus = LiveFiles(read_live_partitions(coordinator, coordinator.refresh())).without_replica(broker)
    return [info for info in store.list() if log_path_of(info.key) in surplus]
