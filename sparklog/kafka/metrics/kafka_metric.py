"""One metric: ``kafka.metrics.kafka_metric``."""

from sparklog.client.metrics import Metric as KafkaMetric

__all__ = ["KafkaMetric"]
