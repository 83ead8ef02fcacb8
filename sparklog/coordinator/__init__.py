"""Decides requests (offsets, topics, groups, leadership) against the newest state, and commits many at a time."""

from sparklog.coordinator.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.shared import shared_cluster

__all__ = ["Coordinator", "create_cluster", "open_cluster", "shared_cluster"]
