"""Records as the consumer hands them out: ``kafka.consumer.fetcher``."""

from __future__ import annotations

from sparklog.client.consumer.records import ConsumerRecord

__all__ = ["ConsumerRecord"]
