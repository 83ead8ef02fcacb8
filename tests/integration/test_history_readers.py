"""After random histories of a topic Spark returns the records and typed columns that ``Consumer`` and ``scan`` return:
by ``format("sparklog")``, by ``sparklog.table``, also at older versions, and by delta-spark from the Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.spark.history import table as implementation
from tests.cluster.maintenance.histories import COLUMNS, TOPIC, TopicUnderTest, random_steps, rows_with_types
from tests.cluster.maintenance.published_tables import Row
from tests.integration.delta_jars import delta_settings, submit

SEEDS = range(3)

READ_TABLES = """\
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
for root in sys.argv[1:]:
    spark.read.format("delta").load(f"{root}/tables/t").coalesce(1).write.parquet(f"{root}-delta-spark")
"""


@pytest.fixture(params=SEEDS)
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TopicUnderTest]:
    topic = run_history(tmp_path / "log", request.param)
    yield topic
    topic.close()


def run_history(folder: Path, seed: int) -> TopicUnderTest:
    topic = TopicUnderTest(folder, compacted=seed % 2 == 1, schema=seed % 3, kept=seed != 2)
    for step in [*random_steps(Random(seed)), ("append", 0, 4, seed), ("append", 1, 4, seed + 1), ("roll",)]:
        topic.run(step)
    return topic


def arrow(rows: DataFrame) -> pa.Table:
    return rows.toArrow()


def check(spark: SparkSession, topic: TopicUnderTest) -> None:
    rows = topic.check_log()
    assert without_types(sparklog.scan(TOPIC, topic.root).to_arrow()) == rows
    read = sparklog.read(spark, topic.root, TOPIC, include_headers=True)
    assert without_types(arrow(read)) == rows
    shown = sparklog.table(spark, topic.root, TOPIC)
    names = shown.columns[len(COLUMNS) :]
    found = topic.with_values(rows_with_types(arrow(shown), names))
    assert [row for row, _ in found] == rows
    allowed = topic.typed_in_log()
    for row, typed in found:
        assert typed in allowed[row.partition, row.offset]
    for version, ends in list(topic.ends.items())[-8:-6]:
        then = sparklog.table(spark, topic.root, TOPIC, version=version)
        read_then = topic.with_values(rows_with_types(arrow(then), then.columns[len(COLUMNS) :]))
        assert [row for row, _ in read_then] == [row for row in rows if row.offset < ends[row.partition]]


def without_types(table: pa.Table) -> list[Row]:
    return [row for row, _ in rows_with_types(table)]


def test_spark_returns_the_records_and_typed_columns_of_the_log(
    spark: SparkSession, topic: TopicUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(spark, topic)
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", 0)
    topic.run(("finish", "commit"))
    check(spark, topic)


@pytest.mark.slow
def test_delta_spark_returns_the_history_at_the_published_version(tmp_path: Path) -> None:
    topics = [run_history(tmp_path / f"log{seed}", seed) for seed in SEEDS]
    for topic in topics:
        topic.close()
        topic.run(("publish",))
    (tmp_path / "read_tables.py").write_text(READ_TABLES)
    submit(delta_settings(tmp_path), str(tmp_path / "read_tables.py"), *(topic.root for topic in topics))

    def delta_spark(table: Path) -> pa.Table:
        return ds.dataset(f"{table.parents[1]}-delta-spark", format="parquet").to_table()

    for topic in topics:
        assert topic.history(topic.log_rows())
        topic.check_table([delta_spark])
