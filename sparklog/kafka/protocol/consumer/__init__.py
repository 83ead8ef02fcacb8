"""The types of consumer arguments: ``kafka.protocol.consumer``."""

from sparklog.client.admin.types import IsolationLevel, OffsetResetStrategy, OffsetSpec, OffsetTimestamp
from sparklog.client.consumer.assignors import ConsumerProtocolAssignment, ConsumerProtocolSubscription

__all__ = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "IsolationLevel",
    "OffsetResetStrategy",
    "OffsetSpec",
    "OffsetTimestamp",
]
