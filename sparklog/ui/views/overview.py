"""The overview: what each cluster holds, how fresh that is, and what needs attention. Rules: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.monitoring.facts.files import retired_files
from sparklog.protocol.state import State
from sparklog.ui.views.query import address
from sparklog.ui.views.text import ago, number, plural, shown, size, time
from sparklog.ui.views.topics import TopicRow


class Fact(NamedTuple):
    """A number with its name, perhaps a link to where it comes from."""

    name: str
    value: str
    href: str = ""
    note: str = ""
    kind: str = ""


class Concern(NamedTuple):
    """A sentence on what needs attention, with a link to where it shows."""

    text: str
    href: str = ""
    kind: str = "warn"


class ClusterCard(NamedTuple):
    """A cluster on the overview."""

    name: str
    root: str
    href: str
    facts: list[Fact]
    concerns: list[Concern]


def cluster_facts(state: State, rows: Sequence[TopicRow], name: str, now_ms: int) -> list[Fact]:
    """Return what a cluster holds."""
    groups = len(state.groups)
    return [
        Fact("Topics", number(len(rows)), address(name, "topics")),
        Fact("Partitions", number(sum(row.partitions for row in rows)), address(name, "topics", sort="-partitions")),
        Fact("Size", size(sum(row.bytes for row in rows)), address(name, "topics", sort="-bytes"), "of one copy"),
        Fact("Groups", number(groups), address(name, "groups")),
        Fact("Brokers", number(len(state.brokers)), address(name, "brokers")),
        Fact("Newest commit", number(state.version), address(name, "commits"), ago(state.timestamp_ms, now_ms)),
    ]


def cluster_concerns(state: State, rows: Sequence[TopicRow], name: str, now_ms: int) -> list[Concern]:
    """Return what needs attention: offline brokers, partitions that are not in sync, unfit records, late deletions."""
    concerns = [
        Concern(f"Broker {number} is offline: {shown(broker.url, 100) or 'the root'}", address(name, "brokers"), "bad")
        for number, broker in sorted(state.brokers.items())
        if not broker.online
    ]
    unhealthy = sum(row.unhealthy for row in rows)
    if unhealthy:
        text = f"{plural(unhealthy, 'partition')} without a leader, or with replicas that are not in sync"
        concerns.append(Concern(text, address(name, "brokers"), "bad"))
    unfit = [row for row in rows if row.unfit]
    if unfit:
        records = plural(sum(row.unfit for row in unfit), "record")
        text = f"{records} of {plural(len(unfit), 'topic')} do not fit the schema"
        concerns.append(Concern(text, address(name, "topics", sort="-health")))
    late = retired_files(state, now_ms - 3_600_000)
    if late.files:
        text = f"{size(late.bytes)} of retired files could have been deleted an hour ago: does `sparklog maintain` run?"
        concerns.append(Concern(text, address(name, "maintenance")))
    if state.moved_to:
        concerns.append(Concern(f"The cluster continues at {shown(state.moved_to, 200)}", "", "bad"))
    return concerns


def freshness(read_ms: int, problem: str, now_ms: int) -> str:
    """Return a sentence if the storage does not answer, empty if it does."""
    if not problem:
        return ""
    return (
        f"Shown as of {time(read_ms)} UTC ({ago(read_ms, now_ms)}), because the storage failed: {shown(problem, 400)}"
    )
