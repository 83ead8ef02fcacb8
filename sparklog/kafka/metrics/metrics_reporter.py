"""The base class of ``metric_reporters``: ``kafka.metrics.metrics_reporter``."""

from sparklog.client.metrics import MetricsReporter as AbstractMetricsReporter

__all__ = ["AbstractMetricsReporter"]
