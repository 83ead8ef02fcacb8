"""``AdminClient``: kafka-python's ``KafkaAdminClient`` for a log on shared storage.

    with AdminClient(bootstrap_servers="/data/log") as admin:
        admin.create_topics([NewTopic("orders", num_partitions=8)])
        admin.describe_groups(["billing"])

Every call reads the newest state of the cluster or creates a commit; there is no server, only the storage. For the
differences from Kafka see docs/admin.md.

Rules: thread-safe. The names of kafka-python 2 (``list_consumer_groups`` …) work too, with the results they had there.
Not for: decisions (``protocol.decide``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sparklog.client.admin.base import ErrorClass, with_deadlines
from sparklog.client.admin.cluster import ClusterAdmin
from sparklog.client.admin.configs import ConfigAdmin
from sparklog.client.admin.features import FeatureAdmin
from sparklog.client.admin.groups import GroupAdmin
from sparklog.client.admin.replicas import ReplicaAdmin
from sparklog.client.admin.schemas import SchemaAdmin
from sparklog.client.admin.topics import TopicAdmin
from sparklog.client.admin.transactions import TransactionAdmin
from sparklog.client.admin.types import ElectionType
from sparklog.client.config import (
    CLUSTER_ARGUMENTS,
    METRIC_ARGUMENTS,
    SOCKET_ARGUMENTS,
    SOCKET_DEFAULTS,
    build_shown_config,
    check_arguments,
    cluster_of,
    milliseconds,
)
from sparklog.client.representation import Facts, Shown
from sparklog.errors import GroupIdNotFoundError, NoError, NonEmptyGroupError
from sparklog.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparklog.client.arguments import AdminArguments

DEFAULTS: Mapping[str, object] = {**CLUSTER_ARGUMENTS, "client_id": None, "request_timeout_ms": 30_000}
"""The arguments of ``AdminClient`` with their defaults."""

NO_EFFECT = SOCKET_ARGUMENTS | {
    *METRIC_ARGUMENTS,
    "default_api_timeout_ms",
    "metadata_max_age_ms",
    "retry_backoff_ms",
}
"""Arguments that are accepted without effect."""

DEFAULT_CONFIG: Mapping[str, object] = {
    **SOCKET_DEFAULTS,
    "default_api_timeout_ms": 60_000,
    "metadata_max_age_ms": 300_000,
    **{name: default for name, default in METRIC_ARGUMENTS.items() if name != "metrics_enabled"},
    "retry_backoff_ms": 100,
    **DEFAULTS,
}
"""The defaults of both, except arguments that only kafka-python 2 has: ``AdminClient.DEFAULT_CONFIG``."""


class MemberInformation(NamedTuple):
    """A member of a group as kafka-python 2 describes it."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: Any
    member_assignment: Any


class GroupInformation(NamedTuple):
    """A group as kafka-python 2 describes it."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: Any


@with_deadlines
class AdminClient(
    Shown,
    TopicAdmin,
    ConfigAdmin,
    SchemaAdmin,
    GroupAdmin,
    TransactionAdmin,
    ReplicaAdmin,
    FeatureAdmin,
    ClusterAdmin,
):
    """Manages topics, configs and groups of a cluster. Thread-safe.

    Arguments have kafka-python's names; unknown ones raise InvalidClientConfigurationError. ``bootstrap_servers`` is
    the root of the cluster, a folder or URL (default: SPARKLOG_BOOTSTRAP_SERVER); ``storage_options`` go to the client
    of its storage; ``cluster`` is a coordinator that is already open. ``config`` holds all arguments, with defaults for
    those not given.

    A call that takes longer than its ``timeout_ms``, or else ``request_timeout_ms`` (30 s), raises KafkaTimeoutError.
    Its outcome is unknown then, since the request continues: read the result back, or repeat the call.

        >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
        ...     _ = admin.create_topics([sparklog.NewTopic("payments", num_partitions=4)])
        ...     names = sorted(admin.list_topics())
        >>> names
        ['orders', 'payments']
    """

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = DEFAULT_CONFIG

    def __init__(self, **configs: Unpack[AdminArguments]) -> None:
        arguments = check_arguments("AdminClient", configs, DEFAULTS, NO_EFFECT)
        timeout_ms = milliseconds("AdminClient", arguments, "request_timeout_ms", least=1)
        self._request_timeout = timeout_ms / 1000 if timeout_ms < 2**63 - 1 else math.inf
        self._coordinator = cluster_of("AdminClient", arguments)
        self.config = build_shown_config(DEFAULT_CONFIG, configs, self._coordinator)
        self._closed = False

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> Facts:
        return {
            "root": self._coordinator.store.root,
            "client_id": self.config["client_id"],
            "state": "closed" if self._closed else None,
        }

    def close(self) -> None:
        """Close the client; later calls raise IllegalStateError. Idempotent."""
        self._closed = True

    def bootstrap_connected(self) -> bool:
        """Return whether the client is open; the cluster was read when it was created."""
        return not self._closed

    # -- the names and results of kafka-python 2

    def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """Return (group, protocol type) of all groups: ``list_groups`` as in kafka-python 2."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupInformation]:
        """Describe groups: ``describe_groups`` as in kafka-python 2."""
        return [
            GroupInformation(
                error_code=0 if group["error"] is None else 69,
                group=name,
                state=group["group_state"],
                protocol_type=group["protocol_type"],
                protocol=group["protocol_data"],
                members=[
                    MemberInformation(*(member[field] for field in MemberInformation._fields))
                    for member in group["members"]
                ],
                authorized_operations=None,
            )
            for name, group in self.describe_groups(group_ids).items()
        ]

    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of one group: ``list_group_offsets`` as in kafka-python 2."""
        return self.list_group_offsets({group_id: partitions})[group_id]

    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, ErrorClass]]:
        """Delete groups; return (group, error class) of each: ``delete_groups`` as in kafka-python 2."""
        classes: dict[str, ErrorClass] = {
            "OK": NoError,
            "GroupIdNotFoundError": GroupIdNotFoundError,
            "NonEmptyGroupError": NonEmptyGroupError,
        }
        return [(name, classes[outcome]) for name, outcome in self.delete_groups(group_ids).items()]

    def perform_leader_election(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        """Elect leaders: ``elect_leaders`` under its name in kafka-python 2."""
        return self.elect_leaders(election_type, topic_partitions, timeout_ms)
