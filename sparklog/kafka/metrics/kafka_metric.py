"""One metric: ``kafka.metrics.kafka_metric``."""

from sparklog.kafka.metrics import KafkaMetric as KafkaMetric
