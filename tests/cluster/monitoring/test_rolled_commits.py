"""Lag and throughput are known by the minute for longer than commits are kept."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import StoragePermissionError
from sparklog.log.commits.cleanup import clean_up
from sparklog.maintenance import rollups
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import UNKNOWN_OBJECT
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.rollups import RollupResult, keep_rollups
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.monitoring.rollups import MINUTE_MS, ROLLUPS, commits_of
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.monitoring.histories import RandomHistory
from tests.cluster.monitoring.test_system_tables import NONE_KEPT

KEPT_MS = 4 * MINUTE_MS


def set_configs(cluster: Coordinator, changes: Mapping[str, str]) -> None:
    cluster.submit(partial(alter_configs, topic="", changes=changes))


def new_history(seed: int) -> RandomHistory:
    history = RandomHistory(seed, NONE_KEPT)
    set_configs(history.coordinator, {"metadata.max.retention.ms": str(KEPT_MS)})
    return history


def clean(history: RandomHistory) -> int:
    """Let the commits become old, and do what maintenance does with them; return the boundary."""
    cluster = history.coordinator
    history.clock.advance(2 * KEPT_MS / 1000)
    keep_rollups(cluster)
    for number in range(NONE_KEPT.checkpoint_interval_commits):
        cluster.create_topic(f"later-{history.clock.now_ms()}-{number}")
    return clean_up(cluster.store, history.clock, cluster.refresh().configs, NONE_KEPT).boundary


def throughput(cluster: Coordinator) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = SystemTables(cluster).read("throughput", RowSelection()).to_pylist()
    return rows


def read_lag(history: RandomHistory, since_ms: int, until_ms: int, **selected: Any) -> list[tuple[Any, ...]]:
    selection = RowSelection(since_ms=since_ms, until_ms=until_ms, **selected)
    rows = SystemTables(history.coordinator).read("lag", selection).drop(["lag_seconds"]).to_pylist()
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_the_lag_at_the_end_of_a_minute_is_that_of_the_commits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLLUP_COMMITS", 50)
    history = new_history(seed)
    start_ms = history.clock.now_ms()
    history.run(250)
    until_ms = history.clock.now_ms() // MINUTE_MS * MINUTE_MS
    before = read_lag(history, start_ms, until_ms), throughput(history.coordinator)
    groups = {group: read_lag(history, start_ms, until_ms, group=group) for group in "gh"}
    for _ in range(2):
        assert clean(history) > 50
    assert (read_lag(history, start_ms, until_ms), throughput(history.coordinator)) == before
    assert {group: read_lag(history, start_ms, until_ms, group=group) for group in "gh"} == groups


def rolled_up(history: RandomHistory, steps: int = 100) -> list[str]:
    history.run(steps)
    clean(history)
    return [info.key for info in history.coordinator.store.list(ROLLUPS)]


def test_seconds_are_known_to_the_minute() -> None:
    history = new_history(7)
    start_ms = history.clock.now_ms()
    history.run(150)
    until_ms = history.clock.now_ms() // MINUTE_MS * MINUTE_MS
    selection = RowSelection(since_ms=start_ms, until_ms=until_ms)
    before = SystemTables(history.coordinator).read("lag", selection)["lag_seconds"].to_pylist()
    clean(history)
    after = SystemTables(history.coordinator).read("lag", selection)["lag_seconds"].to_pylist()
    assert any(before)
    assert all(0 <= exact - rolled < 60 for exact, rolled in zip(before, after, strict=True))


def test_without_rollups_the_tables_begin_with_the_commits_that_are_kept() -> None:
    history = new_history(8)
    for key in rolled_up(history):
        history.coordinator.store.delete(key)
    first_ms = SystemTables(history.coordinator).first_ms("throughput")
    assert first_ms is not None
    assert all(row["minute"].timestamp() * 1000 > first_ms - MINUTE_MS for row in throughput(history.coordinator))


def test_a_damaged_rollup_ends_what_is_known(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLLUP_COMMITS", 20)
    history = new_history(9)
    keys = sorted(rolled_up(history))
    whole = throughput(history.coordinator)
    store = history.coordinator.store
    data = bytearray(store.get(keys[1], 1 << 20))
    data[len(data) // 2] ^= 1
    store.delete(keys[1])
    store.put(keys[1], bytes(data))
    rest = throughput(history.coordinator)
    assert keys[1] in caplog.text
    assert 0 < sum(row["records"] for row in rest) < sum(row["records"] for row in whole)


def test_rollups_are_deleted_after_their_retention_and_written_once() -> None:
    history = new_history(10)
    keys = rolled_up(history)
    assert keys
    assert keep_rollups(history.coordinator) == RollupResult()
    set_configs(history.coordinator, {"system.retention.ms": "1000"})
    assert keep_rollups(history.coordinator).deleted == len(keys)
    assert not list(history.coordinator.store.list(ROLLUPS))
    assert keep_rollups(history.coordinator) == RollupResult()


def test_two_processes_that_roll_up_the_same_commits_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    history = new_history(11)
    history.run(100)
    before = throughput(history.coordinator)
    history.clock.advance(2 * KEPT_MS / 1000)
    with monkeypatch.context() as patched:
        patched.setattr(rollups, "ROLLUP_COMMITS", 30)
        keep_rollups(history.coordinator)
    patched_keys = [info.key for info in history.coordinator.store.list(ROLLUPS)]
    kept = {key: history.coordinator.store.get(key, 1 << 20) for key in patched_keys}
    for key in patched_keys:
        history.coordinator.store.delete(key)
    keep_rollups(history.coordinator)
    for key, data in kept.items():
        history.coordinator.store.put(key, data)
    clean(history)
    assert throughput(history.coordinator) == before


def test_maintenance_without_the_right_to_write_rollups_removes_commits_and_says_so() -> None:
    history = new_history(12)
    history.run(60)
    history.clock.advance(2 * KEPT_MS / 1000)

    def refuse(step: int, call: Call) -> None:
        if call.operation == "open_output" and call.key.startswith(ROLLUPS):
            raise StoragePermissionError("AccessDenied", path=call.key)

    store = FaultyStore(history.coordinator.store, before=refuse)
    cluster = open_cluster(store, clock=history.clock, settings=NONE_KEPT)
    with closing(MaintenanceContext(cluster, lambda _: InProcess())) as context:
        (report,) = Loop(steps(context, ["cleanup"]), history.clock).once()
    assert report.problems == []
    assert "no rollups are kept" in report.notes[0]
    assert report.counts["commits_removed"] > 10


def test_fsck_knows_rollups() -> None:
    history = new_history(13)
    assert rolled_up(history)
    findings = check_cluster(history.coordinator.store).report.findings
    assert [each.path for each in findings if each.kind == UNKNOWN_OBJECT and each.path.startswith(ROLLUPS)] == []


def test_rollups_of_a_history_that_a_restored_root_does_not_have_are_removed() -> None:
    history = new_history(14)
    history.run(40)
    store = history.coordinator.store
    copy = {info.key: store.get(info.key) for info in store.list()}
    last = history.coordinator.state.version
    rollups_of = {key: commits_of(key) for key in rolled_up(history)}
    restored = MemoryStore(f"restored-{uuid.uuid4().hex}", history.clock)
    for key, data in copy.items():
        restored.put(key, data)
    for key in rollups_of:
        restored.put(key, store.get(key))
    cluster = open_cluster(restored, clock=history.clock, settings=NONE_KEPT)
    other = [key for key, commits in rollups_of.items() if commits is not None and commits.last > last]
    assert other
    assert all(row["minute"].timestamp() * 1000 <= cluster.state.timestamp_ms for row in throughput(cluster))
    while cluster.state.version < last + 150:
        cluster.create_topic(f"new-{cluster.state.version}")
    assert keep_rollups(cluster).deleted == len(other)
