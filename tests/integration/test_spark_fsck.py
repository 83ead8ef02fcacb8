"""fsck as a Spark job finds and repairs the same as in one process."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from sparklog.maintenance.fsck.check import Scope, check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.spark.jobs.runner import SparkTasks
from sparklog.store.local import LocalStore
from tests.cluster.maintenance.damaged_clusters import DamagedCluster, index_of


def test_a_check_and_a_repair_on_executors_match_those_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path, brokers=2)
    paths = [cluster.append(partitions=(0, 1)) for _ in range(6)]
    cluster.flip(paths[0], 700, broker=1)
    cluster.cut(paths[1], 900)
    cluster.file(paths[2]).unlink()
    cluster.file(index_of(paths[3]), 1).unlink()
    store = LocalStore(str(cluster.root))
    check = check_cluster(store, Scope(), runner=SparkTasks(spark, "fsck"))
    assert check.report.findings == cluster.report().findings
    assert check.report.checked == cluster.report().checked
    assert len(check.report.findings) == 7
    repair_cluster(check, runner=SparkTasks(spark, "fsck"))
    assert check.report.left == []
    assert cluster.report().findings == []
