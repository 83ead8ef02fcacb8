"""Programs whose session is one of Spark Connect, run as processes by test_spark_connect.py: pyspark decides once in a
process whether it is a client. Each prints what it saw; the server's address is in SPARK_REMOTE."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import sparklog
import sparklog.spark
from sparklog.errors import SparklogError
from sparklog.spark.group.task import ConsumeContext
from sparklog.spark.stream.lag_listener import QueryLag


def session() -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("concat('k', id % 10) key", "concat('v', id) value")


def batch(root: str) -> None:
    """Write and read rows, look at a system table and at a snapshot, by arguments and by options."""
    spark = session()
    sparklog.write(rows(spark, 100), root, "orders", txn_app_id="nightly", txn_version=1)
    sparklog.write(rows(spark, 100), root, "orders", txn_app_id="nightly", txn_version=1)
    rows(spark, 20).write.format("sparklog").option("topic", "orders").save(root)
    frame = sparklog.read(spark, root, "orders", columns=["value"])
    print("read", frame.count(), frame.distinct().count())
    sparklog.write(rows(spark, 1), root, "orders")
    print("again", frame.count())
    topics = spark.read.format("sparklog").option("system", "topics").load(root)
    print("system", [row.topic for row in topics.select("topic").collect()])
    then = sparklog.snapshot(root).version
    sparklog.write(rows(spark, 1), root, "orders")
    print("snapshot", sparklog.read(spark, root, "orders", version=then).count())


def sql(root: str) -> None:
    """Create a table of the catalog, insert into it and query it."""
    spark = session()
    sparklog.register(spark)
    options = f"`kafka.bootstrap.servers` '{root}', subscribe 'orders', topic 'orders', columns 'key,value'"
    spark.sql("DROP TABLE IF EXISTS connected")
    spark.sql(f"CREATE TABLE connected USING sparklog OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO connected VALUES (CAST('k' AS BINARY), CAST('v' AS BINARY))").collect()
        print("sql", spark.sql("SELECT count(*) n FROM connected").collect()[0].n)
    finally:
        spark.sql("DROP TABLE connected")


def table(root: str) -> None:
    """Read a topic whose first records are history as a table, and as a view."""
    spark = session()
    frame = sparklog.table(spark, root, "history")
    print("columns", ",".join(frame.columns))
    print("rows", frame.count(), frame.select("partition", "offset").distinct().count())
    print("partition 1", frame.where("partition = 1").count(), "typed", frame.where("n >= 10").count())
    print("same", sorted(frame.drop("_unfit").collect(), key=repr) == sorted(read_all(spark, root), key=repr))
    sparklog.create_view(spark, root, "history", "shown")
    print("view", spark.sql("SELECT count(*) n FROM shown WHERE offset < 5").collect()[0].n)


def read_all(spark: SparkSession, root: str) -> list[Row]:
    """Return the records of topic history in the columns of its table, parsed by Spark itself."""
    stored = ["partition", "offset", "timestamp", "key", "value", "headers"]
    records = sparklog.read(spark, root, "history", include_headers=True, columns=stored)
    return records.withColumn("n", F.from_json(F.col("value").cast("string"), "n bigint")["n"]).collect()


def stream(root: str, folder: str) -> None:
    """Copy a topic by a stream, whose listener reports its lag and commits to the group of its name."""
    spark = session()
    sparklog.register(spark)
    seen = threading.Event()
    lags: list[QueryLag] = []

    def note(lag: QueryLag) -> None:
        lags.append(lag)
        seen.set()

    listener = sparklog.spark.LagListener(note, root=root)
    spark.streams.addListener(listener)
    source = spark.readStream.format("sparklog").option("subscribe", "orders").option("startingOffsets", "earliest")
    writer = source.load(root).select("key", "value").writeStream.format("sparklog").queryName("copier")
    writer = writer.option("kafka.bootstrap.servers", root).option("topic", "copies")
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    print("copied", sparklog.read(spark, root, "copies").count())
    print("reported", seen.wait(60), lags[-1].max_offsets_behind_latest if lags else "none")
    spark.streams.removeListener(listener)  # its thread keeps the program running


def for_each_batch(root: str, folder: str) -> None:
    """Copy a topic by foreachBatch, twice from the same checkpoint."""
    spark = session()

    def handle(records: DataFrame, batch_id: int) -> None:
        sparklog.write_batch(records.select("key", "value"), batch_id, root, "batches", query_id="connected")

    def forgetful(records: DataFrame, batch_id: int) -> None:
        sparklog.write_batch(records.select("key", "value"), batch_id, root, "batches")

    sparklog.register(spark)
    for function, checkpoint in ((handle, "first"), (handle, "first"), (handle, "second"), (forgetful, "third")):
        source = spark.readStream.format("sparklog").option("subscribe", "orders").option("startingOffsets", "earliest")
        writer = source.load(root).writeStream.foreachBatch(function)
        query = writer.option("checkpointLocation", str(Path(folder, checkpoint))).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            print(function.__name__, checkpoint, sparklog.read(spark, root, "batches").count())
        except Exception as error:
            print(function.__name__, "failed:", str(error).replace("\n", " "))


def group(root: str) -> None:
    """Consume a topic as a group of tasks, and have a task fail."""
    spark = session()

    def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
        context.send("grouped", records.select(["key", "value"]))

    def refuse(records: pa.RecordBatch, context: ConsumeContext) -> None:
        raise ValueError("not today")

    reports = sparklog.spark.consume(spark, root=root, group="g", topics="orders", process=copy, max_records=30)
    print("consumed", sum(report.records for report in reports), "by", len(reports))
    print("grouped", sparklog.read(spark, root, "grouped").count())
    print("nothing left", sparklog.spark.consume(spark, root=root, group="g", topics="orders", process=copy))
    try:
        sparklog.spark.consume(spark, root=root, group="h", topics="orders", process=refuse)
    except Exception as error:
        print("failed", "not today" in str(error), isinstance(error, SparklogError))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
