"""A query's name is its consumer group, where nothing else is said.

``sparklog.register`` has one listener hear of all queries of a session. Of a query with a name it looks up where its
sparklog sources read, and commits the offsets of each finished batch to the group of that name, so that the query's lag
is seen by every tool. Spark tells a source neither the name nor where to find it; a listener is told both.

Rules: runs in the user's process, on Spark's listener thread and not on the query's; commits only what has changed;
whatever fails is logged, once for each query, and stops nothing. A query is passed over if one of its sources has
``kafka.group.id``, which names a group itself, or ``commitOffsets=false``, or if its sources read several clusters.
Not for: lag in Python (``stream_listener``), and sessions of Spark Connect, whose plans cannot be looked into.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sparklog.coordinator import shared_cluster
from sparklog.protocol.names import validate_group_id
from sparklog.spark.options import Address, Options, address
from sparklog.spark.stream import repetitions as stream_repetitions
from sparklog.spark.stream.lag_listener import finished_offsets
from sparklog.store.process_lock import ProcessLock

logger = logging.getLogger(__name__)

SOURCE = "sparklog"
_listening: set[str] = set()
_listening_lock = ProcessLock()


class QueryNameListener(StreamingQueryListener):
    """Commits what named queries of one session have read, and logs batches that added nothing
    (``stream_repetitions``). Its methods are called by one thread of Spark's."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._groups: dict[str, NamedGroup] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Look up where the query reads and writes, while it is sure to be there: Spark waits for this."""
        try:
            stream_repetitions.look_up(self._session, str(event.id), str(event.runId))
        except Exception as error:
            logger.debug("which batches of query %s are in the log is not known: %s", event.id, error)
        if event.name:
            try:
                found = group_of(event.name, source_options(self._session, str(event.id)))
                if found is not None:
                    self._groups[str(event.runId)] = found
            except Exception as error:
                logger.warning("query %s commits no offsets under its name: %s", event.name, error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is finished: commit where it ended."""
        run = str(event.progress.runId)
        stream_repetitions.report(run, event.progress.batchId)
        group = self._groups.get(run)
        if group is not None:
            try:
                group.commit(json.loads(event.progress.json))
            except Exception as error:
                level = logging.DEBUG if group.has_failed else logging.WARNING
                group.has_failed = True
                logger.log(level, "consumer group %s was not told what query read: %s", group.name, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing more will come of this run."""
        self._groups.pop(str(event.runId), None)


class NamedGroup:
    """The group of one run of a query. Not thread-safe."""

    def __init__(self, name: str, place: Address) -> None:
        self.name = name
        self.has_failed = False
        self._place = place

    def commit(self, progress: Mapping[str, Any]) -> None:
        """Commit where a batch ended, if the group stands elsewhere. Raises what ``commit_offsets`` does."""
        coordinator = shared_cluster(self._place.root, self._place.storage_options)
        offsets = finished_offsets(progress, coordinator.state, self.name)
        if offsets:
            coordinator.commit_offsets(self.name, offsets)


def group_of(name: str, sources: Iterable[Mapping[str, str]]) -> NamedGroup | None:
    """The group for a query of that name with these sources; None where none is to be told.

    Raises InvalidOptionError for sources without an address, InvalidRequestError for a name that no group can have.
    """
    places: list[Address] = []
    for raw in sources:
        options = Options(raw)
        if options.text("kafka.group.id") or not options.boolean("commitOffsets", True):
            return None
        place = address(options)
        if place not in places:
            places.append(place)
    if len(places) != 1:
        return None
    validate_group_id(name)
    return NamedGroup(name, places[0])


def source_options(session: SparkSession, query_id: str) -> list[dict[str, str]]:
    """The options of the sparklog sources of a running query, from the plan that Spark has of it."""
    query = session.streams._jsqm.get(query_id)
    leaves = query.streamingQuery().analyzedPlan().collectLeaves()
    found = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == SOURCE:
            found.append(dict(leaf.extraOptions().asCaseSensitiveMap()))
    return found


def listen(session: SparkSession) -> None:
    """Add the listener to a session, once. A session that cannot have one stays as it is."""
    java = getattr(session, "_jsparkSession", None)
    if java is None:
        return
    try:
        with _listening_lock:
            identity = java.sessionUUID()
            if identity not in _listening:
                session.streams.addListener(QueryNameListener(session))
                _listening.add(identity)
    except Exception as error:
        logger.warning("named queries commit no offsets under their names: %s", error)
