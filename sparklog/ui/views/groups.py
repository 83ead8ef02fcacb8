"""Consumer groups: the list, and a group with its members, its lag, and what is stuck since when.

Rules: pure. A partition is stuck if records wait in it, and since ``STUCK_SECONDS`` its offset has not moved although
they were there. Not for: how the lag is known (``monitoring.lag``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.ui.views.cells import Mapped, ago_cell, ms_of, topic_cell
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import duration, number, plural, shown, time

STUCK_SECONDS = 300
"""Seconds without progress after which a partition with lag is stuck."""


def groups_table(rows: Sequence[Mapped], cluster: str, query: Query, now_ms: int) -> Table:
    """Return the list of groups whose names contain the text ``q`` of the query."""
    wanted = query.text("q").lower()
    columns: list[Column[Mapped]] = [
        Column("group", "Group", lambda row: row["group"],
               lambda row: Cell(shown(row["group"], 120), address(cluster, "group", name=row["group"]))),
        Column("state", "State", lambda row: row["state"], _state_cell),
        Column("members", "Members", lambda row: row["members"], lambda row: number(row["members"]), True),
        Column("topics", "Topics", lambda row: len(row["topics"]), _topics_cell),
        Column("partitions", "Partitions", lambda row: row["partitions"], lambda row: number(row["partitions"]), True),
        Column("lag", "Lag", lambda row: row["lag"], lambda row: number(row["lag"]), True,
               "records between the committed offsets and the ends of the partitions"),
        Column("commit", "Last commit", lambda row: row["last_commit"],
               lambda row: ago_cell(ms_of(row["last_commit"]), now_ms), True),
    ]  # fmt: skip
    found = [row for row in rows if wanted in row["group"].lower()]
    empty = f"No group has {shown(wanted, 60)!r} in its name." if wanted else "There are no consumer groups."
    return make_table(found, columns, query, caption="Consumer groups", sort="-lag", empty=empty)


def _state_cell(row: Mapped) -> Cell:
    kinds = {"Stable": "good", "PreparingRebalance": "warn"}
    had_no_members = row["state"] == "Empty" and not row["generation"]
    return Cell(row["state"], note="no members ever: a query, or offsets set by hand" if had_no_members else "",
                kind=kinds.get(row["state"], "dim"))  # fmt: skip


def _topics_cell(row: Mapped) -> Cell:
    topics = row["topics"]
    more = f" and {len(topics) - 3:,} more" if len(topics) > 3 else ""
    return Cell(", ".join(shown(topic, 60) for topic in topics[:3]) + more)


class GroupProgress(NamedTuple):
    """A group in a partition: ``idle_seconds`` without progress while records wait; None if it is at the end."""

    topic: str
    partition: int
    offset: int
    end: int
    lag: int
    lag_seconds: float | None
    idle_seconds: float | None
    member: str

    @property
    def is_stuck(self) -> bool:
        return self.idle_seconds is not None and self.idle_seconds >= STUCK_SECONDS


def progress(
    lag: Iterable[Mapped], offsets: Iterable[Mapped], assigned: Mapping[tuple[str, int], str], now_ms: int
) -> list[GroupProgress]:
    """Return what a group does in each partition, from its rows of ``lag`` now and of ``offsets``, oldest first.

    Without a known change of the offset, records have waited for as long as they were there.
    """
    moved = _last_moves(offsets)
    found = []
    for row in lag:
        topic_partition = (row["topic"], row["partition"])
        idle = None
        if row["lag"] > 0:
            candidates = [] if row["lag_seconds"] is None else [row["lag_seconds"]]
            if topic_partition in moved:
                candidates.append(max(now_ms - moved[topic_partition], 0) / 1000)
            idle = min(candidates, default=None)
        found.append(
            GroupProgress(
                *topic_partition, row["offset"], row["log_end_offset"], row["lag"], row["lag_seconds"], idle,
                assigned.get(topic_partition, ""),
            )
        )  # fmt: skip
    return found


def _last_moves(offsets: Iterable[Mapped]) -> dict[tuple[str, int], int]:
    """Return when the offset of each partition changed last, in ms."""
    known: dict[tuple[str, int], int | None] = {}
    moved: dict[tuple[str, int], int] = {}
    for row in offsets:
        if row["topic"] is None:
            known.clear()
            continue
        topic_partition = (row["topic"], row["partition"])
        if topic_partition not in known or known[topic_partition] != row["offset"]:
            known[topic_partition], moved[topic_partition] = row["offset"], ms_of(row["timestamp"]) or 0
    return moved


def progress_table(rows: Sequence[GroupProgress], cluster: str, query: Query) -> Table:
    """Return the partitions of a group, what waits longest first."""
    columns: list[Column[GroupProgress]] = [
        Column("topic", "Topic", lambda row: (row.topic, row.partition),
               lambda row: topic_cell(row.topic, cluster)),
        Column("partition", "Partition", lambda row: row.partition, lambda row: str(row.partition), True),
        Column("offset", "Committed", lambda row: row.offset,
               lambda row: Cell(number(row.offset), address(cluster, "topics", row.topic, "records",
                                                            partition=row.partition, at=row.offset)), True,
               "the next offset that the group reads"),
        Column("end", "End", lambda row: row.end, lambda row: number(row.end), True),
        Column("lag", "Lag", lambda row: row.lag, lambda row: number(row.lag), True),
        Column("behind", "Behind", lambda row: row.lag_seconds,
               lambda row: duration(row.lag_seconds) if row.lag else "", True,
               "age of the oldest unread record, counted from its commit"),
        Column("idle", "No progress for", lambda row: row.idle_seconds, _idle_cell, True,
               f"the offset has not moved although records wait; stuck from {STUCK_SECONDS // 60} min on"),
        Column("member", "Member", lambda row: row.member, lambda row: Cell(shown(row.member, 60), kind="code")),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Partitions", sort="-lag", name="p.",
                      empty="The group has no committed offsets in existing topics.")  # fmt: skip


def _idle_cell(row: GroupProgress) -> Cell:
    if row.idle_seconds is None:
        return Cell("" if row.lag == 0 else "unknown")
    return Cell(duration(row.idle_seconds), note="stuck" if row.is_stuck else "", kind="bad" if row.is_stuck else "")


def stuck_sentence(rows: Sequence[GroupProgress], now_ms: int) -> str:
    """Return a sentence on what is stuck and since when, empty if nothing is."""
    stuck = [row for row in rows if row.is_stuck]
    if not stuck:
        return ""
    longest = max(stuck, key=lambda row: (row.idle_seconds or 0, row.lag))
    since = time(now_ms - int((longest.idle_seconds or 0) * 1000))
    where = f"{shown(longest.topic, 80)}-{longest.partition}"
    others = f", and {plural(len(stuck) - 1, 'more partition')}" if len(stuck) > 1 else ""
    return f"Stuck: {where} has made no progress since {since} UTC with {longest.lag:,} records waiting{others}."


def members_table(rows: Sequence[Mapped], query: Query) -> Table:
    """Return the members of a group with their assignment."""
    columns: list[Column[Mapped]] = [
        Column("member", "Member", lambda row: row["member"], lambda row: Cell(shown(row["member"], 80), kind="code")),
        Column("client", "Client id", lambda row: row["client_id"], lambda row: shown(row["client_id"], 60)),
        Column("host", "Host", lambda row: row["host"], lambda row: shown(row["host"], 60)),
        Column("assigned", "Assigned", lambda row: len(row["assigned"]),
               lambda row: _list_cell(row["assigned"])),
        Column("revoking", "Revoking", lambda row: len(row["revoking"]), lambda row: _list_cell(row["revoking"])),
        Column("timeout", "Session timeout", lambda row: row["session_timeout_ms"],
               lambda row: duration(row["session_timeout_ms"] / 1000), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Members", sort="member", name="m.",
                      empty="The group has no members now.")  # fmt: skip


def _list_cell(names: Sequence[str]) -> Cell:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return Cell(", ".join(shown(name, 80) for name in names[:8]) + more, note=f"{len(names):,}" if names else "")


def holders(members: Iterable[Mapped]) -> dict[str, str]:
    """Return the member that holds each partition, by ``topic-partition``."""
    return {name: row["client_id"] or row["member"] for row in members for name in row["assigned"]}
