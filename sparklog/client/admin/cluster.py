"""The methods of ``AdminClient`` for the cluster itself: its brokers, and requests that would need a server.

Methods of Kafka that make no sense here exist, and raise an error that says why and what to do instead.
"""

from __future__ import annotations

from typing import NoReturn

from sparklog.client.admin.base import AdminBase, Result
from sparklog.client.admin.transactions import coordinator_of
from sparklog.errors import InvalidRequestError, SecurityDisabledError

PERMISSIONS = (
    "there are no servers that could check it: the permissions of the storage decide which clients may read and write, "
    "so set them there"
)
NO_SERVERS = "there are no servers, so there are no versions to query or change; the format version is in cluster.json"


class ClusterAdmin(AdminBase):
    """The methods of ``AdminClient`` for the cluster, and those that are not supported. Thread-safe."""

    def describe_cluster(self) -> Result:
        """Return the cluster id and the brokers, which are storage locations: ``host`` is the URL, and ``port`` is -1.

        A location that fails its checks is fenced. The controller is not a broker; the first broker stands for it.

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
            "authorized_operations": None,  # not known before the storage is accessed
        }

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

    def describe_features(self, send_request_to_controller: bool = False) -> NoReturn:
        """Raise InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"describe_features: {NO_SERVERS}")

    def update_features(
        self, feature_updates: object, validate_only: bool = False, timeout_ms: int = 60_000
    ) -> NoReturn:
        """Raise InvalidRequestError: there are no servers."""
        raise InvalidRequestError(f"update_features: {NO_SERVERS}")
