"""Decisions about topics: creation, more partitions, deletion and configs. Rules: as in ``decide``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sparklog import limits
from sparklog.config.cluster_configs import ClusterConfig, check_cluster_together, validate_cluster_configs
from sparklog.config.effects import check_misleading, misleading
from sparklog.config.topic_configs import TopicConfig, canonical_topic_configs, validate_topic_configs
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import AlterConfig, CreatePartitions, CreateTopic, DeleteTopic
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.names import (
    collision_key,
    validate_partition_count,
    validate_partition_increase,
    validate_written_topic,
)
from sparklog.protocol.plan.placement import available_brokers, spread, start_and_shift, start_and_shift_after
from sparklog.protocol.schema_versions import add_versions
from sparklog.protocol.state import State, TopicState
from sparklog.schema.languages.ddl import find_breaking_change
from sparklog.schema.languages.record_schema import find_part_misreading


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. ``assignment`` has one list of broker ids per partition; None spreads replicas evenly."""

    name: str
    topic_id: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] | None = None


def create_topic(state: State, new: NewTopic, ignores_case: bool = False) -> Decision[str]:
    """Create a topic; ``ignores_case``: of a cluster whose storage does. Raises InvalidTopicError,
    TopicAlreadyExistsError, InvalidPartitionsError, InvalidReplicationFactorError or InvalidConfigurationError."""
    validate_written_topic(new.name)
    if new.name in state.topics:
        raise TopicAlreadyExistsError(f"topic {new.name!r} already exists", topic=new.name)
    other = state.indexes.topic_names.get(collision_key(new.name))
    if other is not None:
        raise InvalidTopicError(
            f"topic {new.name!r} collides with existing topic {other!r}: names may not differ only in "
            "'.' and '_', which metrics cannot tell apart; choose another name",
            topic=new.name,
        )
    if ignores_case:
        check_case(state, new.name)
    configs = validate_topic_configs(new.configs, state.configs)
    check_misleading(new.name, configs)
    replicas = _choose_assignment(state, new.partitions, new.replication_factor, new.assignment, new)
    return Decision(
        [CreateTopic(topic=new.name, topic_id=new.topic_id, replicas=replicas, configs=configs)], new.topic_id
    )


def check_case(state: State, name: str) -> None:
    """Raise InvalidTopicError for the name of a new topic that differs only in case from that of another one."""
    other = next((other for other in state.topics if other != name and other.casefold() == name.casefold()), None)
    if other is not None:
        raise InvalidTopicError(
            f"topic {name!r} differs only in case from topic {other!r}, and the file system of this cluster does not "
            "tell them apart: their tables would be one; choose another name",
            topic=name,
        )


def create_written_topic(state: State, new: NewTopic, ignores_case: bool = False) -> Decision[str]:
    """Create a topic for the first records that are written to it, as ``create_topic``. Raises
    UnknownTopicOrPartitionError, too, if the cluster does not allow it."""
    if new.name not in state.topics and not ClusterConfig.resolve(state.configs).auto_create_topics_enable:
        raise no_such_topic(new.name, "auto.create.topics.enable")
    return create_topic(state, new, ignores_case)


def no_such_topic(topic: str, setting: str) -> UnknownTopicOrPartitionError:
    """Return the error of a topic that does not exist and is not created, because ``setting`` is false."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} does not exist, and {setting} is false; create it with "
        f"`sparklog topics --create --topic {topic}`, or correct the name",
        topic=topic,
    )


def choose_replicas(state: State, new: NewTopic) -> NewTopic:
    """Return the topic with its brokers chosen, for a writer that writes before it creates the topic. Raises as
    ``create_topic``."""
    if new.assignment is not None:
        return new
    chosen = _choose_assignment(state, new.partitions, new.replication_factor, None, new)
    return msgspec.structs.replace(new, assignment=chosen)


def create_partitions(
    state: State, topic: str, total: int, assignment: Sequence[Sequence[int]] | None = None
) -> Decision[int]:
    """Increase a topic's partition count to ``total``. Raises InvalidPartitionsError if it would not grow, and
    InvalidTopicError for an internal topic."""
    validate_written_topic(topic)
    found = state.topic(topic)
    current = len(found.partitions)
    validate_partition_increase(topic, current, total)
    if assignment is not None and len(assignment) != total - current:
        raise InvalidPartitionsError(
            f"the replica assignment names {len(assignment)} partitions, and {total - current} are added to {topic!r}",
            topic=topic,
        )
    like = found.partitions[0]
    factor = len(like.replicas) - len(like.removing)
    replicas = _choose_assignment(state, total - current, factor, assignment, found, first=current)
    return Decision([CreatePartitions(topic=topic, topic_id=found.topic_id, replicas=replicas)], total)


def _choose_assignment(
    state: State,
    partitions: int,
    factor: int,
    assignment: Sequence[Sequence[int]] | None,
    topic: NewTopic | TopicState,
    first: int = 0,
) -> list[list[int]]:
    """Return one replica list per partition: the given ones, or replicas spread as in Kafka (``placement``)."""
    if assignment is not None:
        return _check_assignment(state, assignment, topic.name)
    validate_partition_count(first + partitions, topic.name)
    brokers = available_brokers(state)
    if not 1 <= factor <= len(brokers):
        raise InvalidReplicationFactorError(
            f"invalid replication factor {factor} of topic {topic.name!r}: it must be 1 to {len(brokers)}, the number "
            f"of brokers (storage locations), of {len(state.brokers)}, that are online and not cordoned; `sparklog "
            "brokers add --location …` adds one",
            topic=topic.name,
        )
    if isinstance(topic, NewTopic):
        start, shift = start_and_shift(topic.topic_id, len(brokers))
    else:
        start, shift = start_and_shift_after(topic.partitions[0].replicas, brokers)
    return spread(brokers, partitions, factor, start=start, shift=shift, first=first)


def _check_assignment(state: State, assignment: Sequence[Sequence[int]], topic: str) -> list[list[int]]:
    if not 1 <= len(assignment) <= limits.MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitionsError(f"the replica assignment of {topic!r} names no partition", topic=topic)
    for partition, replicas in enumerate(assignment):
        usable = sorted(number for number, broker in state.brokers.items() if not broker.cordoned)
        unusable = [broker for broker in replicas if broker not in usable]
        if not replicas or unusable or len(set(replicas)) != len(replicas) or len(replicas) != len(assignment[0]):
            raise InvalidReplicationAssignmentError(
                f"replica assignment {list(replicas)} of {topic}-{partition} must name registered brokers that are not "
                f"cordoned ({usable}), each once, and as many as the other partitions do",
                topic=topic,
                partition=partition,
            )
    return [list(replicas) for replicas in assignment]


def delete_topic(state: State, topic: str) -> Decision[str]:
    """Delete a topic with all its records. Raises PolicyViolationError if ``delete.topic.enable`` is false."""
    found = state.topic(topic)
    if not ClusterConfig.resolve(state.configs).delete_topic_enable:
        raise PolicyViolationError(
            f"topic {topic!r} cannot be deleted: delete.topic.enable is false for this cluster", topic=topic
        )
    return Decision([DeleteTopic(topic=topic, topic_id=found.topic_id)], found.topic_id)


def _check_schema_change(state: State, topic: str, configs: Mapping[str, str]) -> None:
    """Refuse a schema by which readers of the topic's table could not read what it has. Raises
    InvalidConfigurationError."""
    found = state.topic(topic)
    if not any(partition.log_end_offset for partition in found.partitions):
        return
    before = TopicConfig.resolve(found.configs, state.configs)
    after = TopicConfig.resolve(configs, state.configs)
    for part, old, new in zip(("value", "key"), before.record_schema, after.record_schema, strict=True):
        if old.fields and old.format != new.format:
            raise InvalidConfigurationError(
                f"{part}.format of topic {topic!r} is {old.format} and cannot become {new.format}: the topic has "
                f"{part}s of this format; write to a new topic",
                topic=topic,
                config=f"{part}.format",
            )
    if after.value_keep and not before.value_keep:
        raise InvalidConfigurationError(
            f"value.keep of topic {topic!r} is false and cannot become true: readers of its table would no longer see "
            "which values are left out; write to a new topic",
            topic=topic,
            config="value.keep",
        )
    reason = find_breaking_change(before.typed_schema, after.typed_schema)
    if reason:
        raise InvalidConfigurationError(
            f"the schema of topic {topic!r} cannot be changed in this way: {reason}, which would break readers of its "
            "table; add a field of another name, or write to a new topic",
            topic=topic,
            config="value.schema",
        )
    for part, old, new in zip(("value", "key"), before.record_schema, after.record_schema, strict=True):
        reason = find_part_misreading(old, new)
        if reason:
            raise InvalidConfigurationError(
                f"{part}.schema of topic {topic!r} cannot be changed in this way: {reason}; what was written before "
                "could be read wrongly, since Avro does not say by which schema it was written; add a field of "
                "another name, or write to a new topic",
                topic=topic,
                config=f"{part}.schema",
            )


def _check_schema_count(topic: TopicState, configs: Mapping[str, str]) -> None:
    """Refuse one version of a schema too many. Raises InvalidConfigurationError."""
    for config, versions in add_versions(topic.schemas, configs, 0, 0).items():
        if len(versions) > max(limits.MAX_SCHEMA_VERSIONS, len(topic.schemas.get(config, ()))):
            raise InvalidConfigurationError(
                f"{config} of topic {topic.name!r} has had {limits.MAX_SCHEMA_VERSIONS} versions, the most that are "
                "kept; set one of them, or write to a new topic",
                topic=topic.name,
                config=config,
            )


def alter_configs(
    state: State, topic: str, changes: Mapping[str, str], deletions: Sequence[str] = ()
) -> Decision[None]:
    """Set and delete dynamic configs of a topic, or of the cluster if ``topic`` is empty.

    Raises InvalidConfigurationError for unknown names, for invalid or misleading values, and for deletions of configs
    that are not set.
    """
    current = state.topic(topic).configs if topic else state.configs
    absent = [name for name in deletions if name not in current]
    if absent:
        where = f"topic {topic!r}" if topic else "the cluster"
        raise InvalidConfigurationError(f"{where} has no dynamic config {', '.join(absent)} to delete", topic=topic)
    canonical = canonical_topic_configs(changes) if topic else validate_cluster_configs(changes)
    check_misleading(topic, canonical)
    kept = {name: value for name, value in current.items() if name not in deletions}
    if topic:  # some values have to fit each other
        sound = {name: value for name, value in kept.items() if name not in misleading(topic, kept)}
        validate_topic_configs({**sound, **canonical}, state.configs)
        _check_schema_change(state, topic, {**kept, **canonical})
        _check_schema_count(state.topics[topic], {**kept, **canonical})
    else:
        check_cluster_together({**kept, **canonical}, [*canonical, *deletions])
    if not canonical and not deletions:
        return Decision([], None)
    return Decision([AlterConfig(topic=topic, set=canonical, delete=list(deletions))], None)
