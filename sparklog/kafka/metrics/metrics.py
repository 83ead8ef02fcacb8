"""The metrics of a client: ``kafka.metrics.metrics``."""

from sparklog.client.metrics.metrics import Metrics as Metrics
