"""Clusters that exist for one test."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

import sparklog.testing
from sparklog.client.config import cluster_of
from sparklog.coordinator import open_cluster, shared_cluster
from sparklog.errors import ClusterNotFoundError, SparklogError
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import ERROR, LOST_ANSWER, FaultyStore
from sparklog.testing.records import Record, append_records

pytest_plugins = ["pytester"]


def test_a_cluster_exists_only_within_its_block() -> None:
    with sparklog.testing.cluster(topics={"orders": 2}) as c:
        append_records(open_cluster(c.bootstrap_servers), "orders", [Record(value=b"a", partition=1)])
        assert [(record.partition, record.value) for record in c.records("orders")] == [(1, b"a")]
        assert c.records("orders", 0) == []
    with pytest.raises(ClusterNotFoundError):
        open_cluster(c.bootstrap_servers)


def test_clusters_are_isolated() -> None:
    with sparklog.testing.cluster() as one, sparklog.testing.cluster() as other:
        one.create_topic("orders")
        assert one.bootstrap_servers != other.bootstrap_servers
        assert not other.coordinator.refresh().topics


def test_a_cluster_leaves_nothing_in_the_process() -> None:
    with sparklog.testing.cluster() as c:
        opened = weakref.ref(shared_cluster(c.bootstrap_servers))
        assert opened() is shared_cluster(c.bootstrap_servers)
    gc.collect()
    assert opened() is None


def test_a_cluster_in_a_folder_keeps_its_files(tmp_path: Path) -> None:
    with sparklog.testing.cluster(folder=tmp_path / "c", topics={"orders": 1}) as c:
        assert c.bootstrap_servers == str(tmp_path / "c")
    assert "orders" in open_cluster(str(tmp_path / "c")).state.topics


def test_faults_affect_clients_but_not_the_cluster_object() -> None:
    with sparklog.testing.cluster(topics={"orders": 1}, faults={ERROR: 1.0}) as c:
        c.create_topic("more")
        with pytest.raises(SparklogError, match="injected error"):
            cluster_of("Producer", {"bootstrap_servers": c.bootstrap_servers})
        assert c.store is not None
        assert [fault.kind for fault in c.store.injected] == [ERROR]
        assert c.records("more") == []
    assert not isinstance(open_store(c.bootstrap_servers), FaultyStore)


def test_the_same_seed_injects_the_same_faults() -> None:
    def run(seed: int) -> list[object]:
        with sparklog.testing.cluster(topics={"orders": 1}, faults={LOST_ANSWER: 0.2}, seed=seed) as c:
            for number in range(20):
                try:
                    append_records(open_cluster(c.bootstrap_servers), "orders", [Record(value=b"%d" % number)])
                except SparklogError:
                    continue
            assert c.store is not None
            return list(c.store.injected)

    assert run(1) == run(1)
    assert run(1)


def test_the_fixtures_are_enabled_by_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["sparklog.testing.fixtures"]')
    pytester.makepyfile(
        """
        from sparklog.coordinator import open_cluster

        def test_in_memory(sparklog_cluster):
            sparklog_cluster.create_topic("orders")
            assert "orders" in open_cluster(sparklog_cluster.bootstrap_servers).state.topics

        def test_in_files(sparklog_cluster_in_files, tmp_path):
            assert sparklog_cluster_in_files.bootstrap_servers == str(tmp_path / "cluster")
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
