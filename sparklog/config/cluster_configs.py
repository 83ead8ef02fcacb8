"""Cluster-level settings: the defaults of topic configs under their broker names, and what concerns the cluster itself.

Kafka's brokers read most of these from server.properties. Here there are no servers: they are dynamic configs of the
cluster, kept in its commit log, the same for everybody (``DYNAMIC_DEFAULT_BROKER_CONFIG``), and changed at any time.

Rules: names, defaults and bounds are Kafka's (trunk 4.5). A cluster-level name of a topic config takes what that config
takes. Not for: settings of one topic (``topic_configs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

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
    unknown_name,
)
from sparklog.config.topic_configs import HOUR_MS, MINUTE_MS, TOPIC_CONFIGS, TopicConfig, check_together

_UNITS = {1: "", MINUTE_MS: ", in minutes", HOUR_MS: ", in hours"}

_OWN = (
    ConfigDef(
        "num.partitions", "int", "1", "Partitions of a topic that is created without saying how many.",
        minimum=1, maximum=limits.MAX_PARTITIONS_PER_TOPIC, effective=True,
    ),
    ConfigDef(
        "auto.create.topics.enable", "boolean", "true", "Whether writing to a topic that does not exist creates it.",
        effective=True,
    ),
    ConfigDef(
        "default.replication.factor", "int", "1", "Replicas of a topic that is created without saying how many.",
        minimum=1, maximum=2**15 - 1, effective=True,
    ),
    ConfigDef("delete.topic.enable", "boolean", "true", "Whether topics may be deleted.", effective=True),
    ConfigDef(
        "create.topic.policy.class.name", "string", None, "The policy that has a say in new topics.",
        refused="no policy class is asked before a topic is created. Who may create topics is for the "
        "permissions of the storage",
    ),
    ConfigDef(
        "alter.config.policy.class.name", "string", None, "The policy that has a say in changes of configs.",
        refused="no policy class is asked before a setting is changed. Who may change settings is for the "
        "permissions of the storage",
    ),
    ConfigDef(
        "cordoned.log.dirs", "list", "", "Storage locations that get no new replicas.",
        refused="a location is cordoned with `sparklog brokers cordon --id N`",
    ),
    ConfigDef(
        "log.dir.failure.timeout.ms", "long", "30000", "Time in ms until an unreachable location counts as failed.",
        minimum=1,
        unused="an unreachable location is asked again for broker.heartbeat.interval.ms",
    ),
    ConfigDef(
        "broker.heartbeat.interval.ms", "int", "2000", "Time in ms between two checks of the storage locations.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "broker.session.timeout.ms", "int", "9000",
        "Time in ms after which a silent controller is replaced by another one.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "auto.leader.rebalance.enable", "boolean", "true",
        "Whether leadership goes back to preferred leaders by itself.",
        effective=True,
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds", "long", "300", "Seconds between two looks for that.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "leader.imbalance.per.broker.percentage", "int", "10",
        "Per cent of a broker's partitions that others may lead before that happens.",
        minimum=0, maximum=100, effective=True,
    ),
    ConfigDef(
        "leader.replication.throttled.rate", "long", str(LONG_MAX),
        "Most bytes in a second that are copied from a broker to replicas that catch up.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "follower.replication.throttled.rate", "long", str(LONG_MAX),
        "Most bytes in a second that are copied to a broker whose replicas catch up.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "log.retention.check.interval.ms", "long", "300000", "Time in ms between two searches for segments to delete.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "log.initial.task.delay.ms", "long", "30000", "Time in ms before the first run of the log's upkeep.",
        minimum=0, internal=True,
        unused="`sparklog maintain` begins at once",
    ),
    ConfigDef(
        "metadata.max.retention.ms", "long", "604800000",
        "Time in ms that commits are kept behind a checkpoint; -1: no limit.",
        effective=True,
    ),
    ConfigDef(
        "metadata.max.retention.bytes", "long", "104857600",
        "Bytes of commits that are kept behind a checkpoint; -1: no limit.",
        effective=True,
    ),
    ConfigDef(
        "log.flush.offset.checkpoint.interval.ms", "int", "60000",
        "Time in ms between two notes of the recovery point.",
        minimum=0,
        unused="there is no recovery point to note, since the commit log says it all",
    ),
    ConfigDef(
        "log.flush.start.offset.checkpoint.interval.ms", "int", "60000",
        "Time in ms between two notes of the log start offset.",
        minimum=0,
        unused="every commit notes the log start offsets",
    ),
    ConfigDef(
        "num.recovery.threads.per.data.dir", "int", "2", "Threads that recover the logs of one storage location.",
        minimum=1,
        unused="a location needs no recovery",
    ),
    ConfigDef(
        "log.cleaner.enable", "boolean", "true", "Whether topics with cleanup.policy compact are compacted.",
        effective=True,
    ),
    ConfigDef(
        "log.cleaner.threads", "int", "1", "Partitions that are compacted at the same time.", minimum=0,
        unused="`sparklog maintain --workers` says how many tasks run side by side",
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second", "double", DOUBLE_MAX, "Most bytes that compaction moves in a second.",
        unused="compaction is not slowed",
    ),
    ConfigDef(
        "log.cleaner.dedupe.buffer.size", "long", "134217728", "Bytes of memory for the keys that compaction compares.",
        effective=True,
    ),
    ConfigDef(
        "log.cleaner.io.buffer.size", "int", "524288", "Bytes of memory for reading and writing.", minimum=0,
        unused="files are read and written batch by batch",
    ),
    ConfigDef(
        "log.cleaner.io.buffer.load.factor", "double", "0.9", "Share of the memory for keys that compaction fills.",
        unused="the memory for keys is bounded by log.cleaner.dedupe.buffer.size alone",
    ),
    ConfigDef(
        "log.cleaner.backoff.ms", "long", "15000", "Time in ms to wait when there is nothing to compact.", minimum=0,
        effective=True,
    ),
    ConfigDef(
        "offsets.retention.minutes", "int", "10080", "Minutes that an empty group's committed offsets are kept.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "offsets.retention.check.interval.ms", "long", "600000", "Time in ms between two searches for stale offsets.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "group.min.session.timeout.ms", "int", "6000", "Shortest session timeout in ms that a member may ask for.",
        effective=True,
    ),
    ConfigDef(
        "group.max.session.timeout.ms", "int", "1800000", "Longest session timeout in ms that a member may ask for.",
        effective=True,
    ),
    ConfigDef(
        "group.initial.rebalance.delay.ms", "int", "3000", "Time in ms that a new group waits for more members.",
        unused="a new group does not wait for more members",
    ),
    ConfigDef("group.max.size", "int", str(INT_MAX), "Most members that a group may have.", minimum=1, effective=True),
    ConfigDef(
        "transactional.id.expiration.ms", "int", "604800000", "Time in ms after which an unused transactional id goes.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "transaction.max.timeout.ms", "int", "900000", "Longest timeout in ms that a transaction may ask for.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "producer.id.expiration.ms", "int", "86400000", "Time in ms after which an idle producer's sequences go.",
        minimum=1, effective=True,
    ),
    ConfigDef(
        "application.id.expiration.ms", "long", "-1",
        "Time in ms after which a silent txnAppId or streaming query is forgotten, whose repeated writes are stored "
        "twice from then on; -1: never.",
        minimum=1, also=-1, effective=True,
    ),
)  # fmt: skip


def _topic_default(definition: ConfigDef, synonym: Synonym) -> ConfigDef:
    """The cluster-level setting behind a synonym of a topic config."""
    doc = definition.doc
    if synonym.name != definition.name:
        doc = f"{doc.rstrip('.')} (default of {definition.name}{_UNITS[synonym.unit]})."
    same = replace(definition, name=synonym.name, default=synonym.default, doc=doc, synonyms=definition.synonyms)
    if definition.name == "retention.ms":
        same = replace(same, minimum=1, also=-1)  # Kafka's KafkaConfig.validateValues
    return same if synonym.unit == 1 else replace(same, kind="int")


CLUSTER_CONFIGS: Mapping[str, ConfigDef] = MappingProxyType(
    {one.name: one for one in _OWN}
    | {
        synonym.name: _topic_default(definition, synonym)
        for definition in TOPIC_CONFIGS.values()
        for synonym in definition.synonyms
    }
)
"""All cluster-level settings by name: the cluster's own, then the defaults of topic configs, in Kafka's order."""

_LOCATIONS = "a storage location is registered in the cluster as a broker, and broker 0 is the root"
_GONE = {"log.dir": _LOCATIONS, "log.dirs": _LOCATIONS, "broker.id": _LOCATIONS, "node.id": _LOCATIONS} | {
    name: (
        "it is a topic config, whose default for the cluster is called "
        + " or ".join(synonym.name for synonym in definition.synonyms)
        if definition.synonyms
        else "it is a topic config, which can only be set on a topic"
    )
    for name, definition in TOPIC_CONFIGS.items()
    if name not in CLUSTER_CONFIGS
}


def validate_cluster_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Each setting checked by itself and with the others, as canonical text, in the order given.

    Raises:
        InvalidConfigurationError: an unknown name (the message names the nearest known one), a bad value, or values
            that contradict each other.
    """
    canonical = canonical_configs(configs, CLUSTER_CONFIGS, "cluster", _GONE)
    check_together(TopicConfig.resolve({}, canonical))
    return canonical


@dataclass(frozen=True)
class ClusterConfig:
    """The settings that hold for one cluster, typed. Immutable, thread-safe, picklable."""

    configs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def resolve(cls, configs: Mapping[str, str] = MappingProxyType({})) -> ClusterConfig:
        """The view of a cluster with these dynamic configs. Names that this version does not know are left alone."""
        return cls(dict(configs))

    def get(self, name: str) -> ConfigValue:
        """The typed value of any setting, in the unit that its name says; None where it has no default.

        Raises:
            InvalidConfigurationError: no such setting, or a stored value that is none.
        """
        definition = _definition(name)
        return definition.parse(self.configs[name]) if name in self.configs else definition.default_value()

    def explain(self, name: str) -> ConfigEntry:
        """A setting's value, where it comes from, and what it takes the place of, as Kafka shows it. Raises as ``get``.

        The chain begins at the name itself: of log.retention.ms, .minutes and .hours, a later one does not show an
        earlier one, although that has precedence.
        """
        definition = _definition(name)
        value = self.get(name)
        names = definition.synonyms or (Synonym(name, 1, definition.default),)
        chain = cluster_chain(names, self.configs)
        start = next((position for position, one in enumerate(chain) if one.name == name), len(chain))
        source = DYNAMIC_DEFAULT_BROKER_CONFIG if name in self.configs else DEFAULT_CONFIG
        return ConfigEntry(name, None if value is None else canonical_text(value), source, tuple(chain[start:]))

    def describe(self, everything: bool = False) -> list[ConfigEntry]:
        """The entries that ``configs --describe`` prints, by name: those set for the cluster, or all with ``--all``."""
        names = (
            name for name, one in CLUSTER_CONFIGS.items() if name in self.configs or (everything and not one.internal)
        )
        return [self.explain(name) for name in sorted(names)]

    @property
    def num_partitions(self) -> int:
        """Partitions of a topic that is created without saying how many."""
        return cast(int, self.get("num.partitions"))

    @property
    def auto_create_topics_enable(self) -> bool:
        """Whether writing to a topic that does not exist creates it."""
        return cast(bool, self.get("auto.create.topics.enable"))

    @property
    def default_replication_factor(self) -> int:
        """Replicas of a topic that is created without saying how many."""
        return cast(int, self.get("default.replication.factor"))

    @property
    def group_min_session_timeout_ms(self) -> int:
        """Shortest session timeout that a member of a group may ask for."""
        return cast(int, self.get("group.min.session.timeout.ms"))

    @property
    def group_max_session_timeout_ms(self) -> int:
        """Longest session timeout that a member of a group may ask for."""
        return cast(int, self.get("group.max.session.timeout.ms"))

    @property
    def group_max_size(self) -> int:
        """Most members that a group may have."""
        return cast(int, self.get("group.max.size"))

    @property
    def broker_heartbeat_interval_ms(self) -> int:
        """Time between two checks of the storage locations."""
        return cast(int, self.get("broker.heartbeat.interval.ms"))

    @property
    def broker_session_timeout_ms(self) -> int:
        """How long a controller may be silent before another one takes over."""
        return cast(int, self.get("broker.session.timeout.ms"))

    @property
    def auto_leader_rebalance_enable(self) -> bool:
        """Whether leadership goes back to preferred leaders by itself."""
        return cast(bool, self.get("auto.leader.rebalance.enable"))

    @property
    def leader_imbalance_check_interval_seconds(self) -> int:
        """Seconds between two looks whether it should."""
        return cast(int, self.get("leader.imbalance.check.interval.seconds"))

    @property
    def leader_imbalance_per_broker_percentage(self) -> int:
        """Per cent of a broker's partitions that others may lead before it does."""
        return cast(int, self.get("leader.imbalance.per.broker.percentage"))

    @property
    def replication_throttled_rate(self) -> int:
        """Bytes in a second that the copies of catching up may take, from a broker or to one."""
        rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        return min(cast(int, self.get(name)) for name in rates)

    @property
    def metadata_max_retention_ms(self) -> int:
        """How long commits are kept behind a checkpoint; negative: for ever."""
        return cast(int, self.get("metadata.max.retention.ms"))

    @property
    def metadata_max_retention_bytes(self) -> int:
        """How many bytes of commits are kept behind a checkpoint; negative: all."""
        return cast(int, self.get("metadata.max.retention.bytes"))

    @property
    def offsets_retention_minutes(self) -> int:
        """Minutes that the committed offsets of a group without members are kept."""
        return cast(int, self.get("offsets.retention.minutes"))

    @property
    def delete_topic_enable(self) -> bool:
        """Whether topics may be deleted."""
        return cast(bool, self.get("delete.topic.enable"))


def _definition(name: str) -> ConfigDef:
    definition = CLUSTER_CONFIGS.get(name)
    if definition is None:
        raise unknown_name(name, CLUSTER_CONFIGS, "cluster", _GONE)
    return definition
