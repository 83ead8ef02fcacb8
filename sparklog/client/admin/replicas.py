"""Replicas of ``AdminClient``: who leads, where the copies of partitions are and are to be, how much is in each place.

Results are those of kafka-python 3. A broker is one storage location, so Kafka's log dirs are one per broker. Moving
replicas is written down here; the replication of ``sparklog maintain`` copies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from sparklog.client.admin.base import AdminBase, Response, Result
from sparklog.client.admin.types import ElectionType, error_code, member_of
from sparklog.coordinator.unclean_election import find_unclean_leader
from sparklog.errors import (
    ElectionNotNeededError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidRequestError,
    SparklogError,
)
from sparklog.protocol.decide.elections import UncleanElection, elect_preferred, elect_unclean
from sparklog.protocol.decide.replicas import alter_reassignments, reassignments
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

ErrorClass = type[SparklogError]

Given = Mapping[str, Iterable[int]] | Iterable[str] | None
"""Which partitions: ``{topic: [partition, …]}``, all of these topics, or all there are."""

STORAGE_ERROR = 56
"""Kafka's KAFKA_STORAGE_ERROR: a log dir that is offline."""

UNKNOWN_LAG = -1
"""``offset_lag`` of a replica that is not in sync: how far it is, only a listing of its location would tell."""


class ReplicaAdmin(AdminBase):
    """The methods of ``AdminClient`` for replicas. Thread-safe."""

    def describe_log_dirs(self, topic_partitions: Given = None, brokers: Iterable[int] | None = None) -> list[Result]:
        """Bytes of the segments by broker and partition: of all topics, of these, or ``{topic: [partition, …]}``.

        A location that does not pass its checks has error code 56. Raises UnknownTopicOrPartitionError.
        """
        state = self._state()
        wanted = sorted(state.brokers) if brokers is None else list(brokers)
        for number in wanted:
            if number not in state.brokers:
                raise InvalidArgumentError(f"there is no broker {number}; there are {sorted(state.brokers)}")
        places = _places(state, topic_partitions)
        return [
            {"broker": number, "log_dirs": [_log_dir(state, number, self._coordinator.store.root, places)]}
            for number in wanted
        ]

    def elect_leaders(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: Given = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Response:
        """Let the preferred leaders lead (0), or where nobody leads, a replica that is not in sync (1: UNCLEAN).

        Of all topics, of these, or ``{topic: [partition, …]}``. With UNCLEAN the records that the new leader lacks are
        lost. Raises PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError,
        UnknownTopicOrPartitionError with ``raise_errors``, once the others are elected; that no election is needed is
        no error.
        """
        kind = member_of(ElectionType, election_type)
        state = self._state()
        wanted = [(topic, number) for topic, numbers in _named(state, topic_partitions) for number in numbers]
        if kind is ElectionType.PREFERRED:
            outcome = self._opened().submit(partial(elect_preferred, partitions=wanted))
        else:
            outcome = self._elect_unclean(state, wanted)
        if raise_errors:
            for error in outcome.values():
                if error is not None and not isinstance(error, ElectionNotNeededError):
                    raise error
        return Response(throttle_time_ms=0, error_code=0, replica_election_results=_by_topic(outcome))

    def _elect_unclean(
        self, state: State, wanted: Sequence[tuple[str, int]]
    ) -> dict[TopicPartition, SparklogError | None]:
        outcome: dict[TopicPartition, SparklogError | None] = {}
        looked_at: list[UncleanElection] = []
        for topic, number in wanted:
            try:
                leader = state.partition(topic, number).leader
                if leader >= 0:
                    raise ElectionNotNeededError(
                        f"broker {leader} leads {topic}-{number}", topic=topic, partition=number
                    )
                looked_at.append(find_unclean_leader(self._coordinator, state, topic, number))
            except SparklogError as error:
                outcome[TopicPartition(topic, number)] = error
        if looked_at:
            outcome.update(self._opened().submit(partial(elect_unclean, elections=looked_at)))
        return outcome

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ErrorClass | None]:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels a move under way.

        Returns an error class by partition, None for those accepted: UnknownTopicOrPartitionError,
        InvalidReplicaAssignmentError, NoReassignmentInProgressError. Raises InvalidArgumentError for an empty list.
        """
        for place, replicas in reassignments.items():
            if replicas is not None and not list(replicas):
                raise InvalidArgumentError(f"no brokers for {place}; name some, or give None to cancel a move")
        wanted = {(place[0], place[1]): replicas for place, replicas in reassignments.items()}
        outcome = self._opened().submit(partial(alter_reassignments, wanted=wanted))
        return {place: None if error is None else type(error) for place, error in outcome.items()}

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, Result]:
        """The moves under way: all replicas, those to come and those to go. Of all partitions, or of these."""
        if topic_partitions is None:
            wanted = None
        elif isinstance(topic_partitions, Mapping):
            wanted = [(topic, number) for topic, numbers in topic_partitions.items() for number in numbers]
        else:
            wanted = [(place[0], place[1]) for place in topic_partitions]
        return {
            place: {
                "replicas": list(found.replicas),
                "adding_replicas": list(found.adding),
                "removing_replicas": list(found.removing),
            }
            for place, found in reassignments(self._state(), wanted).items()
        }

    def alter_replica_log_dirs(self, replica_assignments: object) -> NoReturn:
        """Raises InvalidRequestError: a broker is one location."""
        raise InvalidRequestError(
            "alter_replica_log_dirs: a broker is one storage location here, within which there is nowhere to move to; "
            "alter_partition_reassignments moves replicas to other brokers"
        )


def _places(state: State, given: Given) -> dict[str, list[int]]:
    """Partitions by topic, in order. Raises UnknownTopicOrPartitionError."""
    found = dict(_named(state, given))
    for topic, numbers in found.items():
        for number in numbers:
            state.partition(topic, number)
    return {topic: found[topic] for topic in sorted(found)}


def _named(state: State, given: Given) -> Iterable[tuple[str, list[int]]]:
    """What is named, as it is named. Raises UnknownTopicOrPartitionError for a topic of which all are meant."""
    if isinstance(given, str):
        raise InvalidArgumentTypeError(f"topic_partitions={given!r}: give a dict or a list of topics")
    if isinstance(given, Mapping):
        return [(topic, list(numbers)) for topic, numbers in given.items()]
    topics = sorted(state.topics) if given is None else given
    return [(topic, list(range(len(state.topic(topic).partitions)))) for topic in topics]


def _by_topic(outcome: Mapping[TopicPartition, SparklogError | None]) -> list[Response]:
    topics: dict[str, list[Response]] = {}
    for place in sorted(outcome):
        error = outcome[place]
        topics.setdefault(place.topic, []).append(
            Response(
                partition_id=place.partition,
                error_code=error_code(error),
                error_message=None if error is None else error.message,
            )
        )
    return [Response(topic=topic, partition_result=results) for topic, results in topics.items()]


def _log_dir(state: State, broker: int, root: str, places: Mapping[str, list[int]]) -> Result:
    found = state.brokers[broker]
    topics: list[Result] = []
    for topic, numbers in places.items():
        partitions: list[Result] = []
        for number in numbers:
            held = state.partition(topic, number)
            if broker in held.replicas:
                partitions.append(
                    {
                        "partition_index": number,
                        "partition_size": held.size_bytes,
                        "offset_lag": 0 if broker in held.isr else UNKNOWN_LAG,
                        "is_future_key": broker in held.adding,
                    }
                )
        if partitions:
            topics.append({"name": topic, "partitions": partitions})
    return {
        "error_code": 0 if found.online else STORAGE_ERROR,
        "log_dir": found.url or root,
        "topics": topics,
        "total_bytes": -1,
        "usable_bytes": -1,
        "is_cordoned": found.cordoned,
    }
