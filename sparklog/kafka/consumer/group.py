"""The consumer: ``kafka.consumer.group``."""

from sparklog.client.consumer.records import ConsumerGroupMetadata as ConsumerGroupMetadata
from sparklog.kafka.consumer import KafkaConsumer as KafkaConsumer
