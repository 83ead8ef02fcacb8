"""The producer: ``kafka.producer.kafka``."""

from sparklog.kafka.producer import KafkaProducer as KafkaProducer
