"""What is stuck in a group, and since when."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sparklog.ui.views.groups import groups_table, progress, stuck_sentence
from sparklog.ui.views.query import Query

NOW_MS = 1_790_000_000_000


def lag(lag: int, seconds: float | None, partition: int = 0) -> dict[str, Any]:
    place = {"topic": "orders", "partition": partition}
    return {**place, "offset": 10, "log_end_offset": 10 + lag, "lag": lag, "lag_seconds": seconds}


def committed(offset: int | None, seconds_ago: int, partition: int = 0, topic: str | None = "orders") -> dict[str, Any]:
    at = datetime.fromtimestamp(NOW_MS / 1000 - seconds_ago, timezone.utc)
    return {"topic": topic, "partition": partition, "offset": offset, "timestamp": at}


def idle(rows: list[dict[str, Any]], moves: list[dict[str, Any]]) -> list[float | None]:
    return [row.idle_seconds for row in progress(rows, moves, {}, NOW_MS)]


def test_a_partition_at_its_end_is_not_idle() -> None:
    assert idle([lag(0, 0.0)], [committed(10, 9000)]) == [None]


def test_idle_is_as_long_as_neither_a_record_waited_nor_the_offset_moved() -> None:
    assert idle([lag(5, 4000.0)], [committed(10, 900)]) == [900.0]
    assert idle([lag(5, 60.0)], [committed(10, 900)]) == [60.0]
    assert idle([lag(5, 700.0)], []) == [700.0]
    assert idle([lag(5, None)], []) == [None]


def test_committing_the_same_offset_again_is_no_progress() -> None:
    moves = [committed(8, 2000), committed(10, 1000), committed(10, 500), committed(10, 1)]
    assert idle([lag(5, 5000.0)], moves) == [1000.0]


def test_the_sentence_names_what_waits_longest() -> None:
    rows = progress([lag(5, 400.0), lag(7, 900.0, 1), lag(1, 3.0, 2)], [], {}, NOW_MS)
    assert stuck_sentence(rows, NOW_MS) == (
        "Stuck: orders-1 has made no progress since 2026-09-21 13:58:20 UTC with 7 records waiting, "
        "and 1 more partition."
    )
    assert stuck_sentence(rows[2:], NOW_MS) == ""


def test_a_group_whose_members_left_is_not_said_to_have_had_none() -> None:
    row = {"group": "billing", "state": "Empty", "assignor": "", "members": 0, "topics": [], "partitions": 1, "lag": 0}
    rows = [{**row, "generation": generation, "last_commit": None} for generation in (0, 2)]
    notes = [cells[1].note for cells in groups_table(rows, "log", Query("", {}), NOW_MS).rows]
    assert notes == ["no members ever: a query, or offsets set by hand", ""]
