"""The base class and data types of assignors: ``kafka.coordinator.assignors.abstract``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    RebalanceProtocol,
)

__all__ = [
    "AbstractPartitionAssignor",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "RebalanceProtocol",
]
