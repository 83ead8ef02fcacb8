"""A cluster in memory with a topic, for the tests of the admin client."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.protocol.decide.groups import JoinRequest, join_group
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records


def new_cluster() -> Coordinator:
    return create_cluster(MemoryStore(uuid.uuid4().hex))


def with_orders() -> Coordinator:
    """Topic orders with 4 records at 0, 100, 200 and 300 ms in partition 0, and 2 in partition 1."""
    cluster = new_cluster()
    cluster.create_topic("orders", partitions=2)
    for partition, count in ((0, 4), (1, 2)):
        records = [Record(value=b"v", timestamp_us=n * 100_000, partition=partition) for n in range(count)]
        append_records(cluster, "orders", records)
    return cluster


def join(cluster: Coordinator, member: str, group: str = "live", **more: Any) -> int:
    request = JoinRequest(group=group, member=member, topics=["orders"], client_id="app", host="here", **more)
    return cluster.submit(partial(join_group, request=request)).generation
