"""The cluster itself in ``AdminClient``: its storage locations, how much is in them, and what there is no server for.

Methods of Kafka's that make no sense here, and those that do not work yet, are there, and refuse with why and what to
do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from sparklog.client.admin_base import UNKNOWN_OPERATIONS, AdminBase, Result
from sparklog.errors import InvalidRequestError, UnsupportedVersionError
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

PERMISSIONS = (
    "there are no servers that could check it: who may read and write is decided by the permissions of the storage, so "
    "set them there"
)
NO_SERVERS = "there are no servers, so there are no versions to ask for or to change; the format is in cluster.json"
LATER = "this version of sparklog does not do it yet; upgrade once one does"


class ClusterAdmin(AdminBase):
    """The methods of ``AdminClient`` for the cluster, and those that are refused. Thread-safe."""

    def describe_cluster(self) -> Result:
        """Cluster id and brokers, which are storage locations: ``host`` is the address, and there is no port."""
        state = self._state()
        root = self._coordinator.store.root
        return {
            "cluster_id": state.cluster_id,
            "controller_id": -1,
            "brokers": [
                {
                    "broker_id": number,
                    "host": state.brokers[number].url or root,
                    "port": -1,
                    "rack": None,
                    "is_fenced": False,
                }
                for number in sorted(state.brokers)
            ],
            "cluster_authorized_operations": UNKNOWN_OPERATIONS,
        }

    def describe_log_dirs(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[Result]:
        """Bytes of the segments by broker and partition: of all topics, of these, or ``{topic: [partition, …]}``.

        Raises UnknownTopicOrPartitionError.
        """
        state = self._state()
        wanted = sorted(state.brokers) if brokers is None else list(brokers)
        unknown = [number for number in wanted if number not in state.brokers]
        if unknown:
            raise InvalidRequestError(f"there is no broker {unknown[0]}; there are {sorted(state.brokers)}")
        places = _places(state, topic_partitions)
        return [
            {"broker": number, "log_dirs": [_log_dir(state, number, self._coordinator.store.root, places)]}
            for number in wanted
        ]

    def list_partition_reassignments(
        self, topic_partitions: object = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Any]:
        """Always empty: a partition's replicas do not move."""
        self._opened()
        return {}

    # -- what comes later

    def elect_leaders(
        self,
        election_type: object,
        topic_partitions: object = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> NoReturn:
        """Raises UnsupportedVersionError."""
        raise UnsupportedVersionError(f"elect_leaders: {LATER}. A partition has one replica, which is its leader")

    def alter_partition_reassignments(self, reassignments: object, timeout_ms: int | None = None) -> NoReturn:
        """Raises UnsupportedVersionError."""
        raise UnsupportedVersionError(f"alter_partition_reassignments: {LATER}. Replicas stay where a topic has them")

    def alter_replica_log_dirs(self, replica_assignments: object) -> NoReturn:
        """Raises UnsupportedVersionError."""
        raise UnsupportedVersionError(f"alter_replica_log_dirs: {LATER}. Replicas stay where a topic has them")

    # -- what there is no server for

    def create_acls(self, acls: object) -> NoReturn:
        """Raises InvalidRequestError: the storage's permissions decide."""
        raise InvalidRequestError(f"create_acls: {PERMISSIONS}")

    def describe_acls(self, acl_filter: object) -> NoReturn:
        """Raises InvalidRequestError: the storage's permissions decide."""
        raise InvalidRequestError(f"describe_acls: {PERMISSIONS}")

    def delete_acls(self, acl_filters: object) -> NoReturn:
        """Raises InvalidRequestError: the storage's permissions decide."""
        raise InvalidRequestError(f"delete_acls: {PERMISSIONS}")

    def alter_user_scram_credentials(self, alterations: object) -> NoReturn:
        """Raises InvalidRequestError: the storage's permissions decide."""
        raise InvalidRequestError(f"alter_user_scram_credentials: {PERMISSIONS}")

    def describe_user_scram_credentials(self, users: object = None) -> NoReturn:
        """Raises InvalidRequestError: the storage's permissions decide."""
        raise InvalidRequestError(f"describe_user_scram_credentials: {PERMISSIONS}")

    def describe_metadata_quorum(self) -> NoReturn:
        """Raises InvalidRequestError: the commit log arbitrates, not a quorum."""
        raise InvalidRequestError(
            "describe_metadata_quorum: there is no quorum; the storage's put-if-absent arbitrates between writers"
        )

    def api_versions(self) -> NoReturn:
        """Raises InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"api_versions: {NO_SERVERS}")

    def get_broker_version_data(self, broker_id: int) -> NoReturn:
        """Raises InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"get_broker_version_data: {NO_SERVERS}")

    def describe_features(self, send_request_to_controller: bool = False) -> NoReturn:
        """Raises InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"describe_features: {NO_SERVERS}")

    def update_features(
        self, feature_updates: object, validate_only: bool = False, timeout_ms: int = 60_000
    ) -> NoReturn:
        """Raises InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"update_features: {NO_SERVERS}")


def _places(state: State, given: Mapping[str, Iterable[int]] | Iterable[str] | None) -> dict[str, list[int]]:
    """Partitions by topic, in order."""
    if isinstance(given, str):
        raise InvalidRequestError(f"topic_partitions={given!r}: give a dict or a list of topics")
    if isinstance(given, Mapping):
        found = {topic: list(numbers) for topic, numbers in given.items()}
    else:
        topics = state.topics if given is None else given
        found = {topic: list(range(len(state.topic(topic).partitions))) for topic in topics}
    for topic, numbers in found.items():
        for number in numbers:
            state.partition(topic, number)
    return {topic: found[topic] for topic in sorted(found)}


def _log_dir(state: State, broker: int, root: str, places: Mapping[str, list[int]]) -> Result:
    topics: list[Result] = []
    for topic, numbers in places.items():
        here = [number for number in numbers if broker in state.partition(topic, number).replicas]
        partitions = [
            {
                "partition_index": number,
                "partition_size": state.partition(topic, number).size_bytes,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for number in here
        ]
        if partitions:
            topics.append({"name": topic, "partitions": partitions})
    return {
        "error_code": 0,
        "log_dir": state.brokers[broker].url or root,
        "topics": topics,
        "total_bytes": -1,
        "usable_bytes": -1,
        "is_cordoned": False,
    }
