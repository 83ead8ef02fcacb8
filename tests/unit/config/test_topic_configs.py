"""Topic configs accept what Kafka's accept, apply by Kafka's precedence, and are shown as by Kafka."""

from __future__ import annotations

import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import limits
from sparklog.config.cluster_configs import CLUSTER_CONFIGS, ClusterConfig
from sparklog.config.definitions import ConfigDef, canonical_text
from sparklog.config.topic_configs import TOPIC_CONFIGS, TopicConfig, canonical_topic_configs, validate_topic_configs
from sparklog.config.typed_configs import Setting, TypedConfigs
from sparklog.errors import InvalidConfigurationError

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
ANY = (None, None)

# name: (type, default, (minimum, maximum) as Kafka declares them), from LogConfig and RemoteLogManagerConfig
KAFKA: dict[str, tuple[str, str | None, tuple[float | None, float | None]]] = {
    "segment.bytes": ("int", "1073741824", (1048576, None)),
    "segment.ms": ("long", "604800000", (1, None)),
    "segment.jitter.ms": ("long", "0", (0, None)),
    "segment.index.bytes": ("int", "10485760", (4, None)),
    "flush.messages": ("long", "9223372036854775807", (1, None)),
    "flush.ms": ("long", "9223372036854775807", (0, None)),
    "retention.bytes": ("long", "-1", ANY),
    "retention.ms": ("long", "604800000", (-1, None)),
    "max.message.bytes": ("int", "1048588", (0, None)),
    "index.interval.bytes": ("int", "4096", (0, None)),
    "delete.retention.ms": ("long", "86400000", (0, None)),
    "min.compaction.lag.ms": ("long", "0", (0, None)),
    "max.compaction.lag.ms": ("long", "9223372036854775807", (1, None)),
    "file.delete.delay.ms": ("long", "60000", (0, None)),
    "min.cleanable.dirty.ratio": ("double", "0.5", (0, 1)),
    "cleanup.policy": ("list", "delete", ANY),
    "unclean.leader.election.enable": ("boolean", "false", ANY),
    "min.insync.replicas": ("int", "1", (1, None)),
    "compression.type": ("string", "producer", ANY),
    "compression.gzip.level": ("int", "-1", (1, 9)),
    "compression.lz4.level": ("int", "9", (1, 17)),
    "compression.zstd.level": ("int", "3", (-131072, 22)),
    "preallocate": ("boolean", "false", ANY),
    "message.timestamp.type": ("string", "CreateTime", ANY),
    "message.timestamp.before.max.ms": ("long", "9223372036854775807", (0, None)),
    "message.timestamp.after.max.ms": ("long", "3600000", (0, None)),
    "remote.storage.enable": ("boolean", "false", ANY),
    "local.retention.ms": ("long", "-2", (-2, None)),
    "local.retention.bytes": ("long", "-2", (-2, None)),
    "remote.log.copy.disable": ("boolean", "false", ANY),
    "remote.copy.lag.ms": ("long", "0", (-1, None)),
    "remote.copy.lag.bytes": ("long", "-1", (-1, None)),
    "remote.log.delete.on.disable": ("boolean", "false", ANY),
    "errors.deadletterqueue.group.enable": ("boolean", "false", ANY),
    "leader.replication.throttled.replicas": ("list", "", ANY),
    "follower.replication.throttled.replicas": ("list", "", ANY),
    "internal.segment.bytes": ("int", None, ANY),
}

# topic config: cluster-level names in Kafka's order, if there are several or they follow no pattern
SYNONYMS = {
    "segment.ms": ["log.roll.ms", "log.roll.hours"],
    "segment.jitter.ms": ["log.roll.jitter.ms", "log.roll.jitter.hours"],
    "flush.ms": ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
    "flush.messages": ["log.flush.interval.messages"],
    "retention.ms": ["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    "max.message.bytes": ["message.max.bytes"],
    "file.delete.delay.ms": ["log.segment.delete.delay.ms"],
    "segment.index.bytes": ["log.index.size.max.bytes"],
    "min.cleanable.dirty.ratio": ["log.cleaner.min.cleanable.ratio"],
    "min.insync.replicas": ["min.insync.replicas"],
    "remote.storage.enable": [],
    "remote.log.copy.disable": [],
}


OWN = {
    "history.format": ("string", "arrow", (None, None)),
    "history.delete.delay.ms": ("long", "86400000", (0, None)),
    "value.format": ("string", "none", ANY),
    "value.schema": ("string", "", ANY),
    "value.schema.validation": ("boolean", "false", ANY),
    "value.keep": ("boolean", "true", ANY),
    "key.format": ("string", "none", ANY),
    "key.schema": ("string", "", ANY),
    "key.schema.validation": ("boolean", "false", ANY),
}
"""What Kafka does not have."""


def test_the_configs_are_those_of_kafka_and_a_few_more() -> None:
    found = {name: (one.kind, one.default, (one.minimum, one.maximum)) for name, one in TOPIC_CONFIGS.items()}
    assert found == KAFKA | OWN
    assert [name for name, one in TOPIC_CONFIGS.items() if one.internal] == ["internal.segment.bytes"]


@pytest.mark.parametrize("name", SYNONYMS)
def test_cluster_level_names_are_in_the_order_of_kafka(name: str) -> None:
    assert [synonym.name for synonym in TOPIC_CONFIGS[name].synonyms] == SYNONYMS[name]


@pytest.mark.parametrize("name", [name for name, one in TOPIC_CONFIGS.items() if one.kind in ("int", "long", "double")])
def test_numbers_are_accepted_within_their_bounds_only(name: str) -> None:
    kind, _, (minimum, maximum) = {**KAFKA, **OWN}[name]
    widest = {"int": (-INT_MAX - 1, INT_MAX), "long": (-LONG_MAX - 1, LONG_MAX), "double": (0, 1)}[kind]
    low, high = widest[0] if minimum is None else minimum, widest[1] if maximum is None else maximum
    definition = TOPIC_CONFIGS[name]
    for value in (low, high):
        assert definition.parse(str(value)) == value == definition.parse(value)
    for value in (low - 1, high + 1):
        if value == definition.also:
            continue
        with pytest.raises(InvalidConfigurationError, match=rf"{name}: it is out of range; it takes .* from {low} to"):
            definition.parse(str(value))


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("retention.ms", " +5 ", "5"),
        ("retention.ms", "007", "7"),
        ("retention.ms", 5, "5"),
        ("preallocate", " TRUE", "true"),
        ("preallocate", False, "false"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("min.cleanable.dirty.ratio", 1, "1.0"),
        ("min.cleanable.dirty.ratio", "0.0001", "1.0E-4"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("cleanup.policy", ["delete", "compact"], "delete,compact"),
        ("cleanup.policy", "", ""),
        ("compression.gzip.level", "-1", "-1"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
        ("internal.segment.bytes", "100", "100"),
    ],
)
def test_values_are_stored_in_canonical_form(name: str, value: object, canonical: str) -> None:
    assert validate_topic_configs({name: value}) == {name: canonical}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", ""),
        ("retention.ms", "1e3"),
        ("retention.ms", "1_000"),
        ("retention.ms", "١"),
        ("retention.ms", "9" * 5000),
        ("retention.ms", True),
        ("retention.ms", 1.0),
        ("retention.ms", None),
        ("preallocate", "yes"),
        ("preallocate", 1),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "1e999"),
        ("min.cleanable.dirty.ratio", float("nan")),
        ("cleanup.policy", "compact,,delete"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "shrink"),
        ("cleanup.policy", 5),
        ("compression.type", "GZIP"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "createtime"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("leader.replication.throttled.replicas", "0-1"),
    ],
)
def test_the_error_for_an_invalid_value_names_the_config_and_its_valid_values(name: str, value: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"Invalid value .* for .*; it takes") as caught:
        validate_topic_configs({name: value})
    assert name in str(caught.value)
    assert TOPIC_CONFIGS[name].allowed in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.config == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("retention.mss", "did you mean retention.ms?"),
        ("Retention.MS", "did you mean retention.ms?"),
        ("compresion.type", "did you mean compression.type?"),
        ("log.retention.hours", "the cluster-level name of retention.ms"),
        ("message.downconversion.enable", "Kafka removed it in version 4"),
        ("message.timestamp.difference.max.ms", "use message.timestamp.before.max.ms"),
        ("", "Unknown topic config name: ''"),
        ("x" * 100_000, "Unknown topic config name: 'xxx"),
        ("nope", "Unknown topic config name: nope."),
        ("retention.ms\n", "did you mean retention.ms?"),
    ],
)
def test_the_error_for_an_unknown_name_suggests_the_nearest_one(name: str, said: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        validate_topic_configs({name: "1"})
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5}, "min.compaction.lag.ms (10) is greater"),
        ({"remote.storage.enable": True, "cleanup.policy": "compact,delete"}, "cleanup.policy contains compact"),
        ({"remote.storage.enable": True, "local.retention.ms": 604800001}, "local.retention.ms (604800001)"),
        ({"remote.storage.enable": True, "local.retention.ms": -1}, "it is unlimited"),
        (
            {"remote.storage.enable": True, "retention.bytes": 5, "local.retention.bytes": 6},
            "local.retention.bytes (6)",
        ),
        (
            {"remote.storage.enable": True, "remote.log.copy.disable": True, "local.retention.ms": 5},
            "while remote.log.copy.disable is true",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(configs: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        validate_topic_configs(configs)
    assert said in str(caught.value)
    assert canonical_topic_configs(configs).keys() == configs.keys()


@pytest.mark.parametrize(
    "configs",
    [
        {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 5},
        {"local.retention.ms": -1},
        {"remote.storage.enable": True, "retention.ms": -1, "local.retention.ms": 10**12},
        {"remote.storage.enable": True, "local.retention.ms": 604800000, "remote.log.copy.disable": True},
        {"remote.storage.enable": True, "cleanup.policy": ""},
    ],
)
def test_consistent_values_are_accepted(configs: dict[str, object]) -> None:
    assert validate_topic_configs(configs).keys() == configs.keys()


def test_consistency_checks_include_values_set_by_the_cluster() -> None:
    cluster = {"log.cleaner.min.compaction.lag.ms": "10"}
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms \(10\)"):
        validate_topic_configs({"max.compaction.lag.ms": 5}, cluster)


def test_precedence_is_topic_then_cluster_then_default() -> None:
    cluster = {"log.retention.hours": "48", "message.max.bytes": "2000"}
    assert TopicConfig.resolve({}, {}).retention_ms == 604_800_000
    assert TopicConfig.resolve({}, cluster).retention_ms == 172_800_000
    assert TopicConfig.resolve({}, {**cluster, "log.retention.minutes": "3"}).retention_ms == 180_000
    assert TopicConfig.resolve({}, {**cluster, "log.retention.ms": "9"}).retention_ms == 9
    assert TopicConfig.resolve({"retention.ms": "-1"}, cluster).retention_ms == -1
    assert TopicConfig.resolve({}, cluster).max_message_bytes == 2000


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_unlimited_is_unlimited_in_every_unit(name: str) -> None:
    assert TopicConfig.resolve({}, {name: "-1"}).retention_ms == -1


def test_the_view_has_the_values_that_a_log_needs() -> None:
    plain = TopicConfig.resolve({})
    assert (plain.compression_type, plain.compression_level("gzip"), plain.compression_level("lz4")) == (
        "producer",
        None,
        9,
    )
    assert (plain.compression_level("zstd"), plain.compression_level("snappy")) == (3, None)
    assert (plain.message_timestamp_type, plain.cleanup_policy) == ("CreateTime", frozenset({"delete"}))
    assert (plain.message_timestamp_before_max_ms, plain.message_timestamp_after_max_ms) == (LONG_MAX, 3_600_000)
    assert (plain.min_insync_replicas, plain.segment_bytes, plain.segment_ms) == (1, 2**30, 604_800_000)
    assert (plain.max_message_bytes, plain.retention_bytes) == (1_048_588, -1)
    assert TopicConfig.resolve({"compression.gzip.level": "9"}).compression_level("gzip") == 9
    assert TopicConfig.resolve({"internal.segment.bytes": "77"}).segment_bytes == 77
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_no_config_allows_more_than_a_batch_can_hold() -> None:
    assert TopicConfig.resolve({"max.message.bytes": str(INT_MAX)}).max_message_bytes == limits.MAX_RECORD_BYTES


def test_an_unknown_stored_name_is_kept() -> None:
    config = TopicConfig.resolve({"from.the.future": "1"}, {"log.from.the.future": "1"})
    assert config.retention_ms == 604_800_000
    assert config.describe() == []


def test_the_error_for_an_edited_stored_value_has_its_name() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"retention\.ms"):
        _ = TopicConfig.resolve({"retention.ms": "soon"}).retention_ms


def test_reading_a_config_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"did you mean segment\.bytes"):
        TopicConfig.resolve({}).get("segment.byte")


@pytest.mark.parametrize(
    ("topic", "cluster", "name", "line"),
    [
        ({}, {}, "retention.ms", "retention.ms=604800000 sensitive=false synonyms={}"),
        ({}, {}, "preallocate", "preallocate=false sensitive=false synonyms={DEFAULT_CONFIG:log.preallocate=false}"),
        ({}, {}, "remote.storage.enable", "remote.storage.enable=false sensitive=false synonyms={}"),
        ({}, {}, "internal.segment.bytes", "internal.segment.bytes=null sensitive=false synonyms={}"),
        (
            {"retention.ms": "5"},
            {},
            "retention.ms",
            "retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
        ),
        (
            {"retention.ms": "5"},
            {"log.retention.hours": "2", "log.retention.ms": "7"},
            "retention.ms",
            "retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.hours=2, "
            "DEFAULT_CONFIG:log.retention.hours=168}",
        ),
        (
            {},
            {"log.roll.hours": "3"},
            "segment.ms",
            "segment.ms=10800000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.roll.hours=3, "
            "DEFAULT_CONFIG:log.roll.hours=168}",
        ),
        (
            {"cleanup.policy": "compact,delete"},
            {},
            "cleanup.policy",
            "cleanup.policy=compact,delete sensitive=false "
            "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        ),
    ],
)
def test_a_config_is_shown_as_kafka_shows_it(
    topic: dict[str, str], cluster: dict[str, str], name: str, line: str
) -> None:
    assert str(TopicConfig.resolve(topic, cluster).explain(name)) == line


def test_describing_shows_set_values_or_all_sorted_by_name() -> None:
    config = TopicConfig.resolve({"segment.ms": "5", "cleanup.policy": "compact"}, {"log.preallocate": "true"})
    assert [entry.name for entry in config.describe()] == ["cleanup.policy", "segment.ms"]
    assert [entry.name for entry in config.changed()] == ["cleanup.policy", "preallocate", "segment.ms"]
    everything = [entry.name for entry in config.describe(everything=True)]
    assert everything == sorted(set(KAFKA | OWN) - {"internal.segment.bytes"})
    assert "internal.segment.bytes" in [
        entry.name for entry in TopicConfig.resolve({"internal.segment.bytes": "9"}).describe(everything=True)
    ]


def valid_values(definition: ConfigDef) -> st.SearchStrategy[object]:
    """Values that a config accepts, by its type and bounds."""
    low, high = definition.bounds
    if definition.throttled_replicas:
        return st.one_of(st.just("*"), st.lists(st.from_regex(r"\A[0-9]{1,3}:[0-9]{1,3}\Z"), unique=True))
    if definition.kind == "boolean":
        return st.booleans()
    if definition.kind == "list":
        return st.lists(st.sampled_from(definition.choices or ("a", "b")), unique=True)
    if definition.schema:
        return st.sampled_from(["", "a int", "A STRING NOT NULL, `b` array<long>"])
    if definition.kind == "string":
        return st.sampled_from(definition.choices) if definition.choices else st.text()
    if definition.kind == "double":
        return st.floats(max(low, -1e308), min(high, 1e308))
    return st.integers(int(low), int(high))


@given(st.data())
def test_canonical_values_round_trip(data: st.DataObject) -> None:
    definition = data.draw(st.sampled_from([*TOPIC_CONFIGS.values(), *CLUSTER_CONFIGS.values()]))
    value = definition.parse(data.draw(valid_values(definition)))
    text = canonical_text(value)
    assert definition.parse(text) == value
    assert definition.canonical(text) == text


@given(st.sampled_from(list(TOPIC_CONFIGS)), st.one_of(st.none(), st.text(max_size=30), st.integers(), st.floats()))
def test_any_value_is_accepted_or_refused_as_invalid(name: str, value: object) -> None:
    try:
        canonical = canonical_topic_configs({name: value})
    except InvalidConfigurationError:
        return
    assert canonical_topic_configs(canonical) == canonical


@pytest.mark.parametrize("configs", [TopicConfig.resolve({}), ClusterConfig.resolve()])
def test_every_typed_setting_has_a_value_of_its_type(configs: TypedConfigs) -> None:
    names = [name for name in dir(type(configs)) if isinstance(inspect.getattr_static(configs, name), Setting)]
    assert len(names) > 10
    for name in names:
        getattr(configs, name)  # raises if the declared type is not that of the definition


def test_a_stored_value_is_parsed_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[object] = []
    parse = ConfigDef.parse
    monkeypatch.setattr(ConfigDef, "parse", lambda self, value: [parsed.append(value), parse(self, value)][1])
    for value in ("86400001", "86400001", "86400002"):
        assert TopicConfig.resolve({"retention.ms": value}).retention_ms == int(value)
    assert parsed == ["86400001", "86400002"]


def test_a_question_at_the_end_of_a_reason_is_not_followed_by_a_full_stop() -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        TOPIC_CONFIGS["value.schema"].parse("a duble")
    assert "did you mean double? docs/" in refused.value.message
