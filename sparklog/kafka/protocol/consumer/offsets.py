"""Special offsets: ``kafka.protocol.consumer.offsets``."""

from __future__ import annotations

from sparklog.client.admin.types import IsolationLevel, OffsetResetStrategy, OffsetSpec, OffsetTimestamp

__all__ = ["IsolationLevel", "OffsetResetStrategy", "OffsetSpec", "OffsetTimestamp"]
