"""The methods of ``AdminClient`` for configs: of topics, and of the cluster in the place of Kafka's brokers.

A BROKER resource with an empty name is the cluster. One with a number is that broker: a storage location without
settings of its own, which can be described but not altered.

Not for: the configs themselves (``config``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparklog.client.admin.base import AdminBase, Result, text_configs, warn_of
from sparklog.client.admin.types import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigResourceType, member_of
from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig
from sparklog.config.definitions import (
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    ConfigEntry,
)
from sparklog.config.effects import still_misleading, without_effect
from sparklog.config.topic_configs import TOPIC_CONFIGS, TopicConfig
from sparklog.errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidConfigurationError,
    InvalidRequestError,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.types import as_python

Configs = dict[str, dict[str, dict[str, Result]]]
"""Configs by resource type, resource name and config name."""

Operations = dict[str, tuple[AlterConfigOp, str]]


class ConfigAdmin(AdminBase):
    """The methods of ``AdminClient`` for configs. Thread-safe."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = "modified",
    ) -> Configs:
        """Return configs by resource type, resource and name: only those that were set (``modified``), ``all``, ….

        A topic that does not exist has no configs, as in kafka-python. Raises InvalidArgumentError.

            >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs=["retention.ms"])
            >>> configs = admin.describe_configs([orders], config_filter="all")
        """
        state = self.read_state()
        wanted = member_of(ConfigFilterType, config_filter)
        result: Configs = {}
        for resource in _resources(config_resources):
            names = None if resource.configs is None else set(resource.configs)
            configs = {
                entry.name: config_data(entry, resource.kind, include_synonyms)
                for entry in _config_entries(state, resource)
                if _is_shown(entry, resource.kind, wanted) and (names is None or entry.name in names)
            }
            result.setdefault(resource.kind.name.lower(), {})[resource.name or ""] = configs
        return result

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
        *,
        raise_errors: bool = False,
    ) -> dict[str, dict[str, str]]:
        """Change configs: a value to set, or (AlterConfigOp, value). Other configs do not change.

        Returns ``OK`` or the error for each resource; with ``raise_errors`` the first one is raised. With
        ``raise_on_unknown`` an unknown name raises InvalidConfigurationError, and nothing is changed.

            >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs={"retention.ms": "86400000"})
            >>> _ = admin.alter_configs([orders])
        """
        resources = _resources(config_resources)
        changes = [_parse_operations(resource) for resource in resources]
        return self._alter(resources, changes, validate_only, raise_on_unknown, raise_errors=raise_errors)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Reset configs to their defaults: the named ones, or all of a resource that names none. Returns and raises as
        ``alter_configs``."""
        resources = _resources(config_resources)
        changes = [dict.fromkeys(resource.configs or (), (AlterConfigOp.DELETE, "")) for resource in resources]
        return self._alter(resources, changes, validate_only, raise_on_unknown, all_if_none=True)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """Return the resources that have configs: the topics, and the brokers, which share those of the cluster."""
        state = self.read_state()
        wanted = [member_of(ConfigResourceType, kind) for kind in resource_types or ()]
        resources = {
            ConfigResourceType.TOPIC: sorted(state.topics),
            ConfigResourceType.BROKER: [str(broker) for broker in sorted(state.brokers)],
        }
        return {kind.name.lower(): names for kind, names in resources.items() if not wanted or kind in wanted}

    def _alter(
        self,
        resources: Sequence[ConfigResource],
        changes: Sequence[Operations],
        validate_only: bool,
        raise_on_unknown: bool,
        all_if_none: bool = False,
        raise_errors: bool = False,
    ) -> dict[str, dict[str, str]]:
        if raise_on_unknown:
            for resource, operations in zip(resources, changes, strict=True):
                _check_names(resource, operations)

        kept: dict[int, Mapping[str, str]] = {}

        def alter(state: State, index: int) -> Decision[None]:
            topic = _topic_name(resources[index])
            current = state.topic(topic).configs if topic else state.configs
            operations = changes[index]
            if not operations and all_if_none:
                operations = dict.fromkeys(current, (AlterConfigOp.DELETE, ""))
            new, removed = _apply_operations(operations, current, TOPIC_CONFIGS if topic else CLUSTER_CONFIGS)
            kept[index] = {name: value for name, value in current.items() if name not in new and name not in removed}
            return alter_configs(state, topic, new, removed)

        names = [f"{resource.kind.name} {resource.name or ''}" for resource in resources]
        result: dict[str, dict[str, str]] = {}
        frees_space = all(map(_frees_space, changes))
        outcomes = self._submit_all(names, alter, validate_only, raise_errors, frees_space=frees_space)
        for index, (resource, operations, outcome) in enumerate(zip(resources, changes, outcomes, strict=True)):
            error = outcome.error
            if error is None:
                _warn_of_ineffective(_topic_name(resource), operations, kept[index])
            text = "OK" if error is None else f"{type(error).__name__}: {error.message}"
            result.setdefault(resource.kind.name.lower(), {})[resource.name or ""] = text
        return result


def _frees_space(operations: Operations) -> bool:
    """Return whether these changes are of what is kept and for how long alone: with a shorter time a full disk is
    freed."""
    words = ("retention.", "cleanup.policy", "delete.delay.ms")
    return bool(operations) and all(any(word in name for word in words) for name in operations)


def _warn_of_ineffective(topic: str, operations: Operations, kept: Mapping[str, str]) -> None:
    """Warn of new configs without effect, and of kept ones that would be rejected today."""
    values = {name: value for name, (kind, value) in operations.items() if kind is AlterConfigOp.SET}
    warn_of(topic, [*without_effect(topic, values), *still_misleading(topic, kept)])


# -- arguments


def _resources(given: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Return the resources, checked. Raises InvalidArgumentError for types that have no configs here."""
    if isinstance(given, ConfigResource):
        raise InvalidArgumentTypeError("config_resources takes a list of ConfigResource objects, not a single one")
    resources = list(given)
    for resource in resources:
        if not isinstance(resource, ConfigResource):
            raise InvalidArgumentTypeError(f"invalid item of config_resources: {resource!r} is not a ConfigResource")
        if resource.kind not in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
            raise InvalidArgumentError(
                f"{resource.kind.name} {resource.name!r} has no configs here: only topics have, and the cluster, "
                "which is ConfigResource('BROKER', '')"
            )
    return resources


def _topic_name(resource: ConfigResource) -> str:
    """Return the topic name, empty for the cluster. Raises InvalidRequestError for a single broker."""
    if resource.kind is ConfigResourceType.TOPIC:
        if not resource.name:
            raise InvalidArgumentError("a topic's ConfigResource needs its name")
        return resource.name
    if resource.name:
        raise InvalidRequestError(
            f"broker {resource.name} has no settings of its own, since brokers are storage locations; use "
            "ConfigResource('BROKER', '') for the settings of the cluster"
        )
    return ""


def _parse_operations(resource: ConfigResource) -> Operations:
    """Return the operation for each config. Raises InvalidArgumentError."""
    if resource.configs is not None and not isinstance(resource.configs, Mapping):
        raise InvalidArgumentTypeError(
            f"configs of {resource.name!r} must be a dict of name to value, not {resource.configs!r}"
        )
    operations: Operations = {}
    for name, given in (resource.configs or {}).items():
        operation, value = given if isinstance(given, tuple) and len(given) == 2 else (AlterConfigOp.SET, given)
        kind = member_of(AlterConfigOp, operation)
        if kind is not AlterConfigOp.DELETE and value is None:
            raise InvalidConfigurationError(f"{name} has no value to {kind.name.lower()}", config=name)
        operations[as_python(name)] = (kind, text_configs({name: value})[name])
    return operations


def _check_names(resource: ConfigResource, names: Iterable[str]) -> None:
    """Raise InvalidConfigurationError for an unknown name, suggesting the nearest known one."""
    configs = TopicConfig.resolve({}) if resource.kind is ConfigResourceType.TOPIC else ClusterConfig.resolve({})
    for name in names:
        configs.get(name)


def _apply_operations(
    operations: Operations, current: Mapping[str, str], definitions: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Return configs to set and names to delete. Raises InvalidConfigurationError for APPEND or SUBTRACT on a
    config that is not a list."""
    new: dict[str, str] = {}
    removed: list[str] = []
    for name, (operation, value) in operations.items():
        if operation is AlterConfigOp.SET:
            new[name] = value
        elif operation is AlterConfigOp.DELETE:
            removed += [name] if name in current else []
        else:
            definition = definitions.get(name)
            if definition is None or definition.kind != "list":
                raise InvalidConfigurationError(
                    f"{name} is not a list, so no items can be added or removed; set its value", config=name
                )
            items = [item for item in current.get(name, definition.default or "").split(",") if item]
            given = [item.strip() for item in value.split(",") if item.strip()]
            if operation is AlterConfigOp.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            new[name] = ",".join(items)
    return new, removed


# -- results


def _config_entries(state: State, resource: ConfigResource) -> list[ConfigEntry]:
    if resource.kind is ConfigResourceType.TOPIC:
        topic = state.topics.get(_topic_name(resource))
        return [] if topic is None else TopicConfig.resolve(topic.configs, state.configs).describe(everything=True)
    if resource.name and resource.name not in map(str, state.brokers):
        raise InvalidArgumentError(f"there is no broker {resource.name}; there are {sorted(state.brokers)}")
    return ClusterConfig.resolve(state.configs).describe(everything=True)


def _is_shown(entry: ConfigEntry, kind: ConfigResourceType, wanted: ConfigFilterType) -> bool:
    own = DYNAMIC_TOPIC_CONFIG if kind is ConfigResourceType.TOPIC else DYNAMIC_DEFAULT_BROKER_CONFIG
    if wanted is ConfigFilterType.MODIFIED:
        return entry.source == own
    if wanted is ConfigFilterType.DEFAULT:
        return entry.source != own
    return wanted is not ConfigFilterType.STATIC


def config_data(entry: ConfigEntry, kind: ConfigResourceType, include_synonyms: bool = False) -> Result:
    """Return a config as in Kafka's DescribeConfigs response."""
    definition = (TOPIC_CONFIGS if kind is ConfigResourceType.TOPIC else CLUSTER_CONFIGS)[entry.name]
    synonyms = entry.synonyms if include_synonyms else ()
    return {
        "value": entry.value,
        "read_only": False,
        "config_source": entry.source,
        "is_default": entry.source == DEFAULT_CONFIG,
        "is_sensitive": False,
        "synonyms": [synonym._asdict() for synonym in synonyms],
        "config_type": definition.kind.upper(),
        "documentation": definition.description,
    }
