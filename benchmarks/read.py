"""Reading with Spark: all columns against the identity source, two columns against Parquet, many small partitions.

Everything is in the page cache on both sides. A row is read into Spark's ``noop`` sink.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_session
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    rate,
    scratch,
    throughput,
    timed,
    where_time_goes,
)
from sparklog.coordinator import create_cluster
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.session import LOW_LATENCY

SMALL_PARTITIONS, SMALL_ROWS = 64, 3000
PAIRS = {"key, value": "key binary, value binary", "key, timestamp": "key binary, timestamp timestamp"}


def run(settings: Settings) -> list[Figure]:
    """Reads of a topic with as many partitions as there are cores, and of one with 8: all columns, two, and a count."""
    figures = []
    with scratch("read") as folder, spark_session.spark_session(folder) as spark:
        for partitions in (spark_session.CORES, 8):
            topic = f"bench-{partitions}"
            frame = _prepare(spark, folder / topic, topic, partitions, settings.rows)
            frame.select("key", "timestamp").write.format("identity_sink").mode("append").save(
                _folder(folder / topic / "two")
            )
            alone = _tasks_alone(folder / topic / "cluster", topic)
            for name, sides in _reads(spark, folder / topic, topic).items():
                samples = interleaved(settings.runs, sides, warm=2)
                figures.append(
                    throughput(
                        f"{name} of {partitions} partitions",
                        settings.rows,
                        samples,
                        ("sparklog", "identity"),
                        0.9,
                        alone if name == "full read" else "",
                    )
                )
    return figures


def _reads(spark: SparkSession, folder: Path, topic: str) -> dict[str, dict[str, Callable[[], object]]]:
    """The sides of each kind of read; both count without any column."""
    identity, cluster, schema = spark.read.format("identity_source"), folder / "cluster", PAIRS["key, timestamp"]
    two = spark.read.format("identity_source").schema(schema)
    return {
        "full read": _full_sides(spark, folder, topic),
        "key, timestamp": {
            "identity": lambda: spark_session.drain(two.load(str(folder / "two"))),
            "sparklog": lambda: spark_session.drain(spark_session.read(spark, cluster, topic, schema)),
        },
        "count": {
            "identity": lambda: identity.load(str(folder / "arrow")).count(),
            "sparklog": lambda: spark_session.read(spark, cluster, topic).count(),
        },
    }


def _full_sides(spark: SparkSession, folder: Path, topic: str) -> dict[str, Callable[[], object]]:
    identity = spark.read.format("identity_source")
    return {
        "identity": lambda: spark_session.drain(identity.load(str(folder / "arrow"))),
        "sparklog": lambda: spark_session.drain(spark_session.read(spark, folder / "cluster", topic)),
    }


def run_projection(settings: Settings) -> list[Figure]:
    """Two columns, against Parquet files of the same rows (Spark's own reader and default compression)."""
    figures = []
    with scratch("projection") as folder, spark_session.spark_session(folder) as spark:
        frame = _prepare(spark, folder, "bench", spark_session.CORES, settings.rows)
        frame.write.parquet(str(folder / "parquet"))
        for names, schema in PAIRS.items():
            frame.select(*names.split(", ")).write.format("identity_sink").mode("append").save(_folder(folder / names))
            sides = _pair_sides(spark, folder, names, schema)
            samples = interleaved(settings.runs, sides, warm=2)
            ceiling = f"an identity source of these columns {rate(settings.rows, median(samples['identity']))}"
            name = f"projection of {names}"
            figures.append(throughput(name, settings.rows, samples, ("sparklog", "Parquet"), 0.95, ceiling))
    return figures


def run_small(settings: Settings) -> list[Figure]:
    """Many small partitions, where the task is what costs, in a session of sparklog's and in one of a user's."""
    figures = []
    for session, like in (("own session", LOW_LATENCY), ("a user's session", {})):
        with scratch("small") as folder, spark_session.spark_session(folder, like) as spark:
            _prepare(spark, folder, "bench", SMALL_PARTITIONS, SMALL_PARTITIONS * SMALL_ROWS, tasks=1)
            sides = _full_sides(spark, folder, "bench")
            sides["auto"] = lambda: spark_session.drain(
                spark_session.read(spark, folder / "cluster", "bench", maxPartitions="auto")
            )
            sides |= _empty_sides(spark)
            samples = interleaved(settings.runs, sides, warm=3)
        name = f"{SMALL_PARTITIONS} partitions of {SMALL_ROWS:,} rows, {session}"
        seconds = {side: median(of_side) for side, of_side in samples.items()}
        ratio, auto = (seconds[side] / seconds["identity"] for side in ("sparklog", "auto"))
        target, met = ("<= 0.5 s", seconds["sparklog"] <= 0.5) if like else ("<= 0.75", ratio <= 0.75)
        identity = f"identity {seconds['identity']:.2f} s"
        floor = (
            f"Spark's tasks without Python {seconds['no Python']:.2f} s, with a Python function that does nothing "
            f"{seconds['no work']:.2f} s"
        )
        figures += [
            Figure(name, f"{seconds['sparklog']:.2f} s", identity, ratio, target, met, floor, samples),
            Figure(
                f"{name}, maxPartitions=auto",
                f"{seconds['auto']:.2f} s",
                identity,
                auto,
                "<= 0.3 s",
                seconds["auto"] <= 0.3,
            ),
        ]
    return figures


def _empty_sides(spark: SparkSession) -> dict[str, Callable[[], object]]:
    """As many tasks that do nothing, without Python and with it: what Spark itself needs for them."""
    tasks = spark.range(0, SMALL_PARTITIONS, 1, SMALL_PARTITIONS)
    return {
        "no Python": lambda: spark_session.drain(tasks),
        "no work": lambda: spark_session.drain(tasks.mapInArrow(lambda batches: batches, tasks.schema)),
    }


def _pair_sides(spark: SparkSession, folder: Path, names: str, schema: str) -> dict[str, Callable[[], object]]:
    identity = spark.read.format("identity_source").schema(schema)
    parquet = spark.read.schema(schema)
    return {
        "Parquet": lambda: spark_session.drain(parquet.parquet(str(folder / "parquet"))),
        "sparklog": lambda: spark_session.drain(spark_session.read(spark, folder / "cluster", "bench", schema)),
        "identity": lambda: spark_session.drain(identity.load(str(folder / names))),
    }


def _tasks_alone(root: Path, topic: str) -> str:
    """What all tasks do in Python, run here one after another without Spark: how long, and where the time goes."""
    source = SparklogDataSource({"bootstrap.servers": str(root), "subscribe": topic})
    reader = source.reader(source.schema())
    partitions = reader.partitions()

    def read() -> None:
        for partition in partitions:
            for _ in reader.read(partition):
                pass

    read()
    return f"all tasks without Spark {timed(read):.2f} s: {where_time_goes(read)}"


def _folder(path: Path) -> str:
    path.mkdir()
    return str(path)


def _prepare(
    spark: SparkSession, folder: Path, topic: str, partitions: int, rows: int, tasks: int | None = None
) -> DataFrame:
    """A topic with these rows, and the same rows as sparklog reads them in Arrow files, one for each partition.

    Each of the ``tasks`` writes a segment of each partition, as many tasks as partitions by default.
    """
    create_cluster(str(folder / "cluster")).create_topic(topic, partitions)
    spark_session.write(spark_session.rows(spark, rows, tasks or partitions), folder / "cluster", topic)
    read = spark_session.read(spark, folder / "cluster", topic)
    assert read.count() == rows
    read.write.format("identity_sink").mode("append").save(_folder(folder / "arrow"))
    assert sum(_rows_of(path) for path in (folder / "arrow").iterdir()) == rows
    return read


def _rows_of(path: Path) -> int:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
