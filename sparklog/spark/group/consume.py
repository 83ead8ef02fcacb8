"""Run a Spark job whose tasks are members of a consumer group: ``sparklog.spark.consume``.

    def process(records, context):                      # a pa.RecordBatch of one partition
        context.send("totals", summary(records))        # committed with the offsets, or not at all

    sparklog.spark.consume(spark, root="/data/log", group="billing", topics=["orders"], process=process)

Each task joins the group and owns partitions as long as it runs. A task that dies is expired by the others after its
session timeout, and its partitions are reassigned; a task that starts later gets its share. More tasks than slots are
fine: those that start late read the remaining records. Consumers of any other kind may be members of the same group.

Rules: runs in the user's process; checks everything before Spark starts a task.
Not for: the work of a member (``group.task``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sparklog.config.environment import ROOT_VARIABLE, default_root
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import InvalidOptionError, SparklogError
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, split_offsets, topic_ids
from sparklog.protocol.group.assignors import ASSIGNORS
from sparklog.protocol.names import validate_group_id
from sparklog.protocol.state import GroupState
from sparklog.spark.group.task import (
    REPORT_SCHEMA,
    ConsumeSettings,
    MemberReport,
    Process,
    report_batch,
    run_task,
    start_offset,
)
from sparklog.spark.jobs.runner import SparkTasks
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

RESETS = ("earliest", "latest", "none")
ROOT_SETTING = "spark.sparklog.bootstrap.servers"
STOP_PREFIX = "leases/stop/"
STOP_RETRY_SECONDS = 1.0
"""Pause before the request to stop is written again."""


def consume(
    spark: SparkSession,
    *,
    group: str,
    topics: Sequence[str] | str,
    process: Process,
    root: str | None = None,
    members: int | None = None,
    records: str = "arrow",
    forever: bool = False,
    stop: threading.Event | None = None,
    auto_offset_reset: str = "earliest",
    max_records: int = 100_000,
    include_headers: bool = False,
    assignor: str = "cooperative-sticky",
    session_timeout_ms: int = 45_000,
    heartbeat_interval_ms: int = 3_000,
    storage_options: Mapping[str, Any] | None = None,
) -> list[MemberReport]:
    """Read topics as a consumer group of Spark tasks, and return a report of each task when all records are read.

    ``process(records, context)`` is called in the tasks with up to ``max_records`` records of one partition, in order,
    as a pa.RecordBatch or, with ``records="pandas"``, a DataFrame: columns key, value, topic, partition, offset,
    timestamp, timestampType, and headers if included. When it returns, the offset after its records and the rows it
    passed to ``context.send(topic, rows)`` are committed together: exactly once. When it raises, the task fails.

    The job reads up to the current ends of the topics; with ``forever`` it runs until ``stop`` is set. Setting ``stop``
    ends either kind early. ``members`` is the number of tasks (by default the number of Spark's slots, but at most
    that of the partitions). ``root`` may also come from the session's ``spark.sparklog.bootstrap.servers``, or from
    the environment variable ``SPARKLOG_BOOTSTRAP_SERVER``.

    Raises InvalidOptionError, InvalidRequestError, UnknownTopicOrPartitionError, NoOffsetForPartitionError and
    ClusterNotFoundError before a task starts; the error of a task is raised as Spark's, with its text.
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    _check(group, names, process, records, auto_offset_reset, assignor, max_records, members)
    coordinator = shared_cluster(_find_root(spark, root), storage_options or {})
    ends = prepare(coordinator, group, names, auto_offset_reset)
    if not forever and not ends:
        return []
    key = f"{STOP_PREFIX}{coordinator.log.ids.write_id()}"
    settings = ConsumeSettings(
        root=coordinator.store.root,
        group=group,
        topics=names,
        frames=records == "pandas",
        include_headers=include_headers,
        max_records=max_records,
        reset=auto_offset_reset,
        assignor=assignor,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        ends=None if forever else ends,
        stop_key=key if stop is not None else "",
        storage_options=dict(storage_options or {}),
    )
    partitions = sum(len(coordinator.state.topic(name).partitions) for name in names)
    tasks = members or min(partitions, SparkTasks(spark).workers)
    with stopping(coordinator, key, stop):
        return _run(spark, settings, process, tasks)


def _run(spark: SparkSession, settings: ConsumeSettings, process: Process, tasks: int) -> list[MemberReport]:
    schema = spark.createDataFrame([], REPORT_SCHEMA).schema

    def member(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if any(batch.num_rows for batch in batches):
            yield report_batch(run_task(settings, process), schema)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(member, schema).collect()
    reports = [MemberReport(row.task, row.host, row.records, row.calls, tuple(row.partitions)) for row in rows]
    return sorted(reports, key=lambda report: report.task)


# -- before the job


def _check(
    group: str,
    topics: Sequence[str],
    process: Process,
    records: str,
    reset: str,
    assignor: str,
    max_records: int,
    members: int | None,
) -> None:
    validate_group_id(group)
    if not topics:
        raise InvalidOptionError("topics is empty; name at least one topic")
    if not callable(process):
        raise InvalidOptionError(f"process is of type {type(process).__name__}; pass a function of (records, context)")
    for name, value, allowed in (
        ("records", records, ("arrow", "pandas")),
        ("auto_offset_reset", reset, RESETS),
        ("assignor", assignor, ASSIGNORS),
    ):
        if value not in allowed:
            raise InvalidOptionError(
                f"invalid value {value!r} for {name}: expected one of {', '.join(allowed)}", option=name
            )
    for name, number in (("max_records", max_records), ("members", members)):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidOptionError(
                f"invalid value {number!r} for {name}: expected a whole number of at least 1", option=name
            )


def _find_root(spark: SparkSession, root: str | None) -> str:
    root = root or spark.conf.get(ROOT_SETTING, None) or default_root()
    if not root:
        raise InvalidOptionError(
            f"no cluster given: pass root=, set {ROOT_SETTING} on the session, or {ROOT_VARIABLE} in the environment"
        )
    return root


@in_one_timeline
def prepare(coordinator: Coordinator, group: str, topics: Sequence[str], reset: str) -> dict[TopicPartition, int]:
    """Return the ends of the partitions that have unread records. If the group has no members and ``reset`` is
    ``latest``, commit its starts.

    Otherwise the start would be the end of the log when the first member looks, and a different one for the next member
    if the first dies before it commits.
    """
    state = coordinator.refresh()
    subscribed = [
        TopicPartition(name, number) for name in topics for number in range(len(state.topic(name).partitions))
    ]
    starts = {partition: start_offset(state, group, partition, reset) for partition in subscribed}
    offsets: dict[tuple[str, int], int] = {
        partition: start for partition, start in starts.items() if state.committed(group, *partition) is None
    }
    if reset == "latest" and offsets and not state.groups.get(group, GroupState()).members:
        for part in split_offsets(offsets):
            # another driver may have committed others while this one was suspended
            replaces = dict.fromkeys(part, None)
            commit = GroupCommit(group=group, offsets=part, topic_ids=topic_ids(state, part), replaces=replaces)
            coordinator.submit(partial(commit_group_offsets, commit=commit))
    return {
        partition: end
        for partition in subscribed
        if (end := state.partition(*partition).high_watermark) > starts[partition]
    }


# -- stopping


@contextmanager
def stopping(coordinator: Coordinator, key: str, stop: threading.Event | None) -> Iterator[None]:
    """Write the object at ``key``, for which the tasks poll, when the caller sets ``stop``; delete it at the end."""
    if stop is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(0.2) and not over.is_set():
                try:
                    coordinator.store.put(key, b"stop\n")
                    return
                except SparklogError as error:
                    logger.warning("the tasks could not be told to stop, trying again: %s", error)
                    over.wait(STOP_RETRY_SECONDS)

    threading.Thread(target=watch, name="sparklog-stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with suppress(SparklogError):  # best effort: a few bytes that are never read again
            coordinator.store.delete(key)
