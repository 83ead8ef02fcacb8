"""A file system that ignores case, as on macOS and SMB: each name is there in every case."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import InvalidTopicError
from sparklog.log.layout import CLUSTER_KEY
from sparklog.maintenance.gc.vacuum import vacuum


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = tmp_path / "log"
    create_cluster(str(root)).create_topic("orders")
    (root / CLUSTER_KEY.upper()).hardlink_to(root / CLUSTER_KEY)
    return str(root)


def test_topics_that_differ_only_in_case_are_refused(root: str) -> None:
    with pytest.raises(InvalidTopicError, match=r"'Orders' differs only in case from topic 'orders'"):
        AdminClient(bootstrap_servers=root).create_topics(["Orders"])
    with pytest.raises(InvalidTopicError, match="only in case"):
        open_cluster(root).create_topic("ORDERS")
    with Producer(bootstrap_servers=root) as producer, pytest.raises(InvalidTopicError, match="only in case"):
        producer.send("Orders", b"v").get(10)
    AdminClient(bootstrap_servers=root).create_topics(["others"])


def test_elsewhere_they_are_two_topics(tmp_path: Path) -> None:
    cluster = create_cluster(str(tmp_path / "log"))
    for name in ("orders", "Orders"):
        cluster.create_topic(name)
    assert sorted(cluster.refresh().topics) == ["Orders", "orders"]


def test_a_vacuum_keeps_files_that_are_listed_in_another_case(root: str) -> None:
    with Producer(bootstrap_servers=root) as producer:
        producer.send("orders", b"v", partition=0)
    Path(root, "orders-0").rename(Path(root, "Orders-0"))
    assert vacuum(open_cluster(root), older_than_ms=0, dry_run=False, force=True).files == []
    assert len(list(Path(root, "Orders-0").iterdir())) == 2
