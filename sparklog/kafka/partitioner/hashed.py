"""The hash of keys, where kafka-python 1 has it: ``kafka.partitioner.hashed``."""

from __future__ import annotations

from sparklog.client.producer.partitioners import murmur2

__all__ = ["murmur2"]
