"""Partitions to add, where kafka-python 2 has them."""

from __future__ import annotations

from sparklog.client.admin.types import NewPartitions

__all__ = ["NewPartitions"]
