"""Arguments and results of ``AdminClient``: kafka-python's classes, by name and field.

Enumerations are accepted as members, by name in any case (``"topic"``, ``"preparing-rebalance"``), or by value.

Not for: the behaviour of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple, TypeVar

from sparklog import errors
from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.types import TopicPartition, as_python

Member = TypeVar("Member", bound=Enum)


_NEAREST: Mapping[type[SparklogError], int] = {
    errors.CorruptionError: 2,
    errors.KafkaTimeoutError: 7,
    errors.InvalidCallError: 42,
}
"""The nearest error codes of Kafka for groups of errors that have none."""


def error_code(error: SparklogError | None) -> int:
    """Return Kafka's code of an error, or the nearest one; 0 without an error, -1 (unknown) if none is near."""
    if error is None:
        return 0
    if error.errno is not None:
        return error.errno
    return next((_NEAREST[kind] for kind in type(error).__mro__ if kind in _NEAREST), -1)


def member_of(kind: type[Member], value: object) -> Member:
    """Return the member of an enumeration, given as member, name or value. Raises InvalidArgumentError."""
    if isinstance(value, kind):
        return value
    for member in kind:
        if isinstance(value, str):
            word = value.replace("-", "_").lower()
            if word in (member.name.lower(), member.name.replace("_", "").lower(), str(member.value).lower()):
                return member
        elif value == member.value and not isinstance(value, bool):
            return member
    names = ", ".join(member.name for member in kind)
    raise InvalidArgumentError(f"invalid {kind.__name__}: {value!r}; give one of {names}")


class _KafkaEnum:
    """The lookups ``build_from`` and ``value_for`` of kafka-python's enumerations."""

    @classmethod
    def build_from(cls, value: object) -> Any:
        """Return the member for a member, name or value. Raises InvalidRequestError, which is a ValueError."""
        return member_of(cls, value)  # type: ignore[type-var]

    @classmethod
    def value_for(cls, value: object) -> Any:
        """Return the value of a member, as ``build_from`` finds it."""
        return cls.build_from(value).value


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
        self.name = as_python(self.name)
        self.replica_assignments = self.replica_assignments or {}
        self.topic_configs = self.topic_configs or {}


@dataclass
class NewPartitions:
    """The total number of partitions that a topic is to have; ``new_assignments`` are broker ids of the added ones.

    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     _ = admin.create_partitions({"orders": sparklog.NewPartitions(2)})
    >>> sparklog.open_cluster(root).offsets("orders")
    {0: (0, 0), 1: (0, 0)}
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class ElectionType(IntEnum):
    """Which replica to elect: the first in the list, or if none in sync is left, one that may lack records."""

    PREFERRED = 0
    UNCLEAN = 1


class OffsetSpec(_KafkaEnum, IntEnum):
    """The offset of a partition to look up, other than by time.

    >>> first = sparklog.TopicPartition("orders", 0)
    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     offsets = admin.list_partition_offsets({first: sparklog.OffsetSpec.LATEST})
    >>> offsets[first].offset
    0
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetResetStrategy(IntEnum):
    """Where a consumer starts without a committed offset, as Kafka's number for it."""

    LATEST = -1
    EARLIEST = -2
    NONE = 0


class OffsetTimestamp(int):
    """A timestamp in milliseconds since the epoch, for arguments where a plain int is an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class OffsetShift(int):
    """A number of records relative to the committed offset of a group; negative ones are before it."""

    __slots__ = ()


class _Planned(NamedTuple):
    offset: int
    wanted: int | None


class PlannedOffset(_Planned):
    """An offset that a reset sets. ``wanted`` is the requested one, before it was moved into the partition's range, or
    None if no record is at or after the time. ``topic_id`` identifies the topic; ``committed`` is the group's committed
    offset of then, and ``is_relative`` says that the offset is that one or counted from it."""

    topic_id: str = ""
    committed: int | None = None
    is_relative: bool = False


class IsolationLevel(_KafkaEnum, IntEnum):
    """The isolation level of a read. Both levels are the same here: uncommitted records have no offsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


# -- configs


class ConfigResourceType(_KafkaEnum, IntEnum):
    """The resources that have configs in Kafka; here topics have, and BROKER stands for the cluster.

    >>> sparklog.ConfigResource(sparklog.ConfigResourceType.TOPIC, "orders").kind.name
    'TOPIC'
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigFilterType(_KafkaEnum, IntEnum):
    """Which configs ``describe_configs`` returns; DYNAMIC is ALL, since all can be changed at any time."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class AlterConfigOp(_KafkaEnum, IntEnum):
    """What ``alter_configs`` does with a value. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass
class ConfigResource:
    """A topic, or with BROKER and an empty name the cluster, with the names of its configs or their new values.

    >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs={"retention.ms": "3600000"})
    >>> with sparklog.AdminClient(bootstrap_servers=root) as admin:
    ...     _ = admin.alter_configs([orders])
    """

    resource_type: ConfigResourceType | str | int
    name: str | None = None
    configs: Mapping[str, object] | Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.resource_type = member_of(ConfigResourceType, self.resource_type)
        self.name = as_python(self.name)

    @property
    def kind(self) -> ConfigResourceType:
        """``resource_type``, checked."""
        return member_of(ConfigResourceType, self.resource_type)


# -- groups


class GroupState(_KafkaEnum, str, Enum):
    """Kafka's group states; groups here are EMPTY, PREPARING_REBALANCE or STABLE."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(_KafkaEnum, str, Enum):
    """Kafka's group types; groups here are CLASSIC: their members name the assignors."""

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


# -- brokers


class BrokerCondition(NamedTuple):
    """Whether a broker answers. ``state`` is ``offline`` if its latest check failed. ``last_seen_ms`` is None if
    unknown; ``problem`` is why it did not answer; ``location`` is a path or URL."""

    state: Literal["online", "unreachable", "offline"]
    last_seen_ms: int | None
    problem: str | None
    location: str


# -- transactions


class TransactionState(_KafkaEnum, str, Enum):
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
    """One transactional id with its epoch. Times are -1: no transaction is ever open."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """The state of one idempotent producer in a partition. ``last_timestamp`` is milliseconds since the epoch."""

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
    """An open transaction of Kafka; here there is none."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
