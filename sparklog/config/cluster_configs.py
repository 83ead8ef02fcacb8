"""Cluster-level settings: the defaults of topic configs under their broker names, and the cluster's own settings.

Kafka's brokers read most of these from server.properties. Here there are no servers: they are dynamic configs of the
cluster (``DYNAMIC_DEFAULT_BROKER_CONFIG``), stored in its commit log, and may be changed at any time.

Rules: names, defaults and bounds are Kafka's (trunk 4.5). A cluster-level name of a topic config takes the same values
as that config. Not for: settings of one topic (``topic_configs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from sparklog import limits
from sparklog.config.definitions import (
    DEFAULT_CONFIG,
    DOUBLE_MAX,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    INT_MAX,
    LONG_MAX,
    ConfigDef,
    ConfigEntry,
    ConfigValue,
    Synonym,
    canonical_configs,
    canonical_text,
    cluster_chain,
)
from sparklog.config.topic_configs import HOUR_MS, MINUTE_MS, TOPIC_CONFIGS, TopicConfig, check_together
from sparklog.config.typed_configs import Setting, TypedConfigs
from sparklog.errors import InvalidConfigurationError

_UNITS = {1: "ms", MINUTE_MS: "minutes", HOUR_MS: "hours"}

_OWN = (
    ConfigDef(
        "num.partitions", "int", "1", "Number of partitions of a topic that is created without one.",
        minimum=1, maximum=limits.MAX_PARTITIONS_PER_TOPIC,
    ),
    ConfigDef(
        "auto.create.topics.enable", "boolean", "true", "Whether writing to a topic that does not exist creates it.",
    ),
    ConfigDef(
        "default.replication.factor", "int", "1", "Replication factor of a topic that is created without one.",
        minimum=1, maximum=2**15 - 1,
    ),
    ConfigDef("delete.topic.enable", "boolean", "true", "Whether topics may be deleted."),
    ConfigDef(
        "create.topic.policy.class.name", "string", None, "Class that validates the creation of topics.",
        refused="no policy class is called before a topic is created. The permissions of the storage decide who may "
        "create topics",
    ),
    ConfigDef(
        "alter.config.policy.class.name", "string", None, "Class that validates changes of configs.",
        refused="no policy class is called before a setting is changed. The permissions of the storage decide who may "
        "change settings",
    ),
    ConfigDef(
        "cordoned.log.dirs", "list", "", "Storage locations that get no new replicas.",
        refused="a location is cordoned with `sparklog brokers cordon --id N`",
    ),
    ConfigDef(
        "log.dir.failure.timeout.ms", "long", "30000", "Time in ms until an unreachable location counts as failed.",
        minimum=1,
        unused="checks of an unreachable location are retried for broker.heartbeat.interval.ms",
    ),
    ConfigDef(
        "broker.heartbeat.interval.ms", "int", "2000", "Time in ms between two checks of the storage locations.",
        minimum=1,
    ),
    ConfigDef(
        "broker.session.timeout.ms", "int", "9000",
        "Time in ms without a heartbeat after which another controller takes over; also the longest call to a location "
        "on a disk.",
        minimum=1,
    ),
    ConfigDef(
        "auto.leader.rebalance.enable", "boolean", "true",
        "Whether leadership is returned to preferred leaders automatically.",
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds", "long", "300",
        "Interval in seconds between leader-imbalance checks.",
        minimum=1,
    ),
    ConfigDef(
        "leader.imbalance.per.broker.percentage", "int", "10",
        "Percentage of a broker's preferred partitions that others may lead before leadership is returned.",
        minimum=0, maximum=100,
    ),
    ConfigDef(
        "leader.replication.throttled.rate", "long", str(LONG_MAX),
        "Most bytes per second that are copied from a broker to replicas that are catching up.",
        minimum=1,
    ),
    ConfigDef(
        "follower.replication.throttled.rate", "long", str(LONG_MAX),
        "Most bytes per second that are copied to a broker whose replicas are catching up.",
        minimum=1,
    ),
    ConfigDef(
        "log.retention.check.interval.ms", "long", "300000", "Time in ms between two searches for segments to delete.",
        minimum=1,
    ),
    ConfigDef(
        "log.initial.task.delay.ms", "long", "30000", "Time in ms before the first run of maintenance.",
        minimum=0, internal=True,
        unused="`sparklog maintain` starts immediately",
    ),
    ConfigDef(
        "metadata.max.retention.ms", "long", "604800000",
        "Time in ms for which commits before a checkpoint are kept; -1: no limit.",
    ),
    ConfigDef(
        "metadata.max.retention.bytes", "long", "104857600",
        "Bytes of commits before a checkpoint that are kept; -1: no limit.",
    ),
    ConfigDef(
        "system.retention.ms", "long", "2592000000",
        "Time in ms for which lag and throughput by minute are kept after their commits were removed; -1: no limit.",
    ),
    ConfigDef(
        "log.flush.offset.checkpoint.interval.ms", "int", "60000",
        "Time in ms between two records of the recovery point.",
        minimum=0,
        unused="there is no recovery point to record, since the commit log contains everything",
    ),
    ConfigDef(
        "log.flush.start.offset.checkpoint.interval.ms", "int", "60000",
        "Time in ms between two records of the log start offset.",
        minimum=0,
        unused="log start offsets are part of the commits",
    ),
    ConfigDef(
        "num.recovery.threads.per.data.dir", "int", "2", "Threads that recover the logs of one storage location.",
        minimum=1,
        unused="a location needs no recovery",
    ),
    ConfigDef("log.cleaner.enable", "boolean", "true", "Whether topics with cleanup.policy compact are compacted."),
    ConfigDef(
        "log.cleaner.threads", "int", "1", "Partitions that are compacted at the same time.", minimum=0,
        unused="`sparklog maintain --workers` sets how many tasks run in parallel",
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second", "double", DOUBLE_MAX,
        "Most bytes per second that compaction reads and writes.",
        unused="compaction is not throttled",
    ),
    ConfigDef(
        "log.cleaner.dedupe.buffer.size", "long", "134217728",
        "Bytes of memory for the keys that compaction deduplicates.",
    ),
    ConfigDef(
        "log.cleaner.io.buffer.size", "int", "524288", "Bytes of memory for I/O of compaction.", minimum=0,
        unused="files are read and written batch by batch",
    ),
    ConfigDef(
        "log.cleaner.io.buffer.load.factor", "double", "0.9", "Share of the memory for keys that compaction fills.",
        unused="the memory for keys is limited by log.cleaner.dedupe.buffer.size alone",
    ),
    ConfigDef(
        "log.cleaner.backoff.ms", "long", "15000", "Time in ms to wait when there is nothing to compact.", minimum=0,
    ),
    ConfigDef(
        "offsets.retention.minutes", "int", "10080", "Minutes for which an empty group's committed offsets are kept.",
        minimum=1,
    ),
    ConfigDef(
        "offsets.retention.check.interval.ms", "long", "600000", "Time in ms between two searches for expired offsets.",
        minimum=1,
    ),
    ConfigDef(
        "group.min.session.timeout.ms", "int", "6000", "Shortest session timeout in ms that a member may ask for.",
    ),
    ConfigDef(
        "group.max.session.timeout.ms", "int", "1800000", "Longest session timeout in ms that a member may ask for.",
    ),
    ConfigDef(
        "group.initial.rebalance.delay.ms", "int", "3000", "Time in ms that a new group waits for more members.",
        unused="a new group does not wait for more members",
    ),
    ConfigDef("group.max.size", "int", str(INT_MAX), "Most members that a group may have.", minimum=1),
    ConfigDef(
        "transactional.id.expiration.ms", "int", "604800000",
        "Time in ms after which an unused transactional id expires.",
        minimum=1,
    ),
    ConfigDef(
        "transaction.max.timeout.ms", "int", "900000", "Longest timeout in ms that a transaction may ask for.",
        minimum=1,
    ),
    ConfigDef(
        "producer.id.expiration.ms", "int", "86400000", "Time in ms after which an idle producer's sequences expire.",
        minimum=1,
    ),
    ConfigDef(
        "application.id.expiration.ms", "long", "-1",
        "Time in ms after which an unused txnAppId or streaming query id expires, so that a repeated write is stored "
        "twice; -1: never.",
        minimum=1, also=-1,
    ),
)  # fmt: skip


def _define_topic_default(definition: ConfigDef, synonym: Synonym) -> ConfigDef:
    """Return the cluster-level setting for a synonym of a topic config."""
    doc = definition.doc
    if synonym.name != definition.name:
        doc = doc.replace(" ms ", f" {_UNITS[synonym.unit]} ", 1)
        doc = f"{doc.rstrip('.')} (default of {definition.name})."
    default = replace(definition, name=synonym.name, default=synonym.default, doc=doc)
    if definition.name == "retention.ms":
        default = replace(default, minimum=1, also=-1)  # Kafka's KafkaConfig.validateValues
    return default if synonym.unit == 1 else replace(default, kind="int")


CLUSTER_CONFIGS: Mapping[str, ConfigDef] = MappingProxyType(
    {definition.name: definition for definition in _OWN}
    | {
        synonym.name: _define_topic_default(definition, synonym)
        for definition in TOPIC_CONFIGS.values()
        for synonym in definition.synonyms
    }
)
"""All cluster-level settings by name: the cluster's own, then the defaults of topic configs, in Kafka's order."""

_LOCATIONS = "a storage location is registered in the cluster as a broker, and broker 0 is the root"
_NOT_SETTABLE = {"log.dir": _LOCATIONS, "log.dirs": _LOCATIONS, "broker.id": _LOCATIONS, "node.id": _LOCATIONS} | {
    name: (
        "it is a topic config; its default for the cluster is set as "
        + " or ".join(synonym.name for synonym in definition.synonyms)
        if definition.synonyms
        else "it is a topic config and can only be set on a topic"
    )
    for name, definition in TOPIC_CONFIGS.items()
    if name not in CLUSTER_CONFIGS
}


def validate_cluster_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Validate settings, each by itself and together, and return canonical texts in the order given. Raises as
    ``canonical_configs``, and for values that contradict each other."""
    canonical = canonical_configs(configs, CLUSTER_CONFIGS, "cluster", _NOT_SETTABLE)
    check_together(TopicConfig.resolve({}, canonical))
    return canonical


def check_cluster_together(configs: Mapping[str, str], changed: Iterable[str]) -> None:
    """Refuse a change after which a setting contradicts another one. Raises InvalidConfigurationError.

    ``configs`` are the cluster's after the change of ``changed``; older contradictions stop no other change.
    """
    least_name, most_name = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    config = ClusterConfig.resolve(configs)
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if least > most and {least_name, most_name}.intersection(changed):
        raise InvalidConfigurationError(
            f"{least_name} ({least}) would be greater than {most_name} ({most}), and no member could join a group; "
            "lower the first or raise the second",
            config=least_name,
        )


@dataclass(frozen=True)
class ClusterConfig(TypedConfigs):
    """The effective settings of one cluster, typed. Immutable, thread-safe, picklable."""

    level = "cluster"
    definitions = CLUSTER_CONFIGS
    not_settable = _NOT_SETTABLE

    @classmethod
    def resolve(cls, configs: Mapping[str, str] = MappingProxyType({})) -> ClusterConfig:
        """Return the settings of a cluster with these dynamic configs. Unknown names are ignored."""
        return _resolve(tuple(configs.items()))

    def _parse(self, definition: ConfigDef) -> ConfigValue:
        name = definition.name
        return definition.parse(self.stored[name]) if name in self.stored else definition.default_value()

    def explain(self, name: str) -> ConfigEntry:
        """Return a setting's value, its source, and the values it overrides, as Kafka shows them. Raises as ``get``.

        The chain begins at the name itself: of log.retention.ms, .minutes and .hours, a later one does not show an
        earlier one, although the earlier one has precedence.
        """
        definition = self._find_definition(name)
        value = self.get(name)
        names = definition.synonyms or (Synonym(name, 1, definition.default),)
        chain = cluster_chain(names, self.stored)
        start = next((position for position, synonym in enumerate(chain) if synonym.name == name), len(chain))
        source = DYNAMIC_DEFAULT_BROKER_CONFIG if name in self.stored else DEFAULT_CONFIG
        return ConfigEntry(name, None if value is None else canonical_text(value), source, tuple(chain[start:]))

    auto_create_topics_enable = Setting(bool, "auto.create.topics.enable")
    auto_leader_rebalance_enable = Setting(bool, "auto.leader.rebalance.enable")
    broker_heartbeat_interval_ms = Setting(int, "broker.heartbeat.interval.ms")
    """ms between two checks of the storage locations."""
    broker_session_timeout_ms = Setting(int, "broker.session.timeout.ms")
    """ms without a heartbeat after which another controller takes over."""
    default_replication_factor = Setting(int, "default.replication.factor")
    delete_topic_enable = Setting(bool, "delete.topic.enable")
    group_max_session_timeout_ms = Setting(int, "group.max.session.timeout.ms")
    group_max_size = Setting(int, "group.max.size")
    group_min_session_timeout_ms = Setting(int, "group.min.session.timeout.ms")
    leader_imbalance_check_interval_seconds = Setting(int, "leader.imbalance.check.interval.seconds")
    leader_imbalance_per_broker_percentage = Setting(int, "leader.imbalance.per.broker.percentage")
    log_cleaner_dedupe_buffer_size = Setting(int, "log.cleaner.dedupe.buffer.size")
    """bytes."""
    log_cleaner_enable = Setting(bool, "log.cleaner.enable")
    metadata_max_retention_bytes = Setting(int, "metadata.max.retention.bytes")
    """Bytes of commits before a checkpoint that are kept; negative: no limit."""
    metadata_max_retention_ms = Setting(int, "metadata.max.retention.ms")
    """ms for which commits before a checkpoint are kept; negative: no limit."""
    system_retention_ms = Setting(int, "system.retention.ms")
    """ms for which rollups of commits are kept; negative: no limit."""
    num_partitions = Setting(int, "num.partitions")
    offsets_retention_minutes = Setting(int, "offsets.retention.minutes")
    transaction_max_timeout_ms = Setting(int, "transaction.max.timeout.ms")

    @property
    def replication_throttled_rate(self) -> int:
        """Most bytes per second that replication may copy from or to a broker whose replicas are catching up."""
        rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        return min(self.get_as(int, name) for name in rates)


@lru_cache(maxsize=64)
def _resolve(configs: tuple[tuple[str, str], ...]) -> ClusterConfig:
    return ClusterConfig(dict(configs))
