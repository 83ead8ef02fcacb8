"""Which micro-batches of a running query were in the log before it began, so that the sink left them out.

Spark's Python API has no place in a query's progress for what a sink has to say. So the listener that
``sparklog.register`` adds looks up the last batch in the log when a query starts, while Spark waits; a batch up to that
number that ends well was a repetition. ``LagListener`` and the programs of ``jobs/`` show it, and it is logged.

Rules: runs in the user's process. With ``onBatchMismatch=append`` such a batch may have been written all the same, and
nothing is said. Not for: deciding what the sink does (``repetition``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from sparklog.coordinator import shared_cluster
from sparklog.protocol.state import State
from sparklog.spark.options import sink_options
from sparklog.spark.sink.repetition import APPEND, application_of, numbered_as
from sparklog.store.process_lock import ProcessLock

logger = logging.getLogger(__name__)

SINK = "sparklog"
MAX_RUNS = 1000
"""runs of queries that are remembered."""


class WrittenBefore(NamedTuple):
    """The last batch of a query that is in the log, and its commit."""

    batch_id: int
    commit_version: int


_before: dict[str, WrittenBefore] = {}
_before_lock = ProcessLock()


def remember(run_id: str, found: WrittenBefore) -> None:
    """Keep what was in the log when a run of a query began."""
    with _before_lock:
        _before[run_id] = found
        while len(_before) > MAX_RUNS:
            _before.pop(next(iter(_before)))


def is_repetition(run_id: str, batch_id: int) -> bool:
    """Whether a finished batch of this run was in the log before the run began, and so added nothing."""
    with _before_lock:
        found = _before.get(run_id)
    return found is not None and batch_id <= found.batch_id


def report(run_id: str, batch_id: int) -> None:
    """Log a finished batch that added nothing."""
    if is_repetition(run_id, batch_id):
        logger.warning(
            "micro-batch %s of run %s was in the log before (commit %s at the latest): it added nothing",
            batch_id,
            run_id,
            _before[run_id].commit_version,
        )


def written_before(state: State, query_id: str, topic: str) -> WrittenBefore | None:
    """The last batch of a query with this option ``topic`` that is in the log."""
    former = application_of(query_id)
    application = numbered_as(state, application_of(query_id, topic), former, topic) if topic else former
    known = state.applications.get(application)
    return None if known is None else WrittenBefore(known.version, known.commit_version)


def look_up(session: SparkSession, query_id: str, run_id: str) -> None:
    """Remember what is in the log of a query that starts, if it writes to one. Errors as ``open_cluster``."""
    given = sink_of(session, query_id)
    if given is None:
        return
    options = sink_options(given)
    state = shared_cluster(options.address.root, options.address.storage_options).state
    found = written_before(state, query_id, options.topic)
    if found is not None and options.on_mismatch != APPEND:
        remember(run_id, found)


def sink_of(session: SparkSession, query_id: str) -> Mapping[str, str] | None:
    """The options of a running query's sink, from the plan that Spark has of it; None where it is not sparklog's."""
    query = session.streams._jsqm.get(query_id).streamingQuery()
    plan = query.logicalPlan()
    if plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource" or query.sink().name() != SINK:
        return None
    options = plan.writeOptions().iterator()
    found: dict[str, str] = {}
    while options.hasNext():
        pair = options.next()
        found[pair._1()] = pair._2()
    return found
