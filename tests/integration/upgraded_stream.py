"""A stream copy from a topic to another, run by one version of the package, once for each line of its input.

PYTHONPATH=sparklog-0.2.0-py.zip python upgraded_stream.py ROOT CHECKPOINT

Each run continues the query of the run before, also of another process; a line says how it ended: "copied", or "failed"
with the reason.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import sparklog


def start_spark() -> SparkSession:
    config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "OFF"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sparklog.register(spark)
    return spark


def copy(spark: SparkSession, root: str, checkpoint: str) -> None:
    """Copy what there is in the topic "in" and not in "out". Raises StreamingQueryException."""
    address = {"bootstrap.servers": root}
    rows = (
        spark.readStream.format("sparklog")
        .options(**address, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="5")
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("sparklog")
        .options(**address, topic="out", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(root: str, checkpoint: str) -> None:
    spark = start_spark()
    for _ in sys.stdin:
        try:
            copy(spark, root, checkpoint)
            ended = "copied"
        except Exception as error:
            ended = "failed: " + " ".join(str(error).split())
        print(ended, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
