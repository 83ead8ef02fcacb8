"""A copy query with a Spark session of its own, run as a process by test_stream_exactly_once.py, which kills it."""

from __future__ import annotations

import sys

import sparklog
from sparklog.spark.session import sparklog_session
from tests.integration.spark_programs import QUIET


def copy(root: str, checkpoint: str, limit: str, scratch: str) -> None:
    """Copy topic orders to topic copies, partition by partition; prints a line for each finished batch."""
    spark = sparklog_session("local[2]", config={**QUIET, "spark.local.dir": scratch})
    sparklog.register(spark)
    source = spark.readStream.format("sparklog").options(
        **{
            "kafka.bootstrap.servers": root,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": limit,
            "includeHeaders": "true",
        }
    )
    sink = source.load().select("key", "value", "headers", "partition", "timestamp").writeStream.format("sparklog")
    sink = sink.options(
        **{
            "kafka.bootstrap.servers": root,
            "topic": "copies",
            "checkpointLocation": checkpoint,
            "kafka.group.id": "copier",
        }
    )
    query = sink.trigger(availableNow=True).start()
    seen = -1
    while not query.awaitTermination(0.05):
        for progress in query.recentProgress:
            if progress.batchId > seen:
                seen = progress.batchId
                print("batch", seen, flush=True)
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
