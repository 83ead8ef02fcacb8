"""The metrics of a cluster, read from its log: what they say, what they cost, and that they are never out of step."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ConfigResource
from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.monitoring.exporter import families
from sparklog.monitoring.exporter.cluster_metrics import ClusterMetrics, MetricSelection
from sparklog.monitoring.exporter.collector import READ_SECONDS, Collector
from sparklog.monitoring.exporter.families import FAMILIES
from sparklog.monitoring.exporter.state_samples import NameFilter
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.commits import Action, ChangePartition, CommitOffsets, CommittedOffset, RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, CountingStore, FaultyStore
from sparklog.testing.records import Record, append_records

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex), clock=clock)
    coordinator.create_topic("orders", 2)
    coordinator.create_topic("refunds")
    return coordinator


def commit(cluster: Coordinator, *actions: Action) -> None:
    cluster.submit(lambda _: Decision(list(actions), None))


def append(cluster: Coordinator, topic: str, count: int, partition: int = 0) -> None:
    append_records(cluster, topic, [Record(value=b"v" * 10, partition=partition)] * count)


def commit_offset(cluster: Coordinator, group: str, topic: str, offset: int, partition: int = 0) -> None:
    topic_id = cluster.refresh().topic(topic).topic_id
    committed = CommittedOffset(topic=topic, topic_id=topic_id, partition=partition, offset=offset)
    commit(cluster, CommitOffsets(group=group, offsets=[committed]))


def read(metrics: ClusterMetrics) -> Samples:
    """The values by name and values of labels, in the order of the family."""
    found: Samples = {}
    for family in text_string_to_metric_families(metrics.read()):
        for sample in family.samples:
            if sample.name in FAMILIES:
                assert sample.labels.keys() == set(FAMILIES[sample.name].labels)
                key = (sample.name, *(sample.labels[label] for label in FAMILIES[sample.name].labels))
            else:
                key = (sample.name, *sample.labels.values())
            assert key not in found
            found[key] = sample.value
    return found


def names_of(samples: Iterable[tuple[str, ...]]) -> set[str]:
    return {key[0] for key in samples}


def test_a_cluster_with_a_group_has_all_metrics_of_kafka_exporter(cluster: Coordinator) -> None:
    append(cluster, "orders", 5)
    commit_offset(cluster, "billing", "orders", 2)
    samples = read(ClusterMetrics(cluster, MetricSelection()))
    kafka_exporter = {name for name in FAMILIES if name.startswith("kafka_")}
    assert kafka_exporter <= names_of(samples)
    assert len(kafka_exporter) == 15
    assert samples["kafka_brokers",] == 1
    assert samples["kafka_topic_partitions", "orders"] == 2
    assert samples["kafka_topic_partition_current_offset", "orders", "0"] == 5
    assert samples["kafka_consumergroup_lag", "billing", "orders", "0"] == 3
    assert samples["kafka_consumergroup_lag_sum", "billing", "orders"] == 3
    assert samples["kafka_consumergroup_members", "billing"] == 0


def test_a_consumer_is_a_member_of_its_group() -> None:
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    cluster.create_topic("orders")
    with Consumer("orders", cluster=cluster, group_id="billing") as consumer:
        consumer.poll(0)
        samples = read(ClusterMetrics(cluster, MetricSelection()))
    assert samples["kafka_consumergroup_members", "billing"] == 1
    assert samples["sparklog_consumergroup_generation", "billing"] >= 1


def test_metrics_follow_the_log(cluster: Coordinator, clock: ManualClock) -> None:
    metrics = ClusterMetrics(cluster, MetricSelection())
    before = read(metrics)
    append(cluster, "orders", 3)
    clock.advance(60)
    append(cluster, "refunds", 1)
    cluster.create_topic("returns")
    after = read(metrics)
    assert after["kafka_topic_partition_current_offset", "orders", "0"] == 3
    assert after["kafka_topic_partition_current_offset", "refunds", "0"] == 1
    assert after["kafka_topic_partitions", "returns"] == 1
    assert after["sparklog_commits_total",] == before["sparklog_commits_total",] + 3 == cluster.state.version + 1
    assert (
        after["sparklog_topic_appended_bytes_total", "orders"]
        > 0
        == before["sparklog_topic_appended_bytes_total", "orders"]
    )
    assert after["sparklog_append_delay_seconds_count",] == 2
    assert after["sparklog_commit_timestamp_seconds",] == cluster.state.timestamp_ms / 1000


def test_the_lag_in_seconds_is_that_of_the_system_table(cluster: Coordinator, clock: ManualClock) -> None:
    for _ in range(20):
        append(cluster, "orders", 3)
        clock.advance(7)
    metrics = ClusterMetrics(cluster, MetricSelection())
    for offset in (0, 10, 31, 60):
        commit_offset(cluster, "billing", "orders", offset)
        clock.advance(1)
        samples = read(metrics)
        (row,) = SystemTables(cluster).read("lag", RowSelection(group="billing")).to_pylist()
        assert samples["kafka_consumergroup_lag", "billing", "orders", "0"] == row["lag"] == 60 - offset
        assert samples["sparklog_consumergroup_lag_seconds", "billing", "orders", "0"] == row["lag_seconds"]


def test_without_the_commits_before_the_start_the_lag_in_seconds_is_left_out(cluster: Coordinator) -> None:
    append(cluster, "orders", 3)
    append(cluster, "orders", 3)
    commit_offset(cluster, "billing", "orders", 1)
    samples = read(ClusterMetrics(cluster, MetricSelection(lookback_commits=2)))
    assert samples["kafka_consumergroup_lag", "billing", "orders", "0"] == 5
    assert "sparklog_consumergroup_lag_seconds" not in names_of(samples)


def test_topics_and_groups_are_filtered_also_within_groups(cluster: Coordinator) -> None:
    commit_offset(cluster, "billing", "orders", 0)
    commit_offset(cluster, "billing", "refunds", 0)
    commit_offset(cluster, "audit", "orders", 0)
    topics = NameFilter(re.compile("^ord"))
    groups = NameFilter(exclude=re.compile("audit"))
    samples = read(ClusterMetrics(cluster, MetricSelection(topics, groups)))
    places = {key[1:] for key in samples if key[0].startswith(("kafka_topic", "kafka_consumergroup_lag"))}
    assert {place for each in places for place in each} == {"orders", "billing", "0", "1"}


def test_deleted_topics_and_groups_are_no_longer_exported(cluster: Coordinator) -> None:
    metrics = ClusterMetrics(cluster, MetricSelection())
    read(metrics)
    with AdminClient(cluster=cluster) as admin:
        admin.delete_topics(["orders"])
    cluster.create_topic("orders", 1)
    samples = read(metrics)
    assert samples["kafka_topic_partitions", "orders"] == 1
    assert ("kafka_topic_partition_current_offset", "orders", "1") not in samples


def test_a_config_of_the_cluster_changes_the_metrics_of_its_topics(cluster: Coordinator) -> None:
    metrics = ClusterMetrics(cluster, MetricSelection())
    assert read(metrics)["sparklog_topic_min_insync_replicas", "orders"] == 1
    with AdminClient(cluster=cluster) as admin:
        admin.alter_configs([ConfigResource("broker", "", {"min.insync.replicas": "2"})])
    assert read(metrics)["sparklog_topic_min_insync_replicas", "orders"] == 2


def test_changes_of_the_isr_are_counted(cluster: Coordinator) -> None:
    commit(cluster, RegisterBroker(broker=1, url="memory://metrics-1"))
    metrics = ClusterMetrics(cluster, MetricSelection())
    read(metrics)
    topic_id = cluster.state.topic("orders").topic_id
    for isr in ([0, 1], [0], [0, 1]):
        change = ChangePartition(
            topic="orders", topic_id=topic_id, partition=0, leader=0, leader_epoch=0, isr=isr, replicas=[0, 1]
        )
        commit(cluster, change)
    samples = read(metrics)
    assert [samples[name,] for name in ("sparklog_isr_shrinks_total", "sparklog_isr_expands_total")] == [1, 2]
    assert samples["kafka_brokers",] == 2


def test_maintenance_is_counted_and_what_is_due_shown(cluster: Coordinator, clock: ManualClock) -> None:
    metrics = ClusterMetrics(cluster, MetricSelection())
    for _ in range(4):
        append(cluster, "orders", 3)
    read(metrics)
    roll(cluster, InProcess())
    clock.advance(3600)
    samples = read(metrics)
    assert samples["sparklog_maintenance_commits_total", "roll"] == 1
    assert samples["sparklog_maintenance_removed_bytes_total", "roll"] > 0
    retired = cluster.state.removed_files.values()
    assert samples["sparklog_retired_files_due",] == sum(listing.files for listing in retired) > 0
    assert samples["sparklog_topic_retired_bytes", "orders"] == sum(listing.size_bytes for listing in retired)
    assert samples["sparklog_retired_due_timestamp_seconds",] < clock.now_ms() / 1000


def test_the_newest_checkpoint_is_read_once_a_minute(cluster: Coordinator, clock: ManualClock) -> None:
    metrics = ClusterMetrics(cluster, MetricSelection())
    assert ("sparklog_checkpoint_version",) not in read(metrics)
    cluster.log.write_checkpoint()
    clock.advance(30)
    assert ("sparklog_checkpoint_version",) not in read(metrics)
    clock.advance(31)
    samples = read(metrics)
    assert samples["sparklog_checkpoint_version",] == cluster.state.version
    assert samples["sparklog_checkpoint_timestamp_seconds",] > 0
    assert samples["sparklog_metadata_bytes", "checkpoint"] > 0
    assert samples["sparklog_metadata_bytes", "commits"] == cluster.log.commit_bytes


# -- cost and failures


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore(uuid.uuid4().hex))


def test_any_number_of_scrapes_costs_two_requests_a_second(store: CountingStore, clock: ManualClock) -> None:
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders", 2)
    collector = Collector(ClusterMetrics(cluster, MetricSelection()), clock)
    collector.scrape()
    before = len(store.calls)
    for second in range(1, 31):
        clock.advance(READ_SECONDS)
        for _ in range(20):
            collector.scrape()
        assert len(store.calls) - before <= 2 * second


def test_new_commits_cost_one_request_each(store: CountingStore, clock: ManualClock) -> None:
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders", 2)
    other = Coordinator(CommitLog.open(store, clock))
    metrics = ClusterMetrics(other, MetricSelection())
    metrics.read()
    for _ in range(10):
        append(cluster, "orders", 1)
    before = len(store.calls)
    metrics.read()
    assert len(store.calls) - before <= 10 + 2 + 8  # two that find the end, and some that read ahead of it
    assert metrics.unread_commits == 0


def test_a_read_that_failed_half_way_is_made_up_for(clock: ManualClock) -> None:
    """Every request of a read fails in turn; then all counters are as if none had."""
    failing, failed = 0, True
    while failed:
        store = FaultyStore(MemoryStore(uuid.uuid4().hex))
        cluster = create_cluster(store, clock=clock)
        cluster.create_topic("orders", 2)
        metrics = ClusterMetrics(cluster, MetricSelection())
        metrics.read()
        writer = Coordinator(CommitLog.open(store, clock))
        append(writer, "orders", 1)
        append(writer, "orders", 1)
        clock.advance(61)
        begun = len(store.calls)
        store.before = partial(_fail_at, begun + failing)
        failed = False
        try:
            metrics.read()
        except StorageUnavailableError:
            failed, failing = True, failing + 1
        store.before = None
        samples = read(metrics)
        assert samples["sparklog_append_delay_seconds_count",] == 2
        assert samples["kafka_topic_partition_current_offset", "orders", "0"] == 2
    assert failing >= 4


def _fail_at(failing: int, step: int, call: Call) -> None:
    if step == failing:
        raise StorageUnavailableError(f"no answer to {call}")


def test_commits_that_are_removed_before_they_are_read_are_not_counted_and_the_rest_goes_on(
    clock: ManualClock,
) -> None:
    settings = LogSettings(min_commits_kept=0, min_commit_age_ms=0)
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock, settings=settings)
    cluster.create_topic("orders")
    metrics = ClusterMetrics(cluster, MetricSelection())
    metrics.read()
    writer = Coordinator(CommitLog.open(cluster.store, clock, settings=settings))
    for _ in range(20):
        append(writer, "orders", 1)
    writer.log.write_checkpoint()
    clock.advance(120)
    removed = clean_up(cluster.store, clock, {"metadata.max.retention.ms": "60000"}, settings)
    assert removed.commits > 0
    append(writer, "orders", 2)
    samples = read(metrics)
    assert samples["kafka_topic_partition_current_offset", "orders", "0"] == 22
    assert metrics.unread_commits == 20
    assert samples["sparklog_append_delay_seconds_count",] == 1
    append(writer, "orders", 2)
    assert read(metrics)["sparklog_append_delay_seconds_count",] == 2


def test_every_metric_has_its_help_and_type(cluster: Coordinator) -> None:
    commit_offset(cluster, "billing", "orders", 0)
    text = ClusterMetrics(cluster, MetricSelection(labels={"cluster": "eu"})).read()
    own = {*families.EXPORTER_FAMILIES, *families.BUILD_FAMILIES}
    for name in {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}:
        base = re.sub(r"_(bucket|sum|count)$", "", name) if name not in FAMILIES else name
        assert f"# HELP {base} {FAMILIES[base].help}\n# TYPE {base} {FAMILIES[base].kind}\n" in text
        assert FAMILIES[base] not in own
    assert all('cluster="eu"' in line for line in text.splitlines() if not line.startswith("#"))


def test_a_damaged_listing_of_retired_files_leaves_the_other_metrics(
    cluster: Coordinator, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        append(cluster, "orders", 3)
    roll(cluster, InProcess())
    (listing,) = cluster.refresh().removed_files
    cluster.store.put(listing, b"damaged")
    metrics = ClusterMetrics(cluster, MetricSelection())
    samples = read(metrics)
    assert samples["kafka_topic_partition_current_offset", "orders", "0"] == 12
    assert samples["sparklog_retired_bytes",] > 0
    assert listing in caplog.text
    clock.advance(61)
    read(metrics)
    assert caplog.text.count(listing) == 1
