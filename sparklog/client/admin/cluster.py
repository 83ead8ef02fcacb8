"""The cluster itself in ``AdminClient``: its storage locations, and what there is no server for.

Methods of Kafka's that make no sense here are there, and refuse with why and what to do.
"""

from __future__ import annotations

from typing import NoReturn

from sparklog.client.admin.base import AdminBase, Result
from sparklog.client.admin.transactions import coordinator_of
from sparklog.errors import InvalidRequestError, SecurityDisabledError

PERMISSIONS = (
    "there are no servers that could check it: who may read and write is decided by the permissions of the storage, so "
    "set them there"
)
NO_SERVERS = "there are no servers, so there are no versions to ask for or to change; the format is in cluster.json"


class ClusterAdmin(AdminBase):
    """The methods of ``AdminClient`` for the cluster, and those that are refused. Thread-safe."""

    def describe_cluster(self) -> Result:
        """Cluster id and brokers, which are storage locations: ``host`` is the address, and there is no port.

        One that does not pass its checks is fenced. The controller is no broker: the first
        one stands for it.

            >>> [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
            [0]
        """
        state = self._state()
        root = self._coordinator.store.root
        return {
            "cluster_id": state.cluster_id,
            "controller_id": coordinator_of(state),
            "brokers": [
                {
                    "broker_id": number,
                    "host": state.brokers[number].url or root,
                    "port": -1,
                    "rack": None,
                    "is_fenced": not state.brokers[number].online,
                }
                for number in sorted(state.brokers)
            ],
            "authorized_operations": None,  # what the storage allows is not known before it is tried
        }

    # -- what there is no server for

    def create_acls(self, acls: object) -> NoReturn:
        """Raises SecurityDisabledError: the storage's permissions decide."""
        raise SecurityDisabledError(f"create_acls: {PERMISSIONS}")

    def describe_acls(self, acl_filter: object) -> NoReturn:
        """Raises SecurityDisabledError: the storage's permissions decide."""
        raise SecurityDisabledError(f"describe_acls: {PERMISSIONS}")

    def delete_acls(self, acl_filters: object) -> NoReturn:
        """Raises SecurityDisabledError: the storage's permissions decide."""
        raise SecurityDisabledError(f"delete_acls: {PERMISSIONS}")

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
