"""Settings of the whole cluster: what Kafka calls broker configs, as far as they shape the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from sparklog.config.definitions import ConfigDef, ConfigValue, canonical_configs
from sparklog.config.topic_configs import TOPIC_CONFIGS

_OWN = (
    ConfigDef("num.partitions", "int", "1", "Partitions of a topic created without a count.", minimum=1, effective=True),
    ConfigDef("auto.create.topics.enable", "boolean", "true", "Whether a write creates its topic.", effective=True),
    ConfigDef("default.replication.factor", "int", "1", "Replicas of a topic created without a count.", minimum=1),
)
CLUSTER_CONFIGS: Mapping[str, ConfigDef] = {
    **{one.name: one for one in _OWN},
    **{
        synonym.name: replace(config, name=synonym.name, default=synonym.default, synonyms=())
        for config in TOPIC_CONFIGS.values()
        for synonym in config.synonyms
    },
}


def validate_cluster_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Cluster settings as canonical text."""
    return canonical_configs(configs, CLUSTER_CONFIGS, "cluster", {})


@dataclass(frozen=True)
class ClusterConfig:
    """The cluster settings in effect, typed."""

    dynamic: dict[str, str]

    @classmethod
    def resolve(cls, dynamic: Mapping[str, str]) -> ClusterConfig:
        return cls(dict(dynamic))

    def get(self, name: str) -> ConfigValue:
        definition = CLUSTER_CONFIGS[name]
        return definition.parse(self.dynamic[name]) if name in self.dynamic else definition.default_value()

    @property
    def num_partitions(self) -> int:
        return cast(int, self.get("num.partitions"))

    @property
    def auto_create_topics_enable(self) -> bool:
        return cast(bool, self.get("auto.create.topics.enable"))

    @property
    def default_replication_factor(self) -> int:
        return cast(int, self.get("default.replication.factor"))
