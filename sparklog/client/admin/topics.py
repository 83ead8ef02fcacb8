"""Topics and partitions of ``AdminClient``. Results are those of kafka-python 3: Kafka's responses as dicts.

All topics of a call are created, changed or deleted in one commit; those that cannot be are left out of it and their
errors are in the result, or the first of them is raised.
"""

from __future__ import annotations

import logging
import uuid  # noqa: TID251 - only to show an id as kafka-python does; none is made here
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sparklog.client.admin.base import UNKNOWN_OPERATIONS, AdminBase, Answer, Response, Result, text_configs
from sparklog.client.admin.configs import config_data
from sparklog.client.admin.types import ConfigResourceType, NewPartitions, NewTopic, error_code
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.effects import without_effect
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator.topic_removals import deletion_of
from sparklog.errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.elections import is_online
from sparklog.protocol.decide.topics import NewTopic as TopicRequest
from sparklog.protocol.decide.topics import create_partitions, create_topic
from sparklog.protocol.names import collision_key, is_internal_topic, validate_topic_name
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

WAIT_SECONDS = 0.1
"""Between two looks for a topic that is waited for, as in kafka-python."""
_NO_ID = "A" * 22


class TopicAdmin(AdminBase):
    """The methods of ``AdminClient`` for topics. Thread-safe."""

    def list_topics(self) -> list[str]:
        """The names of all topics, in order.

        >>> admin.list_topics()
        ['orders']
        """
        return sorted(self._state().topics)

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[Result]:
        """Partitions and replicas of these topics, by name or id, or of all; of a missing one, the error code.

        >>> [(topic["name"], len(topic["partitions"])) for topic in admin.describe_topics(["orders"])]
        [('orders', 1)]
        """
        state = self._state()
        if topics is None:
            return [_topic_data(state, state.topics[name]) for name in sorted(state.topics)]
        return [_described(state, topic) for topic in _several(topics, "topics")]

    def create_topics(
        self,
        new_topics: Sequence[str | NewTopic] | Mapping[str, Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> Result:
        """Create topics: names, NewTopic objects, or ``{name: {"num_partitions": 8, "configs": {...}}}``.

            >>> _ = admin.create_topics({"payments": {"num_partitions": 8, "configs": {"retention.ms": "86400000"}}})
            >>> admin.list_topics()
            ['orders', 'payments']

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
            InvalidConfigurationError: with ``raise_errors``; the topics without an error are created all the same.
        """
        if validate_only and wait_for_metadata:
            raise InvalidArgumentError("validate_only creates no topic that wait_for_metadata could wait for")
        wanted = _new_topics(new_topics)
        names = [new.name for new in wanted]
        coordinator = self._opened()
        ids = [coordinator.new_topic_id() for _ in wanted]
        taken: dict[str, str] = {}

        def create(state: State, place: int) -> Decision:
            if place == 0:
                taken.clear()
            new = wanted[place]
            key = collision_key(validate_topic_name(new.name))
            if key in taken:
                raise InvalidTopicError(
                    f"topics {taken[key]!r} and {new.name!r} cannot be created together: names may not differ only in "
                    "'.' and '_', which metrics cannot tell apart",
                    topic=new.name,
                )
            decision = create_topic(state, _decided_topic(state, new, ids[place]))
            taken[key] = new.name
            return decision

        answers = self._together(names, create, validate_only, raise_errors)
        for new, answer in zip(wanted, answers, strict=True):
            if answer.error is None:
                for line in without_effect(new.name, text_configs(new.topic_configs or {})):
                    logger.warning("topic %s: %s", new.name, line)
        state = coordinator.state
        return {"topics": [_created(state, new, answer) for new, answer in zip(wanted, answers, strict=True)]}

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], timeout_ms: int | None = None, raise_errors: bool = True
    ) -> Result:
        """Delete topics, by name or id, with all their records.

        Raises UnknownTopicOrPartitionError, PolicyViolationError with ``raise_errors``; the others are deleted.

            >>> _ = admin.delete_topics(["orders"])
            >>> admin.list_topics()
            []
        """
        wanted = _several(topics, "topics")
        names = _known_names(self._state(), wanted)
        with deletion_of(self._opened(), names) as delete_topic:
            answers = self._together(
                [str(topic) for topic in wanted],
                lambda state, place: delete_topic(state, _name_of(state, wanted[place])),
                False,
                raise_errors,
            )
        found = [
            {
                "name": None if isinstance(topic, uuid.UUID) else topic,
                "topic_id": str(as_uuid(answer.result or _NO_ID) if isinstance(topic, str) else topic),
                **answer.codes(),
            }
            for topic, answer in zip(wanted, answers, strict=True)
        ]
        return {"topics": found}

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Response:
        """Raise the numbers of partitions: ``{topic: total}``, or NewPartitions, or ``{"count": 8, "assignments": …}``.

        ``results`` of what it returns has the outcome of each topic. Raises UnknownTopicOrPartitionError,
        InvalidPartitionsError, InvalidReplicationAssignmentError with ``raise_errors``; the others are raised.

            >>> _ = admin.create_partitions({"orders": 4})
        """
        names = list(topic_partitions)
        wanted = [_new_partitions(name, topic_partitions[name]) for name in names]
        answers = self._together(
            names,
            lambda state, place: create_partitions(
                state, names[place], wanted[place].total_count, wanted[place].new_assignments
            ),
            validate_only,
            raise_errors,
        )
        return Response(
            throttle_time_ms=0, results=[Response(name=answer.name, **answer.codes()) for answer in answers]
        )

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, Result]:
        """Start partitions at these offsets: no earlier record can be read any more. -1 deletes all there are.

        The result has the low watermark of each partition, where its log starts now. The space of the records is freed
        by the next retention. ``partition_leader_id`` has no use here.

            >>> _ = producer.send("orders", b"v").get()
            >>> first = sparklog.TopicPartition("orders", 0)
            >>> admin.delete_records({first: 1})[first]["low_watermark"]
            1

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError, PolicyViolationError, InvalidTopicError: of the first
                partition that could not be; those of the others that can are deleted all the same, as in Kafka.
        """
        places = list(records_to_delete)

        def delete(state: State, place: int) -> Decision:
            topic, partition = places[place]
            if is_internal_topic(topic):
                raise InvalidTopicError(f"records of the internal topic {topic} are not deleted", topic=topic)
            return decide_segments.delete_records(state, {(topic, partition): records_to_delete[places[place]]})

        answers = self._together([f"{topic}-{partition}" for topic, partition in places], delete, False, True)
        return {
            place: {"partition_index": place.partition, "low_watermark": low, "error_code": 0}
            for place, answer in zip(places, answers, strict=True)
            for low in answer.result.values()
        }

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = 10_000) -> None:
        """Return once all these topics exist. Raises KafkaTimeoutError."""
        names = _several(topic_names, "topic_names")
        clock = self._opened().log.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        while True:
            topics = self._state().topics
            missing = [name for name in names if name not in topics]
            if not missing:
                return
            if clock.monotonic() >= deadline:
                raise KafkaTimeoutError(
                    f"topics {', '.join(map(repr, missing))} did not appear within {timeout_ms} ms", topic=missing[0]
                )
            clock.sleep(WAIT_SECONDS)

    def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Mapping[str, Any] | None = None
    ) -> Result:
        """Partitions of these topics, a page of so many at a time; ``next_cursor`` names where the next one begins."""
        if response_partition_limit < 1:
            raise InvalidArgumentError(f"response_partition_limit={response_partition_limit!r}: give at least 1")
        state = self._state()
        after = (cursor["topic_name"], cursor["partition_index"]) if cursor else ("", 0)
        left = response_partition_limit
        found: list[Result] = []
        for name in sorted(set(_several(topics, "topics"))):
            if name < after[0]:
                continue
            data = _described(state, name)
            del data["authorized_operations"]  # which has another name here
            data["topic_authorized_operations"] = UNKNOWN_OPERATIONS
            first = after[1] if name == after[0] else 0
            partitions = data["partitions"][first:]
            if left == 0 and partitions:
                return {"topics": found, "next_cursor": {"topic_name": name, "partition_index": first}}
            data["partitions"] = [{**one, **_NO_ELIGIBLE} for one in partitions[:left]]
            found.append(data)
            if len(partitions) > left:
                return {"topics": found, "next_cursor": {"topic_name": name, "partition_index": first + left}}
            left -= len(partitions)
        return {"topics": found, "next_cursor": None}


_NO_ELIGIBLE: Mapping[str, object] = {"eligible_leader_replicas": None, "last_known_elr": None}


# -- arguments


def _several(given: Iterable[Any], what: str) -> list[Any]:
    """The items of a list. One name is no list, although it could be taken for one of letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentTypeError(f"{what}={given!r}: give a list")
    return list(given)


def _new_topics(given: object) -> list[NewTopic]:
    if isinstance(given, Mapping):
        return [_topic_of(name, options) for name, options in given.items()]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidArgumentTypeError(f"new_topics={given!r}: give a list of names or NewTopic objects, or a dict")
    found = [NewTopic(one) if isinstance(one, str) else one for one in given]
    wrong = next((one for one in found if not isinstance(one, NewTopic)), None)
    if wrong is not None or not found:
        raise InvalidArgumentError(f"no valid topics found in new_topics: {wrong!r}; give names or NewTopic objects")
    return found


def _topic_of(name: str, options: Mapping[str, Any]) -> NewTopic:
    unknown = sorted(set(options) - {"num_partitions", "replication_factor", "assignments", "configs"})
    if unknown:
        raise InvalidArgumentError(
            f"new topic {name!r} has the unknown option {unknown[0]!r}; it takes num_partitions, replication_factor, "
            "assignments and configs",
            topic=name,
        )
    return NewTopic(
        name,
        options.get("num_partitions", -1),
        options.get("replication_factor", -1),
        options.get("assignments"),
        options.get("configs"),
    )


def _decided_topic(state: State, new: NewTopic, topic_id: str) -> TopicRequest:
    """The topic with the cluster's defaults for what is -1, and its assignment as a list by partition."""
    assignments = dict(new.replica_assignments or {})
    for what, number in (("num_partitions", new.num_partitions), ("replication_factor", new.replication_factor)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidArgumentTypeError(f"invalid {what} of topic {new.name!r}: {number!r}", topic=new.name)
    if assignments and (new.num_partitions, new.replication_factor) != (-1, -1):
        raise InvalidArgumentError(
            f"topic {new.name!r} has both a replica assignment and a number of partitions or replicas; leave these -1",
            topic=new.name,
        )
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidPartitionsError(
            f"the replica assignment of topic {new.name!r} names partitions {sorted(assignments)}, which are not 0 and "
            "what follows it",
            topic=new.name,
        )
    defaults = ClusterConfig.resolve(state.configs)
    partitions, factor = new.num_partitions, new.replication_factor
    if factor != -1 and factor < 1:
        raise InvalidReplicationFactorError(f"topic {new.name!r} needs at least one replica", topic=new.name)
    return TopicRequest(
        name=new.name,
        topic_id=topic_id,
        partitions=defaults.num_partitions if partitions == -1 else partitions,
        replication_factor=defaults.default_replication_factor if factor == -1 else factor,
        configs=text_configs(new.topic_configs or {}),
        assignment=[list(assignments[number]) for number in range(len(assignments))] if assignments else None,
    )


def _new_partitions(name: str, given: int | NewPartitions | Mapping[str, Any]) -> NewPartitions:
    if isinstance(given, NewPartitions):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return NewPartitions(given)
    if isinstance(given, Mapping) and "count" in given:
        return NewPartitions(given["count"], given.get("assignments"))
    raise InvalidArgumentError(
        f"new partitions of topic {name!r} are {given!r}; give a number, NewPartitions, or a dict with 'count'",
        topic=name,
    )


def _known_names(state: State, topics: Iterable[str | uuid.UUID]) -> list[str]:
    names: list[str] = []
    for topic in topics:
        with suppress(UnknownTopicOrPartitionError):
            names.append(_name_of(state, topic))
    return names


def _name_of(state: State, topic: str | uuid.UUID) -> str:
    """The name of a topic that was given by its id. Raises UnknownTopicOrPartitionError."""
    if not isinstance(topic, uuid.UUID):
        return topic
    shown = urlsafe_b64encode(topic.bytes).rstrip(b"=").decode()
    for name, found in state.topics.items():
        if as_uuid(found.topic_id) == topic:
            return name
    raise UnknownTopicOrPartitionError(f"there is no topic with the id {shown}")


# -- results


def as_uuid(topic_id: str) -> uuid.UUID:
    """A topic id as kafka-python takes it; results have it as text."""
    return uuid.UUID(bytes=urlsafe_b64decode(topic_id + "=="))


def _created(state: State, new: NewTopic, answer: Answer) -> Result:
    data: Result = {"name": new.name, "topic_id": str(as_uuid(answer.result or _NO_ID)), **answer.codes()}
    if answer.error is not None:
        return {**data, "num_partitions": -1, "replication_factor": -1, "configs": {}}
    decided = _decided_topic(state, new, answer.result)
    lists = decided.assignment
    config = TopicConfig.resolve(decided.configs, state.configs)
    entries = config.describe(everything=True)
    return {
        **data,
        "num_partitions": decided.partitions if lists is None else len(lists),
        "replication_factor": decided.replication_factor if lists is None else len(lists[0]),
        "configs": {entry.name: config_data(entry, ConfigResourceType.TOPIC) for entry in entries},
    }


def _described(state: State, topic: str | uuid.UUID) -> Result:
    try:
        return _topic_data(state, state.topic(_name_of(state, topic)))
    except UnknownTopicOrPartitionError as error:
        by_id = isinstance(topic, uuid.UUID)
        return {
            "error_code": error_code(error),
            "name": None if by_id else topic,
            "topic_id": str(topic if by_id else as_uuid(_NO_ID)),
            "is_internal": False,
            "partitions": [],
            "authorized_operations": None,
        }


def _topic_data(state: State, topic: TopicState) -> Result:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": str(as_uuid(topic.topic_id)),
        "is_internal": is_internal_topic(topic.name),
        "partitions": [_partition_data(state, number, one) for number, one in enumerate(topic.partitions)],
        "authorized_operations": None,
    }


def _partition_data(state: State, number: int, partition: PartitionState) -> Result:
    return {
        "error_code": 0,
        "partition_index": number,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": [broker for broker in partition.replicas if not is_online(state, broker)],
    }
