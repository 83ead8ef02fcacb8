"""System tables in Spark are those of ``sparklog.system``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.testing.records import Record, append_records


@pytest.fixture
def log(tmp_path: Path, spark: SparkSession) -> Coordinator:
    """A cluster with a topic and a group that has read one of two records."""
    sparklog.register(spark)
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 2, configs={"retention.ms": "1000000000"})
    append_records(coordinator, "orders", [Record(value=b"v", partition=0)] * 2)
    first = sparklog.TopicPartition("orders", 0)
    with sparklog.Consumer(bootstrap_servers=coordinator.store.root, group_id="billing") as consumer:
        consumer.assign([first])
        consumer.commit({first: sparklog.OffsetAndMetadata(1, "", -1)})
    return coordinator


def test_every_table_has_the_rows_that_python_reads(spark: SparkSession, log: Coordinator) -> None:
    system = sparklog.system(log.store.root)
    reader = spark.read.format("sparklog")
    counts = {name: reader.option("system", name).load(log.store.root).count() for name in ("members", "storage")}
    assert counts == {"members": 0, "storage": 1}
    storage = spark.read.format("sparklog").options(system="storage", orphans=True).load(log.store.root)
    assert [(row.topic, row.orphaned_files) for row in storage.collect()] == [("orders", 0)]
    for name in ("appends", "configs", "topics", "partitions", "commits"):
        frame = reader.option("system", name).load(log.store.root)
        expected = system.read(name).to_pylist()
        assert frame.columns == system.schema(name).names
        rows = [row.asDict() for row in frame.collect()]
        assert len(rows) == len(expected)
        for row, wanted in zip(rows, expected, strict=True):
            for column, value in wanted.items():
                found = row[column]
                if hasattr(value, "tzinfo"):
                    assert found.timestamp() == value.replace(tzinfo=value.tzinfo).timestamp()
                elif column == "configs":
                    assert found == dict(value)
                else:
                    assert found == value, (name, column)


def test_sql_reads_the_lag_of_a_group_anew_for_each_query(spark: SparkSession, log: Coordinator) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW lag USING sparklog "
        f"OPTIONS (path '{log.store.root}', system 'lag', group 'billing', topic 'orders')"
    )
    query = "SELECT topic, partition, lag FROM lag WHERE lag > 0"
    assert [tuple(row) for row in spark.sql(query).collect()] == [("orders", 0, 1)]
    append_records(log, "orders", [Record(value=b"v", partition=0)])
    assert [tuple(row) for row in spark.sql(query).collect()] == [("orders", 0, 2)]
    chosen = spark.read.format("sparklog").schema("lag bigint, group string").option("system", "lag")
    assert [tuple(row) for row in chosen.load(log.store.root).collect()] == [(2, "billing")]


REFUSED = {
    "unknown table": ({"system": "lagg"}, "did you mean lag"),
    "option of records": ({"system": "lag", "subscribe": "orders"}, "subscribe does not apply to a system table"),
    "mistyped option": ({"system": "lag", "grop": "g"}, "did you mean group"),
    "column that the table lacks": ({"system": "commits", "topic": "orders"}, "has no column topic"),
    "invalid time": ({"system": "lag", "since": "soon"}, "invalid since 'soon'"),
    "time of records": ({"subscribe": "orders", "since": "1h"}, "option since belongs to reads with option system"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_belong_is_refused(
    spark: SparkSession, log: Coordinator, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        spark.read.format("sparklog").options(**options).load(log.store.root)


def test_streams_writes_and_catalog_tables_of_system_tables_are_refused(spark: SparkSession, log: Coordinator) -> None:
    root = log.store.root
    stream = spark.readStream.format("sparklog").option("system", "lag").load(root).writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="does not apply to a streaming query"):
        stream.processAllAvailable()
    rows = spark.sql("SELECT 'v' value")
    with pytest.raises(Exception, match="option system names a table to read"):
        rows.write.format("sparklog").options(system="lag", topic="orders").mode("append").save(root)
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE lag USING sparklog OPTIONS (`kafka.bootstrap.servers` '{root}', system 'lag')")
    wrong = spark.read.format("sparklog").schema("lag string").option("system", "lag").load(root)
    with pytest.raises(Exception, match="has no column lag string"):
        wrong.count()
