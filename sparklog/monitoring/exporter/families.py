"""The metrics that ``sparklog metrics`` exports: names, types, labels and what they mean.

What Kafka's users know from kafka_exporter has its names and labels, so that its dashboards and alert rules keep
working; the rest begins with ``sparklog_``. A moment is exported as a time, not as an age, so that
``time() - sparklog_…_timestamp_seconds`` stays true when the exporter does not answer.

Not for: values (``state_samples``, ``commit_counters``), and their text (``text``).
"""

from __future__ import annotations

from typing import NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    """The metrics of one name. ``since_start``: it counts since the exporter started, and one scrape says nothing."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    since_start: bool = False


_PARTITION = ("topic", "partition")
_TOPIC = ("topic",)
_GROUP = ("consumergroup",)
_STEP = ("step",)

PARTITION_FAMILIES = (
    Family("kafka_topic_partition_current_offset", GAUGE, _PARTITION, "Log end offset of a partition"),
    Family("kafka_topic_partition_oldest_offset", GAUGE, _PARTITION, "Log start offset of a partition"),
    Family("kafka_topic_partition_leader", GAUGE, _PARTITION, "Broker id of the leader; absent without a leader"),
    Family("kafka_topic_partition_leader_is_preferred", GAUGE, _PARTITION, "1 if the preferred replica leads"),
    Family("kafka_topic_partition_replicas", GAUGE, _PARTITION, "Number of replicas of a partition"),
    Family("kafka_topic_partition_in_sync_replica", GAUGE, _PARTITION, "Number of in-sync replicas of a partition"),
    Family("kafka_topic_partition_under_replicated_partition", GAUGE, _PARTITION, "1 if a replica is not in sync"),
)
"""In the order of ``state_samples.partition_values``."""

TOPIC_FAMILIES = (
    Family("kafka_topic_partitions", GAUGE, _TOPIC, "Number of partitions of a topic"),
    Family("sparklog_topic_live_bytes", GAUGE, _TOPIC, "Bytes of the live segments, at all replicas in sync"),
    Family("sparklog_topic_segments", GAUGE, _TOPIC, "Live segments of all partitions; rolling merges small ones"),
    Family("sparklog_topic_unfit_records", GAUGE, _TOPIC, "Records in history that do not fit the topic's schema"),
    Family("sparklog_topic_min_insync_replicas", GAUGE, _TOPIC, "The config min.insync.replicas of a topic"),
)
"""In the order of ``state_samples.topic_values``."""

TOPIC_COUNTERS = (
    Family("sparklog_topic_appended_bytes_total", COUNTER, _TOPIC, "Bytes that appends added to a topic", True),
    Family("sparklog_topic_retired_bytes", GAUGE, _TOPIC, "Bytes of replaced files that are not deleted yet"),
)

GROUP_PARTITION_FAMILIES = (
    Family("kafka_consumergroup_current_offset", GAUGE, _GROUP + _PARTITION, "Committed offset of a group"),
    Family("kafka_consumergroup_lag", GAUGE, _GROUP + _PARTITION, "Records between committed offset and log end"),
    Family(
        "sparklog_consumergroup_lag_seconds",
        GAUGE,
        _GROUP + _PARTITION,
        "Age in seconds of the oldest unread record, counted from its commit; absent if that is not known",
    ),
)
GROUP_TOPIC_FAMILIES = (
    Family("kafka_consumergroup_current_offset_sum", GAUGE, _GROUP + _TOPIC, "Sum of a group's committed offsets"),
    Family("kafka_consumergroup_lag_sum", GAUGE, _GROUP + _TOPIC, "Sum of a group's lag over the partitions"),
)
GROUP_FAMILIES = (
    Family("kafka_consumergroup_members", GAUGE, _GROUP, "Number of members of a group"),
    Family("sparklog_consumergroup_generation", GAUGE, _GROUP, "Generation of a group; it grows with each rebalance"),
    Family("sparklog_consumergroup_commit_timestamp_seconds", GAUGE, _GROUP, "Time of a group's newest offset commit"),
)
BROKER_FAMILIES = (
    Family("kafka_broker_info", GAUGE, ("id", "address"), "Always 1; the address is the URL of the broker's location"),
    Family("sparklog_broker_online", GAUGE, ("id", "address"), "1 if the broker passed its latest check"),
)
CLUSTER_FAMILIES = (
    Family("kafka_brokers", GAUGE, (), "Number of brokers that are online"),
    Family("sparklog_commits_total", COUNTER, (), "Commits since the cluster was created: its version plus one"),
    Family("sparklog_commit_bytes_total", COUNTER, (), "Bytes of all commits, with those that were removed"),
    Family("sparklog_commit_timestamp_seconds", GAUGE, (), "Time of the newest commit"),
    Family("sparklog_partitions_offline", GAUGE, (), "Partitions without a leader"),
    Family("sparklog_partitions_reassigning", GAUGE, (), "Partitions whose replicas are being moved"),
    Family("sparklog_retired_files", GAUGE, (), "Replaced files that are not deleted yet"),
    Family("sparklog_retired_bytes", GAUGE, (), "Bytes of replaced files that are not deleted yet"),
    Family("sparklog_retired_files_due", GAUGE, (), "Replaced files that maintenance may delete now"),
    Family("sparklog_retired_bytes_due", GAUGE, (), "Bytes of replaced files that maintenance may delete now"),
    Family(
        "sparklog_retired_due_timestamp_seconds",
        GAUGE,
        (),
        "Time from which the first of the replaced files may be deleted; absent without any",
    ),
    Family("sparklog_checkpoint_version", GAUGE, (), "Version of the newest checkpoint; absent without one"),
    Family("sparklog_checkpoint_timestamp_seconds", GAUGE, (), "Time at which the newest checkpoint was written"),
    Family("sparklog_isr_shrinks_total", COUNTER, (), "Times that a partition lost in-sync replicas", True),
    Family("sparklog_isr_expands_total", COUNTER, (), "Times that a partition gained in-sync replicas", True),
    Family("sparklog_leader_changes_total", COUNTER, (), "Times that a partition got another leader, or none", True),
)
METADATA_FAMILIES = (
    Family("sparklog_metadata_bytes", GAUGE, ("kind",), "Bytes of kept commits, and of the newest checkpoint"),
)
MAINTENANCE_FAMILIES = (
    Family("sparklog_maintenance_commits_total", COUNTER, _STEP, "Changes that a maintenance step committed", True),
    Family("sparklog_maintenance_removed_bytes_total", COUNTER, _STEP, "Bytes that a step took out of the log", True),
    Family("sparklog_maintenance_added_bytes_total", COUNTER, _STEP, "Bytes that a step wrote in their place", True),
    Family("sparklog_maintenance_timestamp_seconds", GAUGE, _STEP, "Time of the newest change of a step, if known"),
)
APPEND_DELAY = Family(
    "sparklog_append_delay_seconds",
    HISTOGRAM,
    (),
    "Time from the newest record of an append to its commit: how long producers take",
    True,
)
EXPORTER_FAMILIES = (
    Family("sparklog_up", GAUGE, (), "1 if the storage answered; else the other values are those of the last answer"),
    Family("sparklog_scrape_errors_total", COUNTER, (), "Reads of the log that failed", True),
    Family("sparklog_scrape_duration_seconds", GAUGE, (), "Duration of the latest read of the log, with its text"),
    Family("sparklog_scrape_timestamp_seconds", GAUGE, (), "Time of the latest successful read of the log"),
    Family("sparklog_commits_unread_total", COUNTER, (), "Commits that no counter includes: there were too many", True),
)
BUILD_FAMILIES = (Family("sparklog_build_info", GAUGE, ("version",), "Always 1; the version of sparklog that exports"),)

FAMILIES = {
    each.name: each
    for each in (
        *PARTITION_FAMILIES,
        *TOPIC_FAMILIES,
        *TOPIC_COUNTERS,
        *GROUP_PARTITION_FAMILIES,
        *GROUP_TOPIC_FAMILIES,
        *GROUP_FAMILIES,
        *BROKER_FAMILIES,
        *CLUSTER_FAMILIES,
        *METADATA_FAMILIES,
        *MAINTENANCE_FAMILIES,
        APPEND_DELAY,
        *EXPORTER_FAMILIES,
        *BUILD_FAMILIES,
    )
}
"""All metrics by name."""

LABELS = frozenset({label for family in FAMILIES.values() for label in family.labels} | {"le"})
"""All labels."""
