"""The methods of ``AdminClient`` for the cluster itself: its brokers, and requests that would need a server.

Methods of Kafka that make no sense here exist, and raise an error that says why and what to do instead.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from sparklog.client.admin.base import Result
from sparklog.client.admin.brokers import BrokerAdmin
from sparklog.client.admin.transactions import coordinator_of
from sparklog.errors import InvalidRequestError, SecurityDisabledError
from sparklog.log.checkpoints.checkpoint import read_newest
from sparklog.log.layout import read_boundary
from sparklog.protocol.log_time import decide_reset

PERMISSIONS = (
    "there are no servers that could check it: the permissions of the storage decide which clients may read and write, "
    "so set them there"
)
NO_SERVERS = "there are no servers, so there are no versions to query; describe_features has the level of the cluster"


class LogDescription(NamedTuple):
    """The root of a cluster, the version up to which commits may be removed (-1: none), and that of the newest
    checkpoint (None without one)."""

    root: str
    boundary: int
    checkpoint: int | None


class ClusterAdmin(BrokerAdmin):
    """The methods of ``AdminClient`` for the cluster, and those that are not supported. Thread-safe."""

    def describe_cluster(self) -> Result:
        """Return the cluster id and the brokers, which are storage locations: ``host`` is the URL, and ``port`` is -1.

        A location that failed its checks or does not answer is fenced; ``error_message`` says why it did not answer.
        The controller is not a broker; the first broker stands for it.

            >>> [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
            [0]
        """
        state = self.read_state()
        return {
            "cluster_id": state.cluster_id,
            "controller_id": coordinator_of(state),
            "brokers": [
                {
                    "broker_id": number,
                    "host": condition.location,
                    "port": -1,
                    "rack": None,
                    "is_fenced": condition.state != "online",
                    "error_message": condition.problem,
                }
                for number, condition in self._conditions(state).items()
            ],
            "authorized_operations": None,  # not known before the storage is accessed
        }

    def describe_log(self) -> LogDescription:
        """Return where the commit log begins and its newest checkpoint. Raises StorageError."""
        store = self._opened().store
        checkpoint = read_newest(store)
        return LogDescription(store.root, read_boundary(store), None if checkpoint is None else checkpoint.version)

    def reset_time(self) -> int:
        """Set the log's time back to the present if it is ahead; return by how many ms, 0 if it is not."""
        coordinator = self._opened()  # the clock is read as it is decided: this process may be suspended before
        return coordinator.submit(lambda state: decide_reset(state, coordinator.log.storage_clock.now_ms()))

    # -- requests that would need a server

    def create_acls(self, acls: object) -> NoReturn:
        """Raise SecurityDisabledError: the permissions of the storage decide."""
        raise SecurityDisabledError(f"create_acls: {PERMISSIONS}")

    def describe_acls(self, acl_filter: object) -> NoReturn:
        """Raise SecurityDisabledError: the permissions of the storage decide."""
        raise SecurityDisabledError(f"describe_acls: {PERMISSIONS}")

    def delete_acls(self, acl_filters: object) -> NoReturn:
        """Raise SecurityDisabledError: the permissions of the storage decide."""
        raise SecurityDisabledError(f"delete_acls: {PERMISSIONS}")

    def alter_user_scram_credentials(self, alterations: object) -> NoReturn:
        """Raise InvalidRequestError: the permissions of the storage decide."""
        raise InvalidRequestError(f"alter_user_scram_credentials: {PERMISSIONS}")

    def describe_user_scram_credentials(self, users: object = None) -> NoReturn:
        """Raise InvalidRequestError: the permissions of the storage decide."""
        raise InvalidRequestError(f"describe_user_scram_credentials: {PERMISSIONS}")

    def describe_metadata_quorum(self) -> NoReturn:
        """Raise InvalidRequestError: the commit log arbitrates, not a quorum."""
        raise InvalidRequestError(
            "describe_metadata_quorum: there is no quorum; the storage's put-if-absent arbitrates between writers"
        )

    def api_versions(self) -> NoReturn:
        """Raise InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"api_versions: {NO_SERVERS}")

    def get_broker_version_data(self, broker_id: int) -> NoReturn:
        """Raise InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"get_broker_version_data: {NO_SERVERS}")
