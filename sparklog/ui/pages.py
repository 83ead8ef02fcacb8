"""The pages of a cluster, one function each: a visit becomes a template with its values.

Rules: they read, and decide nothing; what a page shows comes from one state. Not for: records (``record_pages``).
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import RedirectResponse, Response

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import (
    CorruptMetadataError,
    GroupIdNotFoundError,
    InvalidRequestError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.layout import read_certain_boundary
from sparklog.monitoring.commit_rows import ADDED, CREATED
from sparklog.monitoring.facts.groups import unread
from sparklog.monitoring.system_tables import RowSelection
from sparklog.protocol.commits import GENESIS_DIGEST
from sparklog.ui.follower import StillReading
from sparklog.ui.maintenance_pass import list_due
from sparklog.ui.site import Site, SitePage, Visit
from sparklog.ui.views import (
    alerts,
    brokers,
    commits,
    fsck,
    groups,
    maintenance,
    overview,
    plots,
    producers,
    state_changes,
    topics,
)
from sparklog.ui.views.query import Query, TimeRange, address
from sparklog.ui.views.text import duration, number, size


def show_overview(site: Site, query: Query) -> SitePage:
    """Return the page of all clusters."""
    cards = []
    for cluster in site.clusters.values():
        state = cluster.state()
        now_ms = max(cluster.now_ms, state.timestamp_ms)
        rows = site.rows(cluster, state)
        concerns = site.concerns(cluster, state, now_ms)
        stale = overview.freshness(*cluster.status, now_ms)
        cards.append(
            overview.ClusterCard(
                cluster.name,
                cluster.root,
                f"/{cluster.name}",
                overview.cluster_facts(state, rows, cluster.name, now_ms),
                [overview.Concern(stale, "", "bad")] * bool(stale) + concerns,
            )
        )
    return SitePage("overview.html", {"title": "Clusters", "cards": cards})


def show_cluster(visit: Visit) -> SitePage:
    """Return the page of one cluster: facts, what needs attention, throughput, the largest lags."""
    rows = visit.site.rows(visit.cluster, visit.state)
    span = visit.query.time_range(visit.now_ms)
    plotted = _throughput(visit, span)
    lagging = [row for row in visit.rows("groups") if row["lag"]]
    largest = sorted(lagging, key=lambda row: -row["lag"])[:10]
    values = {
        "title": visit.name,
        "facts": overview.cluster_facts(visit.state, rows, visit.name, visit.now_ms),
        "concerns": visit.site.concerns(visit.cluster, visit.state, visit.now_ms),
        "plots": plotted.plots,
        "unread": plotted.problem,
        "span": span,
        "groups": groups.groups_table(largest, visit.name, Query(visit.query.path, {}), visit.now_ms),
        "lagging": len(lagging),
    }
    return SitePage("cluster.html", values, is_incomplete=plotted.is_incomplete)


class _Plotted(NamedTuple):
    """Plots; none while the commits are still being read, or if they cannot be for a ``problem``."""

    plots: list[plots.Plot]
    problem: str = ""

    @property
    def is_incomplete(self) -> bool:
        return not self.plots and not self.problem


def _throughput(visit: Visit, span: TimeRange, topic: str | None = None) -> _Plotted:
    """Return the plots of records and bytes that were appended."""
    try:
        rows = visit.commits("throughput", span, topic=topic)
    except StillReading:
        return _Plotted([])
    except CorruptMetadataError as error:
        return _Plotted([], error.message)
    minutes = rows.column("minute").cast(pa.int64())
    steps = pc.multiply(pc.divide(minutes, span.step_ms), span.step_ms)
    table = pa.table({"step": steps, "records": rows.column("records"), "bytes": rows.column("bytes")})
    sums = table.group_by("step").aggregate([("records", "sum"), ("bytes", "sum")]).to_pydict()
    each = "per minute" if span.step_ms == 60_000 else f"per {duration(span.step_ms / 1000)}"
    records = dict(zip(sums["step"], map(float, sums["records_sum"]), strict=True))
    counts = dict(zip(sums["step"], map(float, sums["bytes_sum"]), strict=True))
    return _Plotted(
        [
            plots.make_plot(f"Records {each}", records, span, number, bars=True),
            plots.make_plot(f"Bytes {each}", counts, span, size, bars=True, unit=1024),
        ]
    )


def _until(span: TimeRange) -> int | None:
    """Return the end of a range for a selection, None if it is now: so that all viewers share what is read."""
    return span.until_ms if span.until else None


def show_topics(visit: Visit) -> SitePage:
    """Return the list of topics."""
    rows = visit.site.rows(visit.cluster, visit.state)
    table = topics.topics_table(rows, visit.name, visit.query, visit.now_ms)
    return SitePage("list.html", {"title": "Topics", "table": table, "search": "Search topics", "create": "topic"})


def show_topic(visit: Visit) -> SitePage:
    """Return a topic: its partitions and its throughput."""
    topic = visit.state.topic(visit.path["topic"])
    span = visit.query.time_range(visit.now_ms)
    plotted = _throughput(visit, span, topic.name)
    row = topics.topic_row(topic)
    readers = [each for each in visit.rows("groups") if topic.name in each["topics"]]
    values = {
        **_topic_values(visit, "overview"),
        "row": row,
        "created_ms": topic.created_ms,
        "table": topics.partitions_table(topic, visit.name, visit.query, visit.now_ms),
        "plots": plotted.plots,
        "unread": plotted.problem,
        "span": span,
        "groups": groups.groups_table(readers, visit.name, Query(visit.query.path, {}), visit.now_ms),
    }
    return SitePage("topic.html", values, is_incomplete=plotted.is_incomplete)


def _topic_values(visit: Visit, tab: str) -> dict[str, Any]:
    topic = visit.state.topic(visit.path["topic"])
    return {"title": topic.name, "topic": topic, "tab": tab}


def show_topic_configs(visit: Visit) -> SitePage:
    """Return the configs of a topic."""
    topic = visit.state.topic(visit.path["topic"])
    configs = TopicConfig.resolve(topic.configs, visit.state.configs)
    table = topics.configs_table(configs, visit.query)
    return SitePage("topic_configs.html", {**_topic_values(visit, "configs"), "table": table})


def show_topic_segments(visit: Visit) -> SitePage:
    """Return the live segments of a topic, drawn and as a table."""
    topic = visit.state.topic(visit.path["topic"])
    rows = visit.rows("segments", RowSelection(topic=topic.name))
    values = {
        **_topic_values(visit, "segments"),
        "drawing": topics.draw_segments(rows, topic, visit.name),
        "table": topics.segments_table(rows, visit.name, visit.query),
    }
    return SitePage("topic_segments.html", values)


def show_topic_history(visit: Visit) -> SitePage:
    """Return the schemas of a topic, and what is known of its Delta table."""
    topic = visit.state.topic(visit.path["topic"])
    configs = TopicConfig.resolve(topic.configs, visit.state.configs)
    rows = visit.rows("segments", RowSelection(topic=topic.name))
    history = [row for row in rows if row["history"]]
    values = {
        **_topic_values(visit, "history"),
        "schemas": topics.show_schemas(topic, visit.name),
        "format": configs.history_format,
        "files": len({row["path"] for row in history}),
        "records": sum(row["records"] for row in history),
        "bytes": sum(row["bytes"] for row in history),
        "unfit": sum(row["unfit"] for row in history),
        "rest": sum(row["records"] for row in rows) - sum(row["records"] for row in history),
    }
    return SitePage("topic_history.html", values)


def show_groups(visit: Visit) -> SitePage:
    """Return the list of consumer groups."""
    table = groups.groups_table(visit.rows("groups"), visit.name, visit.query, visit.now_ms)
    return SitePage("list.html", {"title": "Consumer groups", "table": table, "search": "Search groups"})


def find_group(visit: Visit) -> Response:
    """Return where a group's page is: its name, in which a slash may be, is a parameter."""
    name = visit.path["group"]
    return RedirectResponse(address(visit.name, "group", name=name) if name else address(visit.name, "groups"), 301)


def show_group(visit: Visit) -> SitePage:
    """Return a group: its members, its lag now and over time, and what is stuck."""
    name = visit.query.text("name")
    group = visit.state.groups.get(name)
    if group is None:
        raise GroupIdNotFoundError(f"group {name!r} does not exist at version {visit.state.version}", group=name)
    span = visit.query.time_range(visit.now_ms)
    members = [row for row in visit.rows("members", RowSelection(group=name)) if row["group"] == name]
    held = groups.holders(members)
    lag = visit.rows("lag", RowSelection(group=name))
    held_by = {(row["topic"], row["partition"]): held.get(f"{row['topic']}-{row['partition']}", "") for row in lag}
    moves = visit.commits("offsets", span, group=name).to_pylist()
    rows = groups.progress(lag, moves, held_by, visit.now_ms)
    values = {
        "title": name,
        "group": group,
        "lag": sum(unread(row.lag) for row in rows),
        "behind": max((row.lag_seconds or 0 for row in rows if row.lag), default=0),
        "stuck": groups.stuck_sentence(rows, visit.now_ms),
        "plots": _lag(visit, span, name),
        "span": span,
        "table": groups.progress_table(rows, visit.name, visit.query),
        "members": groups.members_table(members, visit.query),
    }
    return SitePage("group.html", values)


def _lag(visit: Visit, span: TimeRange, group: str) -> list[plots.Plot]:
    """Return the plots of a group's lag in records, and in seconds that its slowest partition is behind."""
    selection = RowSelection(group=group, since_ms=span.since_ms, until_ms=_until(span), step_ms=span.step_ms)
    rows = visit.cluster.read("lag", selection, visit.state)
    table = pa.table(
        {
            "time": rows.column("timestamp").cast(pa.int64()),
            "lag": rows.column("lag"),
            "behind": rows.column("lag_seconds"),
        }
    )
    by_time = table.group_by("time").aggregate([("lag", "sum"), ("behind", "max")]).to_pydict()
    records: dict[int, float] = {}
    behind: dict[int, float] = {}
    for at, total, seconds in sorted(zip(*by_time.values(), strict=True)):
        step = at // span.step_ms * span.step_ms
        records[step] = float(total)
        if seconds is not None:
            behind[step] = seconds
    return [
        plots.make_plot("Lag in records", records, span, number),
        plots.make_plot("Slowest partition behind by", behind, span, duration, unit=60),
    ]


def show_brokers(visit: Visit) -> SitePage:
    """Return brokers, partitions that are not healthy, and changes of replicas but those by creations of partitions."""
    span = visit.query.time_range(visit.now_ms, "6h")
    rows = visit.cluster.read("replicas", RowSelection(since_ms=span.since_ms, until_ms=_until(span)), visit.state)
    changes = rows.filter(pc.invert(pc.is_in(rows.column("cause"), pa.array([CREATED, ADDED])))).to_pylist()
    tables = [
        brokers.brokers_table(visit.rows("brokers"), visit.cluster.root, visit.query),
        brokers.unhealthy_table(visit.state, visit.name, visit.query),
        brokers.changes_table(changes, visit.name, visit.query),
    ]
    return SitePage("tables.html", {"title": "Brokers and replicas", "tables": tables, "span": span})


def show_producers(visit: Visit) -> SitePage:
    """Return transactional producers and committed transactions."""
    span = visit.query.time_range(visit.now_ms, "24h")
    transactions = visit.commits("transactions", span).to_pylist()
    tables = [
        producers.producers_table(visit.rows("producers"), visit.query, visit.now_ms),
        producers.transactions_table(transactions, visit.name, visit.query),
    ]
    values = {"title": "Transactions and producers", "tables": tables, "span": span, "search": "Transactional id"}
    return SitePage("tables.html", values)


def show_maintenance(visit: Visit) -> SitePage:
    """Return the last check, what maintenance did, what waits, and what storage each topic takes."""
    span = visit.query.time_range(visit.now_ms, "24h")
    changes = visit.commits("maintenance", span).to_pylist()
    tables = [
        maintenance.steps_table(maintenance.sum_steps(changes), visit.query, visit.now_ms),
        maintenance.waiting_table(visit.state, visit.name, visit.query, visit.now_ms),
        maintenance.storage_table(visit.rows("storage"), visit.name, visit.query),
        maintenance.changes_table(changes, visit.name, visit.query),
    ]
    values: dict[str, Any] = {"title": "Maintenance", "tables": tables, "span": span, "due": _due(visit)}
    values |= {"fsck": None, "fsck_problem": "", "run": None}
    try:
        report = visit.cluster.fsck_report()
    except (CorruptMetadataError, UnsupportedVersionError) as error:
        values["fsck_problem"] = error.message
    else:
        if report is not None:
            values["fsck"] = fsck.show_report(report, visit.name, visit.query, visit.now_ms)
    status = visit.site.passes.status(visit.name)
    if status is not None:
        values["run"] = maintenance.show_pass(status, visit.query, visit.now_ms)
    is_running = status is not None and status.ended_ms is None
    return SitePage("maintenance.html", values, is_incomplete=is_running)


def _due(visit: Visit) -> list[str] | None:
    """Return what maintenance would do now, None while it is worked out."""
    cluster, state, now_ms = visit.cluster, visit.state, visit.now_ms
    try:
        return maintenance.due_sentences(cluster.recent("due", lambda: list_due(cluster.coordinator, state, now_ms)))
    except StillReading:
        return None


def show_alerts(visit: Visit) -> SitePage:
    """Return the alerts of the last evaluation, what changed, and the rules."""
    watch = visit.site.alerts
    if watch is None:
        return SitePage("alerts.html", {"title": "Alerts", "board": None})
    board = watch.board(visit.name)
    rules = {rule.name: rule for rule in watch.book.rules}
    values = {
        "title": "Alerts",
        "board": board,
        "interval": watch.interval_seconds,
        "state_file": PurePath(watch.path).name,
        "alerts": alerts.alerts_table(board.alerts, visit.name, visit.query, visit.now_ms),
        "changes": alerts.changes_table(board.changes, rules, visit.name, visit.query),
        "rules": alerts.rules_table(watch.book.rules, visit.query),
    }
    return SitePage("alerts.html", values, is_incomplete=board.time_ms is None and not board.problems)


def show_configs(visit: Visit) -> SitePage:
    """Return the configs of the cluster."""
    table = topics.configs_table(ClusterConfig(visit.state.configs), visit.query)
    return SitePage("configs.html", {"title": "Cluster configs", "table": table})


def show_commits(visit: Visit) -> SitePage:
    """Return the commits before the version ``before``, or the newest."""
    last = visit.query.number("before", visit.state.version + 1, 0, 2**62) - 1
    last = min(last, visit.state.version)
    first = max(last - commits.WINDOW + 1, 0)
    table = visit.cluster.read("commits", RowSelection(first_version=first), visit.state)
    rows = table.filter(pc.less_equal(table.column("version"), last)).to_pylist()
    oldest = rows[0]["version"] if rows else 0
    values = {
        "title": "Commit log",
        "table": commits.commits_table(rows, visit.name, visit.query),
        "kinds": commits.KINDS,
        "looked_at": (oldest, last),
        "older": visit.query.link(before=oldest, page=None) if rows and oldest == first and first > 0 else "",
        "newest": visit.query.link(before=None, page=None) if last < visit.state.version else "",
    }
    return SitePage("commits.html", values)


def show_commit(visit: Visit) -> SitePage:
    """Return one commit: its digest checked, and what it changed, before and after."""
    version = int(visit.path["version"])
    if not 0 <= version <= visit.state.version:
        raise InvalidRequestError(f"there is no commit {version}: the newest is {visit.state.version}")
    store = visit.cluster.coordinator.store
    values: dict[str, Any] = {
        "title": f"Commit {version:,}", "number": version, "newest": visit.state.version, "problem": ""
    }  # fmt: skip
    try:
        stored = read_commit(store, version)
    except ObjectNotFoundError as error:
        if version <= read_certain_boundary(store):
            raise InvalidRequestError(f"commit {version} was removed behind a checkpoint") from None
        return SitePage("commit_damaged.html", {**values, "problem": f"{error}; `sparklog fsck` says what can be done"})
    except CorruptMetadataError as error:
        return SitePage("commit_damaged.html", {**values, "problem": error.message})
    digests = commits.Neighbours(
        _digest(visit, version - 1) if version else GENESIS_DIGEST,
        _digest(visit, version + 1, previous=True) if version < visit.state.version else visit.state.digest,
    )
    values["commit"] = commits.show_commit(stored.commit, stored.digest, stored.size, digests, visit.name)
    table, problem = None, ""
    try:
        changed = state_changes.list_changes(visit.cluster.around(version), visit.name)
        table = state_changes.changes_table(changed, visit.query)
    except StillReading:
        pass
    except (InvalidRequestError, CorruptMetadataError) as error:
        problem = error.message
    return SitePage("commit.html", {**values, "table": table, "problem": problem}, is_incomplete=not (table or problem))


def _digest(visit: Visit, version: int, previous: bool = False) -> str | None:
    """Return the digest of a commit, or that which it names of the one before; None if it was removed, empty if its
    bytes are damaged or missing."""
    store = visit.cluster.coordinator.store
    try:
        stored = read_commit(store, version)
    except ObjectNotFoundError:
        return None if version <= read_certain_boundary(store) else ""
    except CorruptMetadataError:
        return ""
    return stored.commit.previous if previous else stored.digest
