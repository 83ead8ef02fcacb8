"""Warnings about settings that have no effect, and refusal of those where that would be misleading.

All of Kafka's settings are accepted, so that existing files and scripts work, but a user must be told when a setting
has no effect. If relying on it could cost data, money or protection, any value other than the default is refused.

An older version may have stored such a value. It is kept and does not block other changes: each of them is answered
with a warning about it.

Rules: values are as users give them; a setting at its default causes no warning. Not for: whether a value is valid
(``definitions``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.config.cluster_configs import CLUSTER_CONFIGS
from sparklog.config.definitions import ConfigDef
from sparklog.config.topic_configs import TOPIC_CONFIGS
from sparklog.errors import InvalidConfigurationError


def check_misleading(topic: str, changes: Mapping[str, str]) -> None:
    """Refuse misleading settings; ``topic`` is empty for the cluster's settings. Values are canonical. Raises
    InvalidConfigurationError for a setting that must stay at its default."""
    for name, value in misleading(topic, changes).items():
        raise InvalidConfigurationError(
            f"{name}={value} is refused, since it would have no effect: {_find_definitions(topic)[name].refused}",
            config=name,
            value=value,
        )


def misleading(topic: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that would be refused; among stored ones, those that an older version accepted."""
    definitions = _find_definitions(topic)
    return {
        name: value
        for name, value in configs.items()
        if name in definitions and definitions[name].refused and value != (definitions[name].default or "")
    }


def without_effect(topic: str, changes: Mapping[str, object]) -> list[str]:
    """Return a warning for each setting that is stored without effect, unless it is at its default.

    >>> without_effect("orders", {"flush.messages": "1", "retention.ms": "1000"})
    ['stored, has no effect here: flush.messages=1 (committed records are already durable)']
    """
    warnings = []
    for name, value in changes.items():
        definition = _find_definitions(topic).get(name)
        if definition is None or not definition.unused:
            continue
        text = definition.canonical(value)
        if text != (definition.default or ""):
            warnings.append(f"stored, has no effect here: {name}={text} ({definition.unused})")
    return warnings


def still_misleading(topic: str, kept: Mapping[str, str]) -> list[str]:
    """Return a warning for each stored setting that would be refused today, to be shown when others are changed.

    >>> still_misleading("orders", {"remote.storage.enable": "true"})[0][:72]
    'stored by an older version, has no effect here: remote.storage.enable=tr'
    """
    definitions = _find_definitions(topic)
    return [
        f"stored by an older version, has no effect here: {name}={value} ({definitions[name].refused}); delete it"
        for name, value in misleading(topic, kept).items()
    ]


def _find_definitions(topic: str) -> Mapping[str, ConfigDef]:
    return TOPIC_CONFIGS if topic else CLUSTER_CONFIGS
