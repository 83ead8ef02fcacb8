"""Offsets, topics and leadership: requests are decided against the newest state and committed, one commit for many."""

from sparklog.coordinator.coordinator import Coordinator, create_cluster, open_cluster, shared_cluster

__all__ = ["Coordinator", "create_cluster", "open_cluster", "shared_cluster"]
