"""Cells and columns that several tables have: sizes, ages, and the commit that a row is of. Rules: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.ui.views.query import address
from sparklog.ui.views.tables import Cell, Column
from sparklog.ui.views.text import ago, number, shown, size, time

Mapped = Mapping[str, Any]
"""A row of a system table."""


def ms_of(value: Any) -> int | None:
    """Return a time of a system table in ms since the epoch."""
    return None if value is None else round(value.timestamp() * 1000)


def size_cell(count: int | None) -> Cell:
    """Return a number of bytes, with all its digits as the title."""
    return Cell(size(count), title=number(count))


def ago_cell(time_ms: int | None, now_ms: int) -> Cell:
    """Return how long ago a time was, with the time as the title."""
    return Cell(ago(time_ms, now_ms), title=time(time_ms))


def version_cell(version: int, cluster: str) -> Cell:
    """Return a link to a commit."""
    return Cell(number(version), address(cluster, "commits", version))


def topic_cell(topic: str, cluster: str) -> Cell:
    """Return a link to a topic."""
    return Cell(shown(topic), address(cluster, "topics", topic))


def commit_columns(cluster: str, exact: bool = False) -> list[Column[Mapped]]:
    """Return the columns of the commit that a row of a system table is of: its version and its time."""
    return [
        Column(
            "version", "Commit", lambda row: row["version"], lambda row: version_cell(row["version"], cluster), True
        ),
        Column("time", "Time", lambda row: row["timestamp"], lambda row: time(ms_of(row["timestamp"]), exact)),
    ]
