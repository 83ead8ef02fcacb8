"""An assignor: ``kafka.coordinator.assignors.roundrobin``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
