"""Configs of ``AdminClient``: of topics, and of the cluster under the name of Kafka's brokers.

A BROKER resource with an empty name is the cluster. One with a number is that broker, which has no settings of its
own, since it is a storage location: it can be described and not altered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparklog.client.admin_base import AdminBase, Result, text_configs
from sparklog.client.admin_types import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigResourceType, member_of
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
    SparklogError,
)
from sparklog.protocol import decide
from sparklog.protocol.decision import Decision
from sparklog.protocol.state import State

logger = logging.getLogger(__name__)

Configs = dict[str, dict[str, dict[str, Result]]]
"""By type of resource, name of the resource, and name of the config."""

Operations = dict[str, tuple[AlterConfigOp, str]]


class ConfigAdmin(AdminBase):
    """The methods of ``AdminClient`` for configs. Thread-safe."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = "modified",
    ) -> Configs:
        """Configs by resource type, resource and name: those that were set (``modified``), or ``all``, and so on.

        A topic that does not exist has none, as in kafka-python. Raises InvalidArgumentError.

            >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs=["retention.ms"])
            >>> found = admin.describe_configs([orders], config_filter="all")
        """
        state = self._state()
        wanted = member_of(ConfigFilterType, config_filter)
        found: Configs = {}
        for resource in _resources(config_resources):
            names = None if resource.configs is None else set(resource.configs)
            configs = {
                entry.name: config_data(entry, resource.kind, include_synonyms)
                for entry in _entries(state, resource)
                if _is_shown(entry, resource.kind, wanted) and (names is None or entry.name in names)
            }
            found.setdefault(resource.kind.name.lower(), {})[resource.name or ""] = configs
        return found

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change configs: a value to set, or (AlterConfigOp, value). What is not named stays as it is.

        Returns ``OK`` or the error for each resource. Raises InvalidConfigurationError with ``raise_on_unknown`` for a
        name that there is not; then nothing is changed.

            >>> orders = sparklog.ConfigResource("TOPIC", "orders", configs={"retention.ms": "86400000"})
            >>> _ = admin.alter_configs([orders])
        """
        resources = _resources(config_resources)
        changes = [_operations(resource) for resource in resources]
        return self._alter(resources, changes, validate_only, raise_on_unknown)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Set configs back to their defaults: the named ones, or all of a resource that names none. As above."""
        resources = _resources(config_resources)
        changes = [dict.fromkeys(resource.configs or (), (AlterConfigOp.DELETE, "")) for resource in resources]
        return self._alter(resources, changes, validate_only, raise_on_unknown, all_if_none=True)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """The names of what has configs: the topics, and the brokers, which all have the cluster's."""
        state = self._state()
        wanted = [member_of(ConfigResourceType, kind) for kind in resource_types or ()]
        found = {
            ConfigResourceType.TOPIC: sorted(state.topics),
            ConfigResourceType.BROKER: [str(broker) for broker in sorted(state.brokers)],
        }
        return {kind.name.lower(): names for kind, names in found.items() if not wanted or kind in wanted}

    def _alter(
        self,
        resources: Sequence[ConfigResource],
        changes: Sequence[Operations],
        validate_only: bool,
        raise_on_unknown: bool,
        all_if_none: bool = False,
    ) -> dict[str, dict[str, str]]:
        if raise_on_unknown:
            for resource, operations in zip(resources, changes, strict=True):
                _check_names(resource, operations)

        kept: dict[int, Mapping[str, str]] = {}

        def alter(state: State, place: int) -> Decision:
            topic = _topic_of(resources[place])
            current = state.topic(topic).configs if topic else state.configs
            operations = changes[place]
            if not operations and all_if_none:
                operations = dict.fromkeys(current, (AlterConfigOp.DELETE, ""))
            new, gone = _changed(operations, current, TOPIC_CONFIGS if topic else CLUSTER_CONFIGS)
            kept[place] = {name: value for name, value in current.items() if name not in new and name not in gone}
            return decide.alter_configs(state, topic, new, gone)

        names = [f"{resource.kind.name} {resource.name or ''}" for resource in resources]
        found: dict[str, dict[str, str]] = {}
        answers = self._together(names, alter, validate_only, raise_errors=False)
        for place, (resource, operations, answer) in enumerate(zip(resources, changes, answers, strict=True)):
            shown = "OK" if answer.error is None else _shown(answer.error)
            if answer.error is None:
                _warn_without_effect(_topic_of(resource), operations, kept[place])
            found.setdefault(resource.kind.name.lower(), {})[resource.name or ""] = shown
        return found


def _warn_without_effect(topic: str, operations: Operations, kept: Mapping[str, str]) -> None:
    """Log what was set and nothing acts on, and what was kept and would be refused today."""
    values = {name: value for name, (kind, value) in operations.items() if kind is AlterConfigOp.SET}
    for line in [*without_effect(topic, values), *still_misleading(topic, kept)]:
        logger.warning("%s: %s", f"topic {topic}" if topic else "the cluster", line)


def _shown(error: SparklogError) -> str:
    return f"{type(error).__name__}: {error.message}"


# -- arguments


def _resources(given: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Those that have configs here. Raises InvalidArgumentError for others."""
    if isinstance(given, ConfigResource):
        raise InvalidArgumentTypeError("config_resources takes a list of ConfigResource objects, not one of them")
    found = list(given)
    for resource in found:
        if not isinstance(resource, ConfigResource):
            raise InvalidArgumentTypeError(f"config_resources has {resource!r}, which is not a ConfigResource")
        if resource.kind not in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
            raise InvalidArgumentError(
                f"{resource.kind.name} {resource.name!r} has no configs here: topics have, and the cluster, which is "
                "ConfigResource('BROKER', '')"
            )
    return found


def _topic_of(resource: ConfigResource) -> str:
    """The topic's name, empty for the cluster. Raises InvalidRequestError for a single broker."""
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


def _operations(resource: ConfigResource) -> Operations:
    """What to do with each config. Raises InvalidArgumentError."""
    if resource.configs is not None and not isinstance(resource.configs, Mapping):
        raise InvalidArgumentTypeError(
            f"configs of {resource.name!r} must be a dict of name to value, not {resource.configs!r}"
        )
    found: Operations = {}
    for name, given in (resource.configs or {}).items():
        operation, value = given if isinstance(given, tuple) and len(given) == 2 else (AlterConfigOp.SET, given)
        kind = member_of(AlterConfigOp, operation)
        if kind is not AlterConfigOp.DELETE and value is None:
            raise InvalidConfigurationError(f"{name} has no value to {kind.name.lower()}", config=name)
        found[name] = (kind, text_configs({name: value})[name])
    return found


def _check_names(resource: ConfigResource, names: Iterable[str]) -> None:
    """Raises InvalidConfigurationError for a name that there is not, with the nearest that there is."""
    for name in names:
        if resource.kind is ConfigResourceType.TOPIC:
            TopicConfig.resolve({}).get(name)
        else:
            ClusterConfig.resolve({}).get(name)


def _changed(
    operations: Operations, current: Mapping[str, str], definitions: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """What to set and what to delete. Raises InvalidConfigurationError for an operation of lists on what is none."""
    new: dict[str, str] = {}
    gone: list[str] = []
    for name, (operation, value) in operations.items():
        if operation is AlterConfigOp.SET:
            new[name] = value
        elif operation is AlterConfigOp.DELETE:
            gone += [name] if name in current else []
        else:
            definition = definitions.get(name)
            if definition is None or definition.kind != "list":
                raise InvalidConfigurationError(
                    f"{name} is not a list, so nothing can be added to or taken from it; set it", config=name
                )
            items = [item for item in current.get(name, definition.default or "").split(",") if item]
            given = [item.strip() for item in value.split(",") if item.strip()]
            if operation is AlterConfigOp.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            new[name] = ",".join(items)
    return new, gone


# -- results


def _entries(state: State, resource: ConfigResource) -> list[ConfigEntry]:
    if resource.kind is ConfigResourceType.TOPIC:
        topic = state.topics.get(_topic_of(resource))
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
    """A config as Kafka's DescribeConfigs answers it."""
    definition = (TOPIC_CONFIGS if kind is ConfigResourceType.TOPIC else CLUSTER_CONFIGS)[entry.name]
    synonyms = entry.synonyms if include_synonyms else ()
    return {
        "value": entry.value,
        "read_only": False,
        "config_source": entry.source,
        "is_default": entry.source == DEFAULT_CONFIG,
        "is_sensitive": False,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source} for one in synonyms],
        "config_type": definition.kind.upper(),
        "documentation": definition.description,
    }
