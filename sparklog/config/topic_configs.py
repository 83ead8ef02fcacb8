"""Kafka's topic configs: names, types, defaults, bounds and cluster-level synonyms, and a topic's view of them.

A value is looked up as in Kafka: what is set on the topic, then what is set for the cluster under one of the config's
synonyms (the first in order wins), then the default. Taken from Kafka's ``LogConfig``, ``ServerTopicConfigSynonyms``
and ``RemoteLogManagerConfig`` (trunk 4.5).

Rules: the table is data, everything else is derived from it. Settings that nothing acts on yet are checked, stored and
shown all the same. Not for: cluster-level settings (``cluster_configs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

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
    unknown_name,
)
from sparklog.errors import InvalidConfigurationError

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
_MIB = 1024 * 1024

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
COMPACT, DELETE = "compact", "delete"
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"


def _same(name: str, default: str) -> tuple[Synonym, ...]:
    """One synonym in the config's own unit, with the same default."""
    return (Synonym(name, 1, default),)


_TABLE = (
    ConfigDef(
        "segment.bytes", "int", "1073741824", "Size in bytes at which a segment file is closed and the next begun.",
        minimum=_MIB, synonyms=_same("log.segment.bytes", "1073741824"), effective=True,
    ),
    ConfigDef(
        "segment.ms", "long", "604800000", "Age in ms at which the active segment is rolled even if it is not full.",
        minimum=1, synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS, "168")), effective=True,
    ),
    ConfigDef(
        "segment.jitter.ms", "long", "0", "Most ms by which rolling may be early, so that not all roll at once.",
        minimum=0, effective=True,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS, "0")),
    ),
    ConfigDef(
        "segment.index.bytes", "int", "10485760", "Largest size in bytes of a segment's index.",
        minimum=4, synonyms=_same("log.index.size.max.bytes", "10485760"),
        unused="an index is as large as its segment needs",
    ),
    ConfigDef(
        "flush.messages", "long", str(LONG_MAX), "Records after which a partition is forced to disk.",
        minimum=1, synonyms=_same("log.flush.interval.messages", str(LONG_MAX)),
        unused="what is committed is durable already",
    ),
    ConfigDef(
        "flush.ms", "long", str(LONG_MAX), "Longest time in ms that a record waits before it is forced to disk.",
        minimum=0,
        synonyms=(
            Synonym("log.flush.interval.ms"),
            Synonym("log.flush.scheduler.interval.ms", 1, str(LONG_MAX)),
        ),
        unused="what is committed is durable already",
    ),
    ConfigDef(
        "retention.bytes", "long", "-1",
        "Size in bytes of a partition above which its oldest segments go; -1: no limit.",
        synonyms=_same("log.retention.bytes", "-1"), effective=True,
    ),
    ConfigDef(
        "retention.ms", "long", "604800000", "Age in ms above which segments go; -1: never.",
        minimum=-1, effective=True,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS, "168"),
        ),
    ),
    ConfigDef(
        "max.message.bytes", "int", "1048588", "Largest record in bytes that is accepted, key and headers included.",
        minimum=0, synonyms=_same("message.max.bytes", "1048588"), effective=True,
    ),
    ConfigDef(
        "index.interval.bytes", "int", "4096", "Bytes of records between two entries of a segment's index.",
        minimum=0, synonyms=_same("log.index.interval.bytes", "4096"), effective=True,
    ),
    ConfigDef(
        "delete.retention.ms", "long", "86400000", "How long in ms a compacted topic keeps tombstones.",
        minimum=0, synonyms=_same("log.cleaner.delete.retention.ms", "86400000"), effective=True,
    ),
    ConfigDef(
        "min.compaction.lag.ms", "long", "0", "Age in ms below which a record is not compacted.",
        minimum=0, synonyms=_same("log.cleaner.min.compaction.lag.ms", "0"), effective=True,
    ),
    ConfigDef(
        "max.compaction.lag.ms", "long", str(LONG_MAX), "Age in ms at which a record's compaction is due.",
        minimum=1, synonyms=_same("log.cleaner.max.compaction.lag.ms", str(LONG_MAX)), effective=True,
    ),
    ConfigDef(
        "file.delete.delay.ms", "long", "60000", "Time in ms from a segment leaving the log to its file's deletion.",
        minimum=0, synonyms=_same("log.segment.delete.delay.ms", "60000"), effective=True,
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio", "double", "0.5",
        "Share of a log that is not compacted yet at which compaction begins.",
        minimum=0, maximum=1, synonyms=_same("log.cleaner.min.cleanable.ratio", "0.5"), effective=True,
    ),
    ConfigDef(
        "cleanup.policy", "list", DELETE, "What happens to old segments: delete, compact, both, or nothing if empty.",
        choices=(COMPACT, DELETE), synonyms=_same("log.cleanup.policy", DELETE), effective=True,
    ),
    ConfigDef(
        "unclean.leader.election.enable", "boolean", "false",
        "Whether a replica that is not in sync may become leader, at the price of lost records.",
        synonyms=_same("unclean.leader.election.enable", "false"), effective=True,
    ),
    ConfigDef(
        "min.insync.replicas", "int", "1", "Replicas that have to be in sync for a write with acks=all to be accepted.",
        minimum=1, synonyms=_same("min.insync.replicas", "1"), effective=True,
    ),
    ConfigDef(
        "compression.type", "string", "producer", "Codec of the stored batches; producer keeps what the writer chose.",
        choices=CODECS, synonyms=_same("compression.type", "producer"), effective=True,
    ),
    ConfigDef(
        "compression.gzip.level", "int", "-1", "Level of gzip, from fast to small; -1 is the library's own.",
        minimum=1, maximum=9, also=-1, synonyms=_same("compression.gzip.level", "-1"), effective=True,
    ),
    ConfigDef(
        "compression.lz4.level", "int", "9", "Level of lz4, from fast to small.",
        minimum=1, maximum=17, synonyms=_same("compression.lz4.level", "9"), effective=True,
    ),
    ConfigDef(
        "compression.zstd.level", "int", "3", "Level of zstd, from fast to small.",
        minimum=-131072, maximum=22, synonyms=_same("compression.zstd.level", "3"), effective=True,
    ),
    ConfigDef(
        "preallocate", "boolean", "false", "Whether the space of a new segment is reserved on disk when it is begun.",
        synonyms=_same("log.preallocate", "false"),
        unused="a file is written once, in the size it has",
    ),
    ConfigDef(
        "message.timestamp.type", "string", CREATE_TIME,
        "Whose time a record carries: the producer's (CreateTime) or that of the commit (LogAppendTime).",
        choices=(CREATE_TIME, LOG_APPEND_TIME), synonyms=_same("log.message.timestamp.type", CREATE_TIME),
        effective=True,
    ),
    ConfigDef(
        "message.timestamp.before.max.ms", "long", str(LONG_MAX),
        "How far in ms a record's CreateTime may be behind now.",
        minimum=0, synonyms=_same("log.message.timestamp.before.max.ms", str(LONG_MAX)), effective=True,
    ),
    ConfigDef(
        "message.timestamp.after.max.ms", "long", "3600000", "How far in ms a record's CreateTime may be ahead of now.",
        minimum=0, synonyms=_same("log.message.timestamp.after.max.ms", "3600000"), effective=True,
    ),
    ConfigDef(
        "remote.storage.enable", "boolean", "false", "Whether closed segments also go to remote (tiered) storage.",
        refused="Tiered Storage functionality is disabled, as there is one tier here. retention.ms and "
        "retention.bytes alone say how long records stay and what they cost",
    ),
    ConfigDef(
        "local.retention.ms", "long", "-2",
        "Local age in ms above which segments that are remote too go; -2: retention.ms.",
        minimum=-2, synonyms=_same("log.local.retention.ms", "-2"),
        unused="there is no tiered storage; retention.ms says how long records are kept",
    ),
    ConfigDef(
        "local.retention.bytes", "long", "-2",
        "Local size in bytes above which segments that are remote too go; -2: retention.bytes.",
        minimum=-2, synonyms=_same("log.local.retention.bytes", "-2"),
        unused="there is no tiered storage; retention.bytes says how much is kept",
    ),
    ConfigDef(
        "remote.log.copy.disable", "boolean", "false", "Whether copying to remote storage stops while reading goes on.",
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.copy.lag.ms", "long", "0", "Age in ms that a segment reaches before its copy; -1: its local retention.",
        minimum=-1, synonyms=_same("log.remote.copy.lag.ms", "0"),
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.copy.lag.bytes", "long", "-1",
        "Bytes that a segment is behind the end before its copy; -1: local retention.",
        minimum=-1, synonyms=_same("log.remote.copy.lag.bytes", "-1"),
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "remote.log.delete.on.disable", "boolean", "false",
        "Whether turning remote.storage.enable off deletes what is in remote storage.",
        unused="there is no tiered storage",
    ),
    ConfigDef(
        "errors.deadletterqueue.group.enable", "boolean", "false",
        "Whether share groups may use the topic as a dead letter queue.",
        unused="there are no share groups",
    ),
    ConfigDef(
        "leader.replication.throttled.replicas", "list", "",
        "Replicas whose replication is slowed on the leader's side.",
        throttled_replicas=True,
        unused="the rates of a throttle hold for all replicas",
    ),
    ConfigDef(
        "follower.replication.throttled.replicas", "list", "",
        "Replicas whose replication is slowed on the follower's side.",
        throttled_replicas=True,
        unused="the rates of a throttle hold for all replicas",
    ),
    ConfigDef(
        "internal.segment.bytes", "int", None, "For tests: takes the place of segment.bytes, without its lower bound.",
        internal=True, effective=True,
    ),
)  # fmt: skip

TOPIC_CONFIGS: Mapping[str, ConfigDef] = MappingProxyType({one.name: one for one in _TABLE})
"""All topic configs by name, in Kafka's order."""

_REMOVED = "Kafka removed it in version 4"
_GONE = {
    "message.downconversion.enable": f"{_REMOVED}, as no client needs older formats",
    "message.format.version": f"{_REMOVED}, as there is one format",
    "message.timestamp.difference.max.ms": (
        f"{_REMOVED}; use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}
_GONE.update({
    synonym.name: f"it is the cluster-level name of {definition.name}; set that on a topic"
    for definition in _TABLE
    for synonym in definition.synonyms
    if synonym.name not in TOPIC_CONFIGS
})  # fmt: skip


def canonical_topic_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Each config checked by itself and as canonical text, in the order given.

    For a part of a topic's configs, such as the changes of one request; the whole goes to ``validate_topic_configs``.

    Raises:
        InvalidConfigurationError: an unknown name (the message names the nearest known one) or a bad value.
    """
    return canonical_configs(configs, TOPIC_CONFIGS, "topic", _GONE)


def validate_topic_configs(
    overrides: Mapping[str, object], cluster: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """All of a topic's configs, each checked by itself and with the others, as canonical text in the order given.

    ``cluster`` holds the cluster's dynamic configs, which fill in what the topic does not set.

    Raises:
        InvalidConfigurationError: an unknown name (the message names the nearest known one), a bad value, or values
            that contradict each other (the rules of Kafka's ``LogConfig.validate``).
    """
    canonical = canonical_topic_configs(overrides)
    check_together(TopicConfig.resolve(canonical, cluster))
    return canonical


@dataclass(frozen=True)
class TopicConfig:
    """The configs that hold for one topic, typed. Immutable, thread-safe, picklable.

    Times are ms, sizes bytes; -1 stands for no limit where Kafka has it so. Values are parsed when they are asked for:
    whoever needs one per record keeps it.
    """

    overrides: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], cluster: Mapping[str, str] = MappingProxyType({})) -> TopicConfig:
        """The view of a topic with these overrides in a cluster with these dynamic configs.

        Names that this version does not know are left alone: a newer one may have stored them.
        """
        return cls(dict(overrides), dict(cluster))

    def get(self, name: str) -> ConfigValue:
        """The typed value of any topic config.

        Raises:
            InvalidConfigurationError: no such config, or a stored value that is none.
        """
        definition = _definition(name)
        if name in self.overrides:
            return definition.parse(self.overrides[name])
        for synonym in definition.synonyms:
            if synonym.name in self.cluster:
                return _in_unit(definition, synonym, self.cluster[synonym.name])
        return definition.default_value()

    def explain(self, name: str) -> ConfigEntry:
        """A config's value, where it comes from, and everything it takes the place of. Raises as ``get``.

        The chain is Kafka's, oddities included: a default that stands only under a name in another unit
        (log.retention.hours=168 behind retention.ms) is left out as long as the cluster sets nothing.
        """
        definition = _definition(name)
        value = self.get(name)
        text = None if value is None else canonical_text(value)
        chain = cluster_chain(definition.synonyms, self.cluster)
        if chain and chain[0].source == DEFAULT_CONFIG and chain[0].name != definition.synonyms[0].name:
            chain = []
        if name in self.overrides:
            chain.insert(0, ConfigSynonym(DYNAMIC_TOPIC_CONFIG, name, str(text)))
        return ConfigEntry(name, text, chain[0].source if chain else DEFAULT_CONFIG, tuple(chain))

    def describe(self, everything: bool = False) -> list[ConfigEntry]:
        """The entries that ``configs --describe`` prints, by name: those set on the topic, or all with ``--all``."""
        names = (one.name for one in _TABLE if one.name in self.overrides or (everything and not one.internal))
        return [self.explain(name) for name in sorted(names)]

    def changed(self) -> list[ConfigEntry]:
        """The entries, by name, whose value is not the default's: what ``topics --describe`` puts after Configs."""
        return [entry for entry in self.describe(everything=True) if entry.source != DEFAULT_CONFIG]

    @property
    def max_message_bytes(self) -> int:
        """bytes. Never over ``limits.MAX_RECORD_BYTES``, however much the config admits."""
        return min(cast(int, self.get("max.message.bytes")), limits.MAX_RECORD_BYTES)

    @property
    def compression_type(self) -> str:
        """uncompressed, gzip, snappy, lz4, zstd, or producer for what the writer chose."""
        return cast(str, self.get("compression.type"))

    @property
    def compression_gzip_level(self) -> int | None:
        """1 to 9, or None for the library's own level, which Kafka writes as -1."""
        level = cast(int, self.get("compression.gzip.level"))
        return None if level == -1 else level

    @property
    def compression_lz4_level(self) -> int:
        return cast(int, self.get("compression.lz4.level"))

    @property
    def compression_zstd_level(self) -> int:
        return cast(int, self.get("compression.zstd.level"))

    def compression_level(self, codec: str) -> int | None:
        """The level for a codec; None for the library's own, and for codecs that have none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(codec)

    @property
    def message_timestamp_type(self) -> str:
        """CreateTime or LogAppendTime."""
        return cast(str, self.get("message.timestamp.type"))

    @property
    def message_timestamp_before_max_ms(self) -> int:
        return cast(int, self.get("message.timestamp.before.max.ms"))

    @property
    def message_timestamp_after_max_ms(self) -> int:
        return cast(int, self.get("message.timestamp.after.max.ms"))

    @property
    def cleanup_policy(self) -> frozenset[str]:
        """Any of compact and delete."""
        return frozenset(cast("tuple[str, ...]", self.get("cleanup.policy")))

    @property
    def retention_ms(self) -> int:
        return cast(int, self.get("retention.ms"))

    @property
    def retention_bytes(self) -> int:
        return cast(int, self.get("retention.bytes"))

    @property
    def file_delete_delay_ms(self) -> int:
        """How long files stay that are out of the log."""
        return cast(int, self.get("file.delete.delay.ms"))

    @property
    def min_insync_replicas(self) -> int:
        return cast(int, self.get("min.insync.replicas"))

    @property
    def segment_bytes(self) -> int:
        """bytes. ``internal.segment.bytes`` where it is set, as in Kafka."""
        internal = self.get("internal.segment.bytes")
        return cast(int, self.get("segment.bytes") if internal is None else internal)

    @property
    def segment_ms(self) -> int:
        return cast(int, self.get("segment.ms"))


def _definition(name: str) -> ConfigDef:
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        raise unknown_name(name, TOPIC_CONFIGS, "topic", _GONE)
    return definition


def _in_unit(definition: ConfigDef, synonym: Synonym, text: str) -> ConfigValue:
    """A synonym's value in the topic config's unit; -1, which means no limit, is the same in every unit."""
    if synonym.unit == 1:
        return definition.parse(text)
    number = definition.parse(text)
    assert isinstance(number, int), definition.name
    return number * synonym.unit if number > 0 else number


def check_together(config: TopicConfig) -> None:
    """What Kafka's ``LogConfig.validate`` asks of values together. Raises InvalidConfigurationError."""
    least, most = config.get("min.compaction.lag.ms"), config.get("max.compaction.lag.ms")
    if cast(int, least) > cast(int, most):
        raise InvalidConfigurationError(
            f"min.compaction.lag.ms ({least}) is greater than max.compaction.lag.ms ({most}): a record would have to "
            "be compacted before it may be; lower the first or raise the second.",
            config="min.compaction.lag.ms",
        )
    if config.get("remote.storage.enable"):
        _check_remote(config)


def _check_remote(config: TopicConfig) -> None:
    if COMPACT in config.cleanup_policy:
        raise InvalidConfigurationError(
            "remote.storage.enable is true and cleanup.policy has compact: only topics that are not compacted can have "
            "remote storage; set cleanup.policy to delete.",
            config="remote.storage.enable",
        )
    for unit in ("ms", "bytes"):
        local, total = cast(int, config.get(f"local.retention.{unit}")), cast(int, config.get(f"retention.{unit}"))
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
