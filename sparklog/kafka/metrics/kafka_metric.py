"""One metric: ``kafka.metrics.kafka_metric``."""

from __future__ import annotations

from sparklog.client.metrics import Metric as KafkaMetric

__all__ = ["KafkaMetric"]
