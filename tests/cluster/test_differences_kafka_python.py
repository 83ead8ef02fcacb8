"""Each row of the section on kafka-python in docs/differences.md is shown by the test named after its id."""

from __future__ import annotations

import re
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.security import UpdateFeatureType
from sparklog.client.admin.types import AbortTransactionSpec, ConfigResource
from sparklog.client.consumer.assignors import RangePartitionAssignor
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.metrics.metrics import Metrics, MetricSettings
from sparklog.client.producer.custom_partitioners import DefaultPartitioner
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    ClusterAuthorizationFailedError,
    ClusterNotFoundError,
    FeatureUpdateFailedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RetriableError,
    SecurityDisabledError,
    StoragePermissionError,
    StorageUnavailableError,
    TransactionAbortedError,
)
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import UNAVAILABLE, Fault, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import read, together, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"
PLACE = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Coordinator:
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    cluster.create_topic("t")
    return cluster


@pytest.fixture
def admin(cluster: Coordinator) -> AdminClient:
    return AdminClient(cluster=cluster)


def consumer(cluster: Coordinator, *topics: str, **configs: Any) -> Consumer:
    return Consumer(*topics, cluster=cluster, auto_offset_reset="earliest", **configs)


def test_rows_and_tests_correspond() -> None:
    section = DOCUMENT.read_text().split("## kafka-python")[1].split("\n## ")[0]
    rows = [row.replace("-", "_") for row in re.findall(r"^\| ([a-z-]+-[a-z-]+) \|", section, flags=re.MULTILINE)]
    tests = [name.removeprefix("test_") for name in globals() if name.startswith("test_")]
    assert sorted(rows) == sorted(set(tests) - {"rows_and_tests_correspond"})


@pytest.mark.parametrize("servers", ["localhost:9092", ["a:9092", "b:9092"], "broker-1.example.com:9092"])
def test_root_in_place_of_brokers(servers: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match="the one root of the cluster"):
        Producer(bootstrap_servers=servers)


def test_no_cluster_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotFoundError):
        Consumer(bootstrap_servers=str(tmp_path))


def test_storage_fails_with_a_storage_error() -> None:
    store = FaultyStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store)
    with AdminClient(cluster=cluster) as admin:
        step = len(store.calls)
        store.inject(*(Fault(step, UNAVAILABLE) for step in range(step, step + 50)))
        with pytest.raises(StorageUnavailableError) as raised:
            admin.list_topics()
        store.heal()
    assert isinstance(raised.value, RetriableError)
    assert not isinstance(raised.value, KafkaConnectionError)
    assert issubclass(StoragePermissionError, ClusterAuthorizationFailedError)


def test_text_of_an_error() -> None:
    assert str(OffsetOutOfRangeError("offset 7 is gone")) == "offset 7 is gone"


def test_message_of_an_error() -> None:
    assert OffsetOutOfRangeError.message == OffsetOutOfRangeError().message == "OFFSET_OUT_OF_RANGE"
    assert OffsetOutOfRangeError("offset 7 is gone").message == "offset 7 is gone"


def test_refused_at_send(cluster: Coordinator) -> None:
    cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
    cluster.submit(partial(alter_configs, topic="t", changes={"message.timestamp.before.max.ms": "1000"}))
    with Producer(cluster=cluster) as producer:
        with pytest.raises(InvalidTimestampError):
            producer.send("t", b"v", timestamp_ms=1)
        with pytest.raises(InvalidRecordError):
            producer.send("compacted", b"v")
        with pytest.raises(InvalidTopicError):
            producer.send("__consumer_offsets", b"v")


def test_bytes_of_a_record(cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="t", changes={"max.message.bytes": "1000"}))
    with Producer(cluster=cluster) as producer:
        assert producer.send("t", bytes(988)).get(30).offset == 0
        assert producer.send("t", bytes(989)).failed()
    with Producer(cluster=cluster, max_request_size=900) as producer:
        assert producer.send("t", bytes(900)).get(30).offset == 1
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", bytes(901))


def test_more_is_taken(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        headers: Any = (("none", None), ("some", b"1"))
        producer.send("t", b"v", headers=headers).get(30)
    with consumer(cluster, group_id="g") as reader:
        one: Any = "t"
        reader.subscribe(one)
        assert reader.subscription() == {"t"}
        reader.unsubscribe()
        place: Any = ("t", 0)
        reader.assign([place])
        reader.seek(place, 0)
        number: Any = 0
        reader.commit({place: number})
        assert reader.committed(place) == 0
        (record,) = read(reader, 1)
        assert record.headers == [("none", None), ("some", b"1")]


def test_offsets_of_a_transaction_come_with_its_commit(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"v")
        with pytest.raises(IllegalStateError):
            future.get()
        with pytest.raises(KafkaTimeoutError):
            future.get(0)
        producer.commit_transaction()
        assert future.get().offset == 0


def test_nothing_of_a_transaction_before_its_commit(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        aborted = producer.send("t", b"aborted")
        producer.flush()
        with consumer(cluster, isolation_level="read_uncommitted") as reader:
            assert reader.end_offsets([PLACE]) == {PLACE: 0}
        producer.abort_transaction()
        assert isinstance(aborted.exception, TransactionAbortedError)
        producer.begin_transaction()
        kept = producer.send("t", b"kept")
        producer.commit_transaction()
        assert kept.get().offset == 0


def test_no_transaction_hangs(cluster: Coordinator, admin: AdminClient) -> None:
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.flush()
        assert admin.find_hanging_transactions() == []
        with pytest.raises(InvalidTxnStateError, match=r"nothing of it is stored before.*init_transactions\(\)"):
            admin.abort_transaction(AbortTransactionSpec(PLACE, 0, 0))


def test_timeout_of_a_transactional_id(cluster: Coordinator, admin: AdminClient) -> None:
    with Producer(cluster=cluster, transactional_id="x", transaction_timeout_ms=5000) as producer:
        producer.init_transactions()
    assert admin.describe_transactions(["x"])["x"].transaction_timeout_ms == -1


def test_end_before_the_first_fetch(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        producer.send("t", b"v").get(30)
    with consumer(cluster) as reader:
        reader.assign([PLACE])
        assert reader.highwater(PLACE) == 1


def test_listener_that_fails_at_the_end(cluster: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            raise LookupError("listener")

    reader = consumer(cluster, group_id="g")
    reader.subscribe(["t"], listener=Failing())
    until(reader.assignment, together(reader))
    reader.close()
    assert any("on_partitions_revoked of the listener of group g failed" in record.message for record in caplog.records)


def test_length_of_a_group_id(cluster: Coordinator) -> None:
    with pytest.raises(KafkaConfigurationError, match="group_id=''"):
        consumer(cluster, group_id="")
    for length in (249, 250):
        with consumer(cluster, group_id="g" * length) as reader:
            reader.assign([PLACE])
            if length == 249:
                reader.commit({PLACE: OffsetAndMetadata(0)})
                continue
            with pytest.raises(InvalidRequestError, match="250 characters"):
                reader.commit({PLACE: OffsetAndMetadata(0)})


def test_settings_of_the_cluster(admin: AdminClient) -> None:
    admin.alter_configs([ConfigResource("broker", "", {"num.partitions": "3"})])
    assert admin.describe_configs([ConfigResource("broker", "")])["broker"][""]["num.partitions"]["value"] == "3"
    refused = admin.alter_configs([ConfigResource("broker", "0", {"num.partitions": "3"})])
    assert refused["broker"]["0"].startswith("InvalidRequestError: broker 0 has no settings of its own")


def test_brokers_without_a_port(admin: AdminClient) -> None:
    found = admin.describe_cluster()
    assert [broker["port"] for broker in found["brokers"]] == [-1]
    assert found["controller_id"] == found["brokers"][0]["broker_id"]


def assert_refused(admin: AdminClient, method: str, *arguments: object, kind: type[KafkaError], why: str) -> None:
    with pytest.raises(kind, match=why) as refused:
        getattr(admin, method)(*arguments)
    assert str(refused.value).startswith(f"{method}: ")


def test_permissions_of_the_storage(admin: AdminClient) -> None:
    why = "permissions of the storage"
    for method, argument in (("create_acls", []), ("describe_acls", None), ("delete_acls", [])):
        assert_refused(admin, method, argument, kind=SecurityDisabledError, why=why)
    assert_refused(admin, "describe_user_scram_credentials", kind=InvalidRequestError, why=why)
    assert_refused(admin, "alter_user_scram_credentials", [], kind=InvalidRequestError, why=why)


def test_no_versions_and_no_quorum(admin: AdminClient) -> None:
    assert_refused(admin, "api_versions", kind=InvalidRequestError, why="there are no servers")
    assert_refused(admin, "get_broker_version_data", 0, kind=InvalidRequestError, why="no servers")
    assert_refused(admin, "describe_metadata_quorum", kind=InvalidRequestError, why="there is no quorum")


def test_one_feature(admin: AdminClient) -> None:
    assert list(admin.describe_features()["finalized_features"]) == ["metadata.version"]
    for updates in ({"kraft.version": 1}, {"metadata.version": (UpdateFeatureType.UNSAFE_DOWNGRADE, 2)}):
        with pytest.raises(FeatureUpdateFailedError):
            admin.update_features(updates)


def test_one_log_dir_per_broker(admin: AdminClient) -> None:
    why = "alter_partition_reassignments"
    assert_refused(admin, "alter_replica_log_dirs", {}, kind=InvalidRequestError, why=why)


def test_first_join_knows_the_topics(cluster: Coordinator) -> None:
    calls: list[tuple[str, set[TopicPartition]]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            calls.append(("revoked", revoked))

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            calls.append(("assigned", assigned))

    with consumer(cluster, group_id="g") as reader:
        reader.subscribe(["t"], listener=Listener())
        until(reader.assignment, together(reader))
        assert reader.group_metadata().generation_id == 1
    assert calls == [("assigned", {PLACE}), ("revoked", {PLACE})]


def test_assignors_of_a_program(cluster: Coordinator) -> None:
    class Own(RangePartitionAssignor):
        def assign(self, *arguments: Any) -> Any:  # type: ignore[override]
            return super().assign(*arguments)

    with pytest.raises(KafkaConfigurationError, match="an assignor of your own"):
        consumer(cluster, group_id="g", partition_assignment_strategy=[Own])


def test_wrong_arguments_are_named(cluster: Coordinator, admin: AdminClient) -> None:
    text: Any = "t"
    with consumer(cluster) as reader:
        for wrong in ("t", PLACE, [5]):
            unusable: Any = wrong
            with pytest.raises(IllegalArgumentError) as raised:
                reader.assign(unusable)
            assert isinstance(raised.value, TypeError)
        with pytest.raises(IllegalStateError, match="t-0 is not assigned") as not_assigned:
            reader.pause(PLACE)
        assert isinstance(not_assigned.value, ValueError)
        with pytest.raises(IllegalArgumentError, match="invalid regular expression"):
            reader.subscribe(pattern="(")
    with pytest.raises(KafkaConfigurationError, match="partitioner='t'"):
        Producer(cluster=cluster, partitioner=text)
    with pytest.raises(IllegalArgumentError, match="'NOTHING'"):
        ConfigResource("NOTHING", "t")
    with pytest.raises(IllegalArgumentError, match="give a number"):
        admin.create_partitions({"t": text})


def test_refused_where_it_is_given(cluster: Coordinator) -> None:
    wrong: list[dict[str, Any]] = [
        {"auto_offset_reset": "soon"},
        {"group_id": "g", "group_instance_id": ""},
        {"isolation_level": 1},
    ]
    for configs in wrong:
        with pytest.raises(KafkaConfigurationError):
            Consumer(cluster=cluster, **configs)
    with pytest.raises(KafkaConfigurationError, match="linger_ms=-1"):
        Producer(cluster=cluster, linger_ms=-1)
    with consumer(cluster, group_id="g") as reader:
        nothing: Any = None
        with pytest.raises(TypeError):
            reader.assign(nothing)
        reader.assign([PLACE])
        with pytest.raises(IllegalArgumentError, match="offset -1"):
            reader.commit({PLACE: OffsetAndMetadata(-1)})


def test_ready_at_once(cluster: Coordinator) -> None:
    with consumer(cluster) as reader, Producer(cluster=cluster) as producer:
        assert (reader.bootstrap_connected(), producer.bootstrap_connected()) == (True, True)
    assert producer.partitions_for("t") == {0}


def test_acks_zero_has_no_offset(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, acks=0) as producer:
        assert producer.send("t", b"v").get(30).offset == -1
    assert cluster.refresh().partition("t", 0).log_end_offset == 1


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_codecs_and_memory(cluster: Coordinator, codec: Any) -> None:
    with Producer(cluster=cluster, compression_type=codec, buffer_memory=1_000_000) as producer:
        producer.send("t", b"v" * 1000).get(30)
        assert producer.metrics()["producer-metrics"]["buffer-total-bytes"] == 1_000_000
    with consumer(cluster, "t") as reader:
        assert [record.value for record in read(reader, 1)] == [b"v" * 1000]


def test_after_a_refused_record(cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="t", changes={"max.message.bytes": "1000"}))
    with Producer(cluster=cluster) as producer:
        assert producer.send("t", bytes(2000)).failed()
        assert producer.send("t", b"next").get(30).offset == 0
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", bytes(2000))
        with pytest.raises(KafkaError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"another")
        producer.commit_transaction()
    with consumer(cluster, "t") as reader:
        assert [record.value for record in read(reader, 2)] == [b"next", b"another"]


def test_equal_resources() -> None:
    assert ConfigResource("TOPIC", "t") == ConfigResource("topic", "t")
    assert ConfigResource("TOPIC", "t") != ConfigResource("TOPIC", "u")


@pytest.mark.parametrize("configs", [{"acks": 1}, {"retries": 0}])
def test_default_idempotence_is_kept(cluster: Coordinator, admin: AdminClient, configs: dict[str, Any]) -> None:
    with Producer(cluster=cluster, **configs) as producer:
        assert producer.config["enable_idempotence"] is True
        producer.send("t", b"v").get(30)
    assert len(admin.describe_producers([PLACE])[PLACE].active_producers) == 1


def test_default_partitioner_is_none(cluster: Coordinator) -> None:
    cluster.create_topic("many", 8)
    assert Producer.DEFAULT_CONFIG["partitioner"] is None
    keys = [b"%d" % number for number in range(40)]
    placed = []
    for partitioner in (None, DefaultPartitioner()):
        with Producer(cluster=cluster, partitioner=partitioner) as producer:
            placed.append([producer.send("many", b"v", key=key).get(30).partition for key in keys])
    assert placed[0] == placed[1]


# -- metrics


def test_requests_and_nodes(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        producer.send("t", b"v").get(30)
        found = producer.metrics()
        assert found["producer-metrics"]["connection-count"] == 2  # the root, and broker 0's location
        assert found["producer-node-metrics.node-0"]["outgoing-byte-rate"] > 0  # the file
        assert found["producer-node-metrics.node-bootstrap-0"]["request-rate"] > 0  # the commit
        assert found["producer-metrics"]["throttle-time-max"] == 0


def test_rates_of_a_young_client() -> None:
    clock = ManualClock()
    metrics = Metrics(clock, MetricSettings(), "c")
    sensor = metrics.sensor()
    assert (sensor.average(), sensor.maximum(), sensor.rate()) == (0, 0, 0)
    clock.advance(5)
    sensor.record(20)
    assert sensor.rate() == 4


def test_metrics_of_one_topic(cluster: Coordinator) -> None:
    cluster.create_topic("u")
    with Producer(cluster=cluster) as producer:
        for topic in ("t", "u", "u"):
            producer.send(topic, b"v").get(30)
    with consumer(cluster, "t", "u") as reader:
        read(reader, 3)
        name, group = "records-per-request-avg", "consumer-fetch-manager-metrics"
        raw = {key.tags.get("topic") for key in reader.metrics(raw=True) if key.name == name}
        assert raw == {None, "t", "u"}
        assert reader.metrics()[group][name] == pytest.approx(1)


def test_metrics_switched_off(cluster: Coordinator) -> None:
    with (
        Producer(cluster=cluster, metrics_enabled=False) as producer,
        consumer(cluster, metrics_enabled=False) as reader,
    ):
        assert producer.metrics() == producer.metrics(raw=True) == {}
        assert reader.metrics() == reader.metrics(raw=True) == {}


def test_before_the_first_heartbeat(cluster: Coordinator) -> None:
    with consumer(cluster, "t", group_id="g") as reader:
        assert reader.metrics()["consumer-coordinator-metrics"]["last-heartbeat-seconds-ago"] == -1
        until(reader.assignment, together(reader))
        assert reader.metrics()["consumer-coordinator-metrics"]["last-heartbeat-seconds-ago"] >= 0
