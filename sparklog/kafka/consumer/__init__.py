"""The consumer: ``kafka.consumer``."""

from __future__ import annotations

from sparklog.client.consumer import Consumer as KafkaConsumer

__all__ = ["KafkaConsumer"]
