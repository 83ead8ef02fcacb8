"""Report the lag of streaming queries: a listener that computes what Spark's Python API leaves out of the progress.

    listener = LagListener(print)
    spark.streams.addListener(listener)
    listener.progress["copier"].max_offsets_behind_latest

With a root, a named query also commits the offsets of its finished batches to the consumer group of that name, so that
every tool sees its lag: for sessions in which ``sparklog.register`` was not called (``query_names``).

Rules: runs in the user's process, on Spark's listener thread; best effort: a failure is logged and never stops a query.
Not for: decisions about a query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.errors import SparklogError
from sparklog.log.commits.replaced_root import refuse_replaced_root, refuse_unlinked_timeline
from sparklog.spark.stream.offsets import StreamOffsets, has_ids, lag, parse, uncommitted_offsets
from sparklog.spark.stream.other_timeline import find_other_timeline
from sparklog.spark.stream.planner import commit_ends
from sparklog.spark.stream.skipped_batch_report import is_repetition
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

MAX_QUERIES = 1000
"""queries whose latest progress a listener keeps."""


@dataclass(frozen=True)
class QueryLag:
    """The lag of one query over all of its sparklog sources after one batch, in records. Rates are records per
    second."""

    query: str
    batch_id: int
    partitions: Mapping[TopicPartition, int]
    input_rows_per_second: float
    processed_rows_per_second: float
    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    is_repetition: bool = False
    """The batch was in the log before, and the sink skipped it; only set if ``sparklog.register`` was called."""


class LagListener(StreamingQueryListener):
    """Keeps the latest ``QueryLag`` of each query in ``progress``, by name, or by id if it has no name.

    ``report`` is called with each. With ``root``, named queries commit their offsets to the consumer groups of their
    names in that cluster.
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
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Compute and report the query's lag after a batch."""
        try:
            progress = json.loads(event.progress.json)
            query_lag = find_lag(progress)
            if query_lag is None:
                return
            self.progress.pop(query_lag.query, None)
            self.progress[query_lag.query] = query_lag
            while len(self.progress) > MAX_QUERIES:
                self.progress.pop(next(iter(self.progress)))
            if self._root and progress.get("name"):
                self._commit(progress)
            if self._report is not None:
                self._report(query_lag)
        except SparklogError as error:
            logger.warning("the lag of query %s cannot be determined: %s", event.progress.id, error)

    def _commit(self, progress: Mapping[str, Any]) -> None:
        try:
            commit_progress(progress, shared_cluster(self._root, self._storage_options), progress["name"])
        except SparklogError as error:
            logger.warning("could not commit offsets to consumer group %s: %s", progress["name"], error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the latest progress is kept."""


def commit_progress(progress: Mapping[str, Any], coordinator: Coordinator, group: str) -> None:
    """Commit the offsets at which the batch of a query's progress ended. Errors as ``commit_ends``; RootReplacedError
    if they are of another timeline than the log's, UnlinkedHistoryError if that is not known."""
    ends = [end for end, _ in _parse_sources(progress) if end.cluster_id == coordinator.state.cluster_id]
    if not uncommitted_offsets(ends, coordinator.state, group):
        return
    if any(end.planned_at is not None and end.planned_at.version > coordinator.state.version for end in ends):
        coordinator.refresh()
    timeline = coordinator.log.unlinked_jumps  # read before the check
    for end in ends:
        other = find_other_timeline(coordinator.log, end, has_jumped=timeline > 0)
        if other is not None and other.is_certain:
            raise refuse_replaced_root(coordinator.store, f"the end of the batch is of another one: {other.why}")
        if other is not None:
            raise refuse_unlinked_timeline(coordinator.store, "the end of the batch may be that of other records")
    commit_ends(coordinator, group, ends, timeline)


def find_lag(progress: Mapping[str, Any]) -> QueryLag | None:
    """Return the lag in a query's progress, in Spark's JSON form; None if the query reads no topic of a cluster."""
    behind: dict[TopicPartition, int] = {}
    sources = _parse_sources(progress)
    for end, latest in sources:
        for partition, records in lag(end, latest).items():
            behind[partition] = max(records, behind.get(partition, 0))
    if not sources:
        return None
    return QueryLag(
        query=progress.get("name") or progress["id"],
        batch_id=progress["batchId"],
        partitions=behind,
        input_rows_per_second=_rate(progress, "inputRowsPerSecond"),
        processed_rows_per_second=_rate(progress, "processedRowsPerSecond"),
        min_offsets_behind_latest=min(behind.values(), default=0),
        max_offsets_behind_latest=max(behind.values(), default=0),
        avg_offsets_behind_latest=sum(behind.values()) / len(behind) if behind else 0.0,
        is_repetition=is_repetition(str(progress.get("runId")), progress["batchId"]),
    )


def _parse_sources(progress: Mapping[str, Any]) -> list[tuple[StreamOffsets, StreamOffsets]]:
    """Return the end offsets and the latest offsets of each sparklog source of the query."""
    sources = []
    for source in progress.get("sources", ()):
        end, latest = _decode(source.get("endOffset")), _decode(source.get("latestOffset"))
        if has_ids(end):
            sources.append((parse(end), parse(latest) if isinstance(latest, dict) else parse(end)))
    return sources


def _decode(offset: Any) -> Any:
    """Return an offset of Spark's progress, which holds it as a JSON object or as JSON text; None if invalid."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _rate(progress: Mapping[str, Any], name: str) -> float:
    rate = progress.get(name)
    return float(rate) if isinstance(rate, (int, float)) else 0.0
