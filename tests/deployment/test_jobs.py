"""The shipped programs on real clusters, submitted as conf/ and docs/deployment.md say.

Every cluster has a write and a read in each deploy mode, a log on its other storage, and fsck with its own arguments;
``test_kills.py`` has the stream that is killed, ``test_page.py`` the commands of the page. What a program does is
tested by tests/integration: a program that those three leave out runs here once for each kind of executors.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from tests.deployment.clusters import Finished, Root, SparkCluster, on_clusters, tagged
from tests.deployment.records import create, damage_and_orphans, fill, values_of

ROWS = 20_000


@pytest.fixture(params=["client", "cluster"])
def mode(request: pytest.FixtureRequest, cluster: SparkCluster) -> str:
    chosen = str(request.param)
    if chosen not in cluster.modes:
        pytest.skip(f"{cluster.name} takes no Python program in {chosen} mode")
    return chosen


def succeeded(done: Finished) -> str:
    """Return the output of a job that succeeded."""
    assert done.code == 0, done.output[-8000:]
    return done.output


def trips(cluster: SparkCluster, folder: Path, rows: int = ROWS) -> list[str]:
    """Return arguments for jobs/produce.py to read a generated CSV file."""
    file = folder / "trips.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([["id", "city"], *([number, f"city {number % 97}"] for number in range(rows))])
    return ["--format", "csv", "--path", cluster.upload(file), "--option", "header=true", "--key", "city"]


def on(root: Root, topic: str) -> list[str]:
    return ["--bootstrap-server", root.url, "--topic", topic]


def test_records_are_produced_and_consumed(cluster: SparkCluster, mode: str, tmp_path: Path) -> None:
    root = create(cluster.root(), {"trips": 4})
    rows = trips(cluster, tmp_path)
    output = succeeded(cluster.run("produce", *on(root, "trips"), *rows, mode=mode, package="archive", root=root))
    assert f"produce: {ROWS:,} records written to topic trips in " in output
    assert sorted(int(json.loads(value)["id"]) for value in values_of(root, "trips")) == list(range(ROWS))

    target = ["--format", "parquet", "--path", cluster.folder()]
    output = succeeded(cluster.run("consume", *on(root, "trips"), *target, mode=mode, package="zip", root=root))
    assert f"consume: {ROWS:,} records" in output


def test_a_log_on_another_storage_needs_only_its_variables(cluster: SparkCluster, tmp_path: Path) -> None:
    """On S3 with another server than Amazon's: its address, a region and the keys are in the environment of driver and
    tasks; on HDFS the user's name."""
    root = create(cluster.root(cluster.other_storage), {"trips": 2})
    mode = cluster.modes[-1]
    succeeded(
        cluster.run("produce", *on(root, "trips"), *trips(cluster, tmp_path), mode=mode, package="archive", root=root)
    )
    assert sorted(int(json.loads(value)["id"]) for value in values_of(root, "trips")) == list(range(ROWS))


@on_clusters("k8s")
def test_topics_are_copied_to_a_topic_and_to_a_table(cluster: SparkCluster) -> None:
    """On the other clusters the page's commands write the table, and the killed copy the topic."""
    root = create(cluster.root(), {"source": 2, "copy": 2})
    written = fill(root, "source", 2000)
    for program, target in (
        ("stream_copy", ["--to", "copy", "--group", "copies"]),
        ("stream_to_table", ["--path", cluster.folder()]),
    ):
        query = [*target, "--checkpoint", cluster.folder(), "--available-now", "--max-offsets-per-trigger", "800"]
        output = succeeded(
            cluster.run(program, *on(root, "source"), *query, mode=cluster.modes[-1], package="archive", root=root)
        )
        assert "ended after 2,000 records" in output
    assert sorted(values_of(root, "copy")) == sorted(written)


FUNCTION = """\
import importlib.util
import pyarrow as pa

def copy(records, context):
    assert (importlib.util.find_spec("pandas") is not None) == HAVE_PANDAS
    context.send("totals", pa.table({"value": records["value"]}))
"""


@on_clusters("standalone", "k8s")
def test_a_group_of_tasks_consumes_with_what_its_executors_have(cluster: SparkCluster, tmp_path: Path) -> None:
    """Executors of the archive have no pandas, on YARN as well as here; those of the image do."""
    root = create(cluster.root(), {"orders": 3, "totals": 1})
    written = fill(root, "orders", 3000)
    function = tmp_path / "totals.py"
    function.write_text(f"HAVE_PANDAS = {cluster.executors_have_pandas}\n{FUNCTION}")
    group = ["--group", "totals", "--process", f"{function}:copy", "--members", "2"]
    output = succeeded(cluster.run("consume_group", *on(root, "orders"), *group, package="archive", root=root))
    assert "consumed everything after 3,000 records" in output
    assert sorted(values_of(root, "totals")) == sorted(written)


@on_clusters("standalone")
def test_maintenance_runs_on_executors_without_pandas(cluster: SparkCluster) -> None:
    root = create(cluster.root(), {"orders": 2})
    written = fill(root, "orders", 3000, batches=12)
    steps = ["--bootstrap-server", root.url, "--only", "roll,retention,compaction,deletion,cleanup"]
    output = succeeded(cluster.run("maintain", *steps, mode=cluster.modes[-1], package="archive", root=root))
    assert "maintain: roll: files rewritten" in output
    assert sorted(values_of(root, "orders")) == sorted(written)
    assert damage_and_orphans(root) == []


def test_fsck_runs_on_executors_without_pandas(cluster: SparkCluster) -> None:
    root = create(cluster.root(), {"orders": 2})
    fill(root, "orders", 1000)
    variables = {**tagged(), **root.environment}
    command = [str(Path(sys.executable).with_name("sparklog")), "fsck", "--bootstrap-server", root.url]
    shell = {**variables, "PYSPARK_PYTHON": "python3"}
    done = cluster.start([*command, *cluster.distributed_arguments(variables)], shell).wait()
    assert "Clean." in succeeded(done)
