"""An assignor: ``kafka.coordinator.assignors.range``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
