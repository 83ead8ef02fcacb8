"""jobs/stream_to_table.py into a Delta table: spark-submit, with conf/spark-delta.conf and its jars."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster
from sparklog.spark.versions.api import HAS_LIMITS
from tests.cluster.spark.helpers import write_rows
from tests.integration.delta_jars import delta_settings, submit

READ_TABLE = """\
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
table = spark.read.format("delta").load(sys.argv[1])
versions = spark.sql(f"DESCRIBE HISTORY delta.`{sys.argv[1]}`").collect()
found = {"ids": sorted(row.id for row in table.collect()), "operations": [row.operation for row in versions]}
print("TABLE", json.dumps(found))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return delta_settings(tmp_path)


@pytest.mark.slow
def test_a_delta_table_has_every_record_once_after_the_query_was_restarted(tmp_path: Path, settings: Path) -> None:
    create_cluster(str(tmp_path / "log")).create_topic("orders", 2)
    arguments = ["--bootstrap-server", str(tmp_path / "log"), "--topic", "orders", "--format", "delta"]
    arguments += ["--path", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    arguments += ["--value-schema", "id int", "--select", "id", "--max-offsets-per-trigger", "4"]
    for first in (0, 10):
        rows = [{"value": json.dumps({"id": number})} for number in range(first, first + 10)]
        write_rows(tmp_path / "log", "value string", rows, topic="orders")
        assert "ended after 10 records" in submit(settings, "jobs/stream_to_table.py", *arguments)
    table_commits = len(list((tmp_path / "table" / "_delta_log").glob("*.json")))
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the query had been killed between the table's commit and its own
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    submit(settings, "jobs/stream_to_table.py", *arguments)
    assert last.exists(), "the last batch was not rerun"
    (tmp_path / "read_table.py").write_text(READ_TABLE)
    printed = submit(settings, str(tmp_path / "read_table.py"), str(tmp_path / "table"))
    table = json.loads(printed.partition("TABLE ")[2].partition("\n")[0])
    assert table["ids"] == list(range(20))
    assert table["operations"] == ["STREAMING UPDATE"] * table_commits, "the rerun batch added a commit"
    assert (table_commits > 2) == HAS_LIMITS, "before Spark 4.2 each run is one batch"
