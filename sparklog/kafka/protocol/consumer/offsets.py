"""Which offsets are meant: ``kafka.protocol.consumer.offsets``."""

from __future__ import annotations

from sparklog.client.admin_types import IsolationLevel, OffsetSpec

__all__ = ["IsolationLevel", "OffsetSpec"]
