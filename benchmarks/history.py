"""Measure history as a table: Spark queries against Spark's own Parquet files, and what making history costs.

The same rows of 108 bytes in a topic with ``history.format=delta``, in one of Arrow segments, and in files that Spark
wrote. Publication and planning are measured on as many files as the targets name.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

import sparklog
from benchmarks import spark_session
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    rate,
    scratch,
    speed_ratio,
    throughput,
    timed,
)
from benchmarks.memory import peak_of
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.format.parquet.delta_stats import encode_stats
from sparklog.log.segments import TopicSegments, to_part
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.spark.history.file_index import scan_files
from sparklog.spark.history.files import find_history
from sparklog.spark.history.table import ROW_SCHEMA
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import FaultyStore

PARTITIONS = 8
START_US = 1_700_000_000_000_000
STEP_US = 250
LATER_MS = START_US // 1000 + 2 * 86_400_000
SEGMENT_BYTES = 32 * 1024 * 1024

LOOKUPS = 200
NEW_FILES = 1000
PLANNED_FILES = 100_000
QUERY_SECONDS = 0.3
COUNTED_PER_SECOND = 20_000_000


def run(settings: Settings) -> list[Figure]:
    with scratch("history") as folder, spark_session.spark_session(folder) as spark:
        figures, version = _rolls(spark, folder, settings)
        figures += [*_queries(spark, folder, settings, version), *_readers(folder, settings)]
        figures += [*_typed(spark, folder, settings), _planning(spark)]
        rows = sparklog.read(spark, str(folder / "json-left-out"), "bench")
        figures.append(_memory(lambda: spark_session.drain(rows), "read of typed history"))
    with scratch("publication") as folder:
        figures.append(_publication(folder))
    return figures


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    """A key of 8 bytes, a value of 100 of which half is random, and a time."""
    return spark.range(0, rows, 1, PARTITIONS).selectExpr(
        f"CAST(id % {PARTITIONS} AS INT) partition",
        "encode(lpad(CAST(id % 10000 AS STRING), 8, '0'), 'UTF-8') key",
        "encode(concat(repeat('x', 50), substring(sha2(CAST(id AS STRING), 256), 1, 50)), 'UTF-8') value",
        f"timestamp_micros({START_US} + id * {STEP_US}) timestamp",
    )


def _rolls(spark: SparkSession, folder: Path, settings: Settings) -> tuple[list[Figure], int]:
    """Close and roll both topics; the target is the rate of the roll to Arrow. Returns the version of the history, too,
    at which it had no records after it."""
    rows = _rows(spark, settings.rows)
    written = {name: _roll(str(folder / name), rows, {"history.format": name}) for name in ("arrow", "delta")}
    ratio = written["arrow"].seconds / written["delta"].seconds
    size = written["delta"].bytes_out / written["arrow"].bytes_out
    figures = [
        Figure(
            "roll to history",
            rate(settings.rows, written["delta"].seconds),
            f"Arrow {rate(settings.rows, written['arrow'].seconds)}",
            ratio,
            ">= 0.5",
            ratio >= 0.5,
        ),
        Figure(
            "bytes of history", f"{written['delta'].bytes_out / 1e6:.0f} MB", "zstd Arrow", size, "<= 1.3", size <= 1.3
        ),
    ]
    return figures, written["delta"].version


class _Rolled(NamedTuple):
    """What a roll wrote, how long it took, and the cluster's version at which the log had only what was rolled."""

    bytes_out: int
    seconds: float
    version: int


def _roll(root: str, rows: DataFrame, configs: dict[str, str]) -> _Rolled:
    """Write rows uncompressed, and roll all of them into closed segments with zstd. A later record of each partition
    remains, as after every roll."""
    settings = {"segment.bytes": str(SEGMENT_BYTES), "segment.ms": "86400000", "retention.ms": "-1"}
    coordinator = create_cluster(root)
    coordinator.create_topic("bench", PARTITIONS, configs={**settings, "compression.type": "uncompressed", **configs})
    sparklog.write(rows, root, topic="bench")
    version = coordinator.refresh().version
    with sparklog.Producer(bootstrap_servers=root) as producer:
        for number in range(PARTITIONS):
            producer.send("bench", b"{}", partition=number, timestamp_ms=LATER_MS)
    coordinator.submit(partial(alter_configs, topic="bench", changes={"compression.type": "zstd"}))
    began = time.perf_counter()
    counts = roll(coordinator, InProcess())
    return _Rolled(counts.bytes_out, time.perf_counter() - began, version)


def _queries(spark: SparkSession, folder: Path, settings: Settings, version: int) -> list[Figure]:
    """Queries of a table, whose records after the history are one of each partition; the same rows without them."""
    table = partial(sparklog.table, spark, str(folder / "delta"), "bench")
    frame, without_tail = table(), table(version=version)
    frame.write.parquet(str(folder / "parquet"))
    made = partial(spark.read.parquet, str(folder / "parquet"))
    parquet = made()
    return [
        *_full_reads(
            settings, {"made": table, "table": lambda: frame, "Parquet": lambda: parquet, "made Parquet": made}
        ),
        *_counts(settings, {"made": lambda: table().count(), "table": frame.count, "Parquet": parquet.count}),
        *_tails(settings, frame, without_tail),
        *_ranges(spark, folder, settings, table),
    ]


def _full_reads(settings: Settings, frames: dict[str, Callable[[], DataFrame]]) -> list[Figure]:
    """Full reads with and without the making of the DataFrame, on both sides."""

    def side(frame: Callable[[], DataFrame]) -> Callable[[], object]:
        return lambda: spark_session.drain(frame())

    samples = interleaved(settings.runs, {name: side(frame) for name, frame in frames.items()}, warm=2)
    name = "full read of a table"
    return [
        throughput(name, settings.rows, samples, ("table", "Parquet"), 0.95),
        throughput(f"{name}, with the making of it", settings.rows, samples, ("made", "made Parquet"), 0.95),
    ]


def _counts(settings: Settings, sides: dict[str, Callable[[], object]]) -> list[Figure]:
    """Counts with and without the making of the DataFrame; of the plain one, the target is absolute."""
    samples = interleaved(settings.runs, sides, warm=3)
    figures = []
    for name, side in (("count of a table", "table"), ("count of a table, with the making of it", "made")):
        counted = settings.rows / median(samples[side])
        figures.append(
            Figure(
                name,
                rate(settings.rows, median(samples[side])),
                f"Parquet {rate(settings.rows, median(samples['Parquet']))}",
                speed_ratio(samples, side, "Parquet"),
                f">= {COUNTED_PER_SECOND / 1e6:.0f} M rows/s",
                counted >= COUNTED_PER_SECOND,
                samples=samples,
            )
        )
    return figures


def _tails(settings: Settings, frame: DataFrame, without_tail: DataFrame) -> list[Figure]:
    """What one record of each partition after the history costs a query."""
    queries: dict[str, Callable[[DataFrame], object]] = {
        "count": DataFrame.count,
        "sum by key": lambda rows: rows.groupBy("key").sum("offset").collect(),
    }
    figures = []
    for name, query in queries.items():
        sides = {"tail": partial(query, frame), "none": partial(query, without_tail)}
        samples = interleaved(settings.runs, sides, warm=2)
        figures.append(
            Figure(
                f"{name} of a table with a small tail",
                milliseconds(median(samples["tail"])),
                f"without {milliseconds(median(samples['none']))}",
                speed_ratio(samples, "tail", "none"),
                samples=samples,
            )
        )
    return figures


def _ranges(spark: SparkSession, folder: Path, settings: Settings, table: Callable[[], DataFrame]) -> list[Figure]:
    """Small parts of a table, with the making of the DataFrame."""
    first_us = START_US + settings.rows * STEP_US // 2
    last_us = first_us + settings.rows * STEP_US // 100
    hundred = f"partition = 3 AND offset >= {settings.rows // 16} AND offset < {settings.rows // 16 + 100}"
    percent = f"timestamp >= timestamp_micros({first_us}) AND timestamp < timestamp_micros({last_us})"
    source = sparklog.read(spark, str(folder / "delta"), "bench", columns=["partition", "offset", "timestamp"])
    figures = []
    for name, condition in (("100 offsets of a table", hundred), ("1 % of a table by time", percent)):
        queries: dict[str, Callable[[], object]] = {
            "table": lambda condition=condition: table().where(condition).count(),  # type: ignore[misc]
            "source": source.where(condition).count,
        }
        samples = interleaved(settings.runs, queries, warm=2)
        seconds = median(samples["table"])
        figures.append(
            Figure(
                name,
                milliseconds(seconds),
                f'format("sparklog") {milliseconds(median(samples["source"]))}',
                speed_ratio(samples, "table", "source"),
                f"<= {QUERY_SECONDS} s",
                seconds <= QUERY_SECONDS,
                samples=samples,
            )
        )
    return figures


def _readers(folder: Path, settings: Settings) -> list[Figure]:
    """The reader of consumers and scans, over history and over Arrow."""

    def read(name: str) -> None:
        for _ in sparklog.scan("bench", folder / name).batches():
            pass

    sides = ("history", "Arrow")
    scans = interleaved(settings.runs, {"history": lambda: read("delta"), "Arrow": lambda: read("arrow")})
    consumed = interleaved(
        settings.runs, {"history": lambda: _consume(folder / "delta"), "Arrow": lambda: _consume(folder / "arrow")}
    )
    rows_of_partition = settings.rows // PARTITIONS
    return [
        throughput("scan of history", settings.rows, scans, sides, 0.5),
        throughput("Consumer over history", rows_of_partition, consumed, sides, 0.5),
        _lookup(folder / "delta", rows_of_partition),
    ]


def _consume(root: Path) -> None:
    """Poll all records of one partition."""
    with sparklog.Consumer(bootstrap_servers=str(root)) as consumer:
        partition = sparklog.TopicPartition("bench", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        (end,) = consumer.end_offsets([partition]).values()
        while consumer.position(partition) < end:
            consumer.poll(1000, max_records=5000)


def _lookup(root: Path, rows: int) -> Figure:
    """Read single records by their offsets, with the files open."""
    choose = random.Random(7)
    with LogReader(open_cluster(str(root))) as reader:

        def look_up() -> None:
            offset = choose.randrange(rows)
            (found,) = reader.records("bench", 0, offset, offset + 1)
            assert found.offset == offset

        look_up()
        seconds = median([timed(look_up) for _ in range(LOOKUPS)])
    return Figure("lookup by offset in history, warm", milliseconds(seconds), target="<= 10 ms", met=seconds <= 0.01)


def _memory(read: Callable[[], object], name: str) -> Figure:
    """The largest Python process of Spark during a read."""
    peak = peak_of(read)
    return Figure(
        f"Python worker memory, {name}", f"{peak.resident:.0f} MiB", target="<= 1 GiB", met=peak.resident <= 1024
    )


def _orders(spark: SparkSession, rows: int) -> tuple[DataFrame, str]:
    """JSON orders of 20 fields, some 200 bytes, and their schema."""
    numbers = [f"CAST(hash(id, {number}) % 1000 AS INT) f{number}" for number in range(17)]
    fields = ["concat('c', id % 5000) customer", "round(rand(1) * 100, 2) amount", f"CAST({START_US} + id AS BIGINT) n"]
    orders = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        f"CAST(id % {PARTITIONS} AS INT) partition",
        f"timestamp_micros({START_US} + id * {STEP_US}) timestamp",
        *fields,
        *numbers,
    )
    names = ["customer", "amount", "n", *(f"f{number}" for number in range(17))]
    types = {"customer": "string", "amount": "double", "n": "bigint"}
    schema = ", ".join(f"{name} {types.get(name, 'int')}" for name in names)
    return orders.selectExpr("partition", "timestamp", f"to_json(struct({', '.join(names)})) value"), schema


def _typed(spark: SparkSession, folder: Path, settings: Settings) -> list[Figure]:
    """A sum of one field of JSON orders by another, and the bytes of history."""
    values, schema = _orders(spark, settings.rows)
    typed = {"value.format": "json", "value.schema": schema}
    written = {
        name: _roll(str(folder / f"json-{name}"), values, {"history.format": kind, **configs})
        for name, kind, configs in (
            ("arrow", "arrow", {}),
            ("typed", "delta", typed),
            ("left-out", "delta", {**typed, "value.keep": "false"}),
        )
    }
    size, left = (written[name].bytes_out / written["arrow"].bytes_out for name in ("typed", "left-out"))
    table = sparklog.table(spark, str(folder / "json-typed"), "bench")
    source = sparklog.read(spark, str(folder / "json-typed"), "bench", columns=["value"])
    parsed = source.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') order").select("order.*")
    sides: dict[str, Callable[[], object]] = {  # a DataFrame keeps the shuffled rows of its first run
        "typed": lambda: table.groupBy("customer").sum("amount").collect(),
        "from_json": lambda: parsed.groupBy("customer").sum("amount").collect(),
    }
    samples = interleaved(settings.runs, sides, warm=2)
    ratio, rolled = speed_ratio(samples, "typed", "from_json"), written["arrow"].seconds / written["typed"].seconds
    return [
        Figure(
            "bytes of typed history",
            f"{written['typed'].bytes_out / 1e6:.0f} MB",
            "zstd Arrow",
            size,
            "<= 1.3",
            size <= 1.3,
        ),
        Figure(
            "bytes of typed history without raw values",
            f"{written['left-out'].bytes_out / 1e6:.0f} MB",
            "zstd Arrow",
            left,
            "<= 0.6",
            left <= 0.6,
        ),
        Figure(
            "roll to typed history",
            rate(settings.rows, written["typed"].seconds),
            "Arrow",
            rolled,
            ">= 0.5",
            rolled >= 0.5,
        ),
        Figure(
            "sum of a typed field by another",
            milliseconds(median(samples["typed"])),
            f"from_json {milliseconds(median(samples['from_json']))}",
            ratio,
            ">= 10",
            ratio >= 10,
        ),
    ]


def _planning(spark: SparkSession) -> Figure:
    """From the list of a topic's segments, as a checkpoint has it, to the tasks of a query that needs all files."""
    segments = [_segment(number) for number in range(PLANNED_FILES)]
    of_each = PLANNED_FILES // PARTITIONS
    partition = SimpleNamespace(
        log_start_offset=0, high_watermark=of_each, log_end_offset=of_each, segments=of_each, leader=0, isr=(0,)
    )
    topic: Any = SimpleNamespace(name="t", partitions=[partition] * PARTITIONS)
    state: Any = SimpleNamespace(topic=lambda name: topic)
    part = to_part(segments)

    def plan() -> None:
        history = find_history(state, "t", TopicSegments(topic, [part], []), lambda broker: "/log")
        assert len(history.files) == PLANNED_FILES
        scan_files(spark, "t", history.files, ROW_SCHEMA).rdd.getNumPartitions()

    plan()
    seconds = timed(plan)
    return Figure(f"plan {PLANNED_FILES:,} files", f"{seconds:.2f} s", target="<= 5 s", met=seconds <= 5)


def _segment(number: int) -> Segment:
    offset, partition = divmod(number, PARTITIONS)
    path = f"tables/t/_segments/partition={partition}/{offset:020d}-v1-0123456789abcdefghijkl.parquet"
    stats = encode_stats(1, (offset, offset), (START_US, START_US), {"key": 0, "value": 0})
    return Segment(
        partition=partition,
        base_offset=offset,
        end_offset=offset + 1,
        records=1,
        path=path,
        broker=0,
        first_batch=0,
        batches=1,
        first_row=0,
        size_bytes=200_000_000,
        min_timestamp_us=START_US,
        max_timestamp_us=START_US,
        append_time_ms=NO_APPEND_TIME,
        leader_epoch=0,
        version=1,
        closed=True,
        stats=stats,
        file_bytes=200_000_000,
    )


def _publication(folder: Path) -> Figure:
    """Publish a topic that got 1,000 files of history; the requests are those besides reading the log."""
    coordinator = _many_files(folder)
    store = FaultyStore(LocalStore(str(folder / "log")))
    tables = Tables(open_cluster(store))
    before = len(store.calls)
    seconds = timed(lambda: tables.publish("bench"))
    requests = sum(call.key.startswith("tables/") for call in store.calls[before:])
    assert len(list(coordinator.segments("bench").partition(0))) > NEW_FILES
    met = seconds <= 1 and requests <= 5
    return Figure(
        f"publish {NEW_FILES:,} files", f"{seconds:.2f} s, {requests} requests", target="<= 1 s, 5 requests", met=met
    )


def _many_files(folder: Path) -> Coordinator:
    root = str(folder / "log")
    coordinator = create_cluster(root)
    configs = {"history.format": "delta", "segment.ms": "1000", "retention.ms": "-1"}
    coordinator.create_topic("bench", 1, configs=configs)
    with sparklog.Producer(bootstrap_servers=root) as producer:
        for number in range(NEW_FILES + 1):
            producer.send("bench", b"v", timestamp_ms=START_US // 1000 + 10_000 * number)
            producer.flush()
    coordinator.refresh()
    roll(coordinator, InProcess())
    return coordinator
