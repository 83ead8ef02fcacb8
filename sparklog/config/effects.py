"""What is said, or refused, where somebody sets what has no effect here.

Kafka's settings are taken as they are, so that files and scripts of theirs can be used; but nobody is to believe in one
that nothing acts on. Where that belief costs data, money or protection, a value other than the default is refused.

An older version may have stored such a value. It stays, and does not stand in the way of other changes: each of them is
answered with a word on it.

Rules: values are as users give them; a setting at its default is worth no word. Not for: whether a value is valid
(``definitions``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.config.cluster_configs import CLUSTER_CONFIGS
from sparklog.config.definitions import ConfigDef
from sparklog.config.topic_configs import TOPIC_CONFIGS
from sparklog.errors import InvalidConfigurationError


def check_misleading(topic: str, changes: Mapping[str, str]) -> None:
    """Refuse what would be believed in; ``topic`` is empty for the cluster's settings. Values are canonical.

    Raises:
        InvalidConfigurationError: a setting that must stay at its default.
    """
    for name, value in misleading(topic, changes).items():
        raise InvalidConfigurationError(
            f"{name}={value} is refused, since it would have no effect: {_definitions(topic)[name].refused}",
            config=name,
            value=value,
        )


def misleading(topic: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Those that would be refused today: of what is stored, those that an older version let in."""
    definitions = _definitions(topic)
    return {
        name: value
        for name, value in configs.items()
        if name in definitions and definitions[name].refused and value != (definitions[name].default or "")
    }


def without_effect(topic: str, changes: Mapping[str, object]) -> list[str]:
    """A line for each setting that is stored and not acted on, unless it is at its default.

    >>> without_effect("orders", {"flush.messages": "1", "retention.ms": "1000"})
    ['stored, has no effect here: flush.messages=1 (what is committed is durable already)']
    """
    found = []
    for name, value in changes.items():
        definition = _definitions(topic).get(name)
        if definition is None or not definition.unused:
            continue
        text = definition.canonical(value)
        if text != (definition.default or ""):
            found.append(f"stored, has no effect here: {name}={text} ({definition.unused})")
    return found


def still_misleading(topic: str, kept: Mapping[str, str]) -> list[str]:
    """A line for each of the stored settings that would be refused today, to be said when others are changed.

    >>> still_misleading("orders", {"remote.storage.enable": "true"})[0][:72]
    'stored by an older version, has no effect here: remote.storage.enable=tr'
    """
    definitions = _definitions(topic)
    return [
        f"stored by an older version, has no effect here: {name}={value} ({definitions[name].refused}); delete it"
        for name, value in misleading(topic, kept).items()
    ]


def _definitions(topic: str) -> Mapping[str, ConfigDef]:
    return TOPIC_CONFIGS if topic else CLUSTER_CONFIGS
