"""Calls that a listener may make while its consumer closes."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.errors import IllegalStateError
from sparklog.testing import cluster
from sparklog.types import TopicPartition


class Committing:
    """Commits positions when partitions are revoked, as in Kafka's documentation."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.consumer.commit()


def test_a_listener_commits_its_last_offsets_while_the_consumer_closes() -> None:
    with cluster(topics={"orders": 1}) as c:
        partition = TopicPartition("orders", 0)
        consumer = Consumer(cluster=c.coordinator, group_id="g", enable_auto_commit=False)
        consumer.subscribe(["orders"], listener=Committing(consumer))
        while consumer.assignment() != {partition}:
            consumer.poll(timeout_ms=50)
        consumer.seek(partition, 0)
        consumer.close()
        (committed,) = c.coordinator.refresh().groups["g"].offsets.values()
        assert committed.offset == 0
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.commit()
