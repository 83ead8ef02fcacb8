"""The consumer: ``kafka.consumer.group``."""

from __future__ import annotations

from sparklog.client.consumer import Consumer as KafkaConsumer
from sparklog.client.consumer_records import ConsumerGroupMetadata

__all__ = ["ConsumerGroupMetadata", "KafkaConsumer"]
