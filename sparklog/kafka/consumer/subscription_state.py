"""Rebalance listeners: ``kafka.consumer.subscription_state``."""

from __future__ import annotations

from sparklog.client.consumer.subscription_state import AsyncConsumerRebalanceListener, ConsumerRebalanceListener

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]
