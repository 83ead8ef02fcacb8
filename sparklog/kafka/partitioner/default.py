"""The default partitioner: ``kafka.partitioner.default``."""

from __future__ import annotations

from sparklog.client.producer.partitioners import DefaultPartitioner, murmur2

__all__ = ["DefaultPartitioner", "murmur2"]
