"""Each row of the section on kafka-python in docs/differences.md, shown by the test that has its id as a name."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin import AbortTransactionSpec, AdminClient, ConfigResource
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.subscription import ConsumerRebalanceListener
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    ClusterAuthorizationFailedError,
    ClusterNotFoundError,
    IllegalStateError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    RetriableError,
    SecurityDisabledError,
    StoragePermissionError,
    StorageUnavailableError,
    TransactionAbortedError,
)
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import UNAVAILABLE, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.unit.client.consumers import read, together, until

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


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    section = DOCUMENT.read_text().split("## kafka-python")[1].split("\n## ")[0]
    rows = [row.replace("-", "_") for row in re.findall(r"^\| ([a-z-]+-[a-z-]+) \|", section, flags=re.MULTILINE)]
    tests = [name.removeprefix("test_") for name in globals() if name.startswith("test_")]
    assert sorted(rows) == sorted(set(tests) - {"every_row_has_its_test_and_every_test_its_row"})


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
        store._plan.update(dict.fromkeys(range(step, step + 50), UNAVAILABLE))
        with pytest.raises(StorageUnavailableError) as raised:
            admin.list_topics()
        store._plan.clear()
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
    cluster.alter_configs("t", {"message.timestamp.before.max.ms": "1000"})
    with Producer(cluster=cluster) as producer:
        with pytest.raises(InvalidTimestampError):
            producer.send("t", b"v", timestamp_ms=1)
        with pytest.raises(InvalidRecordError):
            producer.send("compacted", b"v")
        with pytest.raises(InvalidTopicError):
            producer.send("__consumer_offsets", b"v")


def test_bytes_of_a_record(cluster: Coordinator) -> None:
    cluster.alter_configs("t", {"max.message.bytes": "1000"})
    with Producer(cluster=cluster) as producer:
        assert producer.send("t", bytes(988)).get(30).offset == 0
        assert producer.send("t", bytes(989)).failed()


def test_more_is_taken(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        headers: Any = (("none", None), ("some", b"1"))
        producer.send("t", b"v", headers=headers).get(30)
    with consumer(cluster) as reader:
        one: Any = "t"
        reader.subscribe(one)
        assert reader.subscription() == {"t"}
        reader.unsubscribe()
        place: Any = ("t", 0)
        reader.assign([place])
        reader.seek(place, 0)
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
        with pytest.raises(InvalidTxnStateError):
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


def test_permissions_of_the_storage(admin: AdminClient) -> None:
    for call, argument in ((admin.create_acls, []), (admin.describe_acls, None), (admin.delete_acls, [])):
        with pytest.raises(SecurityDisabledError):
            call(argument)
    with pytest.raises(InvalidRequestError):
        admin.describe_user_scram_credentials()
    with pytest.raises(InvalidRequestError):
        admin.alter_user_scram_credentials([])


def test_no_versions_and_no_quorum(admin: AdminClient) -> None:
    for call in (admin.api_versions, admin.describe_features, admin.describe_metadata_quorum):
        with pytest.raises(InvalidRequestError, match=r"there (are|is) no"):
            call()


def test_one_log_dir_per_broker(admin: AdminClient) -> None:
    with pytest.raises(InvalidRequestError, match="alter_partition_reassignments"):
        admin.alter_replica_log_dirs({})
