"""Obsolete commits and checkpoints are removed, and a stalled process continues from a checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import sparklog.coordinator as coordinators
from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, IndeterminateCommitError, ObjectNotFoundError, RootReplacedError
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.checkpoints.checkpointer import CHECKPOINTS_PER_CLEANUP
from sparklog.log.checkpoints.lists import read_list
from sparklog.log.commits import cleanup
from sparklog.log.commits.commit_attempt import CommitOutcome, PreparedCommit, prepare_commit
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    COMMITS,
    Boundary,
    manifest_version,
    read_boundary,
    read_boundary_file,
    segment_key,
    write_boundary,
)
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.log.settings import LogSettings
from sparklog.maintenance import steps
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.commit_bytes import FORMAT, encode_to_store
from sparklog.protocol.commits import AlterConfig, Commit, RegisterBroker, commit_key
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    TRUNCATED,
    Call,
    CountingStore,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from tests.sample import WHOLE

DAY_SECONDS = 86_400.0
WEEK = 8 * DAY_SECONDS


NONE_KEPT = LogSettings(min_commits_kept=0)
OFTEN = NONE_KEPT._replace(checkpoint_interval_commits=10, commits_removed_inline=20)
create_cluster = partial(coordinators.create_cluster, settings=NONE_KEPT)
open_cluster = partial(coordinators.open_cluster, settings=NONE_KEPT)


def prepare_change(coordinator: Coordinator) -> PreparedCommit:
    """The commit that it would create next."""
    log = coordinator.log
    return prepare_commit(log.draft([AlterConfig(set={"num.partitions": "3"})]), log.ids.write_id(), "")


def memory(clock: ManualClock | None = None) -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex, clock)


def clocked_memory() -> tuple[MemoryStore, ManualClock]:
    """A store and the clock that stamps its objects."""
    clock = ManualClock()
    return memory(clock), clock


def append(coordinator: Coordinator, value: bytes, topic: str = "orders") -> None:
    topic_id = coordinator.state.topic(topic).topic_id
    key = segment_key(topic, 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    writer.start_run(RunTarget(topic, topic_id, 0))
    columns = [pa.array([value], pa.binary()), pa.array([0], pa.timestamp("us", tz="UTC"))]
    writer.write(pa.RecordBatch.from_arrays(columns, names=["value", "timestamp"]))
    coordinator.append(AppendRequest(appends=writer.finish()))


def values(coordinator: Coordinator, topic: str = "orders") -> list[bytes]:
    end = coordinator.state.partition(topic, 0).log_end_offset
    segments = coordinator.segments(topic).partition(0)
    parts = Fetcher(lambda broker: coordinator.store).read(topic, segments, 0, end, ["value"])
    return [value for part in parts for value in part.batch.column(0).to_pylist()]


def stored(store: Store) -> list[int]:
    return [int(info.key[len(COMMITS) : -len(".json")]) for info in store.list(COMMITS)]


def cluster(
    store: Store, clock: ManualClock, commits: int = 20, settings: LogSettings = NONE_KEPT, **configs: str
) -> Coordinator:
    """A cluster of ``commits`` appends, followed by a checkpoint."""
    coordinator = create_cluster(store, clock=clock, settings=settings)
    coordinator.create_topic("orders")
    if configs:
        coordinator.submit(
            partial(alter_configs, topic="", changes={name.replace("_", "."): value for name, value in configs.items()})
        )
    for number in range(commits):
        append(coordinator, b"%d" % number)
    coordinator.log.write_checkpoint()
    return coordinator


def clean(coordinator: Coordinator) -> cleanup.CleanUp:
    configs = coordinator.refresh().configs
    return cleanup.clean_up(coordinator.store, coordinator.log.clock, configs, coordinator.log.settings)


# -- commits


def test_commits_older_than_the_limit_are_removed_once_a_checkpoint_covers_them() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    checkpointed = coordinator.state.version
    append(coordinator, b"after")
    clock.advance(6 * DAY_SECONDS)
    assert clean(coordinator).commits == 0
    clock.advance(2 * DAY_SECONDS)
    result = clean(coordinator)
    assert result.boundary == checkpointed
    assert result.commits == checkpointed + 1
    assert stored(store) == [checkpointed + 1]
    assert values(open_cluster(store, clock=clock)) == [*(b"%d" % n for n in range(20)), b"after"]


def test_without_a_checkpoint_no_commit_is_removed() -> None:
    store, clock = clocked_memory()
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("orders")
    clock.advance(WEEK)
    assert clean(coordinator) == cleanup.CleanUp(-1, 0, 0)
    assert stored(store) == [0, 1]


def test_a_limit_of_minus_one_keeps_all_commits() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, metadata_max_retention_ms="-1", metadata_max_retention_bytes="-1")
    clock.advance(100 * WEEK)
    assert clean(coordinator).commits == 0


def test_commits_over_the_limit_in_bytes_are_removed() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, metadata_max_retention_bytes="4000")
    clock.advance(3600)
    clean(coordinator)
    sizes = [info.size for info in store.list(COMMITS)]
    assert sum(sizes) <= 4000 < sum(sizes) + max(sizes)
    assert values(open_cluster(store, clock=clock)) == [b"%d" % n for n in range(20)]


def test_young_commits_are_kept_whatever_the_limits() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, metadata_max_retention_bytes="0", metadata_max_retention_ms="0")
    clock.advance(limits.MIN_COMMIT_AGE_MS / 1000 - 1)
    assert clean(coordinator).commits == 0
    clock.advance(2)
    assert clean(coordinator).commits == coordinator.state.version + 1


@pytest.mark.parametrize("inline", [False, True])
def test_a_recently_stored_commit_is_kept_however_old_its_timestamp_is(inline: bool) -> None:
    """Its machine slept between the two. If it were removed immediately, a writer that stalled for only a few seconds,
    and so does not check for a stall, could create its number again."""
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, metadata_max_retention_bytes="0", metadata_max_retention_ms="0")
    newest = coordinator.state.version
    clock.advance(limits.MIN_COMMIT_AGE_MS / 1000 + 1)
    for version in (newest - 1, newest):
        store.put(commit_key(version), store.get(commit_key(version)))
    if inline:
        manifest = checkpoint.read_newest_listed(store)
        assert manifest is not None
        while cleanup.remove_some_commits(store, clock, coordinator.state.configs, manifest, NONE_KEPT):
            pass
    else:
        clean(coordinator)
    assert stored(store) == [newest - 1, newest]
    clock.advance(limits.MIN_COMMIT_AGE_MS / 1000 + 1)
    clean(coordinator)
    assert stored(store) == []


def test_the_newest_commits_before_a_checkpoint_are_kept_however_old_they_are() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, settings=LogSettings(min_commits_kept=15))
    clock.advance(WEEK)
    assert clean(coordinator).boundary == coordinator.state.version - 15


def test_a_second_clean_up_has_nothing_to_do() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    clock.advance(WEEK)
    first = clean(coordinator)
    assert clean(coordinator) == cleanup.CleanUp(first.boundary, 0, 0)


def test_a_pass_keeps_the_commits_that_the_settings_keep_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was suspended since it read the settings, which are raised."""
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    clock.advance(WEEK)
    raised = partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "-1"})

    def clean_up_late(*arguments: Any, **more: Any) -> cleanup.CleanUp:
        open_cluster(store, clock=clock).submit(raised)
        return cleanup.clean_up(*arguments, **more)

    monkeypatch.setattr(steps, "clean_up", clean_up_late)
    with closing(steps.MaintenanceContext(coordinator, lambda _: InProcess())) as context:
        (report,) = Loop(steps.steps(context, ["cleanup"]), clock).once()
    assert any("was changed meanwhile" in note for note in report.notes)
    assert stored(store)[0] == 0


# -- clean-up by the writer of a checkpoint


def test_writing_a_checkpoint_removes_twice_as_many_commits_as_were_added_since_the_last() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, 98, OFTEN)
    clock.advance(WEEK)
    for number in range(10):
        append(coordinator, b"more %d" % number)
    assert read_boundary(store) == 19
    for number in range(60):
        append(coordinator, b"and %d" % number)
    assert min(stored(store)) == read_boundary(store) + 1 >= 99
    assert len(values(open_cluster(store, clock=clock))) == 168


def test_a_writer_of_a_checkpoint_that_was_suspended_removes_no_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their limits may have been raised since it read them."""
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, 98, OFTEN)
    clock.advance(WEEK)
    remove = cleanup.remove_some_commits

    def remove_late(*arguments: Any) -> int:
        clock.advance(3600)
        return remove(*arguments)

    monkeypatch.setattr(cleanup, "remove_some_commits", remove_late)
    for number in range(10):
        append(coordinator, b"more %d" % number)
    assert stored(store)[0] == 0


def test_the_bytes_of_commits_are_counted_without_a_listing() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock, 7, OFTEN, metadata_max_retention_bytes="20000")
    for number in range(300):
        clock.advance(60)
        append(coordinator, b"%d" % number)
    stored_bytes = sum(info.size for info in store.list(COMMITS))
    assert 10_000 < stored_bytes < 35_000
    manifest = checkpoint.read_newest(store)
    assert manifest is not None
    removed = read_boundary_file(store).removed_bytes
    since = sum(info.size for info in store.list(COMMITS) if info.key > commit_key(manifest.version))
    assert manifest.commit_bytes - removed == stored_bytes - since


def test_a_failed_clean_up_does_not_fail_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> int:
        raise ObjectNotFoundError("gone")

    monkeypatch.setattr(cleanup, "remove_some_commits", broken)
    coordinator = cluster(memory(), ManualClock(), 30, LogSettings(checkpoint_interval_commits=5))
    assert len(values(coordinator)) == 30


# -- stalled writers and readers


def test_a_stalled_writer_cannot_create_a_commit_below_the_boundary() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    stalled = open_cluster(store, clock=clock)
    for number in range(5):
        append(coordinator, b"new %d" % number)
    coordinator.log.write_checkpoint()
    clock.advance(WEEK)
    clean(coordinator)
    append(coordinator, b"last")
    assert stalled.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.LOST
    assert stalled.state.version == coordinator.state.version - 1
    assert stalled.refresh().configs == {}
    assert stored(store) == [coordinator.state.version]
    assert open_cluster(store, clock=clock).state == coordinator.state == stalled.state


def test_a_stalled_writer_loses_although_a_late_clean_up_has_moved_the_boundary_back() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    stalled, idle = (open_cluster(store, clock=clock) for _ in range(2))
    append(coordinator, b"new")
    coordinator.log.write_checkpoint()
    clock.advance(WEEK)
    clean(coordinator)
    append(coordinator, b"last")
    write_boundary(store, Boundary(3))
    assert stalled.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.LOST
    assert stalled.refresh() == coordinator.state
    assert idle.refresh() == coordinator.state
    clean(coordinator)
    assert read_boundary(store) == coordinator.state.version - 1


@pytest.mark.parametrize("others", ["commit", "checkpoint", "commit and checkpoint", "remove it"])
def test_a_writer_stopped_after_its_create_learns_the_outcome(others: str) -> None:
    inner, clock = clocked_memory()
    cluster(inner, clock)
    paused: list[Callable[[], None]] = []

    def before(step: int, call: Call) -> None:
        if paused and call == Call("get", BOUNDARY_KEY):
            paused.pop()()

    def advance_others() -> None:
        other = open_cluster(inner, clock=clock)
        if "commit" in others or "remove" in others:
            append(other, b"after it")
        if "checkpoint" in others or "remove" in others:
            other.log.write_checkpoint()
        clock.advance(NONE_KEPT.away_seconds + 1)
        if "remove" in others:
            clock.advance(WEEK)
            assert clean(other).boundary == other.state.version

    stopped = open_cluster(FaultyStore(inner, before=before), clock=clock)
    paused.append(advance_others)
    change = [AlterConfig(set={"num.partitions": "3"})]
    if "remove" in others:
        with pytest.raises(IndeterminateCommitError):
            stopped.log.attempt(change)
    else:
        assert stopped.log.attempt(change) is CommitOutcome.WON
    assert stopped.refresh() == open_cluster(inner, clock=clock).state
    assert stopped.state.configs == {"num.partitions": "3"}


@pytest.mark.parametrize("beyond", [1, 2])
def test_a_checkpoint_of_a_former_timeline_does_not_withdraw_the_commit_of_a_stopped_writer(beyond: int) -> None:
    """A root was restored to an older state, but its newer checkpoints stayed. A commit that were taken for one at a
    removed number would be withdrawn, or, where that cannot be conditioned, stay and be made twice."""
    inner, clock = clocked_memory()
    coordinator = cluster(inner, clock, 5)
    append(coordinator, b"kept")
    kept = coordinator.state.version
    for _ in range(beyond):
        append(coordinator, b"of the former timeline")
    coordinator.log.write_checkpoint()
    for version in stored(inner):
        if version > kept:
            inner.delete(commit_key(version))
    stopped_for: list[float] = [NONE_KEPT.away_seconds + 1]

    def before(step: int, call: Call) -> None:
        if stopped_for and call.operation == "put_if_absent":
            clock.advance(stopped_for.pop())

    stopped = open_cluster(FaultyStore(inner, before=before), clock=clock)
    assert stopped.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.WON
    opened = open_cluster(inner, clock=clock)
    assert (opened.state.version, opened.state.configs) == (kept + 1, {"num.partitions": "3"})


def test_a_commit_that_a_restored_root_removed_is_not_one_of_a_stopped_writers_history() -> None:
    """A writer of the former timeline is stopped after its create, and the restored root removes commits up to the same
    number meanwhile: the boundary says that the commit before was removed, but of which history?"""
    inner, clock = clocked_memory()
    coordinator = cluster(inner, clock, 5)
    kept = {info.key: inner.get(info.key) for info in inner.list()}
    append(coordinator, b"of the former timeline")
    waiting = open_cluster(inner, clock=clock)
    for info in list(inner.list()):
        inner.delete(info.key)
    for key, data in kept.items():
        inner.put(key, data)
    paused: list[Callable[[], None]] = []

    def before(step: int, call: Call) -> None:
        if paused and call == Call("list", CHECKPOINTS):
            paused.pop()()

    def advance_others() -> None:
        clock.advance(WEEK)
        cleaned = cleanup.clean_up(inner, clock, restored.state.configs, NONE_KEPT)  # decided before that create
        assert cleaned.boundary == waiting.state.version

    restored = open_cluster(inner, clock=clock)
    append(restored, b"of the restored root")
    restored.log.write_checkpoint()
    waiting.log.store = FaultyStore(inner, before=before)
    paused.append(advance_others)
    with pytest.raises(RootReplacedError):
        waiting.log.attempt([AlterConfig(set={"num.partitions": "3"})])
    assert not paused
    assert values(open_cluster(inner, clock=clock))[-1] == b"of the restored root"


def test_a_reader_far_behind_restarts_from_the_newest_checkpoint() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    reader = open_cluster(store, clock=clock)
    assert values(reader) == [b"%d" % n for n in range(20)]
    append(coordinator, b"new")
    coordinator.log.write_checkpoint()
    clock.advance(WEEK)
    clean(coordinator)
    append(coordinator, b"last")
    reader.refresh()
    assert values(reader) == [*(b"%d" % n for n in range(20)), b"new", b"last"]


def test_a_commit_of_a_stalled_writer_below_the_boundary_is_ignored() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    reader, twin = (open_cluster(store, clock=clock) for _ in range(2))
    append(coordinator, b"new")
    coordinator.log.write_checkpoint()
    boundary = coordinator.state.version
    append(coordinator, b"last")
    write_boundary(store, Boundary(boundary))
    for version in range(boundary + 1):
        store.delete(commit_key(version))
    _, commit, encoded, _ = prepare_change(twin)
    assert commit.version == boundary
    store.put_if_absent(commit_key(boundary), encoded.data)
    assert reader.refresh() == coordinator.state
    assert open_cluster(store, clock=clock).state == coordinator.state
    clock.advance(WEEK)
    clean(coordinator)
    assert boundary not in stored(store)


# -- checkpoints


def checkpointed(clock: ManualClock, count: int, topic: str = "orders") -> tuple[MemoryStore, Coordinator]:
    """A cluster with this many checkpoints, an hour apart."""
    store = memory(clock)
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic(topic)
    for number in range(count):
        append(coordinator, b"%d" % number, topic)
        coordinator.log.write_checkpoint()
        clock.advance(3600)
    return store, coordinator


def test_old_checkpoints_are_removed_and_the_newest_are_kept_with_all_their_files() -> None:
    clock = ManualClock()
    store, _ = checkpointed(clock, 12)
    assert cleanup.remove_checkpoints(store, NONE_KEPT) > 0
    keys = [info.key for info in store.list(CHECKPOINTS)]
    manifests = [key for key in keys if key.endswith(".json") and key != checkpoint.LATEST_KEY]
    assert len(manifests) == limits.CHECKPOINTS_KEPT
    assert sum(key.endswith(".heads") for key in keys) == limits.CHECKPOINTS_KEPT
    assert values(open_cluster(store, clock=clock)) == [b"%d" % n for n in range(12)]
    assert cleanup.remove_checkpoints(store, NONE_KEPT) == 0


def manifests_of(store: Store) -> list[str]:
    return sorted(info.key for info in store.list(CHECKPOINTS) if manifest_version(info.key) is not None)


@pytest.mark.parametrize("already_there", [0, 60])
def test_processes_that_write_one_checkpoint_each_keep_few_of_them(already_there: int) -> None:
    clock = ManualClock()
    settings = NONE_KEPT._replace(checkpoint_interval_commits=2)
    store, _ = checkpointed(clock, already_there)
    most = 0
    for number in range(120):
        process = coordinators.open_cluster(store, clock=clock, settings=settings)
        append(process, b"%d" % number, "orders")
        clock.advance(3600)
        most = max(most, len(manifests_of(store)))
    assert most <= already_there + limits.CHECKPOINTS_KEPT + 2 * CHECKPOINTS_PER_CLEANUP
    assert len(manifests_of(store)) <= limits.CHECKPOINTS_KEPT + 2 * CHECKPOINTS_PER_CLEANUP
    assert len(values(open_cluster(store, clock=clock))) == already_there + 120


def test_a_removal_of_many_checkpoints_is_bounded_and_every_manifest_left_has_its_files() -> None:
    clock = ManualClock()
    store, _ = checkpointed(clock, 30)
    before = len(manifests_of(store))
    assert cleanup.remove_checkpoints(store, NONE_KEPT, 10) == 10
    assert len(manifests_of(store)) == before - 10
    for key in manifests_of(store):
        manifest = checkpoint.read_manifest(store, key)
        for file in checkpoint.list_files(store, manifest, lists.ListCache(store)):
            assert store.info(file.key).size
    while cleanup.remove_checkpoints(store, NONE_KEPT, 10):
        pass
    assert len(manifests_of(store)) == limits.CHECKPOINTS_KEPT
    assert cleanup.remove_checkpoints(store, NONE_KEPT) == 0


def test_a_checkpoint_without_its_lists_does_not_stop_a_clean_up() -> None:
    """A clean-up took them for orphans while the writer was stopped, or another clean-up is deleting them."""
    clock = ManualClock()
    store, coordinator = checkpointed(clock, 12)
    manifests = sorted(info.key for info in store.list(CHECKPOINTS) if manifest_version(info.key) is not None)
    incomplete = checkpoint.read_manifest(store, manifests[-2])
    for file in incomplete.lists:
        store.delete(file.key)
    before = {info.key for info in store.list(CHECKPOINTS)}
    assert cleanup.remove_checkpoints(store, NONE_KEPT) == 0
    assert {info.key for info in store.list(CHECKPOINTS)} == before
    for _ in range(limits.CHECKPOINTS_KEPT):
        append(coordinator, b"more")
        coordinator.log.write_checkpoint()
        clock.advance(3600)
    assert cleanup.remove_checkpoints(store, NONE_KEPT) > 0
    assert manifests[-2] not in {info.key for info in store.list(CHECKPOINTS)}


def test_a_checkpoint_that_was_the_newest_until_recently_is_kept() -> None:
    clock = ManualClock()
    store, coordinator = checkpointed(clock, 4)
    for _ in range(4):
        append(coordinator, b"x")
        coordinator.log.write_checkpoint()
        clock.advance(60)
    cleanup.remove_checkpoints(store, NONE_KEPT)
    keys = [info.key for info in store.list(CHECKPOINTS)]
    assert sum(key.endswith(".heads") for key in keys) == 5


def test_files_of_an_unfinished_checkpoint_are_kept_however_old_they_are() -> None:
    """Its writer was stopped: it may name them as soon as it resumes, and a clean-up may be late to delete them."""
    clock = ManualClock()
    store = MemoryStore("unfinished-checkpoint", clock)
    coordinator = cluster(store, clock, 3)
    for _ in range(3):
        append(coordinator, b"more")
        coordinator.log.write_checkpoint()
    unfinished = [f"{CHECKPOINTS}{coordinator.state.version + 1:020d}-stopped-0.segments"]
    unfinished.append(f"{CHECKPOINTS}{coordinator.state.version - 1:020d}-given-up.heads")
    for key in unfinished:
        store.put(key, b"x")
    clock.advance(2 * limits.MIN_CHECKPOINT_AGE_MS / 1000)
    store.put(f"{CHECKPOINTS}{coordinator.state.version:020d}-now.heads", b"x")
    cleanup.remove_checkpoints(store, NONE_KEPT)
    remaining = {info.key for info in store.list(CHECKPOINTS)}
    assert unfinished[0] in remaining
    assert unfinished[1] not in remaining


def test_a_reader_whose_checkpoint_was_removed_continues_from_the_newest() -> None:
    clock = ManualClock()
    store, coordinator = checkpointed(clock, 3)
    reader = open_cluster(store, clock=clock)
    old, opened_from = reader.state, checkpoint.read_newest(store)
    assert opened_from is not None
    for number in range(3, 12):
        append(coordinator, b"%d" % number)
        coordinator.log.write_checkpoint()
        clock.advance(3600)
    assert cleanup.remove_checkpoints(store, NONE_KEPT) > 0
    with suppress(CorruptMetadataError):
        read_list(store, checkpoint.read_lists(store, opened_from).of(old.topic("orders").topic_id))
        raise AssertionError("its files are still there: this test shows nothing")
    listed = reader.segments("orders", old).partition(0)
    assert [segment.base_offset for segment in listed] == [0, 1, 2]
    assert values(reader) == [b"%d" % n for n in range(12)]


def test_a_process_whose_checkpoint_was_removed_can_write_a_new_one() -> None:
    clock = ManualClock()
    store, coordinator = checkpointed(clock, 3)
    writer = open_cluster(store, clock=clock)
    append(writer, b"3")
    coordinator.refresh()
    for number in range(4, 12):
        append(coordinator, b"%d" % number)
        coordinator.log.write_checkpoint()
        clock.advance(3600)
    assert cleanup.remove_checkpoints(store, NONE_KEPT) > 0
    assert writer.log.write_checkpoint().version == coordinator.state.version
    assert values(writer) == [b"%d" % n for n in range(12)]


def test_the_files_of_a_checkpoint_are_read_back_before_its_manifest_is_stored() -> None:
    inner = memory()
    create_cluster(inner).create_topic("orders")
    store = FaultyStore(inner)
    coordinator = open_cluster(store)
    store.reset_counts()
    store.inject(*(Fault(step, TRUNCATED) for step in range(20)))
    with pytest.raises(CorruptMetadataError):
        coordinator.log.write_checkpoint()
    assert checkpoint.read_newest_listed(inner) is None
    assert Fault(1, TRUNCATED) in store.injected


def test_no_commit_is_removed_before_a_checkpoint_that_lacks_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)
    store, coordinator = checkpointed(clock, 12)
    manifest = checkpoint.read_newest(store)
    assert manifest is not None
    clock.advance(WEEK)
    store.delete(checkpoint.read_lists(store, manifest).files()[0].key)
    assert clean(coordinator).commits == 0
    assert cleanup.remove_some_commits(store, clock, {}, manifest, NONE_KEPT) == 0
    assert stored(store)[0] == 0


# -- crashes, and the cost of opening


def test_a_clean_up_killed_at_any_step_is_completed_by_the_next_run() -> None:
    def prepared() -> tuple[Store, ManualClock]:
        inner, clock = clocked_memory()
        coordinator = cluster(inner, clock)
        append(coordinator, b"after")
        clock.advance(WEEK)
        return inner, clock

    inner, clock = prepared()
    counted = FaultyStore(inner)
    cleanup.clean_up(counted, clock, {}, NONE_KEPT)
    assert len(counted.calls) > 20
    for fault in every_crash(counted.calls):
        inner, clock = prepared()
        store = FaultyStore(inner, [fault])
        with suppress(SimulatedCrash, Exception):
            cleanup.clean_up(store, clock, {}, NONE_KEPT)
        opened = open_cluster(inner, clock=clock)
        assert len(values(opened)) == 21, f"{fault}"
        clean(opened)
        assert stored(inner) == [opened.state.version]
        append(open_cluster(inner, clock=clock), b"next")
        assert len(values(open_cluster(inner, clock=clock))) == 22


def history(store: Store, commits: int, clock: ManualClock) -> None:
    """A cluster with this many stored commits; the last fifty came after a checkpoint."""
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("orders")
    previous, timestamp = coordinator.state.digest, coordinator.state.timestamp_ms
    first = coordinator.state.version + 1
    for version in range(first, commits):
        timestamp += 10
        commit = Commit(
            format=FORMAT,
            version=version,
            write_id="w",
            timestamp=timestamp,
            previous=previous,
            checksum="0" * 32,
            actions=[AlterConfig(set={"num.partitions": "2"})],
        )
        data, previous, _ = encode_to_store(commit)
        store.put(commit_key(version), data)
        if version % 1000 == 998 or version == commits - 1:
            coordinator.log.refresh()
        if version == commits - 51:
            coordinator.log.refresh()
            coordinator.log.write_checkpoint()


@pytest.mark.sampled
def test_opening_after_many_commits_takes_as_many_reads_as_after_100_cleaned_up_or_not() -> None:
    reads: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for commits in (100, 100_000 if WHOLE else 20_000):
        store, clock = clocked_memory()
        history(store, commits, clock)
        for cleaned, measured in reads.items():
            if cleaned:
                clock.advance(4000)
                result = cleanup.clean_up(store, clock, {"metadata.max.retention.bytes": "0"}, NONE_KEPT)
                assert result.boundary == commits - 51
                assert len(stored(store)) == 50
            counting = CountingStore(store)
            assert open_cluster(counting).state.version == commits - 1
            measured.append((len(counting.calls), counting.bytes_read // 1000))
    for few, many in reads.values():
        assert few[0] == many[0] < 70
        assert abs(few[1] - many[1]) < 5


def test_the_first_commit_of_a_cluster_can_be_removed() -> None:
    store, clock = clocked_memory()
    coordinator = cluster(store, clock)
    clock.advance(WEEK)
    clean(coordinator)
    opened = open_cluster(store, clock=clock)
    assert list(opened.state.brokers) == [0]
    assert opened.log.attempt([RegisterBroker(broker=1)]) is CommitOutcome.WON


def test_a_stalled_writers_create_does_not_hide_the_checkpoint_of_removed_commits() -> None:
    """A late clean-up has moved the boundary back by one, and a stalled writer has created that number again."""
    clock = ManualClock()
    store = memory(clock)
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("orders")
    stalled = open_cluster(store, clock=clock)
    last, encoded = -1, b""
    for number in range(12):
        if number == 11:
            stalled.refresh()
            prepared = prepare_change(stalled)
            last, encoded = prepared.commit.version, prepared.encoded.data
        append(coordinator, b"%d" % number)
        if number in (5, 11):
            coordinator.log.write_checkpoint()
    assert last == coordinator.state.version
    reader = open_cluster(store, clock=clock)
    for version in range(last + 1):
        store.delete(commit_key(version))
    write_boundary(store, Boundary(last - 1))
    store.put_if_absent(commit_key(last), encoded)
    assert open_cluster(store, clock=clock).state == coordinator.state
    assert reader.refresh() == coordinator.state
    append(reader, b"after")
    assert values(open_cluster(store, clock=clock)) == [*(b"%d" % number for number in range(12)), b"after"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_stalled_checkpoint_writer_does_not_withdraw_the_checkpoint_of_removed_commits(taken: bool) -> None:
    """During the stall the commits up to it were removed, and another stalled clean-up moved boundary.json back."""
    inner, clock = clocked_memory()
    first = cluster(inner, clock)
    paused: list[Callable[[], None]] = []

    def before(step: int, call: Call) -> None:
        if paused and call.operation == "get" and call.key == commit_key(slept.state.version):
            paused.pop()()

    def advance_others() -> None:
        create = prepare_change(stalled).encoded
        clock.advance(WEEK)
        assert clean(open_cluster(inner, clock=clock)).boundary == slept.state.version
        inner.put(BOUNDARY_KEY, late)
        if taken:
            inner.put_if_absent(commit_key(slept.state.version), create.data)

    clock.advance(WEEK)
    clean(first)
    late = inner.get(BOUNDARY_KEY)
    slept = open_cluster(FaultyStore(inner, before=before), clock=clock)
    append(slept, b"more")
    stalled = open_cluster(inner, clock=clock)
    append(slept, b"last")
    paused.append(advance_others)
    slept.log.write_checkpoint()
    assert paused == []
    after = open_cluster(inner, clock=clock)
    assert after.state == slept.refresh() == first.refresh()
    assert values(after) == [*(b"%d" % number for number in range(20)), b"more", b"last"]
