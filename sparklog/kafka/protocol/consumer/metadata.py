"""The metadata of group members: ``kafka.protocol.consumer.metadata``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import ConsumerProtocolAssignment, ConsumerProtocolSubscription

__all__ = ["ConsumerProtocolAssignment", "ConsumerProtocolSubscription"]
