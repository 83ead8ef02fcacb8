"""Copy queries with their own Spark session, run as processes by tests that kill them or their executors.

A process starts Spark immediately and its query when it reads a line, so that the next instance of a repeatedly killed
query is ready to start.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.spark.session import sparklog_session
from tests.integration.failing_sink import FailingDataSource, StallingDataSource
from tests.integration.spark_programs import CLUSTER, QUIET

BY_PARTITION = ("key", "value", "headers", "partition", "timestamp")
BY_KEY = ("key", "value", "headers", "timestamp")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.task.duration.threshold": "2s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_copy(
    spark: SparkSession,
    root: str,
    checkpoint: str,
    limit: str,
    columns: tuple[str, ...],
    sink: str = "sparklog",
    **trigger: Any,
) -> StreamingQuery:
    """Wait for a line, then start to copy topic orders to topic copies, without a trigger up to the current end
    offsets."""
    sparklog.register(spark)
    sys.stdin.readline()
    source = spark.readStream.format("sparklog").options(
        **{
            "kafka.bootstrap.servers": root,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": limit,
            "includeHeaders": "true",
        }
    )
    writer = source.load().select(*columns).writeStream.format(sink)
    writer = writer.options(
        **{
            "kafka.bootstrap.servers": root,
            "topic": "copies",
            "checkpointLocation": checkpoint,
            "kafka.group.id": "copier",
        }
    )
    return writer.trigger(**trigger or {"availableNow": True}).start()


def finish(query: StreamingQuery) -> None:
    """Wait for another line, then stop the query once it has copied all the records there are."""
    sys.stdin.readline()
    query.processAllAvailable()
    query.stop()


def report(spark: SparkSession, query: StreamingQuery) -> None:
    """Wait for the end of a query and stop Spark; print a line for each finished batch and one at the end."""
    last_batch = -1
    while not query.awaitTermination(0.05):  # type: ignore[arg-type]
        for progress in query.recentProgress:
            if progress.batchId > last_batch:
                last_batch = progress.batchId
                print("batch", last_batch, flush=True)
    spark.stop()
    print("done", flush=True)


def copy(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy partition by partition, in one JVM."""
    spark = sparklog_session("local[2]", config={**QUIET, "spark.local.dir": scratch})
    report(spark, start_copy(spark, root, checkpoint, limit, BY_PARTITION))


def copy_as_records_arrive(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy partition by partition, in one JVM, until another line is read."""
    spark = sparklog_session("local[2]", config={**QUIET, "spark.local.dir": scratch})
    query = start_copy(spark, root, checkpoint, limit, BY_PARTITION, processingTime="0 seconds")
    threading.Thread(target=finish, args=(query,), daemon=True).start()
    report(spark, query)


def copy_on_executors(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy by key, on executors in separate processes."""
    environment = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    spark = sparklog_session(CLUSTER, config={**QUIET, **environment, "spark.local.dir": scratch})
    report(spark, start_copy(spark, root, checkpoint, limit, BY_KEY))


def copy_with_failing_tasks(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy by key; the first attempt of every task fails after it has written everything."""
    spark = sparklog_session("local[2,4]", config={**QUIET, "spark.local.dir": scratch})
    spark.dataSource.register(FailingDataSource)
    report(spark, start_copy(spark, root, checkpoint, limit, BY_KEY, sink="failing"))


def copy_with_speculation(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy by key, on the Spark cluster named by the environment; in every batch two attempts of one task write."""
    environment = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.local.dir": scratch}
    master = os.environ["SPARKLOG_TEST_MASTER"]
    spark = sparklog_session(master, python=sys.executable, config={**QUIET, **SPECULATION, **environment})
    spark.dataSource.register(StallingDataSource)
    report(spark, start_copy(spark, root, checkpoint, limit, BY_KEY, sink="stalling"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
