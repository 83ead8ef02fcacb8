"""What a working session prints, and the error of one that cannot work. Each test runs a separate program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEALTHY = """
import sys
import sparklog
from sparklog.coordinator import create_cluster
from sparklog.spark.session import sparklog_session

folder = sys.argv[1]
cluster = create_cluster(folder + "/log")
for topic in ("orders", "copy", "other"):  # one that is created by a write is named in a warning
    cluster.create_topic(topic)
root = cluster.store.root
spark = sparklog_session("local[2]", config={"spark.ui.enabled": "false"})
sparklog.register(spark)
for _ in range(2):
    sparklog.write(spark.range(1000).selectExpr("CAST(id AS STRING) value"), root, "orders")
print(sparklog.read(spark, root, "orders").count(), len(sparklog.read(spark, root, "orders").limit(1).collect()))
rows = spark.readStream.format("sparklog").options(subscribe="orders", startingOffsets="earliest").load(root)
copy = rows.select("value").writeStream.format("sparklog").option("bootstrap.servers", root)
copy = copy.option("topic", "copy").option("checkpointLocation", folder + "/c")
query = copy.queryName("late").trigger(availableNow=True).start()
query.awaitTermination()

def handle(batch, number):
    sparklog.write(batch, root, "other")

each = rows.select("value").writeStream.foreachBatch(handle).option("checkpointLocation", folder + "/d")
each.trigger(availableNow=True).start().awaitTermination()
print(sparklog.read(spark, root, ["copy", "other"]).count())
spark.stop()
"""

WITHOUT_SPARKLOG_SESSION = """
import sparklog
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    sparklog.register(spark)
except sparklog.errors.InvalidRequestError as error:
    print(error)
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )


@pytest.mark.programs
def test_a_working_session_prints_no_traceback_and_no_sparklog_warning(tmp_path: Path) -> None:
    done = run(HEALTHY, str(tmp_path))
    assert done.stdout.split() == ["2000", "1", "4000"], done.stderr
    for text in ("Traceback", "BrokenPipe", "replaced a", "unknown option", "sparklog"):
        lines = [line for line in done.stderr.splitlines() if text.lower() in line.lower()]
        assert not [line for line in lines if "ResolveWriteToStream" not in line], done.stderr


@pytest.mark.programs
def test_a_session_whose_python_lacks_sparklog_fails_with_instructions(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(0o755)
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    assert shutil.which("python3", path=path) == str(other)
    done = run(WITHOUT_SPARKLOG_SESSION, PATH=path)
    assert f"Set PYSPARK_PYTHON={sys.executable}" in done.stdout, done.stderr
    assert "'python3', which has no sparklog" in done.stdout
