"""What ``configs --describe`` shows: the document, and Kafka's lines made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparklog.cli.common import complain
from sparklog.cli.documents import ConfigDescriptions, EntityDetails, SettingDetails, SynonymDetails
from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig
from sparklog.config.definitions import ConfigDef, ConfigEntry, ConfigSynonym
from sparklog.config.effects import still_misleading, without_effect
from sparklog.config.topic_configs import TOPIC_CONFIGS, TopicConfig
from sparklog.protocol.names import validate_topic_name
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.protocol.state import State


def topics(state: State, name: str | None, everything: bool) -> ConfigDescriptions:
    """A topic, or all with None; a missing one is left out unless everything is asked for, as in Kafka.

    Raises InvalidTopicError, UnknownTopicOrPartitionError.
    """
    if name is not None:
        validate_topic_name(name)
        if name not in state.topics and not everything:
            return ConfigDescriptions(entities=[])
    entities = []
    for topic in sorted(state.topics) if name is None else [name]:
        entries = TopicConfig.resolve(state.topic(topic).configs, state.configs).describe(everything)
        entities.append(EntityDetails(type="topics", name=topic, configs=_settings(entries, TOPIC_CONFIGS)))
    return ConfigDescriptions(entities=entities)


def brokers(state: State, name: str | None, everything: bool) -> ConfigDescriptions:
    """A broker, the cluster's defaults with "", or all of these with None; a missing broker is left out."""
    if name and int(name) not in state.brokers:
        return ConfigDescriptions(entities=[])
    config = ClusterConfig.resolve(state.configs)
    entities = []
    for broker in [*map(str, sorted(state.brokers)), ""] if name is None else [name]:
        entries = config.describe(everything) if everything or not broker else []  # a broker has nothing of its own
        entities.append(EntityDetails(type="brokers", name=broker or None, configs=_settings(entries, CLUSTER_CONFIGS)))
    return ConfigDescriptions(entities=entities)


def _settings(entries: Iterable[ConfigEntry], definitions: Mapping[str, ConfigDef]) -> list[SettingDetails]:
    return [
        SettingDetails(
            name=entry.name,
            value=entry.value,
            source=entry.source,
            has_effect=definitions[entry.name].effective,
            synonyms=[SynonymDetails(source=one.source, name=one.name, value=one.value) for one in entry.synonyms],
        )
        for entry in entries
    ]


def say_without_effect(topic: str, changes: Mapping[str, str], kept: Mapping[str, str] = MappingProxyType({})) -> None:
    """A note on standard error for each setting that was set and that nothing acts on, and for each of those that were
    kept and would be refused today; no topic: the cluster's."""
    for line in [*without_effect(topic, changes), *still_misleading(topic, kept)]:
        complain(f"Note: {line}")


def lines(found: ConfigDescriptions, everything: bool) -> Iterator[str]:
    """Kafka's lines."""
    for entity in found.entities:
        if entity.name is None:
            yield "Default configs for brokers in the cluster are:"
        else:
            which = "All" if everything else "Dynamic"
            yield f"{which} configs for {entity.type.rstrip('s')} {printable(entity.name)} are:"
        for one in entity.configs:
            synonyms = tuple(ConfigSynonym(place.source, place.name, place.value) for place in one.synonyms)
            yield f"  {printable(ConfigEntry(one.name, one.value, one.source, synonyms))}"
