"""Measure the cost of a second replica for a writer: bytes, passes over the rows, and time compared with copying files.

A Spark writer's task without Spark, with rows that have a key, to eight partitions; all locations are on one disk. The
reference writes the same to one location and then copies its files to another, durably: the cost of a replica if the
writer does not write both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.measure import Figure, Settings, interleaved, median, scratch
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.format.segment_writer import SegmentWriter
from sparklog.log.broker_files import encode_identity
from sparklog.protocol.commits import RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogWriter
from sparklog.store.local import LocalStore
from sparklog.store.location import IDENTITY_KEY
from sparklog.testing.faulty_store import CountingStore
from sparklog.testing.substitutes import substituted

PARTITIONS = 8
BATCH_ROWS = 10_000
SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def run(settings: Settings) -> list[Figure]:
    batches = max(settings.rows // 4 // BATCH_ROWS, 1)
    with scratch("replicas") as folder:
        cluster = _cluster(folder)
        counted = _counted(cluster, batches)
        copied = LocalStore(str(folder / "copied"))

        def and_copy() -> None:
            for path in _write(cluster, "alone", batches):
                _copy(LocalStore(cluster.store.root), copied, path)

        seconds = interleaved(
            settings.runs,
            {
                "one replica": lambda: _write(cluster, "alone", batches),
                "two replicas": lambda: _write(cluster, "both", batches),
                "one replica and a copy": and_copy,
            },
        )
    took = {side: median(samples) for side, samples in seconds.items()}
    ratio = took["one replica and a copy"] / took["two replicas"]
    rate = batches * BATCH_ROWS / took["two replicas"] / 1e6
    alone = batches * BATCH_ROWS / took["one replica"] / 1e6
    return [
        *counted,
        Figure(
            "write to two replicas",
            f"{rate:.2f} M rows/s",
            f"one replica and a copy of its files {rate / ratio:.2f} M rows/s; one replica {alone:.2f}",
            ratio,
            ">= 0.9",
            ratio >= 0.9,
            samples=seconds,
        ),
    ]


def _cluster(folder: Path) -> Coordinator:
    cluster = create_cluster(str(folder / "root"))
    second = folder / "second"
    second.mkdir()
    (second / IDENTITY_KEY).write_bytes(encode_identity(cluster.state.cluster_id, 1))
    cluster.submit(lambda state: Decision([RegisterBroker(broker=1, url=str(second))], None))
    cluster.create_topic("alone", assignment=[[0]] * PARTITIONS)
    cluster.create_topic("both", assignment=[[0, 1]] * PARTITIONS)
    return cluster


def _write(cluster: Coordinator, topic: str, batches: int) -> list[str]:
    """Write and commit; the files."""
    keys = pa.array([b"%d" % (row % 9973) for row in range(BATCH_ROWS)], pa.binary())
    rows = pa.RecordBatch.from_arrays([keys, pa.array([b"x" * 100] * BATCH_ROWS, pa.binary())], names=["key", "value"])
    writer = SparklogWriter(sink_options({"path": cluster.store.root, "topic": topic}), SCHEMA)
    message = writer.write(iter([rows] * batches))
    writer.commit([message])
    return sorted({append.run.path for append in message.appends})


def _copy(source: LocalStore, target: LocalStore, path: str) -> None:
    file = source.open_input(path)
    with target.open_output(path) as output:
        output.write(file.read_at(0, file.size))
    file.close()


def _counted(cluster: Coordinator, batches: int) -> list[Figure]:
    """Bytes and encoded batches of one write to both, against one to the first alone."""
    stores = [CountingStore(LocalStore(root)) for root in (cluster.store.root, cluster.state.brokers[1].url)]
    written: dict[str, list[int]] = {}
    encoded: dict[str, int] = {}
    for topic in ("alone", "both"):
        for store in stores:
            store.reset_counts()
        with substituted(stores[0]), substituted(stores[1]), _encodings() as count:
            _write(cluster, topic, batches)
        written[topic] = [store.bytes_written for store in stores]
        encoded[topic] = len(count)
    copies = written["both"][1] / written["alone"][0]
    passes = encoded["both"] / encoded["alone"]
    return [
        Figure(
            "bytes of a second replica",
            f"{written['both'][1]:,}",
            f"the first, commit included {written['alone'][0]:,}",
            copies,
            "<= 1.0",
            copies <= 1.0,
        ),
        Figure(
            "batches encoded for two replicas",
            f"{encoded['both']:,}",
            f"for one {encoded['alone']:,}",
            passes,
            "1.0",
            passes == 1.0,
        ),
    ]


@contextmanager
def _encodings() -> Iterator[list[int]]:
    """The rows of each batch that is encoded in this process until the block ends."""
    count: list[int] = []
    encode = SegmentWriter.write

    def counted(self: SegmentWriter, batch: pa.RecordBatch, **more: Any) -> Any:
        count.append(batch.num_rows)
        return encode(self, batch, **more)

    SegmentWriter.write = counted  # type: ignore[method-assign]
    try:
        yield count
    finally:
        SegmentWriter.write = encode  # type: ignore[method-assign]
