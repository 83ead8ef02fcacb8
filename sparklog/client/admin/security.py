"""ACLs, passwords and features as data: kafka-python's classes, by name and field.

Programs build them and hand them to ``AdminClient``, which refuses the calls and says why (``admin_cluster``): the
permissions of the storage decide who may do what.

Rules: values alone. Passwords are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from sparklog.client.admin.types import member_of
from sparklog.errors import InvalidRequestError


class ResourceType(IntEnum):
    """What an ACL is for; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """What an ACL allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ACLPermissionType(IntEnum):
    """Whether an ACL denies or allows; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """How the name in an ACL is compared; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ConfigType(IntEnum):
    """The type of a config."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSourceType(IntEnum):
    """Where a config's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class UpdateFeatureType(IntEnum):
    """How a feature of the servers is to change."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ScramMechanism(IntEnum):
    """How a password is proven."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True)
class ResourcePatternFilter:
    """Resources by type and name. Raises InvalidRequestError for values of other types."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: ACLResourcePatternType

    def __post_init__(self) -> None:
        _of_type("resource_type", self.resource_type, ResourceType)
        _of_type("pattern_type", self.pattern_type, ACLResourcePatternType)


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resource of an ACL, which is never ANY."""

    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        super().__post_init__()
        _not_any("resource_type", self.resource_type, ResourceType.ANY)
        _not_any("pattern_type", self.pattern_type, ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH)


@dataclass(frozen=True)
class ACLFilter:
    """Which ACLs are meant. Raises InvalidRequestError for values of other types."""

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        _of_type("operation", self.operation, ACLOperation)
        _of_type("permission_type", self.permission_type, ACLPermissionType)
        _of_type("resource_pattern", self.resource_pattern, ResourcePatternFilter)


@dataclass(frozen=True)
class ACL(ACLFilter):
    """One ACL, nothing of which is ANY."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _not_any("operation", self.operation, ACLOperation.ANY)
        _not_any("permission_type", self.permission_type, ACLPermissionType.ANY)
        _of_type("resource_pattern", self.resource_pattern, ResourcePattern)


@dataclass
class UserScramCredentialDeletion:
    """The password of a user, to be deleted."""

    user: str
    mechanism: ScramMechanism | str | int

    def __post_init__(self) -> None:
        self.mechanism = member_of(ScramMechanism, self.mechanism)


@dataclass
class UserScramCredentialUpsertion:
    """The password of a user, to be set. ``password`` and ``salt`` are not kept."""

    user: str
    mechanism: ScramMechanism | str | int
    password: bytes | str = field(repr=False)
    iterations: int | None = 4096
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.mechanism = member_of(ScramMechanism, self.mechanism)
        self.password, self.salt = b"", None


def _of_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidRequestError(f"{name}={value!r}: give a {kind.__name__}")


def _not_any(name: str, value: IntEnum, *filters: IntEnum) -> None:
    if value in filters:
        raise InvalidRequestError(f"{name}={value.name}: this is for filters; name one")
