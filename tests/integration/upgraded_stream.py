"""A stream copy from a topic to another, run by one version of the package: continues the query of an earlier run.

PYTHONPATH=sparklog-0.2.0-py.zip python upgraded_stream.py ROOT CHECKPOINT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import sparklog


def main(root: str, checkpoint: str) -> None:
    config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "OFF"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sparklog.register(spark)
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
    try:
        query.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
