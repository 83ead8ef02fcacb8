"""The name of a metric: ``kafka.metrics.metric_name``."""

from __future__ import annotations

from sparklog.client.metrics import MetricName

__all__ = ["MetricName"]
