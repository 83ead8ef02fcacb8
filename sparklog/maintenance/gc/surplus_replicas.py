"""Removes the copies that reassignments left behind: files of live segments at brokers that are no replicas of them.

While the job looks and deletes, the broker is cordoned, so that no replica can come (back) to it and count on a file
that is about to go. A reader that was about to read such a copy takes another replica, and looks up where one is.

Rules: a file goes only if no partition that has a replica at this broker has a live segment in it. A broker that was
cordoned before stays so; one whose job was killed stays cordoned until the next run, or ``brokers uncordon``.
Not for: files of nothing that is live (``vacuum``, ``deletion``).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.coordinator.brokers import cordon_broker
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import BrokerNotAvailableError
from sparklog.log.parallel import each
from sparklog.protocol.decide.brokers import find_broker
from sparklog.protocol.segments import index_path
from sparklog.protocol.state import State
from sparklog.store.base import ObjectInfo, Store


def remove_surplus_replicas(coordinator: Coordinator, broker: int, dry_run: bool = False) -> list[ObjectInfo]:
    """Delete the copies at a broker that no replica needs any more, unless it is a ``dry_run``; returns them.

    Raises BrokerIdNotRegisteredError, BrokerNotAvailableError where it is offline, StorageError.
    """
    known = find_broker(coordinator.refresh(), broker)
    if not known.online:
        raise BrokerNotAvailableError(f"broker {broker} is offline; its surplus copies stay for now", broker=broker)
    store = coordinator.store_of(broker)
    first_look = _found(coordinator, store, broker)
    if dry_run or not first_look:
        return first_look
    cordoned = cordon_broker(coordinator, broker)
    try:
        found = _found(coordinator, store, broker)  # as of a state in which nothing can come to it any more
        each(store.delete, [info.key for info in found])
        return found
    finally:
        if cordoned:
            cordon_broker(coordinator, broker, False)


def _found(coordinator: Coordinator, store: Store, broker: int) -> list[ObjectInfo]:
    return list(_surplus(coordinator, coordinator.refresh(), store, broker))


def _surplus(coordinator: Coordinator, state: State, store: Store, broker: int) -> Iterator[ObjectInfo]:
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
