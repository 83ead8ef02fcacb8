"""What ``brokers list`` shows: the document, and the table made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparklog.cli.broker_conditions import conditions_of
from sparklog.cli.documents import BrokerDetails, BrokerList
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.broker_conditions import Condition
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import BrokerState, State

COLUMNS = ("BROKER", "STATE", "REPLICAS", "OUT-OF-SYNC", "LEADERS", "BYTES", "LAST-SEEN", "LOCATION")
NOW = "now"


def listing(coordinator: Coordinator, timeout_ms: int) -> BrokerList:
    """The brokers, each asked whether it is there. Raises StorageError where the root does not answer."""
    conditions = conditions_of(coordinator, timeout_ms)
    state, root = coordinator.state, coordinator.store.root
    return BrokerList(brokers=[_details(state, state.brokers[one], found, root) for one, found in conditions.items()])


def _details(state: State, broker: BrokerState, condition: Condition, root: str) -> BrokerDetails:
    number = broker.broker
    held = [one for topic in state.topics.values() for one in topic.partitions if number in one.replicas]
    in_sync = [one for one in held if number in one.isr]
    return BrokerDetails(
        broker=number,
        state=condition.word,
        cordoned=broker.cordoned,
        last_seen_ms=condition.last_seen_ms,
        problem=condition.problem,
        replicas=len(held),
        out_of_sync=len(held) - len(in_sync),
        leaders=sum(one.leader == number for one in held),
        size_bytes=sum(one.size_bytes for one in in_sync),
        location=broker.url or root,
    )


def lines(found: BrokerList) -> Iterator[str]:
    """A table; what a location is seen at is one word, so that columns can be cut."""
    rows = [COLUMNS, *map(_row, found.brokers)]
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
    """``2026-11-22T11:45:34Z``, or a dash."""
    from datetime import datetime, timedelta, timezone

    if timestamp_ms is None:
        return "-"
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
