"""What a writer task knows of a topic: its id, its partitions, and the configs that rows are held against.

Taken from one state of the cluster. The commit checks again that the topic is still the one that was written for.

Rules: a topic that is missing is created with the write where ``auto.create.topics.enable`` says so, as a Kafka broker
does for a producer; else it is an error. Not for: deciding anything about rows (``routing``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.layout import segment_key
from sparklog.log.records.append import RunTarget
from sparklog.protocol.decide.acks import ACKS_ALL, Needs, brokers_to_write, needs
from sparklog.protocol.decide.topics import NewTopic, choose_replicas
from sparklog.protocol.names import validate_written_topic
from sparklog.protocol.state import State


@dataclass(frozen=True)
class TopicTarget:
    """A topic to write to. ``topic_id`` is empty for one that the commit creates, with the replicas of ``assignment``.

    ``end_offsets``, ``brokers``, to which records go, and what these files need are by partition, as of ``version`` of
    the cluster, when the write began. Sizes in bytes, times in milliseconds.
    """

    topic: str
    topic_id: str
    end_offsets: tuple[int, ...]
    brokers: tuple[tuple[int, ...], ...]
    needs: tuple[Needs, ...]
    assignment: tuple[tuple[int, ...], ...] = ()
    codec: str = "none"
    codec_level: int | None = None
    log_append_time: bool = False
    max_message_bytes: int = 1_048_588
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 2**63 - 1
    segment_bytes: int = 2**30
    needs_key: bool = False
    version: int = 0

    @property
    def partitions(self) -> int:
        return len(self.end_offsets)

    def after_failures(self, failures: int) -> TopicTarget:
        """The topic for a task that has failed before: where the leader alone is to get rows, the next replica in sync
        takes its place, since it may be the leader's location that fails."""
        if not failures:
            return self
        return replace(self, brokers=tuple(map(partial(_next_in_sync, failures), self.brokers, self.needs)))

    def run(self, partition: int) -> RunTarget:
        """What a run of records for a partition is committed as."""
        return RunTarget(self.topic, self.topic_id, partition, self.log_append_time)

    def key(self, partition: int, write_id: str) -> str:
        """Where a new file of the partition goes, below the root of its broker."""
        return segment_key(self.topic, partition, self.end_offsets[partition], self.version, write_id)


def _next_in_sync(failures: int, brokers: tuple[int, ...], needed: Needs) -> tuple[int, ...]:
    if len(brokers) > 1 or len(needed.isr) == 1:
        return brokers
    in_sync = (*brokers, *(broker for broker in needed.isr if broker not in brokers))
    return (in_sync[failures % len(in_sync)],)


def target_of(
    state: State, topic: str, codec: str = "none", codec_level: int | None = None, acks: int = ACKS_ALL
) -> TopicTarget:
    """The topic as rows are written to it; ``codec`` and ``acks`` are what the producer asks for.

    Raises InvalidTopicError for a name that no topic can have, UnknownTopicOrPartitionError for a missing topic, and
    NotEnoughReplicasError or NotLeaderOrFollowerError where not all of its partitions can be written to.
    """
    validate_written_topic(topic)
    cluster = ClusterConfig.resolve(state.configs)
    found = state.topics.get(topic)
    config = TopicConfig.resolve(found.configs if found else {}, state.configs)
    if found is None and not cluster.auto_create_topics_enable:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} does not exist, and auto.create.topics.enable is false; create it with "
            f"`sparklog topics --create --topic {topic}`, or correct the name",
            topic=topic,
        )
    assignment = () if found else _assignment(state, topic, cluster)
    brokers = tuple(replicas if acks == ACKS_ALL else replicas[:1] for replicas in assignment)
    needed = tuple(Needs(replicas, replicas, 1) for replicas in assignment)
    if found:
        numbers = range(len(found.partitions))
        brokers = tuple(brokers_to_write(state, topic, number, acks) for number in numbers)
        needed = tuple(needs(state, topic, number, acks) for number in numbers)
    chosen, level = _codec(config, codec, codec_level)
    return TopicTarget(
        topic=topic,
        topic_id=found.topic_id if found else "",
        end_offsets=tuple(one.log_end_offset for one in found.partitions) if found else (0,) * len(assignment),
        brokers=brokers,
        needs=needed,
        assignment=assignment,
        codec=chosen,
        codec_level=level,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        max_message_bytes=config.max_message_bytes,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        segment_bytes=config.segment_bytes,
        needs_key="compact" in config.cleanup_policy,
        version=state.version,
    )


def _assignment(state: State, topic: str, cluster: ClusterConfig) -> tuple[tuple[int, ...], ...]:
    """The replicas of a topic that is not there yet: the same for every task that finds the same brokers."""
    new = NewTopic(
        name=topic,
        topic_id=topic,
        partitions=cluster.num_partitions,
        replication_factor=cluster.default_replication_factor,
    )
    return tuple(tuple(replicas) for replicas in choose_replicas(state, new).assignment or ())


def _codec(config: TopicConfig, codec: str, codec_level: int | None) -> tuple[str, int | None]:
    """The topic's own codec with its level, or the producer's where the topic leaves it to that."""
    chosen = config.compression_type
    if chosen == "producer":
        return codec, codec_level
    return ("none" if chosen == "uncompressed" else chosen), config.compression_level(chosen)


TargetOf = Callable[[str], TopicTarget]
"""Looks a topic up by name; errors as ``target_of``."""
