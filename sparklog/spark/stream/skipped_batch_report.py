"""Detect micro-batches of a running query that were in the log before it started, so that the sink skipped them.

In Spark's Python API a sink cannot add to a query's progress. So the listener of ``sparklog.register`` looks up the
last batch in the log when a query starts, while Spark waits; a batch up to that number that succeeds was a repetition.
It is logged, and shown by ``LagListener`` and the programs of ``jobs/``.

Rules: runs in the user's process. With ``onBatchMismatch=append`` such a batch may have been written, so it is not
reported. Not for: deciding what the sink does (``sink.repeated_batches``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from sparklog.coordinator import shared_cluster
from sparklog.protocol.state import State
from sparklog.spark.options import sink_options
from sparklog.spark.sink.repeated_batches import APPEND, query_numbered_as
from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

SINK = "sparklog"
MAX_RUNS = 1000
"""runs of queries that are remembered."""


class WrittenBefore(NamedTuple):
    """The last batch of a query in the log, and the version of its commit."""

    batch_id: int
    commit_version: int


_before: ProcessTable[str, WrittenBefore] = ProcessTable()
"""By run."""


def remember(run_id: str, last: WrittenBefore) -> None:
    """Remember the last batch that was in the log when a run of a query started."""
    with _before.held:
        runs = _before.entries
        runs[run_id] = last
        while len(runs) > MAX_RUNS:
            runs.pop(next(iter(runs)))


def is_repetition(run_id: str, batch_id: int) -> bool:
    """Return whether a finished batch of this run was in the log before the run started, and so added nothing."""
    return _repeated(run_id, batch_id) is not None


def report(run_id: str, batch_id: int) -> None:
    """Log a finished batch that added nothing."""
    last = _repeated(run_id, batch_id)
    if last is not None:
        logger.warning(
            "micro-batch %s of run %s was in the log before (commit %s at the latest): it added nothing",
            batch_id,
            run_id,
            last.commit_version,
        )


def _repeated(run_id: str, batch_id: int) -> WrittenBefore | None:
    with _before.held:
        last = _before.entries.get(run_id)
    return None if last is None or batch_id > last.batch_id else last


def find_last_batch(state: State, query_id: str, topic: str) -> WrittenBefore | None:
    """Return the last batch in the log of a query with this option ``topic``; None if there is none."""
    recorded = state.applications.get(query_numbered_as(state, query_id, topic))
    return None if recorded is None else WrittenBefore(recorded.version, recorded.commit_version)


def look_up(session: SparkSession, query_id: str, run_id: str) -> None:
    """Remember the last batch in the log of a starting query, if its sink is sparklog. Errors as ``open_cluster``."""
    raw_options = find_sink_options(session, query_id)
    if raw_options is None:
        return
    options = sink_options(raw_options)
    state = shared_cluster(*options.address).state
    last = find_last_batch(state, query_id, options.topic)
    if last is not None and options.on_mismatch != APPEND:
        remember(run_id, last)


def find_sink_options(session: SparkSession, query_id: str) -> Mapping[str, str] | None:
    """Return the options of a running query's sink, from its plan in Spark; None if the sink is not sparklog."""
    query = session.streams._jsqm.get(query_id).streamingQuery()
    plan = query.logicalPlan()
    if plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource" or query.sink().name() != SINK:
        return None
    options = plan.writeOptions().iterator()
    sink: dict[str, str] = {}
    while options.hasNext():
        pair = options.next()
        sink[pair._1()] = pair._2()
    return sink
