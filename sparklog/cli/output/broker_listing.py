"""Builds the document of ``brokers list``, and the table from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparklog.cli.output.documents import BrokerDetails, BrokerList
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.admin.types import BrokerCondition
    from sparklog.protocol.state import BrokerState, State

COLUMNS = ("BROKER", "STATE", "REPLICAS", "OUT-OF-SYNC", "LEADERS", "BYTES", "LAST-SEEN", "LOCATION")
NOW = "now"


def listing(admin: AdminClient, timeout_ms: int) -> BrokerList:
    """Probe and list all brokers. Raises StorageError if the root does not answer."""
    conditions = admin.check_brokers(timeout_ms)
    state = admin.read_state()
    return BrokerList(
        brokers=[
            _details(state, state.brokers[number], condition)
            for number, condition in conditions.items()
            if number in state.brokers
        ]
    )


def _details(state: State, broker: BrokerState, condition: BrokerCondition) -> BrokerDetails:
    number = broker.broker
    replicas = [
        partition for topic in state.topics.values() for partition in topic.partitions if number in partition.replicas
    ]
    in_sync = [partition for partition in replicas if number in partition.isr]
    return BrokerDetails(
        broker=number,
        state=condition.state,
        cordoned=broker.cordoned,
        last_seen_ms=condition.last_seen_ms,
        problem=condition.problem,
        replicas=len(replicas),
        out_of_sync=len(replicas) - len(in_sync),
        leaders=sum(partition.leader == number for partition in replicas),
        size_bytes=sum(partition.size_bytes for partition in in_sync),
        location=condition.location,
    )


def lines(broker_list: BrokerList) -> Iterator[str]:
    """Format a table; every column before the location is a single word, so that tools such as ``cut`` can split it."""
    rows = [COLUMNS, *map(_row, broker_list.brokers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS) - 1)]
    for row in rows:
        cells = [printable(value).ljust(width) for value, width in zip(row, widths, strict=False)]
        yield " ".join([*cells, printable(row[-1])])


def _row(broker: BrokerDetails) -> tuple[str, ...]:
    return (
        f"{broker.broker}",
        broker.state + (",cordoned" if broker.cordoned else ""),
        f"{broker.replicas}",
        f"{broker.out_of_sync}",
        f"{broker.leaders}",
        f"{broker.size_bytes}",
        NOW if broker.problem is None else _time(broker.last_seen_ms),
        broker.location,
    )


def _time(timestamp_ms: int | None) -> str:
    """Format a time as ``2026-11-22T11:45:34Z``, or a dash if it is not known."""
    from datetime import datetime, timedelta, timezone

    if timestamp_ms is None:
        return "-"
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
