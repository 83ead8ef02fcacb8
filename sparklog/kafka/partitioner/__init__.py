"""Partitioners as objects: ``kafka.partitioner``."""

from __future__ import annotations

from sparklog.client.producer.partitioners import DefaultPartitioner, Partitioner, StickyPartitioner, murmur2

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]
