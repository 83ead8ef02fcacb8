"""The package of record types: ``kafka.record``."""

from __future__ import annotations

from sparklog.client.consumer.records import ConsumerRecord

__all__ = ["ConsumerRecord"]
