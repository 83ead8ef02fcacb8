"""The methods of ``AdminClient`` for topics and partitions. Results are those of kafka-python 3: responses as dicts.

A call creates, changes or deletes all of its topics in one commit. Topics that fail are left out of it: the result has
their errors, or the first error is raised.

Not for: the decisions (``protocol.decide.topics``).
"""

from __future__ import annotations

import operator
import uuid  # noqa: TID251 - only to show an id as kafka-python does; none is made here
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sparklog.client.admin.base import (
    NO_TOPIC_ID,
    UNKNOWN_OPERATIONS,
    AdminBase,
    RequestOutcome,
    Response,
    Result,
    as_list,
    error_codes,
    text_configs,
    warn_of,
)
from sparklog.client.admin.configs import config_data
from sparklog.client.admin.types import ConfigResourceType, NewPartitions, NewTopic, error_code
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.effects import without_effect
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator.topic_deletion import check_same_topic, prepare_deletion
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
from sparklog.protocol.decide.brokers import is_online
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import NewTopic as TopicRequest
from sparklog.protocol.decide.topics import create_partitions, create_topic
from sparklog.protocol.names import collision_key, is_internal_topic, validate_topic_name
from sparklog.protocol.schema_versions import count_unfit
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.types import TopicPartition, as_python, whole

WAIT_SECONDS = 0.1
"""Seconds between two checks of ``wait_for_topics``, as in kafka-python."""


class TopicAdmin(AdminBase):
    """The methods of ``AdminClient`` for topics. Thread-safe."""

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        >>> admin.list_topics()
        ['orders']
        """
        return sorted(self.read_state().topics)

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[Result]:
        """Return partitions and replicas of these topics, by name or id, or of all; a missing topic has an error code.

        ``unfit_records``, which kafka-python lacks, is the number of records in history that do not fit the topic's
        schema, None if records are not compared with one.

        >>> [(topic["name"], len(topic["partitions"])) for topic in admin.describe_topics(["orders"])]
        [('orders', 1)]
        """
        state = self.read_state()
        if topics is None:
            return [_topic_data(state, state.topics[name]) for name in sorted(state.topics)]
        return [_describe_topic(state, topic) for topic in as_list(topics, "topics")]

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
            InvalidConfigurationError: with ``raise_errors``, after the topics without an error have been created.
        """
        if validate_only and wait_for_metadata:
            raise InvalidArgumentError("validate_only and wait_for_metadata exclude each other: no topic is created")
        wanted = _parse_new_topics(new_topics)
        names = [new.name for new in wanted]
        coordinator = self._opened()
        ids = [coordinator.log.ids.topic_id() for _ in wanted]
        names_by_key: dict[str, str] = {}

        def create(state: State, index: int) -> Decision[str]:
            if index == 0:
                names_by_key.clear()
            new = wanted[index]
            key = collision_key(validate_topic_name(new.name))
            if key in names_by_key:
                raise InvalidTopicError(
                    f"topics {names_by_key[key]!r} and {new.name!r} cannot be created together: names may not differ "
                    "only in '.' and '_', which metrics cannot tell apart",
                    topic=new.name,
                )
            decision = create_topic(state, _to_request(state, new, ids[index]), coordinator.ignores_case)
            names_by_key[key] = new.name
            return decision

        outcomes = self._submit_all(names, create, validate_only, raise_errors)
        for new, outcome in zip(wanted, outcomes, strict=True):
            if outcome.error is None:
                warn_of(new.name, without_effect(new.name, text_configs(new.topic_configs or {})))
        state = coordinator.state
        return {
            "topics": [_creation_result(state, new, outcome) for new, outcome in zip(wanted, outcomes, strict=True)]
        }

    def delete_topics(
        self,
        topics: Iterable[str | uuid.UUID],
        timeout_ms: int | None = None,
        raise_errors: bool = True,
        *,
        all_or_none: bool = False,
    ) -> Result:
        """Delete topics, by name or id, with all their records.

        Raises UnknownTopicOrPartitionError, PolicyViolationError with ``raise_errors``, after the other topics have
        been deleted; with ``all_or_none`` none has been.

            >>> _ = admin.delete_topics(["orders"])
            >>> admin.list_topics()
            []
        """
        wanted = as_list(topics, "topics")
        names = _existing_names(self.read_state(), wanted)
        with prepare_deletion(self._opened(), names) as delete_topic:
            outcomes = self._submit_all(
                [str(topic) for topic in wanted],
                lambda state, index: delete_topic(state, _resolve_name(state, wanted[index])),
                False,
                raise_errors,
                all_or_none,
                frees_space=True,
            )
        results = [
            {
                "name": None if isinstance(topic, uuid.UUID) else topic,
                "topic_id": str(as_uuid(outcome.result or NO_TOPIC_ID) if isinstance(topic, str) else topic),
                **error_codes(outcome.error),
            }
            for topic, outcome in zip(wanted, outcomes, strict=True)
        ]
        return {"topics": results}

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        *,
        all_or_none: bool = False,
    ) -> Response:
        """Add partitions to topics: ``{topic: total}``, NewPartitions, or ``{"count": 8, "assignments": …}``.

        ``results`` of the response has the outcome of each topic. Raises UnknownTopicOrPartitionError,
        InvalidPartitionsError, InvalidReplicationAssignmentError with ``raise_errors``, after the other topics have
        been changed; with ``all_or_none`` none has been.

            >>> _ = admin.create_partitions({"orders": 4})
        """
        names = as_list(topic_partitions, "topic_partitions")
        wanted = [_parse_new_partitions(name, topic_partitions[name]) for name in names]
        outcomes = self._submit_all(
            names,
            lambda state, index: create_partitions(
                state, names[index], wanted[index].total_count, wanted[index].new_assignments
            ),
            validate_only,
            raise_errors,
            all_or_none,
        )
        results = [Response(name=outcome.name, **error_codes(outcome.error)) for outcome in outcomes]
        return Response(throttle_time_ms=0, results=results)

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, Result]:
        """Delete the records before these offsets; -1 deletes all records.

        Returns the low watermark of each partition, which is its new log start offset. The next retention frees the
        space. A partition that failed has an ``error_code`` and an ``error_message``. ``partition_leader_id`` has no
        effect.

            >>> _ = producer.send("orders", b"v").get()
            >>> first = sparklog.TopicPartition("orders", 0)
            >>> admin.delete_records({first: 1})[first]["low_watermark"]
            1

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError, PolicyViolationError, InvalidTopicError: with
                ``raise_errors``, of the first partition that failed, after the records of the other partitions have
                been deleted, as in Kafka.
        """
        partitions = list(records_to_delete)
        ids = {name: topic.topic_id for name, topic in self.read_state().topics.items()}

        def delete(state: State, index: int) -> Decision[dict[tuple[str, int], int]]:
            topic, number = map(as_python, partitions[index])
            if topic in ids and topic in state.topics:
                check_same_topic(ids[topic], state.topics[topic])
            if is_internal_topic(topic):
                raise InvalidTopicError(f"cannot delete records of the internal topic {topic}", topic=topic)
            before = as_python(records_to_delete[partitions[index]])
            return decide_segments.delete_records(state, {(topic, number): before})

        names = [f"{topic}-{number}" for topic, number in partitions]
        outcomes = self._submit_all(names, delete, False, raise_errors, frees_space=True)
        return {
            partition: _deletion(partition, outcome) for partition, outcome in zip(partitions, outcomes, strict=True)
        }

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = 10_000) -> None:
        """Wait until all these topics exist. Raises KafkaTimeoutError."""
        names = as_list(topic_names, "topic_names")
        clock = self._opened().log.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        while True:
            topics = self._opened().refresh().topics
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
        """Return a page of partitions of these topics; pass its ``next_cursor`` as ``cursor`` to get the next page."""
        if response_partition_limit < 1:
            raise InvalidArgumentError(f"response_partition_limit={response_partition_limit!r}: give at least 1")
        state = self.read_state()
        after = (cursor["topic_name"], cursor["partition_index"]) if cursor else ("", 0)
        left = response_partition_limit
        described: list[Result] = []
        for name in sorted(set(as_list(topics, "topics"))):
            if name < after[0]:
                continue
            data = _describe_topic(state, name)
            del data["authorized_operations"]  # it has another name in this response
            data["topic_authorized_operations"] = UNKNOWN_OPERATIONS
            first = after[1] if name == after[0] else 0
            partitions = data["partitions"][first:]
            if left == 0 and partitions:
                return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": first}}
            data["partitions"] = [{**partition, **_NO_ELIGIBLE} for partition in partitions[:left]]
            described.append(data)
            if len(partitions) > left:
                return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": first + left}}
            left -= len(partitions)
        return {"topics": described, "next_cursor": None}


_NO_ELIGIBLE: Mapping[str, object] = {"eligible_leader_replicas": None, "last_known_elr": None}


# -- arguments


def _parse_new_topics(given: object) -> list[NewTopic]:
    if isinstance(given, Mapping):
        return [_parse_new_topic(name, options) for name, options in given.items()]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidArgumentTypeError(f"new_topics={given!r}: give a list of names or NewTopic objects, or a dict")
    topics = [NewTopic(item) if isinstance(item, str) else item for item in given]
    invalid = next((topic for topic in topics if not isinstance(topic, NewTopic)), None)
    if invalid is not None or not topics:
        raise InvalidArgumentError(f"no valid topics found in new_topics: {invalid!r}; give names or NewTopic objects")
    return topics


def _parse_new_topic(name: str, options: Mapping[str, Any]) -> NewTopic:
    unknown = sorted(set(options) - {"num_partitions", "replication_factor", "assignments", "configs"})
    if unknown:
        raise InvalidArgumentError(
            f"unknown option {unknown[0]!r} of new topic {name!r}; the options are num_partitions, replication_factor, "
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


def _to_request(state: State, new: NewTopic, topic_id: str) -> TopicRequest:
    """Return the request for a topic: with cluster defaults for -1, and the assignment as a list by partition."""
    assignments = dict(new.replica_assignments or {})
    for what, number in (("num_partitions", new.num_partitions), ("replication_factor", new.replication_factor)):
        if whole(number) is None:
            raise InvalidArgumentTypeError(f"invalid {what} of topic {new.name!r}: {number!r}", topic=new.name)
    if assignments and (new.num_partitions, new.replication_factor) != (-1, -1):
        raise InvalidArgumentError(
            f"topic {new.name!r} has a replica assignment and a number of partitions or replicas; leave these at -1",
            topic=new.name,
        )
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidPartitionsError(
            f"invalid replica assignment of topic {new.name!r}: partitions must be numbered from 0 without gaps, not "
            f"{sorted(assignments)}",
            topic=new.name,
        )
    defaults = ClusterConfig.resolve(state.configs)
    partitions, factor = operator.index(new.num_partitions), operator.index(new.replication_factor)
    if factor != -1 and factor < 1:
        raise InvalidReplicationFactorError(
            f"invalid replication factor {factor} of topic {new.name!r}: give at least 1", topic=new.name
        )
    return TopicRequest(
        name=new.name,
        topic_id=topic_id,
        partitions=defaults.num_partitions if partitions == -1 else partitions,
        replication_factor=defaults.default_replication_factor if factor == -1 else factor,
        configs=text_configs(new.topic_configs or {}),
        assignment=[list(map(operator.index, assignments[number])) for number in range(len(assignments))]
        if assignments
        else None,
    )


def _parse_new_partitions(name: str, given: int | NewPartitions | Mapping[str, Any]) -> NewPartitions:
    if isinstance(given, NewPartitions):
        return replace(given, total_count=as_python(given.total_count))
    if (count := whole(given)) is not None:
        return NewPartitions(count)
    if isinstance(given, Mapping) and "count" in given:
        return NewPartitions(as_python(given["count"]), given.get("assignments"))
    raise InvalidArgumentError(
        f"invalid new partitions of topic {name!r}: {given!r}; give a number, NewPartitions, or a dict with 'count'",
        topic=name,
    )


def _existing_names(state: State, topics: Iterable[str | uuid.UUID]) -> list[str]:
    names: list[str] = []
    for topic in topics:
        with suppress(UnknownTopicOrPartitionError):
            names.append(_resolve_name(state, topic))
    return names


def _resolve_name(state: State, topic: str | uuid.UUID) -> str:
    """Return the name of a topic given by name or id. Raises UnknownTopicOrPartitionError for an unknown id."""
    if not isinstance(topic, uuid.UUID):
        return topic
    topic_id = urlsafe_b64encode(topic.bytes).rstrip(b"=").decode()
    for name, topic_state in state.topics.items():
        if as_uuid(topic_state.topic_id) == topic:
            return name
    raise UnknownTopicOrPartitionError(f"there is no topic with the id {topic_id}")


# -- results


def as_uuid(topic_id: str) -> uuid.UUID:
    """Return a topic id as the UUID that kafka-python accepts; results contain its text."""
    return uuid.UUID(bytes=urlsafe_b64decode(topic_id + "=="))


def _deletion(partition: TopicPartition, outcome: RequestOutcome) -> Result:
    if outcome.error is not None:
        return {"partition_index": partition[1], "low_watermark": -1, **error_codes(outcome.error)}
    (low,) = outcome.result.values()
    return {"partition_index": partition[1], "low_watermark": low, "error_code": 0}


def _creation_result(state: State, new: NewTopic, outcome: RequestOutcome) -> Result:
    topic_id = str(as_uuid(outcome.result or NO_TOPIC_ID))
    data: Result = {"name": new.name, "topic_id": topic_id, **error_codes(outcome.error)}
    if outcome.error is not None:
        return {**data, "num_partitions": -1, "replication_factor": -1, "configs": {}}
    request = _to_request(state, new, outcome.result)
    lists = request.assignment
    config = TopicConfig.resolve(request.configs, state.configs)
    entries = config.describe(everything=True)
    return {
        **data,
        "num_partitions": request.partitions if lists is None else len(lists),
        "replication_factor": request.replication_factor if lists is None else len(lists[0]),
        "configs": {entry.name: config_data(entry, ConfigResourceType.TOPIC) for entry in entries},
    }


def _describe_topic(state: State, topic: str | uuid.UUID) -> Result:
    try:
        return _topic_data(state, state.topic(_resolve_name(state, topic)))
    except UnknownTopicOrPartitionError as error:
        by_id = isinstance(topic, uuid.UUID)
        return {
            "error_code": error_code(error),
            "name": None if by_id else topic,
            "topic_id": str(topic if by_id else as_uuid(NO_TOPIC_ID)),
            "is_internal": False,
            "partitions": [],
            "unfit_records": None,
            "authorized_operations": None,
        }


def _topic_data(state: State, topic: TopicState) -> Result:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": str(as_uuid(topic.topic_id)),
        "is_internal": is_internal_topic(topic.name),
        "partitions": [_partition_data(state, number, partition) for number, partition in enumerate(topic.partitions)],
        "unfit_records": count_unfit(topic, TopicConfig.resolve(topic.configs, state.configs)),
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
