"""The records that a consumer returns: ``kafka.consumer.fetcher``."""

from __future__ import annotations

from sparklog.client.consumer.records import ConsumerRecord

__all__ = ["ConsumerRecord"]
