"""An assignor: ``kafka.coordinator.assignors.cooperative_sticky``."""

from __future__ import annotations

from sparklog.client.consumer.assignors import CooperativeStickyAssignor

__all__ = ["CooperativeStickyAssignor"]
