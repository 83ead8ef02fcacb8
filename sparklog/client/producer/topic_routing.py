"""A producer's metadata of a topic: its partitions, its limits for records, and the partition of the next record.

Rules: metadata are read from the coordinator's state and cached until that state changes or ``metadata_max_age_ms`` has
passed. The first record for a topic that does not exist creates it if both the cluster (``auto.create.topics.enable``)
and the producer (``allow_auto_create_topics``) allow that, as Kafka's metadata request does. The partition of a key is
chosen by murmur2. Records without a key go to one partition until its batch has ``batch_size`` bytes or is sent, then
to another one, pseudo-random but even, so that also records sent one at a time reach every partition.

Not for: partitioners that the program gives (``custom_partitioners``), what partitioners see (``cluster_metadata``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import SupportsIndex

from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.record_accumulator import RECORD_OVERHEAD_BYTES, Accumulator, PartitionQueue
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.coordinator import warn_of_created_topic
from sparklog.errors import (
    InvalidRecordError,
    InvalidRecordTypeError,
    InvalidTopicTypeError,
    TopicAlreadyExistsError,
)
from sparklog.protocol.decide.topics import NewTopic, create_written_topic, no_such_topic
from sparklog.protocol.names import validate_written_topic
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.protocol.state import State, TopicState
from sparklog.records.record_checks import no_such_partition
from sparklog.records.routing import RowRouting
from sparklog.records.topic_rules import TopicRules
from sparklog.types import TopicPartition

_KEYS_KEPT = 10_000
"""keys per topic whose partition is cached: hashing a key takes longer than all other work of sending a record."""


class TopicMetadata:
    """One topic as a producer sees it. Races between threads are harmless: records without a key spread less evenly."""

    def __init__(
        self,
        topic: TopicState,
        state: State,
        config: ProducerConfig,
        accumulator: Accumulator,
        jitter: Callable[[], float],
    ) -> None:
        settings = TopicConfig.resolve(topic.configs, state.configs)
        schema = find_record_schema(topic, settings)
        self.rules = TopicRules.resolve(
            topic.name, settings, config.codec, config.level, schema, max_request_size=config.max_request_size
        )
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.configs, self.cluster_configs = topic.configs, state.configs
        self.checked_at = 0.0
        self.max_counted_bytes = self.rules.max_record_bytes + RECORD_OVERHEAD_BYTES
        self.needs_key = self.rules.needs_key
        self.queues = [accumulator.queue(TopicPartition(topic.name, n)) for n in range(len(topic.partitions))]
        self._partitions = topic.partitions
        self.sticky: PartitionQueue | None = None
        self.sticky_left = 0
        self._jitter = jitter
        self._routing: RowRouting | None = None
        self._by_key: dict[bytes, PartitionQueue] = {}

    def update(self, topic: TopicState, state: State) -> bool:
        """Take over the partitions' leaders; return False if the topic or its settings differ: this is stale then."""
        is_current = (
            topic.topic_id == self.topic_id
            and topic.configs is self.configs
            and state.configs is self.cluster_configs
            and len(topic.partitions) == len(self.queues)
        )
        if is_current:
            self._partitions = topic.partitions
        return is_current

    def queue_of_key(self, key: bytes) -> PartitionQueue:
        """Return the queue of the partition that Kafka's default partitioner chooses for a key."""
        queue = self._by_key.get(key)
        if queue is None:
            if len(self._by_key) >= _KEYS_KEPT:
                self._by_key.clear()
            queue = self._by_key[key] = self.queues[partition_for_key(key, len(self.queues))]
        return queue

    def queue_of_partition(self, partition: object) -> PartitionQueue:
        """Return the queue of the partition that a record names. Raises InvalidPartitionError, InvalidRecordError."""
        if partition is None:
            raise InvalidRecordError(
                f"the partitioner returned no partition for a record of {self.name!r}", topic=self.name
            )
        if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
            raise InvalidRecordTypeError(
                f"a record for topic {self.name!r} names {partition!r} as its partition; give a whole number or None",
                topic=self.name,
            )
        number = operator.index(partition)
        if not 0 <= number < len(self.queues):
            raise no_such_partition(self.name, len(self.queues), number)
        return self.queues[number]

    @property
    def routing(self) -> RowRouting:
        """The routing of rows of tables. Those without keys start at a random partition."""
        if self._routing is None:
            self._routing = RowRouting(len(self.queues), int(self._jitter() * len(self.queues)))
        return self._routing

    def current_sticky(self) -> PartitionQueue | None:
        """Return the current sticky partition's queue; None once its batch is sent or has ``batch_size`` bytes."""
        sticky = self.sticky
        return sticky if self.sticky_left >= 0 and sticky is not None and sticky.open is not None else None

    def next_sticky(self, drawn: float, bytes_left: int) -> PartitionQueue:
        """Choose another sticky partition, with a leader if any has one. ``drawn`` is a random number from [0, 1)."""
        number = int(drawn * len(self.queues))
        if self._partitions[number].leader < 0:
            led = [index for index, partition in enumerate(self._partitions) if partition.leader >= 0]
            number = led[int(drawn * len(led))] if led else number
        self.sticky = self.queues[number]
        self.sticky_left = bytes_left
        return self.sticky


class Topics:
    """The metadata of the topics that a producer has sent to. Thread-safe."""

    def __init__(self, coordinator: Coordinator, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.cache: dict[str, TopicMetadata] = {}
        """Metadata by topic name; ``send`` looks here before it calls ``find``."""
        self._coordinator = coordinator
        self._config = config
        self._accumulator = accumulator
        self._clock = coordinator.log.clock

    def find(self, topic: object) -> TopicMetadata:
        """Return the topic's metadata; read the storage if needed, and create the topic if that is allowed.

        Raises InvalidTopicError, UnknownTopicOrPartitionError, StorageError.
        """
        if not isinstance(topic, str):
            raise InvalidTopicTypeError(f"invalid topic {topic!r}: give its name as str, not {type(topic).__name__}")
        validate_written_topic(topic)
        state = self._coordinator.state
        if topic not in state.topics or topic in self.cache:
            state = self._coordinator.refresh()
        if topic not in state.topics:
            state = self._create(topic, state)
        return self._store(state.topic(topic), state)

    def _store(self, topic: TopicState, state: State) -> TopicMetadata:
        metadata = TopicMetadata(topic, state, self._config, self._accumulator, self._coordinator.log.ids.jitter)
        metadata.checked_at = self._clock.monotonic()
        self.cache[topic.name] = metadata
        return metadata

    def check_writable(self, topic: str, state: State) -> None:
        """Raise the error of a topic that does not exist and may not be created: InvalidTopicError,
        UnknownTopicOrPartitionError."""
        validate_written_topic(topic)
        cluster = ClusterConfig.resolve(state.configs)
        if topic not in state.topics and not (cluster.auto_create_topics_enable and self._config.create_topics):
            setting = "allow_auto_create_topics" if cluster.auto_create_topics_enable else "auto.create.topics.enable"
            raise no_such_topic(topic, setting)

    def _create(self, topic: str, state: State) -> State:
        self.check_writable(topic, state)
        cluster = ClusterConfig.resolve(state.configs)
        new = NewTopic(
            name=topic,
            topic_id=self._coordinator.log.ids.topic_id(),
            partitions=cluster.num_partitions,
            replication_factor=cluster.default_replication_factor,
        )
        try:
            self._coordinator.submit(
                partial(create_written_topic, new=new, ignores_case=self._coordinator.ignores_case)
            )
        except TopicAlreadyExistsError:  # another writer was faster
            return self._coordinator.refresh()
        warn_of_created_topic(topic, cluster.num_partitions)
        return self._coordinator.state

    def is_old(self, topic: str) -> bool:
        """Return whether ``check`` would read the storage."""
        metadata = self.cache.get(topic)
        return metadata is not None and self._clock.monotonic() - metadata.checked_at > self._config.metadata_max_age

    def check_known(self) -> None:
        """Update all topics from the coordinator's state. Sends no request."""
        for topic in [*self.cache]:
            if not self.is_old(topic):
                self.check(topic)

    def check(self, topic: str) -> TopicMetadata | None:
        """Return a topic's metadata, updated from the coordinator's state; None if it was deleted.

        Sends no request unless the metadata are older than ``metadata_max_age_ms``. Raises StorageError then.
        """
        metadata = self.cache.get(topic)
        if metadata is None:
            return None
        state, now = self._coordinator.state, self._clock.monotonic()
        if now - metadata.checked_at > self._config.metadata_max_age:
            state = self._coordinator.refresh()
            metadata.checked_at = now
        topic_state = state.topics.get(topic)
        if topic_state is None:
            del self.cache[topic]
            return None
        return metadata if metadata.update(topic_state, state) else self._store(topic_state, state)
