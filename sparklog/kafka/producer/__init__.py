"""The producer: ``kafka.producer``."""

from __future__ import annotations

from sparklog.client.producer.producer import Producer as KafkaProducer

__all__ = ["KafkaProducer"]
