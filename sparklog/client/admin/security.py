"""ACLs, SCRAM credentials and features as data: kafka-python's classes, by name and field.

Programs build them and pass them to ``AdminClient``, whose methods raise an error that says why (``cluster``): the
permissions of the storage control access.

Rules: values only. Passwords are not kept. Not for: enforcing anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from sparklog.client.admin.types import member_of
from sparklog.errors import InvalidRequestError


class ResourceType(IntEnum):
    """The type of resource that an ACL applies to; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """The operation that an ACL allows or denies; ANY is for filters."""

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
    """How the name in an ACL is matched; ANY and MATCH are for filters."""

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
    """How a feature of the brokers changes."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ScramMechanism(IntEnum):
    """The SCRAM mechanism of a credential."""

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
        _check_type("resource_type", self.resource_type, ResourceType)
        _check_type("pattern_type", self.pattern_type, ACLResourcePatternType)


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resource of an ACL; no field may be ANY."""

    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_specific("resource_type", self.resource_type, ResourceType.ANY)
        _check_specific("pattern_type", self.pattern_type, ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH)


@dataclass(frozen=True)
class ACLFilter:
    """A filter of ACLs. Raises InvalidRequestError for values of other types."""

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        _check_type("operation", self.operation, ACLOperation)
        _check_type("permission_type", self.permission_type, ACLPermissionType)
        _check_type("resource_pattern", self.resource_pattern, ResourcePatternFilter)


@dataclass(frozen=True)
class ACL(ACLFilter):
    """One ACL; no field may be ANY."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_specific("operation", self.operation, ACLOperation.ANY)
        _check_specific("permission_type", self.permission_type, ACLPermissionType.ANY)
        _check_type("resource_pattern", self.resource_pattern, ResourcePattern)


@dataclass
class UserScramCredentialDeletion:
    """A user's SCRAM credential to delete."""

    user: str
    mechanism: ScramMechanism | str | int

    def __post_init__(self) -> None:
        self.mechanism = member_of(ScramMechanism, self.mechanism)


@dataclass
class UserScramCredentialUpsertion:
    """A user's SCRAM credential to set. ``password`` and ``salt`` are not kept."""

    user: str
    mechanism: ScramMechanism | str | int
    password: bytes | str = field(repr=False)
    iterations: int | None = 4096
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.mechanism = member_of(ScramMechanism, self.mechanism)
        self.password, self.salt = b"", None


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidRequestError(f"invalid {name}={value!r}: give a {kind.__name__}")


def _check_specific(name: str, value: IntEnum, *filters: IntEnum) -> None:
    if value in filters:
        raise InvalidRequestError(f"invalid {name}={value.name}: it is for filters only; give a specific value")
