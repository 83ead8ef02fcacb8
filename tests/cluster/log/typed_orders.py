"""A typed topic ``orders`` whose closed segments become history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from tests.cluster.maintenance.logs import Written, append

TYPED = {
    "history.format": "delta",
    "segment.ms": "60000",
    "value.format": "json",
    "min.cleanable.dirty.ratio": "0",
}


def create_orders(folder: Path, configs: Mapping[str, str], values: Iterable[bytes | None]) -> Coordinator:
    coordinator = create_cluster(str(folder))
    coordinator.create_topic("orders", 1, configs=configs)
    append(coordinator, "orders", [Written(b"k%d" % number, value) for number, value in enumerate(values)])
    return coordinator


def close_and_roll(log: Coordinator, minute: int = 60) -> None:
    """Append a record of a later minute, and roll what is before it."""
    append(log, "orders", [Written(b"last", b'{"customer":"active"}', minute)])
    roll(log, InProcess())


def published_table(log: Coordinator) -> pa.Table:
    """Return what delta-rs reads, by offset."""
    assert Tables(log).publish("orders") is not None
    return DeltaTable(f"{log.store.root}/tables/orders").to_pyarrow_table().sort_by("offset")
