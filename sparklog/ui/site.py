"""What all pages of the web page share: the clusters that it shows, and what a page is.

Not for: pages (``pages``, ``record_pages``), routes (``app``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.monitoring.system_tables import RowSelection
from sparklog.protocol.state import State
from sparklog.ui.follower import ClusterFollower
from sparklog.ui.maintenance_pass import Passes
from sparklog.ui.views.alerts import concerns_of
from sparklog.ui.views.overview import Concern, cluster_concerns
from sparklog.ui.views.query import Query, TimeRange
from sparklog.ui.views.topics import TopicRow, TopicRows

if TYPE_CHECKING:
    from sparklog.ui.alert_watch import AlertWatch

MAX_DOWNLOADS = 4
"""Downloads at the same time: the records of each are in memory until its client has taken them all."""


class SitePage(NamedTuple):
    """A template with its values, and the status of the response. An incomplete one is soon asked for again."""

    template: str
    values: Mapping[str, Any]
    status: int = 200
    is_incomplete: bool = False


@dataclass(frozen=True)
class Site:
    """The clusters by name, whether pages may change them, their alerts, None without rules, the passes of
    maintenance that were started here, and the downloads that may begin."""

    clusters: Mapping[str, ClusterFollower]
    allow_changes: bool = False
    topic_rows: Mapping[str, TopicRows] = field(default_factory=dict)
    alerts: AlertWatch | None = None
    passes: Passes = field(default_factory=Passes)
    downloads: threading.BoundedSemaphore = field(default_factory=partial(threading.BoundedSemaphore, MAX_DOWNLOADS))

    @classmethod
    def of(
        cls, clusters: Sequence[ClusterFollower], allow_changes: bool = False, alerts: AlertWatch | None = None
    ) -> Site:
        """Return the site of these clusters."""
        by_name = {cluster.name: cluster for cluster in clusters}
        return cls(by_name, allow_changes, {name: TopicRows() for name in by_name}, alerts)

    def concerns(self, cluster: ClusterFollower, state: State, now_ms: int) -> list[Concern]:
        """Return what needs attention in a cluster: what its state shows, and the alerts that fire."""
        firing = self.alerts.board(cluster.name).firing if self.alerts is not None else []
        shown = cluster_concerns(state, self.rows(cluster, state), cluster.name, now_ms)
        return shown + concerns_of(firing, cluster.name)

    def rows(self, cluster: ClusterFollower, state: State) -> list[TopicRow]:
        """Return what the list says about each topic."""
        return self.topic_rows[cluster.name].of(state)


class Visit(NamedTuple):
    """One request for a page of a cluster: the state that all of the page is from, its query, and the time."""

    site: Site
    cluster: ClusterFollower
    state: State
    query: Query
    path: Mapping[str, str]
    now_ms: int
    csrf: str = ""

    @property
    def name(self) -> str:
        """The cluster's part of addresses."""
        return self.cluster.name

    def commits(self, table: str, span: TimeRange, *, topic: str | None = None, group: str | None = None) -> pa.Table:
        """Return the rows of a system table of commits of these times, perhaps only of a topic or a group.

        ``throughput`` also has what rollups know of commits that were removed.
        """
        selection = RowSelection(since_ms=span.since_ms) if table == "throughput" else self.cluster.since(span.since_ms)
        rows = self.cluster.read(table, selection._replace(topic=topic, group=group), self.state)
        times = rows.column("minute" if table == "throughput" else "timestamp").cast(pa.int64())
        return rows.filter(pc.and_(pc.greater_equal(times, span.since_ms), pc.less(times, span.until_ms)))

    def rows(self, table: str, selection: RowSelection | None = None) -> list[dict[str, Any]]:
        """Return the rows of a system table in this state."""
        rows: list[dict[str, Any]] = self.cluster.read(table, selection, self.state).to_pylist()
        return rows
