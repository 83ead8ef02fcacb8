"""One assignor: ``kafka.coordinator.assignors.cooperative_sticky``."""

from __future__ import annotations

from sparklog.client.assignors import CooperativeStickyAssignor

__all__ = ["CooperativeStickyAssignor"]
