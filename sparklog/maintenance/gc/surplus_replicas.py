"""Removes surplus replicas: copies that reassignments left behind at brokers that are no longer replicas.

While the job searches and deletes, the broker is cordoned, so that no replica can be assigned to it (again) and rely on
a file that is about to be deleted. A reader that was about to read such a copy looks up the replicas and reads another.

Rules: a file is deleted only if no partition with a replica at this broker has a live segment in it. A broker that was
cordoned before stays cordoned; if the job is killed, the broker stays cordoned until the next run, or
``brokers uncordon``.
Not for: files without live segments (``orphans``, ``retired_files``).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.coordinator.brokers import cordon_broker
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import BrokerNotAvailableError
from sparklog.log.parallel import map_parallel
from sparklog.protocol.decide.brokers import find_broker
from sparklog.protocol.segments import index_path
from sparklog.protocol.state import State
from sparklog.store.base import ObjectInfo, Store


def remove_surplus_replicas(coordinator: Coordinator, broker: int, dry_run: bool = False) -> list[ObjectInfo]:
    """Delete the copies at a broker that no replica needs, unless it is a ``dry_run``; return them.

    Raises BrokerIdNotRegisteredError, BrokerNotAvailableError if it is offline, StorageError.
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
        map_parallel(store.delete, [info.key for info in surplus])
        return surplus
    finally:
        if cordoned:
            cordon_broker(coordinator, broker, False)


def _find_surplus(coordinator: Coordinator, store: Store, broker: int) -> list[ObjectInfo]:
    return list(_list_surplus(coordinator, coordinator.refresh(), store, broker))


def _list_surplus(coordinator: Coordinator, state: State, store: Store, broker: int) -> Iterator[ObjectInfo]:
    needed: set[str] = set()
    elsewhere: set[str] = set()
    for topic in state.topics_in_order():
        if not any(partition.segments for partition in topic.partitions):
            continue
        listed = coordinator.segments(topic.name, state)
        for number, partition in enumerate(topic.partitions):
            here = broker in partition.replicas
            for table in listed.partition(number).tables():
                (needed if here else elsewhere).update(table.column("path").to_pylist())
    surplus = elsewhere - needed
    keys = surplus | {index_path(path) for path in surplus}
    return (info for info in store.list() if info.key in keys)
