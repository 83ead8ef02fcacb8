"""Says which topics a consumer names that do not exist, or that it names none: that would else be silence.

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
"""seconds between two warnings of the same topics."""


@contextmanager
def unknown_as_timeout() -> Iterator[None]:
    """Raises UnknownTopicTimeoutError in place of UnknownTopicOrPartitionError: kafka-python waits for what does not
    exist until the time of the call is up."""
    try:
        yield
    except UnknownTopicTimeoutError:
        raise
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicTimeoutError(error.message, **error.context) from error


class UnknownTopics:
    """Looks at what a consumer names whenever the state is a newer one. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, subscription: Subscription, client: str, group: str) -> None:
        self._coordinator = coordinator
        self._subscription = subscription
        self._client = f"consumer {client} of group {group}" if group else f"consumer {client}"
        self._group = group
        self._state: State | None = None
        self._looked: tuple[object, ...] = ()
        self._missing: list[str] = []
        self._said: list[str] = []
        self._reads_nothing = False
        self._said_of_offsets = False
        self._said_at = 0.0

    def warn(self) -> None:
        """Warn, unless the same was said a moment ago."""
        state, subscription = self._coordinator.state, self._subscription
        if not subscription.automatic and not subscription.manual:
            return self._warn_of_nothing()
        looked = (subscription.topics, subscription.manual, len(subscription.positions))
        if state is not self._state or looked != self._looked:
            self._state, self._looked, self._missing = state, looked, self._find(state)
        if not self._missing:
            self._said = []
            return
        now = self._coordinator.log.clock.monotonic()
        if self._missing == self._said and now - self._said_at < REPEAT_SECONDS:
            return
        self._said, self._said_at = self._missing, now
        logger.warning(
            "%s names what does not exist in the cluster %s (UNKNOWN_TOPIC_OR_PARTITION): %s; it waits until somebody "
            "creates that. Correct the name if it is misspelt",
            self._client,
            self._coordinator.store.root,
            ", ".join(self._missing),
        )

    def _warn_of_nothing(self) -> None:
        if not self._reads_nothing:
            self._reads_nothing = True
            logger.warning("%s reads nothing: subscribe() to topics or assign() partitions first", self._client)

    def _warn_of_offsets_topic(self) -> None:
        if not self._said_of_offsets:
            self._said_of_offsets = True
            logger.warning(
                "%s reads nothing of %s: it is made of the commit log, so no group has offsets in it; leave out "
                "group_id, or assign its partitions",
                self._client,
                CONSUMER_OFFSETS_TOPIC,
            )

    def _find(self, state: State) -> list[str]:
        """What is named and not there: topics, and partitions that were assigned by hand."""
        subscription = self._subscription
        names = set(subscription.topics or ())
        places = subscription.positions if subscription.manual else ()
        names |= {place.topic for place in places}
        if CONSUMER_OFFSETS_TOPIC in names and self._group and subscription.automatic:
            self._warn_of_offsets_topic()
        missing = sorted(name for name in names if name not in state.topics and name != CONSUMER_OFFSETS_TOPIC)
        for place in sorted(places):
            found = state.topics.get(place.topic)
            if found is not None and place.partition >= len(found.partitions):
                missing.append(f"{place.topic}-{place.partition}")
        return missing
