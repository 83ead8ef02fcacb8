"""Kafka's topic configs: names, types, defaults, bounds and cluster-level synonyms, and a topic's view of them.

A value is looked up as in Kafka: the value set on the topic, then the value set for the cluster under one of the
config's synonyms (the first in order wins), then the default. Source: Kafka's ``LogConfig``,
``ServerTopicConfigSynonyms`` and ``RemoteLogManagerConfig`` (trunk 4.5).

Rules: the table is data, everything else is derived from it. Settings without effect are validated, stored and shown
like the others. Not for: cluster-level settings (``cluster_configs``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from sparklog import limits
from sparklog.config.definitions import (
    DEFAULT_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    LONG_MAX,
    ConfigDef,
    ConfigEntry,
    ConfigSynonym,
    ConfigValue,
    Synonym,
    canonical_configs,
    canonical_text,
    cluster_chain,
)
from sparklog.config.typed_configs import Setting, TypedConfigs
from sparklog.errors import InvalidConfigurationError
from sparklog.schema.languages.ddl import SchemaField
from sparklog.schema.languages.record_schema import (
    FORMATS,
    JSON,
    UNTYPED,
    PartSchema,
    RecordSchema,
    find_clash,
    find_contradiction,
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
_MIB = 1024 * 1024

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
COMPACT, DELETE = "compact", "delete"
ARROW, DELTA = "arrow", "delta"
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"


def _make_synonym(name: str, default: str) -> tuple[Synonym, ...]:
    """Return one synonym in the config's own unit, with the same default."""
    return (Synonym(name, 1, default),)


_TABLE = (
    ConfigDef(
        "segment.bytes", "int", "1073741824", "Size in bytes at which a segment is closed and the next one begins.",
        minimum=_MIB, synonyms=_make_synonym("log.segment.bytes", "1073741824"),
    ),
    ConfigDef(
        "segment.ms", "long", "604800000", "Age in ms at which the active segment is rolled even if it is not full.",
        minimum=1, synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS, "168")),
    ),
    ConfigDef(
        "segment.jitter.ms", "long", "0", "Most ms by which a roll may be early, so that not all roll together.",
        minimum=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS, "0")),
    ),
    ConfigDef(
        "segment.index.bytes", "int", "10485760", "Largest size in bytes of a segment's index.",
        minimum=4, synonyms=_make_synonym("log.index.size.max.bytes", "10485760"),
        unused="an index is as large as its segment requires",
    ),
    ConfigDef(
        "flush.messages", "long", str(LONG_MAX), "Number of records after which a partition is flushed to disk.",
        minimum=1, synonyms=_make_synonym("log.flush.interval.messages", str(LONG_MAX)),
        unused="committed records are already durable",
    ),
    ConfigDef(
        "flush.ms", "long", str(LONG_MAX), "Longest time in ms that a record waits before it is flushed to disk.",
        minimum=0,
        synonyms=(
            Synonym("log.flush.interval.ms"),
            Synonym("log.flush.scheduler.interval.ms", 1, str(LONG_MAX)),
        ),
        unused="committed records are already durable",
    ),
    ConfigDef(
        "retention.bytes", "long", "-1",
        "Size in bytes of a partition above which its oldest segments are deleted; -1: no limit.",
        synonyms=_make_synonym("log.retention.bytes", "-1"),
    ),
    ConfigDef(
        "retention.ms", "long", "604800000", "Age in ms above which segments are deleted; -1: no limit.",
        minimum=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS, "168"),
        ),
    ),
    ConfigDef(
        "max.message.bytes", "int", "1048588", "Largest record in bytes that is accepted, key and headers included.",
        minimum=0, synonyms=_make_synonym("message.max.bytes", "1048588"),
    ),
    ConfigDef(
        "index.interval.bytes", "int", "4096", "Bytes of records between two entries in a segment's index.",
        minimum=0, synonyms=_make_synonym("log.index.interval.bytes", "4096"),
    ),
    ConfigDef(
        "delete.retention.ms", "long", "86400000", "Time in ms for which a compacted topic keeps tombstones.",
        minimum=0, synonyms=_make_synonym("log.cleaner.delete.retention.ms", "86400000"),
    ),
    ConfigDef(
        "min.compaction.lag.ms", "long", "0", "Age in ms that a record reaches before it may be compacted.",
        minimum=0, synonyms=_make_synonym("log.cleaner.min.compaction.lag.ms", "0"),
    ),
    ConfigDef(
        "max.compaction.lag.ms", "long", str(LONG_MAX), "Age in ms at which a record must be compacted.",
        minimum=1, synonyms=_make_synonym("log.cleaner.max.compaction.lag.ms", str(LONG_MAX)),
    ),
    ConfigDef(
        "file.delete.delay.ms", "long", "60000",
        "Time in ms between removing a segment from the log and deleting its file.",
        minimum=0, synonyms=_make_synonym("log.segment.delete.delay.ms", "60000"),
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio", "double", "0.5",
        "Ratio of uncompacted to all bytes of a log above which it is compacted.",
        minimum=0, maximum=1, synonyms=_make_synonym("log.cleaner.min.cleanable.ratio", "0.5"),
    ),
    ConfigDef(
        "cleanup.policy", "list", DELETE, "What happens to old segments: delete, compact, both, or nothing if empty.",
        choices=(COMPACT, DELETE), synonyms=_make_synonym("log.cleanup.policy", DELETE),
    ),
    ConfigDef(
        "unclean.leader.election.enable", "boolean", "false",
        "Whether an out-of-sync replica may be elected leader, which can lose records.",
        synonyms=_make_synonym("unclean.leader.election.enable", "false"),
    ),
    ConfigDef(
        "min.insync.replicas", "int", "1", "Replicas that must be in sync for a write with acks=all to be accepted.",
        minimum=1, synonyms=_make_synonym("min.insync.replicas", "1"),
    ),
    ConfigDef(
        "compression.type", "string", "producer", "Codec of the stored batches; producer keeps the writer's codec.",
        choices=CODECS, synonyms=_make_synonym("compression.type", "producer"),
    ),
    ConfigDef(
        "compression.gzip.level", "int", "-1", "Level of gzip, from fast to small; -1 is the library's default.",
        minimum=1, maximum=9, also=-1, synonyms=_make_synonym("compression.gzip.level", "-1"),
    ),
    ConfigDef(
        "compression.lz4.level", "int", "9", "Level of lz4, from fast to small.",
        minimum=1, maximum=17, synonyms=_make_synonym("compression.lz4.level", "9"),
    ),
    ConfigDef(
        "compression.zstd.level", "int", "3", "Level of zstd, from fast to small.",
        minimum=-131072, maximum=22, synonyms=_make_synonym("compression.zstd.level", "3"),
    ),
    ConfigDef(
        "preallocate", "boolean", "false", "Whether disk space is reserved for a new segment when it is created.",
        synonyms=_make_synonym("log.preallocate", "false"),
        unused="a file is written once, in its final size",
    ),
    ConfigDef(
        "message.timestamp.type", "string", CREATE_TIME,
        "Timestamp of a record: the producer's (CreateTime) or the time of the commit (LogAppendTime).",
        choices=(CREATE_TIME, LOG_APPEND_TIME), synonyms=_make_synonym("log.message.timestamp.type", CREATE_TIME),
    ),
    ConfigDef(
        "message.timestamp.before.max.ms", "long", str(LONG_MAX),
        "Most ms by which a record's CreateTime may be in the past.",
        minimum=0, synonyms=_make_synonym("log.message.timestamp.before.max.ms", str(LONG_MAX)),
    ),
    ConfigDef(
        "message.timestamp.after.max.ms", "long", "3600000",
        "Most ms by which a record's CreateTime may be in the future.",
        minimum=0, synonyms=_make_synonym("log.message.timestamp.after.max.ms", "3600000"),
    ),
    ConfigDef(
        "remote.storage.enable", "boolean", "false", "Whether closed segments are copied to remote (tiered) storage.",
        refused="Tiered Storage functionality is disabled, since there is only one tier. retention.ms and "
        "retention.bytes alone decide how long records are kept and what they cost",
    ),
    ConfigDef(
        "local.retention.ms", "long", "-2",
        "Age in ms above which local copies of remote segments are deleted; -2: retention.ms.",
        minimum=-2, synonyms=_make_synonym("log.local.retention.ms", "-2"),
        unused="there is no tiered storage; retention.ms decides how long records are kept",
    ),
    ConfigDef(
        "local.retention.bytes", "long", "-2",
        "Size in bytes above which local copies of remote segments are deleted; -2: retention.bytes.",
        minimum=-2, synonyms=_make_synonym("log.local.retention.bytes", "-2"),
        unused="there is no tiered storage; retention.bytes decides how much is kept",
    ),
    ConfigDef(
        "remote.log.copy.disable", "boolean", "false", "Whether copying to remote storage stops while reads continue.",
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.copy.lag.ms", "long", "0", "Age in ms of a segment before it is copied; -1: its local retention.",
        minimum=-1, synonyms=_make_synonym("log.remote.copy.lag.ms", "0"),
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.copy.lag.bytes", "long", "-1",
        "Bytes that follow a segment before it is copied; -1: local retention.",
        minimum=-1, synonyms=_make_synonym("log.remote.copy.lag.bytes", "-1"),
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.log.delete.on.disable", "boolean", "false",
        "Whether disabling remote.storage.enable deletes the data in remote storage.",
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "errors.deadletterqueue.group.enable", "boolean", "false",
        "Whether share groups may use the topic as a dead letter queue.",
        unused="there are no share groups",
    ),
    ConfigDef(
        "leader.replication.throttled.replicas", "list", "",
        "Replicas whose replication is throttled on the leader's side.",
        throttled_replicas=True,
        unused="the rates of a throttle apply to all replicas",
    ),
    ConfigDef(
        "follower.replication.throttled.replicas", "list", "",
        "Replicas whose replication is throttled on the follower's side.",
        throttled_replicas=True,
        unused="the rates of a throttle apply to all replicas",
    ),
    ConfigDef(
        "history.format", "string", ARROW,
        "Format of closed segments: arrow, or delta for Parquet files.",
        choices=(ARROW, DELTA), synonyms=_make_synonym("log.history.format", ARROW),
    ),
    ConfigDef(
        "history.delete.delay.ms", "long", "86400000",
        "Time in ms for which a history segment that left the log is kept, for queries of the Delta table that still "
        "read it.",
        minimum=0, synonyms=_make_synonym("log.history.delete.delay.ms", "86400000"),
    ),
    ConfigDef(
        "value.format", "string", UNTYPED,
        "How values are read into typed columns of the topic's table: none, string, json, or avro.",
        choices=FORMATS,  # no synonym: a topic's schema is its own, and does not change with the cluster's
    ),
    ConfigDef(
        "value.schema", "string", "", "Typed columns of the topic's table, read from its values.", schema=True,
    ),
    ConfigDef(
        "value.schema.validation", "boolean", "false",
        "Whether a record is refused if its value does not fit value.format and value.schema.",
    ),
    ConfigDef(
        "value.keep", "boolean", "true",
        "Whether history keeps the bytes of each value, also where the typed columns state them. With false, which "
        "cannot be undone, readers of sparklog get the same bytes, and other readers of the table null.",
    ),
    ConfigDef(
        "key.format", "string", UNTYPED,
        "How keys are read into typed columns of the topic's table: none, string, json, or avro.",
        choices=FORMATS,
    ),
    ConfigDef(
        "key.schema", "string", "", "Typed columns of the topic's table, read from its keys: key_ and a field's name.",
        schema=True,
    ),
    ConfigDef(
        "key.schema.validation", "boolean", "false",
        "Whether a record is refused if its key does not fit key.format and key.schema.",
    ),
    ConfigDef(
        "internal.segment.bytes", "int", None, "For tests: replaces segment.bytes, without its lower bound.",
        internal=True,
    ),
)  # fmt: skip

TOPIC_CONFIGS: Mapping[str, ConfigDef] = MappingProxyType({definition.name: definition for definition in _TABLE})
"""All topic configs by name, in Kafka's order, then sparklog's own."""

_REMOVED = "Kafka removed it in version 4"
_NOT_SETTABLE = {
    "message.downconversion.enable": f"{_REMOVED}, since no client needs older formats",
    "message.format.version": f"{_REMOVED}, since there is one format",
    "message.timestamp.difference.max.ms": (
        f"{_REMOVED}; use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}
_NOT_SETTABLE.update({
    synonym.name: f"it is the cluster-level name of {definition.name}; set that on a topic"
    for definition in _TABLE
    for synonym in definition.synonyms
    if synonym.name not in TOPIC_CONFIGS
})  # fmt: skip


def canonical_topic_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Validate each config by itself and return canonical texts, in the order given.

    For a part of a topic's configs, such as the changes of one request; use ``validate_topic_configs`` for all of them.
    Raises as ``canonical_configs``.
    """
    return canonical_configs(configs, TOPIC_CONFIGS, "topic", _NOT_SETTABLE)


def validate_topic_configs(
    overrides: Mapping[str, object], cluster: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Validate all of a topic's configs, each by itself and together, and return canonical texts in the order given.

    ``cluster`` holds the cluster's dynamic configs, which apply where the topic sets nothing. Raises as
    ``canonical_configs``, and for values that contradict each other (the rules of Kafka's ``LogConfig.validate``).
    """
    canonical = canonical_topic_configs(overrides)
    check_together(TopicConfig.resolve(canonical, cluster))
    return canonical


@dataclass(frozen=True)
class TopicConfig(TypedConfigs):
    """The effective configs of one topic, typed: its own, where there is none the ``cluster``'s, then the defaults.

    Times are ms, sizes bytes; -1 means no limit where it does in Kafka. Immutable, thread-safe, picklable.
    """

    cluster: dict[str, str] = field(default_factory=dict)

    level = "topic"
    definitions = TOPIC_CONFIGS
    not_settable = _NOT_SETTABLE

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], cluster: Mapping[str, str] = MappingProxyType({})) -> TopicConfig:
        """Return the configs of a topic with these overrides in a cluster with these dynamic configs.

        Unknown names are ignored: a newer version may have stored them.
        """
        return _resolve(tuple(overrides.items()), tuple(cluster.items()))

    def _parse(self, definition: ConfigDef) -> ConfigValue:
        if definition.name in self.stored:
            return definition.parse(self.stored[definition.name])
        for synonym in definition.synonyms:
            if synonym.name in self.cluster:
                return _convert_unit(definition, synonym, self.cluster[synonym.name])
        return definition.default_value()

    def explain(self, name: str) -> ConfigEntry:
        """Return a config's value, its source, and the values it overrides. Raises as ``get``.

        The chain is Kafka's, with its quirks: a default that exists only under a name in another unit
        (log.retention.hours=168 for retention.ms) is omitted unless the cluster sets a value.
        """
        definition = self._find_definition(name)
        value = self.get(name)
        text = None if value is None else canonical_text(value)
        chain = cluster_chain(definition.synonyms, self.cluster)
        if chain and chain[0].source == DEFAULT_CONFIG and chain[0].name != definition.synonyms[0].name:
            chain = []
        if name in self.stored:
            chain.insert(0, ConfigSynonym(DYNAMIC_TOPIC_CONFIG, name, str(text)))
        return ConfigEntry(name, text, chain[0].source if chain else DEFAULT_CONFIG, tuple(chain))

    def changed(self) -> list[ConfigEntry]:
        """Return the entries whose value is not a default, by name: what ``topics --describe`` shows as Configs."""
        return [entry for entry in self.describe(everything=True) if entry.source != DEFAULT_CONFIG]

    history_format = Setting(str, "history.format")
    """arrow, or delta."""
    value_format = Setting(str, "value.format")
    """none, string, json, or avro; of the key as well."""
    key_format = Setting(str, "key.format")
    value_schema = Setting(str, "value.schema")
    """In DDL, JSON Schema or Avro, empty for none; of the key as well."""
    key_schema = Setting(str, "key.schema")

    value_keep = Setting(bool, "value.keep")
    """Whether history keeps the bytes of values that its typed columns state."""
    value_schema_validation = Setting(bool, "value.schema.validation")
    key_schema_validation = Setting(bool, "key.schema.validation")

    @property
    def record_schema(self) -> RecordSchema:
        """How the topic's keys and values are read into typed columns."""
        value, key = (
            PartSchema(format, (schema,) if schema else ())
            for format, schema in ((self.value_format, self.value_schema), (self.key_format, self.key_schema))
        )
        return RecordSchema(value._replace(kept=self.value_keep), key)

    @property
    def typed_schema(self) -> tuple[SchemaField, ...]:
        """The typed columns of the topic's table, none if it has none."""
        return self.record_schema.columns

    compression_type = Setting(str, "compression.type")
    """uncompressed, gzip, snappy, lz4, zstd, or producer for the writer's codec."""
    delete_retention_ms = Setting(int, "delete.retention.ms")
    file_delete_delay_ms = Setting(int, "file.delete.delay.ms")
    """How long retired files are kept."""
    history_delete_delay_ms = Setting(int, "history.delete.delay.ms")
    """How long retired history segments are kept, if that is longer."""
    index_interval_bytes = Setting(int, "index.interval.bytes")
    max_compaction_lag_ms = Setting(int, "max.compaction.lag.ms")
    message_timestamp_after_max_ms = Setting(int, "message.timestamp.after.max.ms")
    message_timestamp_before_max_ms = Setting(int, "message.timestamp.before.max.ms")
    message_timestamp_type = Setting(str, "message.timestamp.type")
    """CreateTime or LogAppendTime."""
    min_cleanable_dirty_ratio = Setting(float, "min.cleanable.dirty.ratio")
    min_compaction_lag_ms = Setting(int, "min.compaction.lag.ms")
    min_insync_replicas = Setting(int, "min.insync.replicas")
    retention_bytes = Setting(int, "retention.bytes")
    retention_ms = Setting(int, "retention.ms")
    segment_jitter_ms = Setting(int, "segment.jitter.ms")
    segment_ms = Setting(int, "segment.ms")
    unclean_leader_election_enable = Setting(bool, "unclean.leader.election.enable")

    @property
    def cleanup_policy(self) -> frozenset[str]:
        """Any of compact and delete."""
        return frozenset(self.get_as(tuple, "cleanup.policy"))

    @property
    def max_message_bytes(self) -> int:
        """bytes. Never above ``limits.MAX_RECORD_BYTES``, whatever the config allows."""
        return min(self.get_as(int, "max.message.bytes"), limits.MAX_RECORD_BYTES)

    @property
    def segment_bytes(self) -> int:
        """bytes. ``internal.segment.bytes`` if it is set, as in Kafka."""
        internal = self.get("internal.segment.bytes")
        return self.get_as(int, "segment.bytes" if internal is None else "internal.segment.bytes")

    def compression_level(self, codec: str) -> int | None:
        """Return the level for a codec; None for the library's default (Kafka's -1), and for codecs without levels."""
        if codec not in ("gzip", "lz4", "zstd"):
            return None
        level = self.get_as(int, f"compression.{codec}.level")
        return None if codec == "gzip" and level == -1 else level


@lru_cache(maxsize=1024)
def _resolve(overrides: tuple[tuple[str, str], ...], cluster: tuple[tuple[str, str], ...]) -> TopicConfig:
    return TopicConfig(dict(overrides), dict(cluster))


def _convert_unit(definition: ConfigDef, synonym: Synonym, text: str) -> ConfigValue:
    """Return a synonym's value in the topic config's unit; -1, which means no limit, is the same in every unit."""
    if synonym.unit == 1:
        return definition.parse(text)
    number = definition.parse(text)
    assert isinstance(number, int), definition.name
    return number * synonym.unit if number > 0 else number


def check_together(config: TopicConfig) -> None:
    """Check values against each other, as Kafka's ``LogConfig.validate``. Raises InvalidConfigurationError."""
    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise InvalidConfigurationError(
            f"min.compaction.lag.ms ({least}) is greater than max.compaction.lag.ms ({most}): a record would have to "
            "be compacted before it may be; lower the first or raise the second.",
            config="min.compaction.lag.ms",
        )
    _check_schemas(config)
    if config.get("remote.storage.enable"):
        _check_remote(config)


def _check_schemas(config: TopicConfig) -> None:
    schema = config.record_schema
    for part, chosen, validated in (
        ("value", schema.value, config.value_schema_validation),
        ("key", schema.key, config.key_schema_validation),
    ):
        contradiction = find_contradiction(part, chosen)
        if contradiction:
            raise InvalidConfigurationError(contradiction, config=f"{part}.schema")
        if validated and not chosen.fields:
            missing = f"{part}.format and {part}.schema" if chosen.format == UNTYPED else f"{part}.schema"
            raise InvalidConfigurationError(
                f"{part}.schema.validation=true requires a schema: set {missing}.",
                config=f"{part}.schema.validation",
            )
    if not config.value_keep and (
        schema.value.format != JSON or not schema.value.fields or config.history_format != DELTA
    ):
        raise InvalidConfigurationError(
            "value.keep=false requires value.format=json with a value.schema, and history.format=delta: set them, or "
            "leave value.keep true.",
            config="value.keep",
        )
    clash = find_clash(schema)
    if clash is not None:
        name = f"{clash.part}.schema"
        raise InvalidConfigurationError(f"{name} cannot be read into columns: {clash.reason}; rename it.", config=name)
    names = sorted((len(json.dumps(field.name)) for field in schema.columns), reverse=True)[: limits.STATED_COLUMNS]
    if sum(names) > limits.MAX_STATED_NAMES:
        raise InvalidConfigurationError(
            f"the {len(names)} longest names of the typed columns have {sum(names):,} characters together, and may "
            f"have {limits.MAX_STATED_NAMES:,}, since a commit states them with each file of history; give the fields "
            "shorter names.",
            config="value.schema",
        )


def _check_remote(config: TopicConfig) -> None:
    if COMPACT in config.cleanup_policy:
        raise InvalidConfigurationError(
            "remote.storage.enable is true and cleanup.policy contains compact: compacted topics cannot have remote "
            "storage; set cleanup.policy to delete.",
            config="remote.storage.enable",
        )
    for unit in ("ms", "bytes"):
        local, total = config.get_as(int, f"local.retention.{unit}"), config.get_as(int, f"retention.{unit}")
        same_as_total = local in (-2, total)
        if not same_as_total and total > -1 and (local == -1 or local > total):
            problem, most = "is unlimited" if local == -1 else "is greater", f"at most {total}"
        elif not same_as_total and config.get("remote.log.copy.disable"):
            problem, most = "differs, while remote.log.copy.disable is true", f"{total}"
        else:
            continue
        raise InvalidConfigurationError(
            f"local.retention.{unit} ({local}) contradicts retention.{unit} ({total}): it {problem}; set it to {most}, "
            f"or to -2 to follow retention.{unit}.",
            config=f"local.retention.{unit}",
        )
