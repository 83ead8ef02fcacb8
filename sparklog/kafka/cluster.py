"""The cluster as partitioners see it: ``kafka.cluster``."""

from __future__ import annotations

from sparklog.client.producer.cluster_metadata import BrokerMetadata, ClusterMetadata

__all__ = ["BrokerMetadata", "ClusterMetadata"]
