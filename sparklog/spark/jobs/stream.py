"""Shared code of the streaming programs for spark-submit: arguments, running a query, and stopping it.

Rules: SIGTERM or an interrupt stops a query between the steps of its own thread; a batch that was cut off is run again
at the next start, from the same checkpoint, and adds nothing twice. Exit codes as in ``jobs.batch``.
Not for: batch programs (``jobs.batch``).
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from sparklog.spark.jobs import batch as job
from sparklog.spark.jobs.signals import signals_of_jvm
from sparklog.spark.options import STORAGE_PREFIX
from sparklog.spark.stream.skipped_batch_report import is_repetition

LOOK_SECONDS = 0.5
"""Seconds between two checks whether to stop."""


def add_stream_arguments(options: argparse.ArgumentParser) -> None:
    """Add the arguments of every streaming program: what to read, how often, how far."""
    job.add_cluster_argument(options)
    source = options.add_argument_group("what to read")
    topics = source.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", help="comma-separated topics")
    topics.add_argument("--include", metavar="REGEX", help="all topics whose names contain a match, including new ones")
    source.add_argument("--starting-offsets", metavar="OFFSETS", default="earliest",
                        help="for a new checkpoint: earliest, latest, or JSON by partition (earliest)")  # fmt: skip
    source.add_argument("--max-offsets-per-trigger", metavar="N", type=int, help="about N records per batch")
    source.add_argument("--group", help="consumer group to commit the read offsets to, so that its lag is visible")
    source.add_argument("--skip-lost-records", action="store_true", help="continue if records have been deleted")
    options.add_argument("--checkpoint", metavar="FOLDER", required=True, help="where the query keeps its offsets")
    pace = options.add_mutually_exclusive_group()
    pace.add_argument("--available-now", action="store_true", help="read the records that exist now, then end")
    pace.add_argument("--interval", metavar="TIME", help='time between batches, such as "10 seconds" (none)')
    options.add_argument("--query-name", help="the query's name in Spark; its consumer group if --group is not given")
    options.add_argument("--storage-option", metavar="NAME=VALUE", type=job.pair, action="append", default=[],
                         help="option of the storage client, repeatable")  # fmt: skip
    job.add_session_arguments(options)


def check_stream_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with the usage if arguments are missing or contradict each other."""
    job.check_cluster_argument(parser, options)
    job.check_session_arguments(parser, options)


def cluster_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of source and sink for the cluster's root and the storage client."""
    storage = {STORAGE_PREFIX + name: text for name, text in options.storage_option}
    return {"kafka.bootstrap.servers": options.bootstrap_server, **storage}


def records(spark: SparkSession, options: argparse.Namespace, group: str | None = None) -> DataFrame:
    """Return the stream that the arguments describe. Offsets of finished batches are committed to ``group``."""
    chosen: dict[str, Any] = {
        "subscribe": options.topic,
        "subscribePattern": options.include,
        "startingOffsets": options.starting_offsets,
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "kafka.group.id": group,
        "commitOffsets": "false" if options.group and not group else None,  # the sink commits to options.group
        "failOnDataLoss": not options.skip_lost_records,
        "includeHeaders": True,
    }
    reader: DataStreamReader = spark.readStream.format("sparklog").options(**cluster_options(options))
    return reader.options(**{name: value for name, value in chosen.items() if value is not None}).load()


def run_query(program: str, writer: DataStreamWriter, options: argparse.Namespace) -> str:
    """Run a query until it ends, fails, or is stopped. Returns the program's last message."""
    writer = writer.option("checkpointLocation", _qualify(options.checkpoint))
    if options.query_name:
        writer = writer.queryName(options.query_name)
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    elif options.interval:
        writer = writer.trigger(processingTime=options.interval)
    stopping = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    try:
        with signals_of_jvm(stopping.is_set):
            query = writer.start()
            job.say(program, f"query {query.id} runs; SIGTERM stops it")
            rows = _wait(program, query, stopping)
    finally:
        signal.signal(signal.SIGTERM, before)
    return f"{'stopped' if stopping.is_set() else 'ended'} after {rows:,} records; the next start continues from there"


def _qualify(path: str) -> str:
    """Return the path on Spark's default file system, with its scheme unless that is a local disk. The sink reads the
    checkpoint without Hadoop's configuration."""
    spark = SparkSession.active()
    hadoop, settings = spark._jvm.org.apache.hadoop.fs, spark._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    if urlsplit(path).scheme or hadoop.FileSystem.getDefaultUri(settings).getScheme() == "file":
        return path
    found = hadoop.Path(path)
    return str(found.getFileSystem(settings).makeQualified(found).toString())


def _wait(program: str, query: StreamingQuery, stopping: threading.Event) -> int:
    """Wait for the end, print the records of each batch, and return their total."""
    seen, rows, ended = -1, 0, False
    try:
        while not ended:
            try:
                ended = bool(query.awaitTermination(LOOK_SECONDS))  # type: ignore[arg-type]
            except StreamingQueryException:
                if not stopping.is_set():
                    raise
                ended = True  # a service manager ends Spark's Python processes, too: the query fails without them
            if stopping.is_set() and not ended:
                query.stop()
                ended = True
            for progress in query.recentProgress:
                if progress.batchId > seen and progress.numInputRows:
                    seen, rows = progress.batchId, rows + progress.numInputRows
                    before = " (written before: nothing was added)" if is_repetition(str(query.runId), seen) else ""
                    job.say(program, f"batch {seen}: {progress.numInputRows:,} records{before}")
    except KeyboardInterrupt:
        query.stop()
        raise
    return rows
