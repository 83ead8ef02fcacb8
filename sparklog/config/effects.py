"""What is said, or refused, where somebody sets what has no effect here.

Kafka's settings are taken as they are, so that files and scripts of theirs can be used; but nobody is to believe in one
that nothing acts on. Where that belief costs data, money or protection, a value other than the default is refused.

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
    for name, value in changes.items():
        definition = _definitions(topic).get(name)
        if definition is not None and definition.refused and value != (definition.default or ""):
            raise InvalidConfigurationError(
                f"{name}={value} is refused, since it would have no effect: {definition.refused}",
                config=name,
                value=value,
            )


def without_effect(topic: str, changes: Mapping[str, object]) -> list[str]:
    """A line for each setting that is stored and not acted on, unless it is set to its default.

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


def _definitions(topic: str) -> Mapping[str, ConfigDef]:
    return TOPIC_CONFIGS if topic else CLUSTER_CONFIGS
