"""What goes into the calls of ``AdminClient`` and comes out of them: kafka-python's classes, by name and field.

Enumerations are taken as members, by name in any case (``"topic"``, ``"preparing-rebalance"``), or by value.

Not for: what the calls do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeVar

from sparklog import errors
from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.types import TopicPartition

Kind = TypeVar("Kind", bound=Enum)


_NEAREST: Mapping[type[SparklogError], int] = {
    errors.CorruptionError: 2,
    errors.KafkaTimeoutError: 7,
    errors.InvalidCallError: 42,
}
"""Numbers of Kafka's that say best what errors without one mean, by group."""


def error_code(error: SparklogError | None) -> int:
    """Kafka's number of an error, or of what is nearest to it; 0 for none, -1 for what Kafka has no number for."""
    if error is None:
        return 0
    if error.errno is not None:
        return error.errno
    return next((_NEAREST[kind] for kind in type(error).__mro__ if kind in _NEAREST), -1)


def member_of(kind: type[Kind], given: object) -> Kind:
    """The member of an enumeration that is meant. Raises InvalidArgumentError."""
    if isinstance(given, kind):
        return given
    for one in kind:
        if isinstance(given, str):
            word = given.replace("-", "_").lower()
            if word in (one.name.lower(), one.name.replace("_", "").lower(), str(one.value).lower()):
                return one
        elif given == one.value and not isinstance(given, bool):
            return one
    shown = ", ".join(one.name for one in kind)
    raise InvalidArgumentError(f"invalid {kind.__name__}: {given!r}; give one of {shown}")


class _Named:
    """Members by what programs of kafka-python call them: ``build_from`` and ``value_for`` of its enumerations."""

    @classmethod
    def build_from(cls, given: object) -> Any:
        """The member that is meant. Raises InvalidRequestError, which is a ValueError."""
        return member_of(cls, given)  # type: ignore[type-var]

    @classmethod
    def value_for(cls, given: object) -> Any:
        """Its value. Raises as ``build_from``."""
        return cls.build_from(given).value


# -- topics


@dataclass
class NewTopic:
    """A topic to create; -1 is the cluster's default. ``replica_assignments`` are broker ids by partition.

    >>> topic = sparklog.NewTopic("payments", num_partitions=4, topic_configs={"retention.ms": "3600000"})
    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     _ = admin.create_topics([topic])
    >>> sparklog.open_cluster(root).offsets("payments")
    {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)}
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    topic_configs: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self.replica_assignments = self.replica_assignments or {}
        self.topic_configs = self.topic_configs or {}


@dataclass
class NewPartitions:
    """How many partitions a topic is to have in all; ``new_assignments`` are broker ids of those that are added.

    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     _ = admin.create_partitions({"orders": sparklog.NewPartitions(2)})
    >>> sparklog.open_cluster(root).offsets("orders")
    {0: (0, 0), 1: (0, 0)}
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class ElectionType(IntEnum):
    """Which replica is to lead: the first of the list, or where none in sync is left, one that lacks records."""

    PREFERRED = 0
    UNCLEAN = 1


class OffsetSpec(_Named, IntEnum):
    """Which offset of a partition is asked for, where it is not a time.

    >>> first = sparklog.TopicPartition("orders", 0)
    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     found = admin.list_partition_offsets({first: sparklog.OffsetSpec.LATEST})
    >>> found[first].offset
    0
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetResetStrategy(IntEnum):
    """Where a consumer begins without an offset, as the number that stands for it."""

    LATEST = -1
    EARLIEST = -2
    NONE = 0


class OffsetTimestamp(int):
    """A time in milliseconds since the epoch, where a plain int would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class IsolationLevel(_Named, IntEnum):
    """Both read the same here: what is not committed has no offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


# -- configs


class ConfigResourceType(_Named, IntEnum):
    """What has configs in Kafka; here topics have, and BROKER stands for the cluster's settings.

    >>> sparklog.ConfigResource(sparklog.ConfigResourceType.TOPIC, "orders").kind.name
    'TOPIC'
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigFilterType(_Named, IntEnum):
    """Which configs ``describe_configs`` shows; DYNAMIC is ALL, since all can be changed at any time."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class AlterConfigOp(_Named, IntEnum):
    """What ``alter_configs`` does with a value. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass
class ConfigResource:
    """A topic, or with BROKER and an empty name the cluster; and the names of its configs, or their new values.

    >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs={"retention.ms": "3600000"})
    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     _ = admin.alter_configs([orders])
    """

    resource_type: ConfigResourceType | str | int
    name: str | None = None
    configs: Mapping[str, object] | Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.resource_type = member_of(ConfigResourceType, self.resource_type)

    @property
    def kind(self) -> ConfigResourceType:
        """``resource_type``, checked."""
        return member_of(ConfigResourceType, self.resource_type)


# -- groups


class GroupState(_Named, str, Enum):
    """Kafka's states of a group; groups here are EMPTY, PREPARING_REBALANCE or STABLE."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(_Named, str, Enum):
    """Kafka's types of a group; groups here are CLASSIC: their members name the assignors."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True)
class MemberToRemove:
    """A member of a group, by its id or by its ``group.instance.id``."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


# -- transactions


class TransactionState(_Named, str, Enum):
    """Kafka's states of a transactional id; here EMPTY before its first commit and COMPLETE_COMMIT after it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class TransactionListing(NamedTuple):
    """One transactional id."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """One transactional id with its epoch. Times are -1: no transaction has begun that is not committed."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition knows of one idempotent producer. ``last_timestamp`` is milliseconds since the epoch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that a partition knows."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """An open transaction of Kafka's; there are none here."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
