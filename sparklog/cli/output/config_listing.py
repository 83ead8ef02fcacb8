"""Builds the document of ``configs --describe``, and Kafka's lines from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sparklog.cli.output.documents import ConfigDescriptions, EntityDetails, SettingDetails, SynonymDetails
from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig
from sparklog.config.definitions import DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigDef, ConfigEntry, ConfigSynonym
from sparklog.config.topic_configs import TOPIC_CONFIGS, TopicConfig
from sparklog.protocol.names import validate_topic_name
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.protocol.state import State


def topics(state: State, name: str | None, everything: bool) -> ConfigDescriptions:
    """Describe a topic, or all topics with None. As in Kafka, a missing topic is left out unless ``everything`` is set.

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
    """Describe a broker, the cluster's defaults with "", or all of these with None; a missing broker is left out."""
    if name and int(name) not in state.brokers:
        return ConfigDescriptions(entities=[])
    config = ClusterConfig.resolve(state.configs)
    entities = []
    for broker in [*map(str, sorted(state.brokers)), ""] if name is None else [name]:
        entries = config.describe(everything) if everything or not broker else []  # a broker has no own settings
        if not broker:
            entries = [_as_default(entry) for entry in entries]
        entities.append(EntityDetails(type="brokers", name=broker or None, configs=_settings(entries, CLUSTER_CONFIGS)))
    return ConfigDescriptions(entities=entities)


def _as_default(entry: ConfigEntry) -> ConfigEntry:
    """Return a setting of the cluster without the values it overrides that are no defaults of brokers, as Kafka's
    ``ConfigHelper.createBrokerConfigEntry`` shows them."""
    own = tuple(synonym for synonym in entry.synonyms if synonym.source == DYNAMIC_DEFAULT_BROKER_CONFIG)
    return entry._replace(synonyms=own) if entry.source == DYNAMIC_DEFAULT_BROKER_CONFIG else entry


def _settings(entries: Iterable[ConfigEntry], definitions: Mapping[str, ConfigDef]) -> list[SettingDetails]:
    return [
        SettingDetails.of(
            entry,
            has_effect=definitions[entry.name].effective,
            synonyms=[SynonymDetails.of(synonym) for synonym in entry.synonyms],
        )
        for entry in entries
    ]


def lines(descriptions: ConfigDescriptions, everything: bool) -> Iterator[str]:
    for entity in descriptions.entities:
        if entity.name is None:
            yield "Default configs for brokers in the cluster are:"
        else:
            which = "All" if everything else "Dynamic"
            yield f"{which} configs for {entity.type.rstrip('s')} {printable(entity.name)} are:"
        for setting in entity.configs:
            synonyms = tuple(ConfigSynonym(synonym.source, synonym.name, synonym.value) for synonym in setting.synonyms)
            yield f"  {printable(ConfigEntry(setting.name, setting.value, setting.source, synonyms))}"
