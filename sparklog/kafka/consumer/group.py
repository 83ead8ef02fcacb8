"""The consumer: ``kafka.consumer.group``."""

from sparklog.client.consumer.consumer import Consumer as KafkaConsumer
from sparklog.client.consumer.records import ConsumerGroupMetadata

__all__ = ["ConsumerGroupMetadata", "KafkaConsumer"]
