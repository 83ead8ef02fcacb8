"""Commit the offsets of named queries: a query's name is its consumer group unless its options name one.

``sparklog.register`` adds one listener for all queries of a session. For a named query it looks up which cluster its
sparklog sources read, and commits the offsets of each finished batch to the group of that name, so that every tool sees
the query's lag. Spark does not tell a source its query's name, but it tells a listener.

Rules: runs in the user's process, on Spark's listener thread and not on the query's; commits only changed offsets; best
effort: a failure is logged once per query and stops nothing. The end of a program waits for the last events: Spark
delivers them after the query has ended, and prints a stack trace if Python is gone. A query is skipped if one of its
sources has ``kafka.group.id``, to which the source commits itself, or ``commitOffsets=false``, or if its sources read
several clusters. Before Spark 4.2, which asks a source for offsets after the last batch too, such a group is committed
to here.
Not for: lag in Python (``lag_listener``), and sessions of Spark Connect, whose plans are not accessible.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sparklog.coordinator import shared_cluster
from sparklog.protocol.names import validate_group_id
from sparklog.spark.options import Address, Options, address
from sparklog.spark.stream import skipped_batch_report
from sparklog.spark.stream.lag_listener import commit_progress
from sparklog.spark.versions.api import HAS_LIMITS
from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

SOURCE = "sparklog"
EVENTS_MS = 10_000
"""Milliseconds that the end of a program waits for the events of its queries."""
_listening: ProcessTable[str, QueryNameListener] = ProcessTable()
"""The listener of each session, by the session's id."""


class QueryNameListener(StreamingQueryListener):
    """Commits the offsets that named queries of one session have read, and logs batches that added nothing
    (``stream.skipped_batch_report``). Spark calls its methods in one thread."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._groups: dict[str, NamedGroup] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Look up the query's sources and sink. Spark waits for this call, so the query still exists."""
        try:
            skipped_batch_report.look_up(self.session, str(event.id), str(event.runId))
        except Exception as error:
            logger.debug("could not look up which batches of query %s are in the log: %s", event.id, error)
        if event.name or not HAS_LIMITS:
            try:
                group = find_group(event.name or "", source_options(self.session, str(event.id)))
                if group is not None:
                    self._groups[str(event.runId)] = group
            except Exception as error:
                logger.warning("query %s commits no offsets to a group of its name: %s", event.name, error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the offsets of a finished batch."""
        run = str(event.progress.runId)
        skipped_batch_report.report(run, event.progress.batchId)
        group = self._groups.get(run)
        if group is not None:
            try:
                group.commit(json.loads(event.progress.json))
            except Exception as error:
                level = logging.DEBUG if group.has_failed else logging.WARNING
                group.has_failed = True
                logger.log(level, "could not commit offsets to consumer group %s: %s", group.name, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the run."""
        self._groups.pop(str(event.runId), None)


@dataclass
class NamedGroup:
    """The consumer group of one run of a query. Not thread-safe."""

    name: str
    cluster: Address
    has_failed: bool = False

    def commit(self, progress: Mapping[str, Any]) -> None:
        """As ``commit_progress``."""
        commit_progress(progress, shared_cluster(*self.cluster), self.name)


def find_group(name: str, sources: Iterable[Mapping[str, str]], sources_commit: bool = HAS_LIMITS) -> NamedGroup | None:
    """Return the group for a query of that name with these sources; None if its offsets are not to be committed.

    ``sources_commit``: a source with ``kafka.group.id`` commits the offsets of each batch itself. Raises
    InvalidOptionError for sources without an address, InvalidRequestError for an invalid group id.
    """
    clusters: list[Address] = []
    groups: list[str] = []
    for raw in sources:
        options = Options(raw)
        group = options.text("kafka.group.id")
        if (group and sources_commit) or not options.boolean("commitOffsets", True):
            return None
        cluster = address(options)
        if cluster not in clusters:
            clusters.append(cluster)
        if (group or name) not in groups:
            groups.append(group or name)
    if len(clusters) != 1 or len(groups) != 1 or not groups[0]:
        return None
    validate_group_id(groups[0])
    return NamedGroup(groups[0], clusters[0])


def source_options(session: SparkSession, query_id: str) -> list[dict[str, str]]:
    """Return the options of the sparklog sources of a running query, from its plan in Spark."""
    query = session.streams._jsqm.get(query_id)
    leaves = query.streamingQuery().analyzedPlan().collectLeaves()
    options = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == SOURCE:
            options.append(dict(leaf.extraOptions().asCaseSensitiveMap()))
    return options


def listen(session: SparkSession) -> None:
    """Add the listener to a session, once. Best effort; sessions of Spark Connect get none."""
    java = getattr(session, "_jsparkSession", None)
    if java is None:
        return
    try:
        with _listening.held:
            sessions = _listening.entries
            identity = java.sessionUUID()
            if identity not in sessions:
                listener = QueryNameListener(session)
                session.streams.addListener(listener)
                sessions[identity] = listener
    except Exception as error:
        logger.warning("named queries commit no offsets to groups of their names: %s", error)


def deliver_events() -> None:
    """Wait until Spark has delivered the events of this process's queries, at most ``EVENTS_MS``. Best effort."""
    with _listening.held:
        is_listening = bool(_listening.entries)
    context = SparkContext._active_spark_context
    if is_listening and context is not None:
        try:
            context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_MS)
        except Exception as error:  # a slow listener, or a JVM that has ended
            logger.debug("the last events of streaming queries may be lost: %s", error)


def stop_listening() -> None:
    """Remove the listeners of all sessions, so that Spark calls no process that has ended. Best effort."""
    with _listening.held:
        listeners = list(_listening.entries.values())
        _listening.entries.clear()
    for listener in listeners:
        try:
            listener.session.streams.removeListener(listener)
        except Exception as error:  # the session was stopped, or the JVM has ended
            logger.debug("a listener stays in a session that has ended: %s", error)


atexit.register(stop_listening)
# Runs before that. From Python 3.12 on, functions of atexit cannot start a thread, and a call of Spark's may need one.
getattr(threading, "_register_atexit", atexit.register)(deliver_events)
