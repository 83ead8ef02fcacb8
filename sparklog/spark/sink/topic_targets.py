"""Look up the facts about a topic that a writer task needs: its id, partitions, and the configs that rows are checked
against.

They are taken from one state of the cluster. The commit checks again that the topic still has this id.

Rules: a missing topic is created with the write if ``auto.create.topics.enable`` is true, as by a Kafka broker for a
producer; otherwise it is an error. Not for: checking rows (``routing``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget
from sparklog.protocol.decide.acks import ACKS_ALL, Needs, brokers_to_write, needs
from sparklog.protocol.decide.topics import NewTopic, choose_replicas, no_such_topic
from sparklog.protocol.names import validate_written_topic
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.protocol.state import State
from sparklog.records.topic_rules import TopicRules


@dataclass(frozen=True, kw_only=True)
class TopicTarget(TopicRules):
    """A topic to write to. ``topic_id`` is empty if the commit creates it, with the replicas of ``assignment``.

    ``end_offsets``, ``brokers`` (those that get records) and ``needs`` are by partition, as of the state in which the
    topic was looked up. Sizes in bytes, times in milliseconds.
    """

    topic_id: str
    end_offsets: tuple[int, ...]
    brokers: tuple[tuple[int, ...], ...]
    needs: tuple[Needs, ...]
    assignment: tuple[tuple[int, ...], ...] = ()
    segment_bytes: int

    @property
    def partitions(self) -> int:
        return len(self.end_offsets)

    def after_failures(self, failures: int) -> TopicTarget:
        """Return the topic for a task that has failed before: if only the leader is written to, the next replica in
        sync replaces it, since the leader's location may be what fails."""
        if not failures:
            return self
        return replace(self, brokers=tuple(map(partial(_next_in_sync, failures), self.brokers, self.needs)))

    def run(self, partition: int) -> RunTarget:
        """Return the target of a run of records for a partition."""
        return RunTarget(self.topic, self.topic_id, partition)

    def key(self, partition: int, version: int, write_id: str) -> str:
        """Return the key of a new file of the partition, below the root of its broker. ``version`` is that of the state
        whose stores it is written to."""
        return segment_key(self.topic, partition, self.end_offsets[partition], version, write_id)


def _next_in_sync(failures: int, brokers: tuple[int, ...], needed: Needs) -> tuple[int, ...]:
    if len(brokers) > 1 or len(needed.isr) == 1:
        return brokers
    in_sync = (*brokers, *(broker for broker in needed.isr if broker not in brokers))
    return (in_sync[failures % len(in_sync)],)


def target_of(
    state: State, topic: str, codec: str = "none", codec_level: int | None = None, acks: int = ACKS_ALL
) -> TopicTarget:
    """Return the target for writing to a topic; ``codec`` and ``acks`` are the producer's.

    Raises InvalidTopicError for an invalid name, UnknownTopicOrPartitionError for a missing topic, and
    NotEnoughReplicasError or NotLeaderOrFollowerError if not all of its partitions can be written to.
    """
    validate_written_topic(topic)
    cluster = ClusterConfig.resolve(state.configs)
    topic_state = state.topics.get(topic)
    config = TopicConfig.resolve(topic_state.configs if topic_state else {}, state.configs)
    assignment: tuple[tuple[int, ...], ...] = ()
    if topic_state is None:
        if not cluster.auto_create_topics_enable:
            raise no_such_topic(topic, "auto.create.topics.enable")
        assignment = _assign(state, topic, cluster)
        brokers = tuple(replicas if acks == ACKS_ALL else replicas[:1] for replicas in assignment)
        needed = tuple(Needs(replicas, replicas, 1) for replicas in assignment)
        end_offsets: tuple[int, ...] = (0,) * len(assignment)
    else:
        numbers = range(len(topic_state.partitions))
        brokers = tuple(brokers_to_write(state, topic, number, acks) for number in numbers)
        needed = tuple(needs(state, topic, number, acks) for number in numbers)
        end_offsets = tuple(partition.log_end_offset for partition in topic_state.partitions)
    return TopicTarget.resolve(
        topic,
        config,
        codec,
        codec_level,
        None if topic_state is None else find_record_schema(topic_state, config),
        topic_id=topic_state.topic_id if topic_state else "",
        end_offsets=end_offsets,
        brokers=brokers,
        needs=needed,
        assignment=assignment,
        segment_bytes=config.segment_bytes,
    )


def _assign(state: State, topic: str, cluster: ClusterConfig) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of a topic to be created: deterministic, so the same for all tasks that see the same
    brokers."""
    new = NewTopic(
        name=topic,
        topic_id=topic,
        partitions=cluster.num_partitions,
        replication_factor=cluster.default_replication_factor,
    )
    return tuple(tuple(replicas) for replicas in choose_replicas(state, new).assignment or ())


TargetOf = Callable[[str], TopicTarget]
"""Looks a topic up by name; errors as ``target_of``."""
