"""Values that consumers name: ``kafka.protocol.consumer``."""

from __future__ import annotations

from sparklog.client.admin_types import IsolationLevel, OffsetSpec
from sparklog.client.assignors import ConsumerProtocolAssignment, ConsumerProtocolSubscription

__all__ = ["ConsumerProtocolAssignment", "ConsumerProtocolSubscription", "IsolationLevel", "OffsetSpec"]
