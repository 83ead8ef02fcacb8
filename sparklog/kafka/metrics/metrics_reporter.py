"""The base class of ``metric_reporters``: ``kafka.metrics.metrics_reporter``."""

from sparklog.kafka.metrics import AbstractMetricsReporter as AbstractMetricsReporter
