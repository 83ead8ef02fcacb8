"""Rebalance listeners: ``kafka.consumer.subscription_state``."""

from __future__ import annotations

from sparklog.client.subscription import AsyncConsumerRebalanceListener, ConsumerRebalanceListener

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]
