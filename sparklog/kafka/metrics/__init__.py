"""The metrics of clients: ``kafka.metrics``. Clients create their ``Metrics``; a program calls ``client.metrics()``."""

from sparklog.client.metrics.metrics import Metric as KafkaMetric
from sparklog.client.metrics.metrics import MetricName, Metrics
from sparklog.client.metrics.metrics import MetricsReporter as AbstractMetricsReporter

__all__ = ["AbstractMetricsReporter", "KafkaMetric", "MetricName", "Metrics"]
