"""Versions of a topic's schemas: which number a text has, and what a change of configs adds.

Each text that a schema config of a topic has had is a version: 1, 2, and so on, in the order of the commits that set
them first. As in Confluent's registry a text has one number: setting an earlier one again makes its version the
current one, and adds none. Texts are compared as they are stored, which is their canonical form.

Rules: pure; derived from ``create_topic`` and ``alter_config`` alone. Versions are entries of the state, so they
outlive the commits. Not for: which changes are allowed (``decide.topics``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.config.topic_configs import DELTA, TopicConfig
from sparklog.protocol.state import SchemaVersion, TopicState
from sparklog.schema.languages.record_schema import RecordSchema

SCHEMA_CONFIGS = ("key.schema", "value.schema")
"""The configs of a topic that hold a schema."""

Schemas = Mapping[str, tuple[SchemaVersion, ...]]
"""Versions by config, oldest first."""


def add_versions(
    schemas: Schemas, configs: Mapping[str, str], version: int, timestamp_ms: int
) -> dict[str, tuple[SchemaVersion, ...]]:
    """Return the versions after commit ``version`` set these configs of the topic."""
    added = dict(schemas)
    for config in SCHEMA_CONFIGS:
        text, known = configs.get(config, ""), schemas.get(config, ())
        if text and all(schema.text != text for schema in known):
            added[config] = (*known, SchemaVersion(text=text, version=version, timestamp_ms=timestamp_ms))
    return added


def find_record_schema(topic: TopicState, config: TopicConfig) -> RecordSchema:
    """Return how a topic's records are read: by its formats, its present schemas, and where needed earlier versions."""

    def earlier(name: str) -> list[str]:
        return [schema.text for schema in reversed(topic.schemas.get(name, ()))]

    return config.record_schema.with_earlier(value=earlier("value.schema"), key=earlier("key.schema"))


def count_unfit(topic: TopicState, config: TopicConfig) -> int | None:
    """Return how many records in a topic's history do not fit its schema; None if records are not compared with one.
    Those that were not rolled into history yet are not counted."""
    unfit = sum(partition.unfit for partition in topic.partitions)
    return unfit if unfit or (config.typed_schema and config.history_format == DELTA) else None


def find_current(topic: TopicState, config: str) -> int:
    """Return the number of the version that a schema config of a topic has now, 0 if it is not set."""
    text = topic.configs.get(config, "")
    numbers = (number for number, schema in enumerate(topic.schemas.get(config, ()), 1) if schema.text == text)
    return next(numbers, 0)
