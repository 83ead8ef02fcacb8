"""The consumer: ``kafka.consumer``."""

from __future__ import annotations

from sparklog.client.consumer.consumer import Consumer as KafkaConsumer

__all__ = ["KafkaConsumer"]
