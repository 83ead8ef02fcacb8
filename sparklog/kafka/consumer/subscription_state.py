"""Rebalance listeners: ``kafka.consumer.subscription_state``."""

from sparklog.client.consumer.subscription_state import AsyncConsumerRebalanceListener as AsyncConsumerRebalanceListener
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener as ConsumerRebalanceListener
