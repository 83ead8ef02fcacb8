"""The lag at a moment of the past is what ``consumer-groups --describe`` said then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from sparklog.log.commits.cleanup import clean_up
from sparklog.log.settings import LogSettings
from sparklog.monitoring import commit_history, system_tables
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from tests.cluster.monitoring.histories import GROUPS, TOPICS, Lag, RandomHistory

MOMENTS = 100
SETTINGS = LogSettings(min_commits_kept=0, min_commit_age_ms=0, checkpoint_interval_commits=10)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits are read back in small steps, so that questions are answered from parts of the log."""
    for module in (commit_history, system_tables):
        monkeypatch.setattr(module, "CHUNK_COMMITS", 16)


def stated(table: pa.Table) -> dict[int, list[Lag]]:
    """The rows of a table by their time."""
    rows: dict[int, list[Any]] = {}
    columns = [table.column("timestamp").cast(pa.int64()), *table.columns[1:]]
    for time_ms, *row in zip(*(column.to_pylist() for column in columns), strict=True):
        rows.setdefault(time_ms, []).append(tuple(row))
    return {time_ms: sorted(each) for time_ms, each in rows.items()}


def read_at(tables: SystemTables, time_ms: int, **selected: Any) -> list[Lag]:
    table = tables.read("lag", RowSelection(until_ms=time_ms, **selected))
    return stated(table).get(time_ms, [])


def of(rows: Iterable[Lag], group: str | None = None, topic: str | None = None) -> list[Lag]:
    return [row for row in rows if group in (None, row[0]) and topic in (None, row[1])]


@pytest.mark.parametrize("seed", range(3))
def test_the_lag_at_random_moments_is_what_describe_said_then(seed: int) -> None:
    history = RandomHistory(seed)
    history.run(150)
    random, last_ms = history.random, history.moments[-1].time_ms
    moments = [random.randint(history.moments[0].time_ms - 1000, last_ms + 1000) for _ in range(MOMENTS // 2)]
    moments += [random.choice(history.moments).time_ms for _ in range(MOMENTS // 2)]
    followed = SystemTables(history.coordinator)
    for number, time_ms in enumerate(moments):
        tables = followed if number % 5 else SystemTables(history.coordinator)
        expected = history.lag_at(time_ms)
        group, topic = random.choice((None, *GROUPS)), random.choice((None, None, *TOPICS))
        assert read_at(tables, time_ms, group=group, topic=topic) == of(expected, group, topic), time_ms
    first_ms = min(moments)
    rows = stated(followed.read("lag", RowSelection(since_ms=first_ms, until_ms=last_ms, step_ms=5000)))
    times = [*range(-(-first_ms // 5000) * 5000, last_ms, 5000), last_ms]
    assert rows == {time_ms: lag for time_ms in times if (lag := history.lag_at(time_ms))}


@pytest.mark.parametrize("seed", range(4, 6))
def test_what_is_stated_after_commits_were_removed_is_right_and_only_what_they_said_is_missing(seed: int) -> None:
    history = RandomHistory(seed, SETTINGS)
    history.run(60)
    before = SystemTables(history.coordinator)
    before.read("lag", RowSelection(since_ms=history.moments[0].time_ms))
    history.run(60)
    history.clock.advance(60)
    configs = {"metadata.max.retention.ms": str(60_000 + history.random.randint(0, 60_000))}
    boundary = clean_up(history.coordinator.store, history.clock, configs, SETTINGS).boundary
    assert 10 < boundary < history.coordinator.refresh().version
    after, kept_ms = SystemTables(history.coordinator), history.moments[boundary + 1].time_ms
    assert after.first_ms("commits") == kept_ms
    for moment in history.moments:
        expected = history.lag_at(moment.time_ms)
        known = {row[:4]: row for row in read_at(after, moment.time_ms)}
        assert known.keys() <= {row[:4] for row in expected}
        assert not known or moment.time_ms >= kept_ms
        for row in expected:
            for right, found in zip(row, known.get(row[:4], row), strict=True):
                assert found in (right, None)
        assert not (moment.version > boundary + 60 and len(known) < len(expected))
    assert read_at(after, history.moments[-1].time_ms) != []
    assert len(before.read("commits", RowSelection())) >= len(after.read("commits", RowSelection()))
