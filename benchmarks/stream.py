"""Streaming: latency from a producer's commit to the sink's, a copy of many rows, a trigger with nothing new, old age.

Times of commits are those at which their files got their names, so both ends of a latency are on one clock and nothing
has to watch the query. Records of one partition keep their order: the n-th of the output is the n-th of the input.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import sparklog
from benchmarks import clusters, spark_session, stream_age
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    percentile,
    scratch,
    throughput,
    timed,
)
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.commits import Append, commit_key
from sparklog.protocol.decide.append import AppendRequest
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.options import Options
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.planner import StreamPlanner
from sparklog.store.local import LocalStore

RATE = 1_000
"""records per second."""
COMMITS_A_SECOND = 10
"""of the producer: every 100 ms it commits what came since."""
WARM_SECONDS = 4.0
"""at the start of a query that are not counted: the first batches start processes and compile plans."""
REFERENCE = "rate source to a no-op sink"
COLUMNS = ("key", "value", "timestamp")
SMALL_PARTITIONS, SMALL_RECORDS = 64, 10
"""of a batch with few records of each partition."""


def run(settings: Settings) -> list[Figure]:
    """All of them, in a session of their own."""
    with scratch("stream") as folder, spark_session.spark_session(folder) as spark:
        spark.dataSource.register(NoopSink)
        spark.dataSource.register(TimedSource)
        figures = _latency(spark, folder, seconds=6.0 if settings.quick else 15.0, rounds=1 if settings.quick else 2)
        figures += _copy(spark, folder, settings.rows // 2, min(settings.runs, 3))
        figures += _idle(spark, folder, seconds=2.0 if settings.quick else 5.0)
        return figures + stream_age.run(spark, _new(folder), settings.quick)


def run_small(settings: Settings) -> list[Figure]:
    """Batches of many small partitions, in a session of their own."""
    with scratch("small-batches") as folder, spark_session.spark_session(folder) as spark:
        return _small_batches(spark, folder, batches=10 if settings.quick else 30)


_numbers = itertools.count()


def _new(folder: Path) -> Path:
    found = folder / f"stream-{next(_numbers)}"
    found.mkdir()
    return found


# -- latency


@dataclass
class Run:
    """Seconds of latency of the counted records, and what Spark says of the batches in milliseconds, by part."""

    latencies: list[float]
    parts: list[dict[str, float]]


def _latency(spark: SparkSession, folder: Path, seconds: float, rounds: int) -> list[Figure]:
    ours, reference = Run([], []), Run([], [])
    for _ in range(rounds):
        for total, measure in ((reference, _rate_source), (ours, _topic_to_topic)):
            one = measure(spark, _new(folder), seconds)
            total.latencies.extend(one.latencies)
            total.parts.extend(one.parts)
    mine, theirs = median(ours.latencies), median(reference.latencies)
    ratio = mine / theirs
    of_rows = milliseconds(theirs + 0.5)
    batch, their_batch = _part(ours, "triggerExecution"), _part(reference, "triggerExecution")
    return [
        Figure(
            f"stream latency at {RATE:,} records/s, commit to commit",
            f"{milliseconds(mine)}, p99 {milliseconds(percentile(ours.latencies, 99))}",
            f"{REFERENCE} {milliseconds(theirs)}, p99 {milliseconds(percentile(reference.latencies, 99))}",
            ratio,
            "<= 1.2",
            ratio <= 1.2,
            f"parts of a batch in ms: sparklog {_parts(ours)}; reference {_parts(reference)}; "
            f"from the timestamps of its rows, half a second earlier, the reference takes {of_rows}",
            {"sparklog": ours.latencies, "rate": reference.latencies},
        ),
        Figure(
            "one trigger of the same queries",
            milliseconds(batch / 1000),
            f"{REFERENCE} {milliseconds(their_batch / 1000)}",
            batch / their_batch,
        ),
    ]


def _part(of: Run, name: str) -> float:
    return median([one.get(name, 0.0) for one in of.parts])


def _parts(of: Run) -> str:
    names = {name for one in of.parts for name in one} - {"triggerExecution"}
    shares = sorted(((name, _part(of, name)) for name in names), key=lambda share: -share[1])
    return ", ".join(f"{name} {milliseconds_:.0f}" for name, milliseconds_ in shares if milliseconds_ >= 1)


def _topic_to_topic(spark: SparkSession, folder: Path, seconds: float) -> Run:
    cluster = create_cluster(str(folder / "log"))
    topic_id = cluster.create_topic("in")
    cluster.create_topic("out")
    frame = _stream(spark, folder, "in").select(*COLUMNS)
    query = _to_topic(frame, folder).trigger(processingTime="0 seconds").start()
    _wait(lambda: (folder / "checkpoint" / "commits" / "0").exists(), query)
    started = time.time()
    _produce(cluster, topic_id, WARM_SECONDS + seconds)
    _wait(lambda: _end(cluster, "out") == _end(cluster, "in"), query)
    parts = _finished(query, started + WARM_SECONDS)
    return Run(_latencies(folder / "log", started + WARM_SECONDS), parts)


def _produce(cluster: Coordinator, topic_id: str, seconds: float) -> None:
    """Commit a tenth of a second's records ten times a second, on time on the whole however long each takes."""
    each = RATE // COMMITS_A_SECOND
    batch = clusters.record_batch(each)
    start, pause = time.perf_counter(), threading.Event()
    for number in range(int(seconds * COMMITS_A_SECOND)):
        pause.wait(max(0.0, start + number / COMMITS_A_SECOND - time.perf_counter()))
        key = segment_key("in", 0, number * each, cluster.state.version, cluster.log.ids.write_id())
        writer = SegmentFileWriter(cluster.store, key)
        writer.start_run(RunTarget("in", topic_id, 0))
        writer.write(batch)
        cluster.append(AppendRequest(appends=writer.finish()))


def _latencies(root: Path, counted_from: float) -> list[float]:
    """Seconds from each input commit after that time to the output commit with its last record, by the files."""
    ends: dict[str, list[int]] = {"in": [], "out": []}
    times: dict[str, list[float]] = {"in": [], "out": []}
    cluster = open_cluster(str(root))
    names = {topic.topic_id: name for name, topic in cluster.state.topics.items()}
    for commit in cluster.log.commits(1, cluster.state.version):
        for action in commit.actions:
            if isinstance(action, Append):
                name = names[action.topic_id]
                ends[name].append(action.base_offset + action.run.records)
                times[name].append((root / commit_key(commit.version)).stat().st_ctime)
    found = []
    for end, at in zip(ends["in"], times["in"], strict=True):
        if at >= counted_from:
            found.append(times["out"][bisect_left(ends["out"], end)] - at)
    return found


def _rate_source(spark: SparkSession, folder: Path, seconds: float) -> Run:
    """Latency of the rate source, counted from when its rows can be read: it gives out a whole second's at its end."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", RATE).option("numPartitions", 1).load()
    frame = rows.selectExpr(
        "unhex(lpad(hex(value), 16, '0')) AS key", "CAST(repeat('x', 92) AS BINARY) AS value", "timestamp"
    )
    log = folder / "commits"
    writer = frame.writeStream.format("noop_sink").option("path", str(log))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="0 seconds").start()
    _wait(log.exists, query)
    started = time.time()
    _wait(lambda: time.time() > started + WARM_SECONDS + seconds, query)
    parts = _finished(query, started + WARM_SECONDS)
    found = []
    for line in log.read_text().splitlines():
        committed, last = json.loads(line)
        if last > started + WARM_SECONDS:
            found.append(committed - last)
    return Run(found, parts)


def _finished(query: StreamingQuery, counted_from: float) -> list[dict[str, float]]:
    """Stop the query; the durations of its batches with rows that began after that time."""
    progress = [json.loads(one.json) for one in query.recentProgress]
    query.stop()
    after = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(counted_from))
    return [one["durationMs"] for one in progress if one["numInputRows"] and one["timestamp"] > after]


def _wait(done: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait for a condition of a query, a minute at most. Raises the error of the query if it fails."""
    end = time.perf_counter() + 60
    while not done():
        query.awaitTermination(0.05)  # type: ignore[arg-type]
        if time.perf_counter() > end:
            raise TimeoutError(f"query {query.id} did not come to it within a minute: {query.status}")


def _end(cluster: Coordinator, topic: str) -> int:
    return sum(partition.high_watermark for partition in cluster.refresh().topic(topic).partitions)


def _stream(spark: SparkSession, folder: Path, topic: str, starting: str = "latest", **options: str) -> DataFrame:
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", str(folder / "log"))
    return reader.option("subscribe", topic).option("startingOffsets", starting).options(**options).load()


def _to_topic(frame: DataFrame, folder: Path, topic: str = "out", checkpoint: str = "checkpoint") -> Any:
    writer = frame.writeStream.format("sparklog").option("kafka.bootstrap.servers", str(folder / "log"))
    return writer.option("topic", topic).option("checkpointLocation", str(folder / checkpoint))


@dataclass
class Seen(WriterCommitMessage):
    """When the last row of a task could be read, in seconds since the epoch; 0 of none."""

    last: float


class NoopSink(DataSource):
    """``format("noop_sink")``: passes over the rows; its commit appends a line to the file ``path``."""

    @classmethod
    def name(cls) -> str:
        return "noop_sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoopWriter:
        return NoopWriter(self.options["path"])


class NoopWriter(DataSourceStreamArrowWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        last = 0
        for batch in iterator:
            last = max(last, pc.max(batch.column("timestamp").cast(pa.int64())).as_py() or 0)
        return Seen((last + 1_000_000 / RATE) / 1e6)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        last = max((message.last for message in messages if isinstance(message, Seen)), default=0.0)
        with open(self.path, "a") as file:
            file.write(json.dumps([time.time(), last]) + "\n")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was kept."""


# -- a copy of what there is


def _copy(spark: SparkSession, folder: Path, rows: int, runs: int) -> list[Figure]:
    here = _new(folder)
    cluster = create_cluster(str(here / "log"))
    cluster.create_topic("in", spark_session.CORES)
    spark_session.write(spark_session.rows(spark, rows), here / "log", "in")

    def copy(start: Callable[[str], object]) -> float:
        topic = f"out-{next(_numbers)}"
        cluster.create_topic(topic, spark_session.CORES)
        os.sync()
        seconds = timed(lambda: start(topic))
        assert _end(cluster, topic) == rows
        return seconds

    triggers = Run([], [])

    def stream(topic: str) -> None:
        frame = _stream(spark, here, "in", "earliest").select(*COLUMNS)
        query = _to_topic(frame, here, topic, f"checkpoint-{topic}").trigger(availableNow=True).start()
        query.awaitTermination()
        triggers.parts += [json.loads(one.json)["durationMs"] for one in query.recentProgress if one.numInputRows]

    def batch(topic: str) -> None:
        spark_session.write(spark_session.read(spark, here / "log", "in").select(*COLUMNS), here / "log", topic)

    samples = interleaved(runs, {"batch": lambda: copy(batch), "stream": lambda: copy(stream)})
    trigger = milliseconds(_part(triggers, "triggerExecution") / 1000)
    where = f"its one trigger takes {trigger} ({_parts(triggers)} ms), the rest is a query's start and end"
    return [throughput(f"availableNow copy of {rows:,} rows", rows, samples, ("stream", "batch"), 0.8, where)]


# -- batches of many small partitions


def _small_batches(spark: SparkSession, folder: Path, batches: int) -> list[Figure]:
    """Return how long a batch takes that has few records of each of many partitions, with Spark's sink ``noop``."""
    figures = []
    for name, options in (("", {}), (", maxPartitions=auto", {"maxPartitions": "auto"})):
        here = _new(folder)
        cluster = create_cluster(str(here / "log"))
        cluster.create_topic("in", SMALL_PARTITIONS)
        frame = _stream(spark, here, "in", **options).select(*COLUMNS)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(here / "checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        _wait(lambda: (here / "checkpoint" / "commits" / "0").exists(), query)  # noqa: B023 - called in this round
        with sparklog.Producer(cluster=cluster, linger_ms=60_000) as producer:
            for batch in range(batches):
                for partition in range(SMALL_PARTITIONS):
                    for _ in range(SMALL_RECORDS):
                        producer.send("in", b"x" * 92, key=b"k", partition=partition)
                producer.flush()
                _wait(lambda: (here / "checkpoint" / "commits" / str(batch + 1)).exists(), query)  # noqa: B023
        taken = [one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress if one.numInputRows]
        query.stop()
        seconds = taken[batches // 4 :]
        figures.append(
            Figure(
                f"a micro-batch of {SMALL_PARTITIONS} partitions, {SMALL_RECORDS} records each{name}",
                milliseconds(median(seconds)),
                target="<= 300 ms",
                met=median(seconds) <= 0.3,
                where=f"slowest {milliseconds(max(seconds))}",
                samples={"batches": seconds},
            )
        )
    return figures


# -- a trigger with nothing new


def _idle(spark: SparkSession, folder: Path, seconds: float) -> list[Figure]:
    """Return the time between two polls of an idle query, without Spark's own pause between them."""
    here = _new(folder)
    cluster = create_cluster(str(here / "log"))
    cluster.create_topic("in", 8)
    cluster.create_topic("out", 8)
    looks = here / "looks"
    reader = spark.readStream.format("sparklog_timed").option("looks", str(looks)).option("subscribe", "in")
    frame = reader.option("kafka.bootstrap.servers", str(here / "log")).load().select(*COLUMNS)
    query = _to_topic(frame, here).trigger(processingTime="0 seconds").start()
    _wait(lambda: (here / "checkpoint" / "commits" / "0").exists(), query)
    until = time.perf_counter() + seconds
    _wait(lambda: time.perf_counter() > until, query)
    query.stop()
    lines = [json.loads(line) for line in looks.read_text().splitlines()]
    lines = lines[len(lines) // 4 :]
    pause = float(str(spark.conf.get("spark.sql.streaming.pollingDelay")).rstrip("ms")) / 1000
    periods = [later[0] - sooner[0] - pause for sooner, later in itertools.pairwise(lines)]
    inside = [end - start for start, end in lines]
    reads = _reads_of_a_look(here / "log")
    cost = median(periods)
    return [
        Figure(
            "a trigger with nothing new",
            f"{milliseconds(cost)}, {reads} storage reads",
            "",
            None,
            "<= 50 ms, 2 reads",
            cost <= 0.05 and reads <= 2,
            f"of it in the source {milliseconds(median(inside))}; Spark's pause of {milliseconds(pause)} not counted",
            {"triggers": periods},
        )
    ]


def _reads_of_a_look(root: Path) -> int:
    """Return the read calls to the store of one poll, by a planner that has polled before."""
    planner = StreamPlanner(stream_options(Options({"kafka.bootstrap.servers": str(root), "subscribe": "in"})))
    start = planner.latest(planner.initial(), None)
    planner.latest(start, None)
    count = 0
    kept = {name: getattr(LocalStore, name) for name in ("get", "get_range", "info", "list", "open_input")}

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            return call(*arguments, **named)

        return counted

    try:
        for name, call in kept.items():
            setattr(LocalStore, name, counting(call))
        planner.latest(start, None)
    finally:
        for name, call in kept.items():
            setattr(LocalStore, name, call)
    return count


class TimedSource(SparklogDataSource):
    """``format("sparklog_timed")``: sparklog's source, that writes down in the file ``looks`` when it looked."""

    @classmethod
    def name(cls) -> str:
        return "sparklog_timed"

    def __init__(self, options: Any) -> None:
        self.looks = options["looks"]
        super().__init__({name: text for name, text in options.items() if name != "looks"})

    def streamReader(self, schema: StructType) -> Any:
        reader: Any = super().streamReader(schema)
        look, looks = reader.planner.latest, self.looks

        def latest(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            found = look(*arguments, **named)
            with open(looks, "a") as file:
                file.write(json.dumps([start, time.perf_counter()]) + "\n")
            return found

        reader.planner.latest = latest
        return reader
