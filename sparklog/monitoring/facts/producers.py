"""Facts of transactional producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklog.monitoring.facts.columns import Count, NullableNumber, Number, Text, Time
from sparklog.protocol.state import State


class ProducerFacts(NamedTuple):
    """A transactional producer. ``committed_epoch`` is that of its last committed transaction, None without one."""

    producer_id: Count
    transactional_id: Text
    epoch: Number
    committed_epoch: NullableNumber
    timestamp: Time


def producers(state: State) -> Iterator[ProducerFacts]:
    """Yield the facts of all transactional producers, in the order of their ids."""
    for producer_id, producer in sorted(state.producers.items()):
        yield ProducerFacts(
            producer_id=producer_id,
            transactional_id=producer.transactional_id,
            epoch=producer.epoch,
            committed_epoch=producer.committed_epoch if producer.committed_epoch >= 0 else None,
            timestamp=producer.timestamp_ms,
        )
