"""Builds the document of ``brokers list``, and the table from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.cli.output.documents import BrokerDetails, BrokerList
from sparklog.cli.output.tables import table
from sparklog.clock import utc
from sparklog.monitoring.facts.brokers import broker_facts

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.admin.types import BrokerCondition
    from sparklog.protocol.state import BrokerState, State

COLUMNS = ("BROKER", "STATE", "REPLICAS", "OUT-OF-SYNC", "LEADERS", "BYTES", "LAST-SEEN", "LOCATION")


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
    facts = broker_facts(state, broker)
    return BrokerDetails.of(
        condition,
        broker=facts.broker,
        cordoned=facts.cordoned,
        replicas=facts.replicas,
        out_of_sync=facts.replicas - facts.in_sync,
        leaders=facts.leaders,
        size_bytes=facts.bytes,
    )


def lines(broker_list: BrokerList) -> list[str]:
    """Format a table; every column before the location is a single word, so that tools such as ``cut`` can split it."""
    return table([COLUMNS, *map(_row, broker_list.brokers)], [-1] * (len(COLUMNS) - 1) + [0])


def _row(broker: BrokerDetails) -> tuple[object, ...]:
    state = broker.state + (",cordoned" if broker.cordoned else "")
    seen = "-" if broker.last_seen_ms is None else f"{utc(broker.last_seen_ms):%Y-%m-%dT%H:%M:%SZ}"
    return (
        broker.broker, state, broker.replicas, broker.out_of_sync, broker.leaders, broker.size_bytes,
        "now" if broker.problem is None else seen, broker.location,
    )  # fmt: skip
