"""The base class of partitioners: ``kafka.partitioner.abc``."""

from __future__ import annotations

from sparklog.client.producer.partitioners import Partitioner

__all__ = ["Partitioner"]
