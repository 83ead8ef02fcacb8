"""Rollups that are damaged, hostile, incomplete or made by several processes stop neither maintenance nor readers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from sparklog import limits
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import StorageError
from sparklog.log.checkpoints.checkpoint import read_newest
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import BOUNDARY_KEY, CHECKPOINTS
from sparklog.maintenance import rollups
from sparklog.maintenance.loop import Loop, LoopReport
from sparklog.maintenance.rollups import keep_rollups
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.monitoring import rolled_history
from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.rolled_history import RolledRows
from sparklog.monitoring.rollups import (
    MINUTE_MS,
    ROLLED_TABLES,
    ROLLUPS,
    RolledCommits,
    choose_rollups,
    commits_of,
    rollup_key,
)
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.commits import commit_key
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.monitoring import histories
from tests.cluster.monitoring.histories import RandomHistory
from tests.cluster.monitoring.test_rolled_commits import KEPT_MS, new_history, rolled_up, throughput
from tests.cluster.monitoring.test_system_tables import NONE_KEPT


def expired_history(seed: int) -> RandomHistory:
    """Return a history of which a clean-up removes the commits."""
    history = new_history(seed)
    history.run(60)
    history.clock.advance(2 * KEPT_MS / 1000)
    return history


def with_store(history: RandomHistory, before: Callable[[int, Call], None]) -> Coordinator:
    return open_cluster(FaultyStore(history.coordinator.store, before=before), clock=history.clock, settings=NONE_KEPT)


def clean_up_once(history: RandomHistory, cluster: Coordinator) -> LoopReport:
    with closing(MaintenanceContext(cluster, lambda _: InProcess())) as context:
        (report,) = Loop(steps(context, ["cleanup"]), history.clock).once()
    return report


def test_commits_are_removed_from_a_full_disk_that_takes_no_rollup() -> None:
    history = expired_history(20)

    def refuse(step: int, call: Call) -> None:
        if call.operation == "open_output" and call.key.startswith(ROLLUPS):
            raise StorageError("No space left on device", path=call.key)

    report = clean_up_once(history, with_store(history, refuse))
    assert "No space left on device" in report.problems[0]
    assert report.counts["commits_removed"] > 10


def test_commits_before_a_damaged_one_are_removed_although_it_cannot_be_rolled_up() -> None:
    history = expired_history(21)
    history.coordinator.log.write_checkpoint()
    store = history.coordinator.store
    store.put(commit_key(5), b"{damaged")
    report = clean_up_once(history, history.coordinator)
    assert commit_key(5) in report.problems[0]
    assert report.counts["commits_removed"] == 5


def test_commits_after_a_damaged_one_are_rolled_up_and_it_is_reported() -> None:
    history = expired_history(27)
    store = history.coordinator.store
    store.put(commit_key(5), b"{damaged")
    done = keep_rollups(history.coordinator)
    assert [commit_key(5) in str(error) for error in done.damaged] == [True]
    rolled = sorted(commits_of(info.key) or (0, 0) for info in store.list(ROLLUPS))
    assert [each[:2] for each in rolled] == [(0, 4), (6, history.coordinator.state.version)]


def test_a_commit_that_was_stored_again_keeps_later_ones_and_that_is_said() -> None:
    history = expired_history(28)
    history.coordinator.log.write_checkpoint()
    store = history.coordinator.store
    store.put(commit_key(5), store.get(commit_key(5), 1 << 20))
    (note,) = clean_up_once(history, history.coordinator).notes
    assert note.startswith("commit 5 and those after it are kept for now")
    history.clock.advance(1)
    assert clean_up_once(history, history.coordinator).notes == []


def test_a_checkpoint_that_lacks_files_keeps_all_commits_and_that_is_said() -> None:
    history = expired_history(29)
    history.coordinator.log.write_checkpoint()
    store = history.coordinator.store
    newest = read_newest(store)
    assert newest is not None
    for info in list(store.list(CHECKPOINTS)):
        if info.key.endswith(".heads"):
            store.delete(info.key)
    report = clean_up_once(history, history.coordinator)
    assert report.counts["commits_removed"] == 0
    assert f"no commits are removed: the checkpoint {newest.version} lacks files" in report.notes[0]


def test_a_damaged_rollup_does_not_hide_others_of_the_same_commits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "ROLLUP_COMMITS", 10)
    history = new_history(30)
    good = [commits for key in rolled_up(history) if (commits := commits_of(key))]
    assert len(good) > 1
    whole = throughput(history.coordinator)
    wide = rollup_key(RolledCommits(min(good).first, max(good).last, max(good).last_ms, "0" * 16), b"x")
    history.coordinator.store.put(wide, b"damaged")
    assert throughput(history.coordinator) == whole
    assert wide in caplog.text


def test_a_file_that_claims_commits_of_the_future_does_not_end_rollups() -> None:
    history = new_history(22)
    future = rollup_key(RolledCommits(10**15, 10**15, 10**14, "0" * 16), b"x")
    history.coordinator.store.put(future, b"x")
    assert future not in rolled_up(history)
    whole = throughput(history.coordinator)
    assert len({row["minute"] for row in whole}) > 1
    history.coordinator.store.put(future, b"x")
    assert throughput(history.coordinator) == whole


def test_a_rollup_that_another_process_writes_meanwhile_is_not_overlapped() -> None:
    """The other process rolls up, and removes commits, between two requests of this one."""
    history = new_history(23)
    history.run(60)
    history.clock.advance(KEPT_MS / 1000)
    history.coordinator.log.write_checkpoint()
    history.run(20)
    history.clock.advance(0.6 * KEPT_MS / 1000)
    asked: list[str] = []

    def interfere(step: int, call: Call) -> None:
        if call.key in (BOUNDARY_KEY, ROLLUPS):
            asked.append(call.key)
            if len(asked) == 2:
                other = history.coordinator
                keep_rollups(other)
                removed = clean_up(other.store, history.clock, other.refresh().configs, NONE_KEPT)
                assert removed.commits > 10

    cluster = with_store(history, lambda step, call: None)
    assert isinstance(cluster.store, FaultyStore)
    cluster.store.before = interfere
    keep_rollups(cluster)
    assert len(asked) >= 2
    keys = [info.key for info in history.coordinator.store.list(ROLLUPS)]
    assert set(choose_rollups(keys)) == set(keys)


def test_an_enormous_rollup_ends_what_is_known(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = new_history(24)
    keys = rolled_up(history)
    monkeypatch.setattr(rolled_history, "MAX_ROLLUP_BYTES", 100)
    throughput(history.coordinator)
    assert keys[-1] in caplog.text


def test_the_lag_of_a_group_is_not_refused_for_the_rows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "GROUPS", ("g", *(f"other-{number}" for number in range(30))))
    history = new_history(25)
    start_ms = history.clock.now_ms()
    rolled_up(history)
    selection = RowSelection(since_ms=start_ms, step_ms=MINUTE_MS)
    whole = SystemTables(history.coordinator).read("lag", selection).to_pylist()
    monkeypatch.setattr(limits, "MAX_LAG_ROWS", len(whole) // 2)
    rows = SystemTables(history.coordinator).read("lag", selection._replace(group=whole[0]["group"]))
    assert 0 < len(rows) < len(whole) // 2


def test_after_a_reset_of_the_time_a_rolled_version_from_before_is_not_the_newest() -> None:
    ahead = 100 * MINUTE_MS
    times = {3: 10, 4: ahead, 5: ahead + 1, 6: 20, 7: MINUTE_MS, 8: ahead + MINUTE_MS}
    changes = [(version, time_ms, f"t{version}", "id", "create", 1, "host/1") for version, time_ms in times.items()]
    tables = {name: to_table(name, changes if name == "topic_changes" else ()) for name in ROLLED_TABLES}
    rolled = RolledRows(3, 8, [tables])
    made = [
        rolled.between("topic_changes", since, until, ahead + 2 * MINUTE_MS).column("version").to_pylist()
        for since, until in ((None, 20), (20, MINUTE_MS), (MINUTE_MS, None))
    ]
    assert made == [[3], [4, 5, 6], [7, 8]]
    assert rolled.between("topic_changes", 16, None, 15).num_rows == 0, "the time was reset after all of them"
    assert rolled.versions_at([9, 10, 20, 30, MINUTE_MS, ahead + 1, ahead + MINUTE_MS]) == [None, 3, 6, 6, 7, 7, 8]


def test_a_rollup_of_newer_commits_by_another_process_is_not_taken_for_one_of_another_timeline() -> None:
    history = new_history(26)
    cluster = with_store(history, lambda step, call: None)
    cluster.refresh()
    written: list[str] = []

    def interfere(step: int, call: Call) -> None:
        if call.key == ROLLUPS and not written:
            history.run(40)
            history.clock.advance(KEPT_MS / 1000)
            keep_rollups(history.coordinator)
            written.extend(info.key for info in history.coordinator.store.list(ROLLUPS))
            assert written

    assert isinstance(cluster.store, FaultyStore)
    cluster.store.before = interfere
    assert keep_rollups(cluster).deleted == 0
    assert {info.key for info in history.coordinator.store.list(ROLLUPS)} >= set(written) != set()
