"""Partitioners as objects: ``kafka.partitioner``."""

from sparklog.client.producer.custom_partitioners import DefaultPartitioner, Partitioner, StickyPartitioner, murmur2

__all__ = [
    "DefaultPartitioner",
    "Partitioner",
    "StickyPartitioner",
    "murmur2",
]
