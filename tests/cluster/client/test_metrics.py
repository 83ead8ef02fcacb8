"""The metrics of clients: kafka-python's groups and names, and their values."""

from __future__ import annotations

import math
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.metrics.metrics import Metric, MetricName, Metrics, metric_settings
from sparklog.client.metrics.requests import StorageRequests
from sparklog.client.producer.metrics import largest_record
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import InvalidConfigurationError, SparklogError, StorageUnavailableError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.client.consumers import Cluster, at, read, until
from tests.replicated import brokers

# What kafka-python 3.0.12 registers, for a client of one broker: 49 names for a producer, and 5 for each topic that it
# has sent to; 57 for a consumer.

REQUESTS = {
    "incoming-byte-rate", "outgoing-byte-rate", "request-latency-avg", "request-latency-max", "request-rate",
    "request-size-avg", "request-size-max", "response-rate", "throttle-time-avg", "throttle-time-max",
}  # fmt: skip
CONNECTIONS = {"connection-close-rate", "connection-count", "connection-creation-rate", "network-io-rate"}
SENDING = {
    "batch-size-avg", "batch-size-max", "byte-rate", "compression-rate-avg", "metadata-age", "record-error-rate",
    "record-queue-time-avg", "record-queue-time-max", "record-retry-rate", "record-send-rate", "record-size-avg",
    "record-size-max", "records-per-request-avg", "requests-in-flight",
}  # fmt: skip
FETCHING = {
    "bytes-consumed-rate", "fetch-latency-avg", "fetch-latency-max", "fetch-rate", "fetch-size-avg", "fetch-size-max",
    "records-consumed-rate", "records-lag-max", "records-per-request-avg",
}  # fmt: skip
GROUP = {
    "assigned-partitions", "commit-latency-avg", "commit-latency-max", "commit-rate", "heartbeat-rate",
    "heartbeat-response-time-max", "join-rate", "join-time-avg", "join-time-max", "last-heartbeat-seconds-ago",
    "sync-rate", "sync-time-avg", "sync-time-max",
}  # fmt: skip
OF_A_TOPIC = {"byte-rate", "compression-rate", "record-error-rate", "record-retry-rate", "record-send-rate"}
PRODUCER_NAMES = {
    "kafka-metrics-count": {"count"},
    "producer-metrics": REQUESTS | CONNECTIONS | SENDING,
    "producer-node-metrics.node-0": REQUESTS,
    "producer-node-metrics.node-bootstrap-0": REQUESTS,
    "producer-topic-metrics.orders": OF_A_TOPIC,
}
CONSUMER_NAMES = {
    "consumer-coordinator-metrics": GROUP,
    "consumer-fetch-manager-metrics": FETCHING,
    "consumer-metrics": REQUESTS | CONNECTIONS,
    "consumer-node-metrics.node-0": REQUESTS,
    "consumer-node-metrics.node-bootstrap-0": REQUESTS,
    "kafka-metrics-count": {"count"},
}
TOTALS = {
    "buffer-available-bytes", "buffer-total-bytes", "byte-total", "bytes-consumed-total", "commit-total", "fetch-total",
    "record-error-total", "record-retry-total", "record-send-total", "records-consumed-total", "request-total",
    "response-total", "waiting-threads",
}  # fmt: skip
"""Metrics that only Java's clients have, or only this one."""


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(uuid.uuid4().hex)


def check_names(stats: dict[str, dict[str, float]], expected: dict[str, set[str]]) -> None:
    assert stats.keys() == expected.keys()
    for group, names in expected.items():
        assert names <= stats[group].keys()
        assert stats[group].keys() - names <= TOTALS
        assert all(math.isfinite(value) for value in stats[group].values())


def test_a_producer_has_the_groups_and_names_of_kafka_python(cluster: Cluster) -> None:
    assert sum(map(len, PRODUCER_NAMES.values())) == 49 + 5
    with Producer(cluster=cluster.admin) as producer:
        later = {"producer-node-metrics.node-0", "producer-topic-metrics.orders"}
        before = {group: names for group, names in PRODUCER_NAMES.items() if group not in later}
        check_names(producer.metrics(), before)
        producer.send("orders", b"x").get(timeout=30)
        check_names(producer.metrics(), PRODUCER_NAMES)
    check_names(producer.metrics(), PRODUCER_NAMES)  # closed


def test_a_consumer_has_the_groups_and_names_of_kafka_python(cluster: Cluster) -> None:
    assert sum(map(len, CONSUMER_NAMES.values())) == 57
    cluster.write(0, b"a")
    with cluster.consumer("orders", group_id="g") as consumer:
        read(consumer, 1)
        check_names(consumer.metrics(), CONSUMER_NAMES)
    check_names(consumer.metrics(), CONSUMER_NAMES)  # closed


# -- metrics of a producer


def test_a_producer_counts_records_batches_and_bytes(cluster: Cluster) -> None:
    with Producer(cluster=cluster.admin, linger_ms=60_000) as producer:
        for number in range(10):
            producer.send("orders", b"v" * (number + 1), key=b"key", partition=0)
        producer.send("orders", b"w", partition=1)
        producer.flush(30)
        stats = producer.metrics()["producer-metrics"]
    assert (stats["record-send-total"], stats["commit-total"], stats["records-per-request-avg"]) == (11, 1, 11)
    assert stats["record-size-max"] == 13
    assert stats["record-size-avg"] == (13 + 1) / 2
    assert 0 < stats["batch-size-avg"] < stats["batch-size-max"]
    assert stats["byte-total"] == pytest.approx(stats["batch-size-avg"] * 2)
    assert stats["byte-total"] == pytest.approx(producer.metrics()["producer-node-metrics.node-0"]["request-size-max"])
    assert 0 < stats["record-queue-time-avg"] <= stats["record-queue-time-max"]
    assert stats["record-send-rate"] > 0
    assert (stats["record-error-total"], stats["record-retry-total"], stats["throttle-time-max"]) == (0, 0, 0)
    assert stats["connection-count"] == 2
    assert stats["request-total"] == stats["response-total"] >= 3  # an id, a file, a commit


def test_compressible_records_have_a_compression_rate_below_one(cluster: Cluster) -> None:
    one_batch: dict[str, Any] = {"linger_ms": 60_000, "batch_size": 2**23}
    with Producer(cluster=cluster.admin, compression_type="gzip", **one_batch) as producer:
        for _ in range(1_000):
            producer.send("orders", b"the same again and again " * 10, partition=0)
        producer.flush(30)
        assert 0 < producer.metrics()["producer-metrics"]["compression-rate-avg"] < 0.5


def test_transactional_records_are_measured_like_others(cluster: Cluster) -> None:
    with Producer(cluster=cluster.admin, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(7):
            producer.send("orders", b"1234567890", partition=0)
        producer.commit_transaction()
        stats = producer.metrics()["producer-metrics"]
    assert (stats["record-send-total"], stats["records-per-request-avg"], stats["record-size-max"]) == (7, 7, 10)
    assert stats["byte-total"] > 70


def test_failed_and_retried_records_are_counted() -> None:
    store = FaultyStore(MemoryStore(uuid.uuid4().hex))
    create_cluster(store).create_topic("orders")
    broken = threading.Event()

    def before(step: int, call: Call) -> None:
        if broken.is_set():
            raise StorageUnavailableError("the test's storage is away")

    faulty = FaultyStore(store, before=before)
    with Producer(cluster=open_cluster(faulty), delivery_timeout_ms=200, retry_backoff_ms=10) as producer:
        producer.send("orders", b"fine").get(timeout=30)
        broken.set()
        future = producer.send("orders", b"lost")
        with pytest.raises(SparklogError):
            future.get(timeout=30)
        broken.clear()
        stats = producer.metrics()["producer-metrics"]
        of_topic = producer.metrics()["producer-topic-metrics.orders"]
    assert (stats["record-send-total"], stats["record-error-total"]) == (1, 1)
    assert stats["record-retry-total"] >= 1
    assert stats["record-error-rate"] > 0
    assert all(value > 0 for name, value in of_topic.items())


def test_the_largest_record_counts_key_and_value() -> None:
    binary = pa.binary()
    batch = pa.record_batch({"key": pa.array([b"k", None], binary), "value": pa.array([b"12", b"12345"], binary)})
    assert largest_record(batch) == 5
    assert largest_record(batch.slice(0, 1)) == 3
    assert largest_record(batch.slice(0, 0)) == 0
    assert largest_record(pa.record_batch({"timestamp": pa.array([1])})) == 0


def test_each_location_of_a_replica_is_a_node(tmp_path: Path) -> None:
    with brokers(tmp_path, 2) as replicated, Producer(cluster=replicated.coordinator) as producer:
        producer.send("t", b"to both").get(timeout=30)
        stats = producer.metrics()
    for node in ("producer-node-metrics.node-0", "producer-node-metrics.node-1"):
        assert stats[node]["request-size-max"] == stats["producer-metrics"]["byte-total"] > 0
    assert stats["producer-metrics"]["connection-count"] == 3


# -- metrics of a consumer


def test_a_consumer_counts_fetched_and_returned_records(cluster: Cluster) -> None:
    cluster.write(0, *[b"x" * 100] * 10)
    with cluster.consumer("orders", group_id="g", enable_auto_commit=False, max_poll_records=4) as consumer:
        first = read(consumer, 1)
        assert len(first) == 4
        stats = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert (stats["records-consumed-total"], stats["fetch-total"], stats["records-per-request-avg"]) == (4, 1, 10)
        assert stats["records-lag-max"] == 6
        assert stats["fetch-size-max"] > 1_000
        read(consumer, 6)
        consumer.commit()
        values = consumer.metrics()
        assert values["consumer-fetch-manager-metrics"]["records-consumed-total"] == 10
        group = values["consumer-coordinator-metrics"]
        assert (group["commit-total"], group["assigned-partitions"]) == (1, 2)
        assert group["join-rate"] > 0
        assert group["sync-rate"] > 0
        assert 0 < group["commit-latency-avg"] == group["commit-latency-max"]
        assert group["last-heartbeat-seconds-ago"] >= 0
        until(lambda: heartbeats(consumer) > 0, lambda: consumer.poll(50))
        assert values["consumer-node-metrics.node-0"]["incoming-byte-rate"] > 0


def heartbeats(consumer: Consumer) -> float:
    rate: float = consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-rate"]
    return rate


def test_iterated_records_are_counted(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c")
    with cluster.consumer("orders", consumer_timeout_ms=20_000) as consumer:
        for _ in range(3):
            next(consumer)
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 3


def test_a_consumer_without_a_group_has_had_no_heartbeat(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        stats = consumer.metrics()["consumer-coordinator-metrics"]
        assert (stats["last-heartbeat-seconds-ago"], stats["assigned-partitions"]) == (-1, 1)


def test_raw_metrics_distinguish_topics_by_tag(cluster: Cluster) -> None:
    cluster.admin.create_topic("a.b", 1)
    cluster.write(0, b"a", b"b")
    cluster.write(0, b"c", topic="a.b")
    with cluster.consumer("orders", "a.b", client_id="me") as consumer:
        read(consumer, 3)
        raw = consumer.metrics(raw=True)
    group = "consumer-fetch-manager-metrics"
    topics = {name.tags.get("topic") for name in raw if (name.group, name.name) == (group, "records-consumed-rate")}
    assert topics == {None, "a_b", "orders"}
    assert {name.tags["client-id"] for name in raw} == {"me"}


def test_metric_group_prefix_names_the_groups(cluster: Cluster) -> None:
    with cluster.consumer("orders", metric_group_prefix="billing") as consumer:
        assert "billing-fetch-manager-metrics" in consumer.metrics()


def test_metrics_can_be_read_while_another_thread_polls(cluster: Cluster) -> None:
    stats: list[dict[Any, Any]] = []

    def deserialize(value: bytes | None) -> bytes | None:  # within a poll
        thread = threading.Thread(target=lambda: stats.append(consumer.metrics()))
        thread.start()
        thread.join(30)
        return value

    cluster.write(0, b"a")
    with cluster.consumer("orders", value_deserializer=deserialize) as consumer:
        read(consumer, 1)
    assert stats


# -- requests, with a clock that stands still


def test_requests_are_counted_by_node_and_in_total() -> None:
    clock = ManualClock()
    metrics = Metrics(clock, metric_settings("Producer", {}), "me")
    requests = StorageRequests(metrics, clock, "producer")
    clock.advance(10)
    requests.record("3", 0.5, sent=1_000)
    with requests.at_root():
        assert requests.in_flight == 1
        clock.advance(0.25)
    with pytest.raises(ZeroDivisionError), requests.at_root():
        _ = 1 / 0
    assert requests.in_flight == 0
    clock.advance(9.75)
    stats = metrics.values()
    everything, root = stats["producer-metrics"], stats["producer-node-metrics.node-bootstrap-0"]
    assert (everything["request-total"], everything["response-total"]) == (3, 2)
    assert everything["network-io-rate"] == 5 / 20
    assert (everything["request-latency-avg"], everything["request-latency-max"]) == (375, 500)
    assert (everything["outgoing-byte-rate"], everything["request-size-max"]) == (50, 1_000)
    assert (root["request-rate"], root["response-rate"], root["request-latency-max"]) == (0.1, 0.05, 250)
    assert stats["producer-node-metrics.node-3"]["request-size-avg"] == 1_000
    assert everything["connection-count"] == 2
    requests.close()
    assert metrics.values()["producer-metrics"]["connection-count"] == 0
    assert metrics.values()["producer-metrics"]["connection-close-rate"] == 0.1


# -- settings, raw metrics, reporters


class Reporter:
    instances: list[Reporter]

    def __init__(self) -> None:
        self.calls: list[str] = []
        type(self).instances.append(self)

    def init(self, metrics: list[Metric]) -> None:
        self.calls.append(f"init {metrics}")

    def metric_change(self, metric: Metric) -> None:
        self.calls.append(metric.metric_name.name)
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("reporters may fail")
        raise SystemExit

    def close(self) -> None:
        self.calls.append("close")


def test_reporters_receive_every_metric_and_the_close(cluster: Cluster) -> None:
    Reporter.instances = []
    with Producer(cluster=cluster.admin, metric_reporters=[Reporter]) as producer:
        producer.send("orders", b"x").get(timeout=30)
        producer.send("orders", b"x").get(timeout=30)
    calls = Reporter.instances[0].calls
    assert calls[0] == "init []"
    assert calls[-1] == "close"
    assert calls.count("request-latency-avg") == 3  # the producer's, and those of two nodes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics_num_samples", 0),
        ("metrics_sample_window_ms", "long"),
        ("metrics_enabled", 1),
        ("metric_reporters", [5]),
    ],
)
def test_invalid_settings_are_refused(cluster: Cluster, name: str, value: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=name):
        Producer(cluster=cluster.admin, **{name: value})  # type: ignore[arg-type]


def test_the_length_of_windows_follows_the_settings() -> None:
    clock = ManualClock()
    settings = metric_settings("Producer", {"metrics_num_samples": 3, "metrics_sample_window_ms": 2_000})
    metrics = Metrics(clock, settings, "me")
    sensor = metrics.sensor()
    sensor.record(1)
    clock.advance(5.9)
    assert sensor.average() == 1
    clock.advance(0.2)
    assert sensor.average() == 0


def test_a_raw_metric_has_a_name_with_tags_and_a_value_that_moves() -> None:
    clock = ManualClock()
    metrics = Metrics(clock, metric_settings("Producer", {}), "me")
    sensor = metrics.sensor()
    metrics.add("g", "n", "what it is", sensor.total)
    metric = metrics.raw()[MetricName("n", "g", tags={"client-id": "me"})]
    assert (metric.metric_name.description, metric.value()) == ("what it is", 0)
    sensor.record(2)
    assert metric.value() == 2


def test_a_failing_measurement_is_nan() -> None:
    metrics = Metrics(ManualClock(), metric_settings("Producer", {}), "me")
    metrics.add("g", "n", "", lambda: 1 / 0)
    assert math.isnan(metrics.values()["g"]["n"])


def test_names_are_equal_by_group_name_and_tags() -> None:
    same = MetricName("n", "g", "a description", {"topic": "t"}), MetricName("n", "g", "another one", {"topic": "t"})
    assert len({*same, MetricName("n", "g"), MetricName("n", "h", tags={"topic": "t"})}) == 3
