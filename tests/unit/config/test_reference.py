"""The reference files match the tables of settings.

Regenerate them after a change of a table:

    python scripts/config_reference.py
"""

from __future__ import annotations

import re

import pytest

from scripts.config_reference import (
    DOCUMENT,
    LIMITS,
    PROPERTIES,
    ROOT,
    SETTINGS,
    TABLES,
    render_properties,
    render_without_effect,
    tables,
)
from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig, validate_cluster_configs
from sparklog.config.definitions import ConfigDef
from sparklog.config.properties import parse_properties, read_properties
from sparklog.config.topic_configs import TOPIC_CONFIGS, TopicConfig


def test_the_properties_file_matches_the_tables() -> None:
    assert PROPERTIES.read_text(encoding="utf-8") == render_properties()


def test_the_document_ends_with_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text[text.index(TABLES) :] == tables()


def test_the_limits_document_lists_settings_without_effect() -> None:
    assert SETTINGS.findall(LIMITS.read_text(encoding="utf-8")) == [render_without_effect()]


DEFINITIONS = [*TOPIC_CONFIGS.values(), *(one for one in CLUSTER_CONFIGS.values() if not one.synonyms)]
ONLY_SET = ("reassign_partitions.py", "reassignment.py")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "sparklog").rglob("*.py"))
    if "config" not in path.relative_to(ROOT / "sparklog").parts[:1] and path.name not in ONLY_SET
)
"""All code that may act on a setting; reassignments only set some."""


def is_used(definition: ConfigDef) -> bool:
    """Whether the program uses a setting: by one of its names, or by the attribute that has its value."""
    names = [definition.name, *(synonym.name for synonym in definition.synonyms)]
    if definition.name.startswith(("leader.replication", "follower.replication")) and definition.kind == "long":
        names.append("replication.throttled.rate")  # the smaller of the two rates
    if re.match(r"compression\..*\.level", definition.name):
        names.append("compression.level")  # that of the codec
    if definition.name == "internal.segment.bytes":
        names.append("segment.bytes")  # in whose place it is
    if definition.name in ("key.format", "key.schema", "value.format", "value.schema"):
        names.append("record.schema")  # which has them
    attributes = "|".join(name.replace(".", "_") for name in names)
    return any(f'"{name}"' in SOURCES for name in names) or re.search(rf"\.({attributes})\b", SOURCES) is not None


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.name)
def test_a_setting_is_documented_to_have_an_effect_if_and_only_if_it_is_used(definition: ConfigDef) -> None:
    assert is_used(definition) == definition.effective
    assert definition.effective == (not definition.unused and not definition.refused)
    assert not (definition.unused and definition.refused)


def test_the_properties_file_can_be_loaded_and_changes_nothing() -> None:
    settings = validate_cluster_configs(read_properties(str(PROPERTIES)))
    assert settings == {
        name: one.default for name, one in CLUSTER_CONFIGS.items() if one.default is not None and not one.internal
    }
    plain, loaded = ClusterConfig.resolve(), ClusterConfig.resolve(settings)
    assert all(plain.get(name) == loaded.get(name) for name in CLUSTER_CONFIGS)
    topic, topic_loaded = TopicConfig.resolve({}), TopicConfig.resolve({}, settings)
    assert all(topic.get(name) == topic_loaded.get(name) for name in TOPIC_CONFIGS)


def test_every_setting_has_one_line_in_the_properties_file_and_a_description() -> None:
    lines = PROPERTIES.read_text(encoding="utf-8").splitlines()
    topics_only = {name for name, one in TOPIC_CONFIGS.items() if not one.synonyms and not one.internal}
    cluster = {name for name, one in CLUSTER_CONFIGS.items() if not one.internal}
    for name in topics_only | cluster:
        found = [number for number, line in enumerate(lines) if re.match(rf"#?{re.escape(name)}=", line)]
        assert len(found) == 1, name
        assert lines[found[0] - 1].startswith("# ")


@pytest.mark.parametrize("definition", [*TOPIC_CONFIGS.values(), *CLUSTER_CONFIGS.values()], ids=lambda one: one.name)
def test_every_setting_is_described_with_its_purpose_and_effect(definition: object) -> None:
    doc, description = definition.doc, definition.description  # type: ignore[attr-defined]
    assert doc[0].isupper()
    assert doc.endswith(".")
    assert "\n" not in doc
    assert sum(said in description for said in ("Takes effect now.", "Stored and shown, has no", "Refused unless")) == 1


def test_the_commented_settings_are_topic_configs_at_their_defaults() -> None:
    text = PROPERTIES.read_text(encoding="utf-8")
    found = parse_properties("\n".join(re.findall(r"^#([a-z.]+=.*)$", text[text.index("topics only") :], re.MULTILINE)))
    assert found == {name: one.default for name, one in TOPIC_CONFIGS.items() if not one.synonyms and not one.internal}
