"""The consumer: ``kafka.consumer``."""

from sparklog.client.consumer.consumer import Consumer as KafkaConsumer

__all__ = ["KafkaConsumer"]
