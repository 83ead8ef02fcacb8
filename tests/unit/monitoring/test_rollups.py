"""Rollups say by minute what system tables of commits say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.rollups import (
    ROLLED_TABLES,
    RolledCommits,
    choose_rollups,
    commits_of,
    decode_rollup,
    encode_rollup,
    rollup_key,
)

MINUTE = 60_000
COMMITS = RolledCommits(3, 70, 1_790_000_000_000, "0123456789abcdef")


def append(version: int, time_ms: int, offset: int, records: int = 1, topic: str = "orders") -> tuple[Any, ...]:
    times = (time_ms, time_ms)
    return version, time_ms, topic, f"id-{topic}", 0, offset, records, 100 * records, *times, 7, None, None, "host/1"


def offset(
    version: int, time_ms: int, group: str, committed: int | None, topic: str | None = "orders"
) -> tuple[Any, ...]:
    of_topic = (topic, f"id-{topic}", 0) if topic else (None, None, None)
    return version, time_ms, group, *of_topic, committed, 1, ""


def tables(**rows: list[tuple[Any, ...]]) -> dict[str, pa.Table]:
    return {name: to_table(name, rows.get(name, [])) for name in ROLLED_TABLES}


def rolled(**rows: list[tuple[Any, ...]]) -> dict[str, list[dict[str, Any]]]:
    data = encode_rollup(tables(**rows))
    decoded = decode_rollup(rollup_key(COMMITS, data), data)
    return {name: table.to_pylist() for name, table in decoded.items()}


def test_appends_of_a_minute_and_partition_become_one_row() -> None:
    rows = rolled(
        appends=[append(5, 10, 0, 2), append(6, 20, 2, 3), append(7, 30, 0, 9, "other"), append(8, MINUTE + 1, 5, 4)]
    )["appends"]
    shown = [(row["version"], row["topic"], row["base_offset"], row["records"], row["appends"]) for row in rows]
    assert shown == [(6, "orders", 0, 5, 2), (7, "other", 0, 9, 1), (8, "orders", 5, 4, 1)]
    assert [row["bytes"] for row in rows] == [500, 900, 400]


def test_of_the_offsets_of_a_minute_the_last_remains_and_deletions_are_kept() -> None:
    rows = rolled(
        offsets=[
            offset(1, 0, "a", 1),
            offset(2, 1, "a", 4),
            offset(3, 2, "b", 2),
            offset(4, 3, "b", None),
            offset(5, 4, "a", None, topic=None),
        ]
    )["offsets"]
    assert [(row["version"], row["group"], row["topic"], row["offset"]) for row in rows] == [
        (2, "a", "orders", 4),
        (4, "b", "orders", None),
        (5, "a", None, None),
    ]


def test_topics_are_created_and_deleted_as_they_were() -> None:
    changes = [(3, 7, "orders", "id", "create", 4, "host/1"), (9, 8, "orders", "id", "delete", None, "host/1")]
    rows = rolled(topic_changes=changes)["topic_changes"]
    assert [tuple(row.values())[2:6] for row in rows] == [each[2:6] for each in changes]


def test_a_rollup_of_commits_without_rows_is_empty() -> None:
    assert rolled() == {name: [] for name in ROLLED_TABLES}


def test_a_damaged_rollup_is_refused() -> None:
    data = encode_rollup(tables(appends=[append(number, number, number) for number in range(50)]))
    key = rollup_key(COMMITS, data)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for damaged in (b"", b"no rollup", data[:-30], bytes(flipped)):
        with pytest.raises(ValueError, match="checksum does not match"):
            decode_rollup(key, damaged)
    for other in (b"", b"no rollup", data[:-30]):
        with pytest.raises(ValueError, match=r"checksum|Arrow|rollup"):
            decode_rollup(rollup_key(COMMITS, other), other)


def test_names_say_which_commits_a_rollup_has() -> None:
    key = rollup_key(COMMITS, b"data")
    assert commits_of(key) == COMMITS
    assert commits_of(key + ".tmp") is None
    assert commits_of("meta/rollups/1-2-3-x.arrow") is None
    assert commits_of(rollup_key(RolledCommits(70, 3, 0, "0" * 16), b"data")) is None


def test_each_commit_is_taken_from_one_rollup() -> None:
    ranges = [(0, 9), (0, 4), (5, 9), (10, 19), (15, 30), (20, 30), (40, 41)]
    chosen = choose_rollups(rollup_key(RolledCommits(first, last, 0, "0" * 16), b"data") for first, last in ranges)
    assert [(first, last) for first, last, *_ in chosen.values()] == [(0, 9), (10, 19), (20, 30), (40, 41)]


def test_a_rollup_takes_less_than_a_hundredth_of_its_commits() -> None:
    appends = [append(number, 1_790_000_000_000 + 7_000 * number, number) for number in range(0, 20_000, 2)]
    offsets = [offset(number, 1_790_000_000_000 + 7_000 * number, "a", number) for number in range(1, 20_000, 2)]
    assert len(encode_rollup(tables(appends=appends, offsets=offsets))) < 20_000 * 700 / 100
