"""Processes that die while they write: each record is in the log exactly once, and only orphans are left behind.

A killed stream meets every kind of process on every cluster. A killed batch meets those that the cluster itself starts
again, the driver and the node, on every cluster; executors and Python workers, whose tasks Spark's scheduler repeats on
each in the same way, on one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deployment.clusters import SparkCluster, on_clusters
from tests.deployment.kills import KilledCopy
from tests.deployment.records import create, damage_and_orphans, values_of
from tests.deployment.test_jobs import on, succeeded, trips

MANY_ROWS = 200_000
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.decommission.enabled": "true",
}
SECOND_ATTEMPT = Path(__file__).with_name("killed_after_commit.py")


@pytest.mark.parametrize("kind", ["driver", "node"])
def test_a_batch_is_written_once_when_what_the_cluster_starts_again_is_killed(
    cluster: SparkCluster, kind: str, tmp_path: Path
) -> None:
    """A driver in cluster mode is started again by its manager, one in client mode by its scheduler."""
    if kind not in cluster.kinds:
        pytest.skip(f"{cluster.name} has no {kind}")
    check_killed_batch(cluster, kind, tmp_path)


@pytest.mark.parametrize("kind", ["executor", "python worker"])
@on_clusters("standalone")
def test_a_batch_is_written_once_when_a_process_of_a_task_is_killed(
    cluster: SparkCluster, kind: str, tmp_path: Path
) -> None:
    check_killed_batch(cluster, kind, tmp_path)


def check_killed_batch(cluster: SparkCluster, kind: str, tmp_path: Path) -> None:
    root = create(cluster.root(), {"trips": 4})
    rows = trips(cluster, tmp_path, MANY_ROWS)
    arguments = [*on(root, "trips"), *rows, "--txn-app-id", "daily", "--run-date", "2026-11-20"]
    job = cluster.submit("produce", *arguments, mode=cluster.modes[-1], package="archive", root=root)
    job.await_process("python worker")
    if kind == "node":
        cluster.kill_node()
        cluster.start_node()
    else:
        job.kill(kind)
    done = job.wait()
    job.close()
    if kind == "driver" and done.code:
        done = cluster.run("produce", *arguments, mode=cluster.modes[-1], package="archive", root=root)
    succeeded(done)
    assert sorted(int(json.loads(value)["id"]) for value in values_of(root, "trips")) == list(range(MANY_ROWS))
    assert damage_and_orphans(root) == []


def test_a_stream_copies_each_record_once_while_processes_of_every_kind_are_killed(cluster: SparkCluster) -> None:
    copy = KilledCopy(cluster, cluster.root(), seed=1)
    assert copy.run(list(cluster.kinds), kills=1) == []
    assert sum(copy.kills.values()) == len(cluster.kinds)


def test_a_batch_is_written_once_when_executors_come_and_go(cluster: SparkCluster, tmp_path: Path) -> None:
    root = create(cluster.root(), {"trips": 4})
    rows = trips(cluster, tmp_path, MANY_ROWS)
    arguments = [*on(root, "trips"), *rows, "--txn-app-id", "daily", "--run-date", "2026-11-20"]
    mode = cluster.modes[-1]
    succeeded(cluster.run("produce", *arguments, mode=mode, package="archive", root=root, conf=DYNAMIC))
    assert sorted(int(json.loads(value)["id"]) for value in values_of(root, "trips")) == list(range(MANY_ROWS))
    assert damage_and_orphans(root) == []


@on_clusters("yarn")
def test_a_second_attempt_writes_nothing_if_the_driver_died_just_after_its_commit(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    """The job has no transaction id: its attempts share that of the application."""
    root = create(cluster.root(), {"trips": 4})
    arguments = [*on(root, "trips"), *trips(cluster, tmp_path, 1000)]
    output = succeeded(cluster.run(str(SECOND_ATTEMPT), *arguments, mode="cluster", package="archive", root=root))
    assert "was written before: nothing to do" in output
    assert sorted(int(json.loads(value)["id"]) for value in values_of(root, "trips")) == list(range(1000))
