"""The producer: ``kafka.producer``."""

from sparklog.client.producer.producer import Producer as KafkaProducer

__all__ = ["KafkaProducer"]
