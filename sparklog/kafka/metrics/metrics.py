"""The metrics of a client: ``kafka.metrics.metrics``."""

from __future__ import annotations

from sparklog.client.metrics import Metrics

__all__ = ["Metrics"]
