"""Measure whether a streaming query gets slower with age: the same batch, early and late in its life.

Ten thousand batches are driven through the objects that Spark calls (source, task, sink), without Spark and without
waiting for the disk, both of which take the same time at any age: one commit of the input and one of the output each.
A real query runs as many batches as there is time for; of those Spark's own parts and its checkpoint are in the figure.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks import clusters
from benchmarks.measure import Figure, median, milliseconds
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest
from sparklog.spark.options import Options, sink_options
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter

WARM = 20
"""batches at the start that are not counted: they load modules, start processes and compile plans."""
LIMIT = 1.2
"""times as long as at first: what counts as no slower, given how much single batches differ."""


def run(spark: SparkSession, folder: Path, quick: bool) -> list[Figure]:
    """Both; ``folder`` is empty and on the disk that is measured."""
    driven = _driven(folder / "driven", 1_000 if quick else 10_000)
    queried = _queried(spark, folder / "queried", 60 if quick else 300)
    return [
        _figure("planning a batch", [one[0] for one in driven], 100),
        _figure("a whole batch without Spark and syncs", [one[1] for one in driven], 100),
        _figure("a trigger of a Spark query", queried, 20 if quick else 100),
    ]


def _figure(name: str, seconds: Sequence[float], count: int) -> Figure:
    first, last = median(list(seconds[WARM : WARM + count])), median(list(seconds[-count:]))
    return Figure(
        f"{name}: the last {count} of {len(seconds):,}",
        milliseconds(last),
        f"the first {count} {milliseconds(first)}",
        last / first,
        f"<= {LIMIT}",
        last / first <= LIMIT,
        samples={"batches": list(seconds)},
    )


def _driven(root: Path, batches: int) -> list[tuple[float, float]]:
    """Seconds of planning and of everything, by batch."""
    cluster = create_cluster(str(root))
    topic_id = cluster.create_topic("in")
    cluster.create_topic("out")
    place = {"kafka.bootstrap.servers": str(root)}
    schema = read_schema(False)
    source = stream_options(Options({**place, "subscribe": "in", "startingOffsets": "earliest"}))
    reader = SparklogStreamReader(source, schema)
    sink = sink_options(Options({**place, "topic": "out"}))
    start, found = reader.initialOffset(), []
    with mock.patch.object(os, "fsync"), mock.patch.object(os, "fdatasync"):
        for number in range(batches):
            _append(cluster, topic_id, number)
            began = time.perf_counter()
            end = reader.latestOffset(start, ReadAllAvailable())
            partitions = reader.partitions(start, end)
            planned = time.perf_counter()
            writer = SparklogStreamWriter(sink, schema)
            messages = [SparklogStreamCommitMessage(writer.write(reader.read(one)), "aging") for one in partitions]
            writer.commit(messages, number)
            found.append((planned - began, time.perf_counter() - began))
            start = end
    assert cluster.refresh().topic("out").partitions[0].high_watermark == batches
    return found


def _append(cluster: Coordinator, topic_id: str, number: int) -> None:
    writer = SegmentFileWriter(
        cluster.store, segment_key("in", 0, number, cluster.state.version, cluster.log.ids.write_id())
    )
    writer.start_run(RunTarget("in", topic_id, 0))
    writer.write(clusters.record_batch(1))
    cluster.append(AppendRequest(appends=writer.finish()))


def _queried(spark: SparkSession, folder: Path, batches: int) -> list[float]:
    """Seconds of each trigger with rows of a copy from topic to topic, one record in each."""
    cluster = create_cluster(str(folder / "log"))
    topic_id = cluster.create_topic("in")
    cluster.create_topic("out")
    for number in range(batches):
        _append(cluster, topic_id, number)
    place = {"kafka.bootstrap.servers": str(folder / "log")}
    source = {**place, "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    frame = spark.readStream.format("sparklog").options(**source).load().select("key", "value", "timestamp")
    writer = frame.writeStream.format("sparklog").options(**place).option("topic", "out")
    kept = str(spark.conf.get("spark.sql.streaming.numRecentProgressUpdates"))
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", batches + 10)
    try:
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", kept)
    progress = [json.loads(one.json) for one in query.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in progress if one["numInputRows"]]
