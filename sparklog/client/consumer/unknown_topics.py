"""Warns of a consumer that waits in vain: for topics or partitions that do not exist, or without a subscription.

Not for: patterns, which may match nothing yet, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.client.consumer.subscription_state import Subscription
from sparklog.coordinator import Coordinator
from sparklog.errors import UnknownTopicOrPartitionError, UnknownTopicTimeoutError
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import State

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""Seconds between two warnings of the same topics."""


@contextmanager
def unknown_as_timeout() -> Iterator[None]:
    """Turn UnknownTopicOrPartitionError into UnknownTopicTimeoutError, which kafka-python raises: it waits for unknown
    topics until the timeout of the call."""
    try:
        yield
    except UnknownTopicTimeoutError:
        raise
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicTimeoutError(error.message, **error.context) from error


class UnknownTopics:
    """Checks the topics and partitions of a consumer against each newer state. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, subscription: Subscription, client: str, group: str) -> None:
        self._coordinator = coordinator
        self._subscription = subscription
        self._client = f"consumer {client} of group {group}" if group else f"consumer {client}"
        self._group = group
        self._state: State | None = None
        self._checked_subscription: tuple[object, ...] = ()
        self._missing: list[str] = []
        self._warned: list[str] = []
        self._warned_once: set[str] = set()
        self._warned_at = 0.0

    def warn(self) -> None:
        """Warn of missing topics and partitions, unless the same were warned of within ``REPEAT_SECONDS``."""
        state, subscription = self._coordinator.state, self._subscription
        if not subscription.automatic and not subscription.manual:
            return self._warn_once("%s reads nothing: subscribe() to topics or assign() partitions first")
        checked = (subscription.topics, subscription.manual, len(subscription.positions))
        if state is not self._state or checked != self._checked_subscription:
            self._state, self._checked_subscription, self._missing = state, checked, self._find_missing(state)
        if not self._missing:
            self._warned = []
            return
        now = self._coordinator.log.clock.monotonic()
        if self._missing == self._warned and now - self._warned_at < REPEAT_SECONDS:
            return
        self._warned, self._warned_at = self._missing, now
        logger.warning(
            "%s reads topics or partitions that do not exist in the cluster %s (UNKNOWN_TOPIC_OR_PARTITION): %s; it "
            "waits until they are created. Check the spelling",
            self._client,
            self._coordinator.store.root,
            ", ".join(self._missing),
        )

    def _warn_once(self, message: str, *arguments: str) -> None:
        if message not in self._warned_once:
            self._warned_once.add(message)
            logger.warning(message, self._client, *arguments)

    def _find_missing(self, state: State) -> list[str]:
        """Return the missing topics, and the missing partitions among those assigned by hand."""
        subscription = self._subscription
        names = set(subscription.topics or ())
        partitions = subscription.positions if subscription.manual else ()
        names |= {partition.topic for partition in partitions}
        if CONSUMER_OFFSETS_TOPIC in names and self._group and subscription.automatic:
            self._warn_once(
                "%s reads nothing of %s: the topic is derived from the commit log, so no group has offsets in it; "
                "omit group_id, or assign its partitions",
                CONSUMER_OFFSETS_TOPIC,
            )
        missing = sorted(name for name in names if name not in state.topics and name != CONSUMER_OFFSETS_TOPIC)
        for partition in sorted(partitions):
            topic = state.topics.get(partition.topic)
            if topic is not None and partition.partition >= len(topic.partitions):
                missing.append(f"{partition.topic}-{partition.partition}")
        return missing
