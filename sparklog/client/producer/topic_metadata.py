"""What a producer knows of a topic: its partitions, what its settings ask of records, and where the next one goes.

Rules: read from the coordinator's state and kept until that state says otherwise or ``metadata_max_age_ms`` has passed.
A topic that does not exist is created by the first record for it, where both the cluster
(``auto.create.topics.enable``) and the producer (``allow_auto_create_topics``) allow that, as Kafka's metadata request
does. A key goes where murmur2 says; records without a key go to one partition until its batch has ``batch_size`` bytes
or is sent, and then to another one, pseudo-random but even. So one record at a time reaches every partition too.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.record_accumulator import RECORD_OVERHEAD_BYTES, Accumulator, PartitionQueue
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidRecordTypeError,
    InvalidTopicTypeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.names import validate_written_topic
from sparklog.protocol.plan.partitioner import StickyPartitions, partition_for_key
from sparklog.protocol.state import State, TopicState
from sparklog.types import TopicPartition

LOG_OVERHEAD_BYTES = 12
"""bytes. What a limit allows for beside the record itself: the default is 1 MiB and Kafka's 12 of LOG_OVERHEAD."""

_KEYS_KEPT = 10_000
"""keys per topic whose partition is remembered: hashing one takes longer than all the rest of sending it."""


class TopicMetadata:
    """One topic as a producer sees it. Not thread-safe by itself: who races here only evens out partitions less."""

    def __init__(self, found: TopicState, state: State, config: ProducerConfig, accumulator: Accumulator) -> None:
        settings = TopicConfig.resolve(found.configs, state.configs)
        self.name = found.name
        self.topic_id = found.topic_id
        self.configs, self.cluster_configs = found.configs, state.configs
        self.checked_at = 0.0
        self.settings = settings
        self.max_request_size = config.max_request_size
        self.max_record_bytes = min(settings.max_message_bytes - LOG_OVERHEAD_BYTES, config.max_request_size)
        self.max_counted_bytes = self.max_record_bytes + RECORD_OVERHEAD_BYTES
        self.needs_key = "compact" in settings.cleanup_policy
        self.log_append_time = settings.message_timestamp_type == "LogAppendTime"
        self.queues = [accumulator.queue(TopicPartition(found.name, n)) for n in range(len(found.partitions))]
        self.codec, self.level = _codec(settings, config)
        self._partitions = found.partitions
        self.sticky: PartitionQueue | None = None
        self.sticky_left = 0
        self._spread: StickyPartitions | None = None
        self._by_key: dict[bytes, PartitionQueue] = {}

    def is_current(self, found: TopicState, state: State) -> bool:
        """Whether this still holds. If so, who leads the partitions is taken over from what was found."""
        is_current = (
            found.topic_id == self.topic_id
            and found.configs is self.configs
            and state.configs is self.cluster_configs
            and len(found.partitions) == len(self.queues)
        )
        if is_current:
            self._partitions = found.partitions
        return is_current

    def queue_of_key(self, key: bytes) -> PartitionQueue:
        """Where Kafka's default partitioner puts a key."""
        queue = self._by_key.get(key)
        if queue is None:
            if len(self._by_key) >= _KEYS_KEPT:
                self._by_key.clear()
            queue = self._by_key[key] = self.queues[partition_for_key(key, len(self.queues))]
        return queue

    def queue_of_partition(self, partition: object) -> PartitionQueue:
        """The partition a record names. Raises InvalidPartitionError, InvalidRecordError."""
        if partition is None:
            raise InvalidRecordError(
                f"the partitioner gave no partition for a record of {self.name!r}", topic=self.name
            )
        if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
            raise InvalidRecordTypeError(
                f"a record for topic {self.name!r} names {partition!r} as its partition; give a whole number or None",
                topic=self.name,
            )
        number = operator.index(partition)
        if not 0 <= number < len(self.queues):
            raise InvalidPartitionError(
                f"topic {self.name!r} has partitions 0 to {len(self.queues) - 1}, not {number}",
                topic=self.name,
                partition=number,
            )
        return self.queues[number]

    def fewest_rows(self, rows: int) -> int:
        """The partition for a piece of a table whose rows have no key: the one that got the fewest rows so far."""
        if self._spread is None:
            self._spread = StickyPartitions(len(self.queues))
        return self._spread.next_partition(rows)

    def available(self) -> list[int]:
        """The partitions that have a leader, as far as is known; all, where that is none."""
        led = [number for number, partition in enumerate(self._partitions) if partition.leader >= 0]
        return led or list(range(len(self.queues)))

    def current_sticky(self) -> PartitionQueue | None:
        """The partition for another record without a key: the same while its batch is open and below ``batch_size``."""
        sticky = self.sticky
        return sticky if self.sticky_left >= 0 and sticky is not None and sticky.open is not None else None

    def next_sticky(self, drawn: float, bytes_left: int) -> PartitionQueue:
        """Another partition, with a leader, for the records without a key that come now; ``drawn`` is from [0, 1)."""
        number = int(drawn * len(self.queues))
        if self._partitions[number].leader < 0:
            led = self.available()
            number = led[int(drawn * len(led))]
        self.sticky = self.queues[number]
        self.sticky_left = bytes_left
        return self.sticky


def _codec(settings: TopicConfig, config: ProducerConfig) -> tuple[str, int | None]:
    """The topic's codec with its level, or the producer's where the topic leaves it to the producer."""
    chosen = settings.compression_type
    if chosen == "producer":
        return config.codec, config.level
    return ("none" if chosen == "uncompressed" else chosen), settings.compression_level(chosen)


class Topics:
    """The topics that a producer has sent to. Thread-safe."""

    def __init__(self, coordinator: Coordinator, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.known: dict[str, TopicMetadata] = {}
        """By name; who sends looks here first, and only then asks ``find``."""
        self._coordinator = coordinator
        self._config = config
        self._accumulator = accumulator
        self._clock = coordinator.log.clock

    def find(self, topic: object) -> TopicMetadata:
        """The topic, asking the storage if need be, and creating it if that is allowed.

        Raises InvalidTopicError, UnknownTopicOrPartitionError, StorageError.
        """
        if not isinstance(topic, str):
            raise InvalidTopicTypeError(f"a topic is named by text, not by {type(topic).__name__}: {topic!r}")
        validate_written_topic(topic)
        state = self._coordinator.state
        if topic not in state.topics or topic in self.known:
            state = self._coordinator.refresh()
        if topic not in state.topics:
            state = self._create(topic, state)
        return self._remember(state.topic(topic), state)

    def _remember(self, found: TopicState, state: State) -> TopicMetadata:
        metadata = TopicMetadata(found, state, self._config, self._accumulator)
        metadata.checked_at = self._clock.monotonic()
        self.known[found.name] = metadata
        return metadata

    def _create(self, topic: str, state: State) -> State:
        cluster = ClusterConfig.resolve(state.configs)
        if not (cluster.auto_create_topics_enable and self._config.create_topics):
            setting = "allow_auto_create_topics" if cluster.auto_create_topics_enable else "auto.create.topics.enable"
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} does not exist, and {setting} is false; create it with "
                f"`sparklog topics --create --topic {topic}`",
                topic=topic,
            )
        try:
            self._coordinator.create_topic(topic, cluster.num_partitions, cluster.default_replication_factor)
        except TopicAlreadyExistsError:  # somebody was faster
            return self._coordinator.refresh()
        return self._coordinator.state

    def is_old(self, topic: str) -> bool:
        """Whether ``check`` would ask the storage."""
        metadata = self.known.get(topic)
        return metadata is not None and self._clock.monotonic() - metadata.checked_at > self._config.metadata_max_age

    def check(self, topic: str) -> TopicMetadata | None:
        """What is known of a topic once the coordinator's newest state has been compared; None for one that is gone.

        Costs no request, unless the metadata are older than ``metadata_max_age_ms``.
        """
        metadata = self.known.get(topic)
        if metadata is None:
            return None
        state, now = self._coordinator.state, self._clock.monotonic()
        if now - metadata.checked_at > self._config.metadata_max_age:
            state = self._coordinator.refresh()
            metadata.checked_at = now
        found = state.topics.get(topic)
        if found is None:
            del self.known[topic]
            return None
        return metadata if metadata.is_current(found, state) else self._remember(found, state)
