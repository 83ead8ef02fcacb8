"""The sticky partitioner: ``kafka.partitioner.sticky``."""

from __future__ import annotations

from sparklog.client.producer.partitioners import StickyPartitioner

__all__ = ["StickyPartitioner"]
