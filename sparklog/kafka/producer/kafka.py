"""The producer: ``kafka.producer.kafka``."""

from sparklog.client.producer.producer import Producer as KafkaProducer

__all__ = ["KafkaProducer"]
