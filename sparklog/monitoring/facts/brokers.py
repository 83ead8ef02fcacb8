"""Facts of brokers, which are storage locations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklog.monitoring.facts.columns import Count, Flag, Number, Text
from sparklog.protocol.state import BrokerState, State


class BrokerFacts(NamedTuple):
    """A broker. ``in_sync`` counts its replicas that are in sync, and ``bytes`` are those of the segments they hold."""

    broker: Number
    url: Text
    online: Flag
    cordoned: Flag
    leaders: Number
    replicas: Number
    in_sync: Number
    bytes: Count


def broker_facts(state: State, broker: BrokerState) -> BrokerFacts:
    """Return the facts of a broker."""
    number = broker.broker
    replicas = [each for topic in state.topics.values() for each in topic.partitions if number in each.replicas]
    in_sync = [each for each in replicas if number in each.isr]
    return BrokerFacts(
        broker=number,
        url=broker.url,
        online=broker.online,
        cordoned=broker.cordoned,
        leaders=sum(each.leader == number for each in replicas),
        replicas=len(replicas),
        in_sync=len(in_sync),
        bytes=sum(each.size_bytes for each in in_sync),
    )


def brokers(state: State) -> Iterator[BrokerFacts]:
    """Yield the facts of all brokers, in the order of their ids."""
    return (broker_facts(state, broker) for _, broker in sorted(state.brokers.items()))
