"""What members of a group say of themselves: ``kafka.protocol.consumer.metadata``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import ConsumerProtocolAssignment, ConsumerProtocolSubscription

__all__ = ["ConsumerProtocolAssignment", "ConsumerProtocolSubscription"]
