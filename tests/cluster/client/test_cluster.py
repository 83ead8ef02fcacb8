"""``sparklog.create_cluster`` and ``open_cluster``, and the clusters they return."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterNotFoundError,
    InvalidConfigurationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def test_a_cluster_is_created_once_and_then_opened(root: str) -> None:
    created = sparklog.create_cluster(root)
    assert sparklog.open_cluster(root).cluster_id == created.cluster_id
    with pytest.raises(
        ClusterAlreadyExistsError, match=r"already holds .*; to open it, use if_not_exists=True"
    ) as refused:
        sparklog.create_cluster(root)
    assert refused.value.path == root
    assert sparklog.create_cluster(root, if_not_exists=True).cluster_id == created.cluster_id


def test_a_root_may_be_a_path_an_address_or_come_with_storage_options(tmp_path: Path) -> None:
    assert sparklog.create_cluster(tmp_path / "log").root == str(tmp_path / "log")
    assert sparklog.open_cluster(f"file://{tmp_path}/log", storage_options={}).root == str(tmp_path / "log")


def test_a_root_without_a_cluster_is_not_found(root: str) -> None:
    with pytest.raises(ClusterNotFoundError):
        sparklog.open_cluster(root)


@pytest.mark.parametrize("function", [sparklog.create_cluster, sparklog.open_cluster])
def test_a_host_and_port_is_refused_as_a_root(function: object) -> None:
    with pytest.raises(
        InvalidConfigurationError, match=r"cluster\(root='localhost:9092'\).*there is no server with a port"
    ):
        function("localhost:9092")  # type: ignore[operator]


def test_topics_are_created_listed_and_deleted(root: str) -> None:
    cluster = sparklog.create_cluster(root)
    cluster.create_topic("orders", partitions=3, configs={"retention.ms": "1000"})
    cluster.create_topic("plain")
    assert cluster.topics() == ["orders", "plain"]
    assert cluster.offsets("orders") == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    assert list(cluster.offsets("plain")) == [0]
    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("orders")
    cluster.create_topic("orders", if_not_exists=True)
    cluster.delete_topic("orders")
    assert cluster.topics() == ["plain"]
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.offsets("orders")


def test_clients_of_a_cluster_write_and_read_it(root: str) -> None:
    cluster = sparklog.create_cluster(root)
    with cluster.producer() as producer:
        producer.send("orders", b"one").get(timeout=30)
    assert cluster.offsets("orders") == {0: (0, 1)}
    with cluster.consumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=20_000) as consumer:
        assert next(consumer).value == b"one"
    with cluster.admin() as admin:
        assert "orders" in admin.list_topics()


def test_clients_accept_an_open_cluster(root: str) -> None:
    cluster = sparklog.create_cluster(root)
    with sparklog.Producer(cluster=cluster) as producer:
        assert producer.partitions_for("orders") == {0}
    with pytest.raises(InvalidConfigurationError, match="open_cluster"):
        sparklog.Producer(cluster=root)  # type: ignore[arg-type]
