"""The name of a metric: ``kafka.metrics.metric_name``."""

from sparklog.client.metrics.metrics import MetricName as MetricName
