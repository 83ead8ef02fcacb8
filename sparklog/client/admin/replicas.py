"""The methods of ``AdminClient`` for replicas: leader election, reassignment, and the bytes at each broker.

Results are those of kafka-python 3. A broker is one storage location, so it has one log dir. A reassignment is only
recorded here; the replication of ``sparklog maintain`` copies the replicas.

Not for: the decisions (``protocol.decide``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from sparklog.client.admin.base import ErrorClass, Response, Result, as_list, error_codes
from sparklog.client.admin.brokers import BrokerAdmin
from sparklog.client.admin.types import BrokerCondition, ElectionType, member_of
from sparklog.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.coordinator.unclean_election import UncleanSearch
from sparklog.errors import (
    ElectionNotNeededError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidRequestError,
    SparklogError,
)
from sparklog.protocol.decide.decision import Decision, ErrorByPartition
from sparklog.protocol.decide.elections import UncleanElection, elect_preferred, elect_unclean
from sparklog.protocol.decide.reassignment import clear_throttle, set_throttle
from sparklog.protocol.decide.replicas import alter_reassignments, reassignments
from sparklog.protocol.plan.reassignment import propose_assignment
from sparklog.protocol.state import State
from sparklog.types import TopicPartition, as_python

PartitionSpec = Mapping[str, Iterable[int]] | Iterable[str | TopicPartition] | None
"""Partitions: ``{topic: [partition, …]}``, a list of TopicPartition, or of topics with all of theirs, or None."""

STORAGE_ERROR = 56
"""Kafka's KAFKA_STORAGE_ERROR: the log dir is offline."""

UNKNOWN_LAG = -1
"""``offset_lag`` of a replica that is not in sync; only a listing of its location would tell how far it is."""


class ReplicaAdmin(BrokerAdmin):
    """The methods of ``AdminClient`` for replicas. Thread-safe."""

    def describe_log_dirs(
        self, topic_partitions: PartitionSpec = None, brokers: Iterable[int] | None = None
    ) -> list[Result]:
        """Return the bytes of segments by broker and partition: of all topics, a list, or ``{topic: [partition, …]}``.

        A location that failed its checks or does not answer has error code 56 and no topics; ``error_message`` says why
        it did not answer. Raises UnknownTopicOrPartitionError.
        """
        state = self.read_state()
        wanted = sorted(state.brokers) if brokers is None else list(brokers)
        for number in wanted:
            if number not in state.brokers:
                raise InvalidArgumentError(f"there is no broker {number}; there are {sorted(state.brokers)}")
        partitions = _checked_partitions(state, topic_partitions)
        conditions = self._conditions(state)
        return [
            {"broker": number, "log_dirs": [_log_dir(state, number, conditions[number], partitions)]}
            for number in wanted
            if number in conditions
        ]

    def elect_leaders(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: PartitionSpec = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Response:
        """Elect preferred leaders (0: PREFERRED), or an out-of-sync replica where there is no leader (1: UNCLEAN).

        Of all topics, a list, or ``{topic: [partition, …]}``. UNCLEAN loses the records that the new leader lacks. With
        ``raise_errors`` raises PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError or
        UnknownTopicOrPartitionError after the other elections; ElectionNotNeededError is not raised.
        """
        kind = member_of(ElectionType, election_type)
        elect = _elect_preferred if kind is ElectionType.PREFERRED else _elect_unclean
        outcome = elect(self._opened(), topic_partitions)
        if raise_errors:
            for error in outcome.values():
                if error is not None and not isinstance(error, ElectionNotNeededError):
                    raise error
        return Response(throttle_time_ms=0, error_code=0, replica_election_results=_election_results(outcome))

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ErrorClass | None]:
        """Start to reassign partitions to these brokers, preferred leader first; None cancels a reassignment.

        Returns an error class by partition, None if accepted: UnknownTopicOrPartitionError,
        InvalidReplicaAssignmentError, NoReassignmentInProgressError. Raises InvalidArgumentError for an empty list.
        """
        for partition, replicas in reassignments.items():
            if replicas is not None and not list(replicas):
                raise InvalidArgumentError(
                    f"no brokers for {partition}; name some, or give None to cancel its reassignment"
                )
        outcome = self.reassign_partitions(reassignments, all_or_none=False)
        return {partition: None if error is None else type(error) for partition, error in outcome.items()}

    def reassign_partitions(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        throttle: int = 0,
        allow_replication_factor_change: bool = True,
        all_or_none: bool = True,
    ) -> dict[TopicPartition, SparklogError | None]:
        """Start or cancel reassignments as ``alter_partition_reassignments``, and return an error or None by partition;
        with ``all_or_none`` nothing is changed if there is an error.

        In the same commit a ``throttle`` limits their replication to these bytes per second, until ``clear_throttle``.
        """
        wanted = {
            (as_python(topic), as_python(number)): None
            if replicas is None
            else [as_python(broker) for broker in replicas]
            for (topic, number), replicas in reassignments.items()
        }
        moves = {partition: replicas for partition, replicas in wanted.items() if replicas is not None}

        def decide(state: State) -> Decision[ErrorByPartition]:
            decided = alter_reassignments(state, wanted, allow_replication_factor_change)
            if all_or_none and any(decided.result.values()):
                return Decision([], decided.result)
            limits = set_throttle(state, moves, throttle).actions if throttle else []
            return Decision([*limits, *decided.actions], decided.result)

        return self._opened().submit(decide)

    def clear_throttle(self, topics: Iterable[str]) -> None:
        """Lift the throttle of reassignments from the cluster and from these topics."""
        names = as_list(topics, "topics")
        self._opened().submit(lambda state: clear_throttle(state, names))

    def propose_assignment(self, topics: Iterable[str], brokers: Sequence[int]) -> dict[TopicPartition, list[int]]:
        """Return replicas for all partitions of these topics, spread over these brokers as those of a new topic.

        Raises UnknownTopicOrPartitionError, and InvalidReplicaAssignmentError for brokers that do not exist, are
        cordoned, or are too few.
        """
        state = self.read_state()
        proposals = [propose_assignment(state, topic, brokers) for topic in topics]
        return {partition: replicas for proposal in proposals for partition, replicas in proposal.items()}

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, Result]:
        """Return the reassignments in progress, of these partitions or all: replicas, and those to add and remove."""
        if topic_partitions is None:
            wanted = None
        elif isinstance(topic_partitions, Mapping):
            wanted = [(topic, number) for topic, numbers in topic_partitions.items() for number in numbers]
        else:
            wanted = [(partition[0], partition[1]) for partition in topic_partitions]
        return {
            partition: {
                "replicas": list(reassignment.replicas),
                "adding_replicas": list(reassignment.adding),
                "removing_replicas": list(reassignment.removing),
            }
            for partition, reassignment in reassignments(self.read_state(), wanted).items()
        }

    def alter_replica_log_dirs(self, replica_assignments: object) -> NoReturn:
        """Raise InvalidRequestError: a broker is one location."""
        raise InvalidRequestError(
            "alter_replica_log_dirs: a broker has a single log dir, its storage location; call "
            "alter_partition_reassignments to move replicas to other brokers"
        )


def _elect_preferred(coordinator: Coordinator, spec: PartitionSpec) -> Mapping[TopicPartition, SparklogError | None]:
    wanted = _numbers_of(coordinator.refresh(), spec)
    return coordinator.submit(partial(elect_preferred, partitions=wanted))


@in_one_timeline
def _elect_unclean(coordinator: Coordinator, spec: PartitionSpec) -> Mapping[TopicPartition, SparklogError | None]:
    state = coordinator.refresh()
    outcome: dict[TopicPartition, SparklogError | None] = {}
    elections: list[UncleanElection] = []
    search = UncleanSearch(coordinator, state)
    for topic, number in _numbers_of(state, spec):
        try:
            leader = state.partition(topic, number).leader
            if leader >= 0:
                raise ElectionNotNeededError(f"broker {leader} leads {topic}-{number}", topic=topic, partition=number)
            elections.append(search.find(topic, number))
        except SparklogError as error:
            outcome[TopicPartition(topic, number)] = error
    if elections:
        outcome.update(coordinator.submit(partial(elect_unclean, elections=elections)))
    return outcome


def _numbers_of(state: State, spec: PartitionSpec) -> list[tuple[str, int]]:
    return [(topic, number) for topic, numbers in _partitions_of(state, spec) for number in numbers]


def _checked_partitions(state: State, spec: PartitionSpec) -> dict[str, list[int]]:
    """Return the partitions by topic, sorted. Raises UnknownTopicOrPartitionError."""
    by_topic = dict(_partitions_of(state, spec))
    for topic, numbers in by_topic.items():
        for number in numbers:
            state.partition(topic, number)
    return {topic: by_topic[topic] for topic in sorted(by_topic)}


def _partitions_of(state: State, spec: PartitionSpec) -> Iterable[tuple[str, list[int]]]:
    """Return the partitions by topic, in the given order: of a dict, or a list of topics and of TopicPartition. Raises
    UnknownTopicOrPartitionError for a topic without a list of partitions; those lists are not checked."""
    if isinstance(spec, str):
        raise InvalidArgumentTypeError(f"topic_partitions={spec!r}: give a dict or a list of topics")
    if isinstance(spec, Mapping):
        return [(as_python(topic), [as_python(number) for number in numbers]) for topic, numbers in spec.items()]
    found: dict[str, list[int]] = {}
    items: list[Any] = sorted(state.topics) if spec is None else as_list(spec, "topic_partitions")
    for item in items:
        if isinstance(item, tuple) and len(item) == 2:
            found.setdefault(as_python(item[0]), []).append(as_python(item[1]))
        else:
            found[item] = list(range(len(state.topic(item).partitions)))
    return list(found.items())


def _election_results(outcome: Mapping[TopicPartition, SparklogError | None]) -> list[Response]:
    topics: dict[str, list[Response]] = {}
    for partition in sorted(outcome):
        result = Response(partition_id=partition.partition, **error_codes(outcome[partition]))
        topics.setdefault(partition.topic, []).append(result)
    return [Response(topic=topic, partition_result=results) for topic, results in topics.items()]


def _log_dir(state: State, broker: int, condition: BrokerCondition, partitions: Mapping[str, list[int]]) -> Result:
    online = condition.state == "online"
    topics: list[Result] = []
    for topic, numbers in partitions.items() if online else ():
        replicas: list[Result] = []
        for number in numbers:
            partition = state.partition(topic, number)
            if broker in partition.replicas:
                replicas.append(
                    {
                        "partition_index": number,
                        "partition_size": partition.size_bytes,
                        "offset_lag": 0 if broker in partition.isr else UNKNOWN_LAG,
                        "is_future_key": broker in partition.adding,
                    }
                )
        if replicas:
            topics.append({"name": topic, "partitions": replicas})
    return {
        "error_code": 0 if online else STORAGE_ERROR,
        "error_message": condition.problem,
        "log_dir": condition.location,
        "topics": topics,
        "total_bytes": -1,
        "usable_bytes": -1,
        "is_cordoned": state.brokers[broker].cordoned,
    }
