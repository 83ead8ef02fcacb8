"""Transactional producers, and the transactions that they committed. Rules: pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.ui.views.cells import Mapped, ago_cell, commit_columns, ms_of
from sparklog.ui.views.query import Query
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import number, shown


def producers_table(rows: Sequence[Mapped], query: Query, now_ms: int) -> Table:
    """Return the transactional producers whose ids contain the text ``q`` of the query."""
    wanted = query.text("q").lower()
    columns: list[Column[Mapped]] = [
        Column("id", "Producer id", lambda row: row["producer_id"], lambda row: str(row["producer_id"]), True),
        Column("transactional", "Transactional id", lambda row: row["transactional_id"],
               lambda row: Cell(shown(row["transactional_id"], 120), kind="code")),
        Column("epoch", "Epoch", lambda row: row["epoch"], lambda row: str(row["epoch"]), True),
        Column("committed", "Last committed epoch", lambda row: row["committed_epoch"],
               lambda row: "" if row["committed_epoch"] is None else str(row["committed_epoch"]), True),
        Column("time", "Last change", lambda row: row["timestamp"],
               lambda row: ago_cell(ms_of(row["timestamp"]), now_ms), True),
    ]  # fmt: skip
    found = [row for row in rows if wanted in (row["transactional_id"] or "").lower()]
    return make_table(found, columns, query, caption="Transactional producers", sort="-time", name="p.",
                      empty="There are no transactional producers.")  # fmt: skip


def transactions_table(rows: Sequence[Mapped], cluster: str, query: Query) -> Table:
    """Return committed transactions, newest first."""
    columns: list[Column[Mapped]] = [
        *commit_columns(cluster),
        Column("transactional", "Transactional id", lambda row: row["transactional_id"],
               lambda row: Cell(shown(row["transactional_id"], 120), kind="code")),
        Column("epoch", "Epoch", lambda row: row["epoch"], lambda row: str(row["epoch"]), True),
        Column("partitions", "Partitions", lambda row: row["partitions"], lambda row: number(row["partitions"]), True),
        Column("records", "Records", lambda row: row["records"], lambda row: number(row["records"]), True),
        Column("groups", "Offsets of", lambda row: len(row["groups"]),
               lambda row: ", ".join(shown(group, 60) for group in row["groups"])),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Transactions", sort="-version", name="t.",
                      empty="None was committed in this time.")  # fmt: skip
