"""Brokers, which are storage locations, their replicas, and changes of leaders and in-sync replicas. Rules: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.protocol.state import PartitionState, State
from sparklog.ui.views.cells import Mapped, commit_columns, size_cell, topic_cell
from sparklog.ui.views.query import Query
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import number, shown
from sparklog.ui.views.topics import is_unhealthy


def brokers_table(rows: Sequence[Mapped], root: str, query: Query) -> Table:
    """Return the brokers; the empty URL of broker 0 is the root."""
    columns: list[Column[Mapped]] = [
        Column("broker", "Broker", lambda row: row["broker"], lambda row: str(row["broker"]), True),
        Column("state", "State", lambda row: (row["online"], not row["cordoned"]), _state_cell),
        Column("url", "Location", lambda row: row["url"],
               lambda row: Cell(shown(row["url"] or root, 160), kind="code", note="" if row["url"] else "the root")),
        Column("leaders", "Leads", lambda row: row["leaders"], lambda row: number(row["leaders"]), True),
        Column("replicas", "Replicas", lambda row: row["replicas"], lambda row: number(row["replicas"]), True),
        Column("in_sync", "In sync", lambda row: row["in_sync"], _in_sync_cell, True),
        Column("bytes", "Size", lambda row: row["bytes"],
               lambda row: size_cell(row["bytes"]), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Brokers", sort="broker", name="b.")


def _state_cell(row: Mapped) -> Cell:
    if not row["online"]:
        return Cell("offline", kind="bad")
    return Cell("cordoned", kind="warn") if row["cordoned"] else Cell("online", kind="good")


def _in_sync_cell(row: Mapped) -> Cell:
    missing = row["replicas"] - row["in_sync"]
    return Cell(number(row["in_sync"]), kind="bad" if missing else "", note=f"{missing:,} behind" if missing else "")


class UnhealthyPartition(NamedTuple):
    topic: str
    number: int
    state: PartitionState


def unhealthy_table(state: State, cluster: str, query: Query) -> Table:
    """Return the partitions without a leader, or with replicas that are not in sync."""
    rows = [
        UnhealthyPartition(topic.name, number, partition)
        for topic in state.topics.values()
        for number, partition in enumerate(topic.partitions)
        if is_unhealthy(partition)
    ]
    columns: list[Column[UnhealthyPartition]] = [
        Column("topic", "Topic", lambda row: (row.topic, row.number),
               lambda row: topic_cell(row.topic, cluster)),
        Column("partition", "Partition", lambda row: row.number, lambda row: str(row.number), True),
        Column("leader", "Leader", lambda row: row.state.leader,
               lambda row: str(row.state.leader) if row.state.leader >= 0 else Cell("none", kind="bad"), True),
        Column("replicas", "Replicas", lambda row: row.state.replicas, lambda row: _list(row.state.replicas)),
        Column("isr", "In sync", lambda row: row.state.isr, lambda row: _list(row.state.isr)),
        Column("moving", "Being moved", lambda row: row.state.adding, lambda row: _moving(row.state)),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Partitions that are not healthy", sort="topic", name="u.",
                      empty="Every partition has a leader, and all its replicas are in sync.")  # fmt: skip


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _moving(state: PartitionState) -> str:
    parts = [f"adds {_list(state.adding)}"] * bool(state.adding)
    return ", ".join(parts + [f"removes {_list(state.removing)}"] * bool(state.removing))


def changes_table(rows: Sequence[Mapped], cluster: str, query: Query) -> Table:
    """Return changes of leaders, in-sync replicas and replicas, newest first."""
    columns: list[Column[Mapped]] = [
        *commit_columns(cluster),
        Column("topic", "Topic", lambda row: row["topic"], lambda row: shown(row["topic"])),
        Column("partition", "Partition", lambda row: row["partition"], lambda row: str(row["partition"]), True),
        Column("cause", "Cause", lambda row: row["cause"], lambda row: shown(row["cause"])),
        Column("leader", "Leader", lambda row: row["leader"],
               lambda row: "none" if row["leader"] is None or row["leader"] < 0 else str(row["leader"]), True),
        Column("isr", "In sync", lambda row: row["isr"], lambda row: _list(row["isr"])),
        Column("replicas", "Replicas", lambda row: row["replicas"], lambda row: _list(row["replicas"])),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Changes of replicas", sort="-version", name="c.",
                      empty="None in this time.")  # fmt: skip
