"""Lag that everyone can see: a listener that adds to a query's progress what Spark's Python API has no place for.

    listener = LagListener(print)
    spark.streams.addListener(listener)
    listener.progress["copier"].max_offsets_behind_latest

With a root, a query that has a name also commits the offsets of its finished batches to the consumer group of that
name, so that lag is seen by every tool: for sessions where ``sparklog.register`` was not called (``stream_names``).

Rules: runs in the user's process, on Spark's listener thread; a failure here is logged and never stops a query.
Not for: deciding anything about a query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sparklog.coordinator import shared_cluster
from sparklog.errors import SparklogError
from sparklog.protocol.state import State
from sparklog.spark.stream.offsets import Lag, StreamOffsets, has_ids, lag, parse
from sparklog.spark.stream.repetitions import is_repetition
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

MAX_QUERIES = 1000
"""queries whose latest progress a listener keeps."""


@dataclass(frozen=True)
class QueryLag:
    """How far one query is behind, over all of its sparklog sources, after one batch. Rates are records per second."""

    query: str
    batch_id: int
    partitions: Mapping[TopicPartition, int]
    input_rows_per_second: float
    processed_rows_per_second: float
    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    is_repetition: bool = False
    """The batch was in the log before, and the sink left it out; known where ``sparklog.register`` was called."""


class LagListener(StreamingQueryListener):
    """Keeps the latest ``QueryLag`` of each query in ``progress``, by name, or by id where it has none.

    ``report`` is called with each. With ``root`` named queries commit to the consumer groups of their names there.
    """

    def __init__(
        self,
        report: Callable[[QueryLag], object] | None = None,
        root: str = "",
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self.progress: dict[str, QueryLag] = {}
        self._report = report
        self._root = root
        self._storage_options = storage_options

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is finished: see how far behind the query is."""
        try:
            progress = json.loads(event.progress.json)
            found = query_lag(progress)
            if found is None:
                return
            self.progress.pop(found.query, None)
            self.progress[found.query] = found
            while len(self.progress) > MAX_QUERIES:
                self.progress.pop(next(iter(self.progress)))
            if self._root and progress.get("name"):
                self._commit(progress)
            if self._report is not None:
                self._report(found)
        except SparklogError as error:
            logger.warning("the lag of query %s is not known: %s", event.progress.id, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The latest progress stays."""

    def _commit(self, progress: Mapping[str, Any]) -> None:
        coordinator = shared_cluster(self._root, self._storage_options)
        offsets = finished_offsets(progress, coordinator.state, progress["name"])
        if offsets:
            coordinator.commit_offsets(progress["name"], offsets)


def finished_offsets(progress: Mapping[str, Any], state: State, group: str) -> dict[tuple[str, int], int]:
    """Where the sources of a query stand after a batch, in this cluster, as far as the group stands elsewhere.

    Topics that were deleted or created again meanwhile are left out.
    """
    known = state.groups.get(group)
    before = {} if known is None else {key: one.offset for key, one in known.offsets.items()}
    found = {}
    for at, _ in _sources(progress):
        for where, offset in at.partitions.items():
            topic = state.topics.get(where.topic)
            if at.cluster_id != state.cluster_id or topic is None:
                continue
            is_same = topic.topic_id == at.topic_ids.get(where.topic)
            if is_same and before.get(f"{topic.topic_id}:{where.partition}") != offset:
                found[(where.topic, where.partition)] = offset
    return found


def query_lag(progress: Mapping[str, Any]) -> QueryLag | None:
    """The lag in a query's progress, as Spark reports it in JSON; None where it reads no topic of sparklog's."""
    behind: dict[TopicPartition, int] = {}
    sources = _sources(progress)
    for at, latest in sources:
        for where, records in lag(at, latest).partitions.items():
            behind[where] = max(records, behind.get(where, 0))
    if not sources:
        return None
    total = Lag(behind)
    return QueryLag(
        query=progress.get("name") or progress["id"],
        batch_id=progress["batchId"],
        partitions=behind,
        input_rows_per_second=_rate(progress, "inputRowsPerSecond"),
        processed_rows_per_second=_rate(progress, "processedRowsPerSecond"),
        min_offsets_behind_latest=total.min_offsets_behind_latest,
        max_offsets_behind_latest=total.max_offsets_behind_latest,
        avg_offsets_behind_latest=total.avg_offsets_behind_latest,
        is_repetition=is_repetition(str(progress.get("runId")), progress["batchId"]),
    )


def _sources(progress: Mapping[str, Any]) -> list[tuple[StreamOffsets, StreamOffsets]]:
    """Where each sparklog source of the query is, and where it could be."""
    found = []
    for source in progress.get("sources", ()):
        end, latest = _decoded(source.get("endOffset")), _decoded(source.get("latestOffset"))
        if has_ids(end):
            found.append((parse(end), parse(latest) if isinstance(latest, dict) else parse(end)))
    return found


def _decoded(offset: Any) -> Any:
    """Spark shows offsets as JSON inside of its JSON, or as text."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _rate(progress: Mapping[str, Any], name: str) -> float:
    rate = progress.get(name)
    return float(rate) if isinstance(rate, (int, float)) else 0.0
