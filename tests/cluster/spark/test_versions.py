"""What another version of Spark lacks: the error for one that is too old, and the ways around the rest."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import datasource

from sparklog.errors import DataLossError
from sparklog.protocol.decide.segments import delete_records
from sparklog.spark.stream.writer import SparklogStreamWriter
from sparklog.spark.versions import api, limits
from tests.cluster.spark.helpers import cluster
from tests.cluster.spark.test_stream_planner import positions, produce, read, reader

ROOT = Path(__file__).resolve().parents[3]


def import_with(folder: Path) -> str:
    """Import sparklog.spark in a process whose pyspark is the one in a folder. Return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", "import sparklog.spark"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr


def test_a_spark_without_data_sources_is_refused_by_its_version(tmp_path: Path) -> None:
    for module in ("__init__.py", "sql/__init__.py"):
        (tmp_path / "pyspark" / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pyspark" / module).touch()
    (tmp_path / "pyspark" / "version.py").write_text('__version__ = "3.5.9"\n')
    printed = import_with(tmp_path)
    assert "ModuleNotFoundError: sparklog.spark needs Spark 4.0 or newer, and this Python has pyspark 3.5.9" in printed
    (tmp_path / "pyspark" / "sql" / "datasource.py").touch()
    assert import_with(tmp_path) == ""


def test_a_spark_without_limits_is_given_all_records_and_each_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It passes neither the start of a batch nor a limit, and another process continues without knowing a start."""
    api.warn_of_limits.cache_clear()
    cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    job = reader(tmp_path, maxOffsetsPerTrigger="2", minOffsetsPerTrigger="1")
    start = job.initialOffset()
    with caplog.at_level(logging.WARNING):
        first = job.latestOffset()
        assert job.latestOffset() == first
    assert caplog.text.count("maxOffsetsPerTrigger, minOffsetsPerTrigger: no effect before Spark 4.2") == 1
    assert positions(first) == {"orders": {"0": 5, "1": 2}}
    assert len(read(job, start, first)) == 7
    produce(tmp_path, "orders", 1)
    second = job.latestOffset()
    assert read(job, first, second) == [("orders", 0, 5)]
    assert job.latestOffset() == second, "nothing new, so Spark starts no batch"
    produce(tmp_path, "orders", 0, 1)
    restarted = reader(tmp_path)
    assert read(restarted, second, restarted.latestOffset()) == [("orders", 1, 2)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_spark_without_limits_starts_a_query_on_a_topic_whose_oldest_records_expired(
    tmp_path: Path, starting: str
) -> None:
    """It asks for the end of the first batch before its start. Run again after a crash, the batch has the same rows."""
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    log.submit(partial(delete_records, offsets={("orders", 0): 3}))
    job = reader(tmp_path, startingOffsets=starting)
    end = job.latestOffset()
    rows = read(job, job.initialOffset(), end)
    assert len(rows) == (2 if starting == "earliest" else 0)
    produce(tmp_path, "orders", 4)
    again = reader(tmp_path, startingOffsets=starting)
    assert read(again, again.initialOffset(), end) == rows
    assert len(read(again, end, again.latestOffset())) == 4


def test_a_spark_without_limits_loses_no_records_in_silence_if_a_first_batch_is_run_again(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    end = reader(tmp_path).latestOffset()
    log.submit(partial(delete_records, offsets={("orders", 0): 3}))
    again = reader(tmp_path)
    with pytest.raises(DataLossError, match="orders-0 from offset 0 to 3"):
        again.partitions(again.initialOffset(), end)


def test_the_classes_that_stand_for_limits_have_the_attributes_of_sparks() -> None:
    for most, least in ((api.ReadMaxRows(3), api.ReadMinRows(2)), (limits.ReadMaxRows(3), limits.ReadMinRows(2))):
        assert (most.max_rows, least.min_rows) == (3, 2)


def test_the_writer_of_streams_is_of_a_class_that_tasks_pass_arrow_batches() -> None:
    arrow = (datasource.DataSourceArrowWriter, getattr(datasource, "DataSourceStreamArrowWriter", ()))
    assert issubclass(SparklogStreamWriter, arrow)
    assert issubclass(SparklogStreamWriter, datasource.DataSourceStreamWriter)
