"""The sticky assignor, under its full path."""

from __future__ import annotations

from sparklog.client.consumer.assignors import StickyPartitionAssignor

__all__ = ["StickyPartitionAssignor"]
