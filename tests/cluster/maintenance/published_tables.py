"""Topics with Delta tables in a folder: what deltalake, an independent reader, finds there, and what the log has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.delta.publication import Publication, application_id
from sparklog.errors import SparklogError
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.history import history_of
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    ERROR,
    LOST_ANSWER,
    UNAVAILABLE,
    Fault,
    FaultyStore,
    SimulatedCrash,
)
from tests.cluster.maintenance.logs import Read, Written, append, live, records

DELTA = {
    "history.format": "delta",
    "segment.ms": "60000",
    "file.delete.delay.ms": "0",
    "history.delete.delay.ms": "0",
    "retention.ms": "-1",
}
"""Closed segments become history; what leaves the log may be deleted at once."""

FAULTS = (CRASH_BEFORE, CRASH_AFTER, ERROR, UNAVAILABLE, LOST_ANSWER)

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record of a table."""

    partition: int
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def cluster_in(folder: Path) -> Coordinator:
    return create_cluster(open_store(str(folder)))


def produce(coordinator: Coordinator, topic: str, *minutes: int, partition: int = 0) -> None:
    """Append a file with one record for each minute; a later minute closes the segment before."""
    for minute in minutes:
        append(coordinator, topic, [Written(b"k%d" % (minute % 3), b"%d" % minute, minute)], partition=partition)


def roll_all(coordinator: Coordinator) -> None:
    roll(coordinator, InProcess())


def publish(coordinator: Coordinator, topic: str = "t") -> Publication:
    return Tables(coordinator).publish(topic)


JOBS: dict[str, Callable[[Coordinator], object]] = {
    "publish": lambda coordinator: Tables(coordinator).publish_all(["t"]),
    "roll": roll_all,
    "compact": lambda coordinator: compact(coordinator, InProcess()),
    "retain": retain,
    "sweep": sweep,
    "vacuum": lambda coordinator: vacuum(coordinator, 0, dry_run=False, force=True),
}
"""The jobs that change a table, or delete files."""


def delete_records(coordinator: Coordinator, offset: int, topic: str = "t", partition: int = 0) -> None:
    coordinator.submit(partial(decide_segments.delete_records, offsets={(topic, partition): offset}))


def alter(coordinator: Coordinator, topic: str = "t", **configs: str) -> None:
    changes = {name.replace("_", "."): value for name, value in configs.items()}
    coordinator.submit(partial(alter_configs, topic=topic, changes=changes))


def delete_share(coordinator: Coordinator, partition: int, share: float) -> None:
    """Delete this share of the records of a partition, the oldest."""
    state = coordinator.refresh().partition("t", partition)
    start, end = state.log_start_offset, state.log_end_offset
    delete_records(coordinator, start + int(share * (end - start)), partition=partition)


def fail_job(root: str, job: str, step: int, kind: str) -> None:
    """Run a job in a process of its own, which fails or is killed at one storage call."""
    store = FaultyStore(open_store(root))
    process = open_cluster(store)
    store.reset_counts()
    store.inject(Fault(step, kind))
    with suppress(SimulatedCrash, SparklogError):
        JOBS[job](process)
    store.reopen()


def delta(folder: Path, topic: str = "t") -> DeltaTable:
    return DeltaTable(str(folder / "tables" / topic))


def rows_of(table: pa.Table) -> list[Row]:
    """Return rows in order, timestamps as microseconds: Python's datetimes end with the year 9999."""
    plain = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table.column("timestamp").cast(pa.int64())
    )
    return sorted(
        Row(
            row["partition"],
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in plain.to_pylist()
    )


def table_rows(folder: Path, topic: str = "t") -> list[Row]:
    """What deltalake reads."""
    return rows_of(delta(folder, topic).to_pyarrow_table())


def log_rows(coordinator: Coordinator, topic: str = "t") -> list[Row]:
    """What the log has in history segments, in each partition up to the first other segment, as a reader sees it."""
    state = coordinator.refresh()
    rows: list[Row] = []
    for number, partition in enumerate(state.topic(topic).partitions):
        segments = list(history_of(coordinator.segments(topic, state).partition(number), partition.log_start_offset))
        end = max((segment.end_offset for segment in segments), default=0)
        rows += [as_row(number, record) for record in records(coordinator, topic, number) if record.offset < end]
    return rows


def as_row(partition: int, record: Read) -> Row:
    return Row(partition, record.offset, record.timestamp_us, record.key, record.value, tuple(record.headers))


def check(coordinator: Coordinator, folder: Path, topic: str = "t") -> list[Row]:
    """Check that deltalake reads exactly the history, at the version that the table names, and every file exists."""
    shown = delta(folder, topic)
    rows = rows_of(shown.to_pyarrow_table())
    assert rows == log_rows(coordinator, topic)
    assert shown.transaction_version(application_id(coordinator.state.cluster_id, topic)) is not None
    missing = [path for path in listed_files(folder, topic) if not (folder / "tables" / topic / path).exists()]
    assert not missing
    return rows


def listed_files(folder: Path, topic: str = "t") -> list[str]:
    return sorted(unquote(uri.partition(f"tables/{topic}/")[2]) for uri in delta(folder, topic).file_uris())


def history_files(coordinator: Coordinator, topic: str = "t", partition: int = 0) -> list[str]:
    return [segment.path for segment in live(coordinator, topic, partition) if segment.is_history]
