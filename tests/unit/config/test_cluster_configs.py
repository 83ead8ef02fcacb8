"""Cluster settings: Kafka's defaults and bounds, units in their names, and the source of each value."""

from __future__ import annotations

import pickle

import pytest

from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig, validate_cluster_configs
from sparklog.config.topic_configs import TOPIC_CONFIGS
from sparklog.errors import InvalidConfigurationError


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("num.partitions", "1"),
        ("auto.create.topics.enable", "true"),
        ("default.replication.factor", "1"),
        ("log.retention.check.interval.ms", "300000"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308"),
        ("log.cleaner.dedupe.buffer.size", "134217728"),
        ("log.retention.ms", None),
        ("log.retention.minutes", None),
        ("log.retention.hours", "168"),
        ("log.roll.hours", "168"),
        ("log.flush.interval.ms", None),
        ("log.flush.scheduler.interval.ms", "9223372036854775807"),
        ("offsets.retention.minutes", "10080"),
    ],
)
def test_defaults_are_those_of_kafka(name: str, default: str | None) -> None:
    assert CLUSTER_CONFIGS[name].default == default


@pytest.mark.parametrize("definition", [*CLUSTER_CONFIGS.values(), *TOPIC_CONFIGS.values()], ids=lambda one: one.name)
def test_every_default_is_valid(definition: object) -> None:
    default = definition.default  # type: ignore[attr-defined]
    if default is not None:
        assert definition.canonical(default) == default  # type: ignore[attr-defined]


def test_defaults_of_topic_configs_equal_those_of_their_cluster_settings() -> None:
    for definition in TOPIC_CONFIGS.values():
        defaults = [synonym for synonym in definition.synonyms if synonym.default is not None]
        assert len(defaults) == (1 if definition.synonyms else 0)
        for synonym in defaults:
            assert synonym.default is not None
            if synonym.unit != 1:
                assert int(synonym.default) * synonym.unit == int(definition.default or "")
            else:
                assert synonym.default == definition.default


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num.partitions", "0", "from 1 to"),
        ("num.partitions", "many", "not a whole number"),
        ("log.retention.hours", "0", "from 1 to 2147483647, or -1"),
        ("log.retention.hours", "2147483648", "out of range"),
        ("log.roll.hours", "0", "from 1 to"),
        ("log.segment.bytes", "100", "from 1048576 to"),
        ("auto.create.topics.enable", "on", "true or false"),
        ("compression.type", "brotli", "one of uncompressed"),
        ("num.partition", "2", "did you mean num.partitions?"),
        ("retention.ms", "2", "is set as log.retention.ms or log.retention.minutes or log.retention.hours"),
        ("remote.storage.enable", "true", "can only be set on a topic"),
        ("log.dirs", "/data", "registered in the cluster as a broker"),
    ],
)
def test_errors_for_invalid_values_name_the_valid_ones(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        validate_cluster_configs({name: value})
    assert said in str(caught.value)
    assert caught.value.config == name


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="is greater than"):
        validate_cluster_configs({"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1})


def test_the_view_has_set_values_or_else_defaults() -> None:
    config = ClusterConfig.resolve({"num.partitions": "8", "auto.create.topics.enable": "false", "unknown": "1"})
    assert (config.num_partitions, config.auto_create_topics_enable, config.default_replication_factor) == (8, False, 1)
    assert config.get("log.retention.ms") is None
    assert config.delete_topic_enable
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(InvalidConfigurationError, match="did you mean"):
        config.get("num.partitionz")


@pytest.mark.parametrize(
    ("configs", "name", "line"),
    [
        ({}, "num.partitions", "num.partitions=1 sensitive=false synonyms={DEFAULT_CONFIG:num.partitions=1}"),
        ({}, "log.retention.ms", "log.retention.ms=null sensitive=false synonyms={}"),
        (
            {"num.partitions": "8"},
            "num.partitions",
            "num.partitions=8 sensitive=false "
            "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.partitions=8, DEFAULT_CONFIG:num.partitions=1}",
        ),
        (
            {"log.retention.ms": "5"},
            "log.retention.ms",
            "log.retention.ms=5 sensitive=false "
            "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5, DEFAULT_CONFIG:log.retention.hours=168}",
        ),
        (
            {"log.retention.ms": "5"},
            "log.retention.hours",
            "log.retention.hours=168 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.hours=168}",
        ),
    ],
)
def test_a_setting_is_shown_as_kafka_shows_it(configs: dict[str, str], name: str, line: str) -> None:
    assert str(ClusterConfig.resolve(configs).explain(name)) == line


def test_describing_shows_set_values_or_all_sorted_by_name() -> None:
    config = ClusterConfig.resolve({"num.partitions": "8", "log.preallocate": "true"})
    assert [entry.name for entry in config.describe()] == ["log.preallocate", "num.partitions"]
    everything = [entry.name for entry in config.describe(everything=True)]
    assert everything == sorted(name for name, one in CLUSTER_CONFIGS.items() if not one.internal)
