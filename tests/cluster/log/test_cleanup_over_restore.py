"""A root is restored from a copy while a process removes old commits and checkpoints: the restored root is left alone.

The process is suspended before each of its requests in turn; meanwhile the root is replaced by the copy, and new
clients write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparklog.clock import ManualClock
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits import cleanup
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    COMMITS,
    Boundary,
    is_boundary_mark,
    manifest_version,
    marked_boundary,
    read_boundary,
    read_certain_boundary,
    write_boundary,
)
from sparklog.protocol.commits import commit_key
from sparklog.store.base import Store
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.log.test_cleanup import (
    NONE_KEPT,
    WEEK,
    append,
    clean,
    clocked_memory,
    cluster,
    open_cluster,
    stored,
    values,
)
from tests.cluster.log.test_replaced_root import Snapshot, restore, take_snapshot
from tests.sample import chosen

REMOVE_ALL = {"metadata.max.retention.ms": "0"}
Run = Callable[[Store, ManualClock], object]


def remove_commits(store: Store, clock: ManualClock) -> object:
    return cleanup.clean_up(store, clock, REMOVE_ALL, NONE_KEPT)


def remove_inline(store: Store, clock: ManualClock) -> object:
    manifest = checkpoint.read_newest(store)
    assert manifest is not None
    return cleanup.remove_some_commits(store, clock, REMOVE_ALL, manifest, NONE_KEPT)


def remove_checkpoints(store: Store, clock: ManualClock) -> object:
    return cleanup.remove_checkpoints(store, NONE_KEPT)


class Restored:
    """A root with checkpoints and old commits, and a copy of it from before.

    ``has_checkpoint``: the copy begins with a checkpoint, since the commits before it are removed. ``has_newest``: it
    has the checkpoint for which commits are about to be removed, too. New clients append ``new`` records.
    """

    def __init__(self, has_checkpoint: bool, has_newest: bool = False, new: int = 3) -> None:
        self.new = new
        self.store, self.clock = clocked_memory()
        self.root = cluster(self.store, self.clock, 4)
        if has_checkpoint:
            self.clock.advance(WEEK)
            assert clean(self.root).commits
            append(self.root, b"after")
        self.copy: Snapshot = take_snapshot(self.store)
        for count in range(3):
            for number in range(2):
                append(self.root, b"former %d %d" % (count, number))
            self.root.log.write_checkpoint()
            self.clock.advance(3600)
        if has_newest:
            self.copy = take_snapshot(self.store)
        self.clock.advance(WEEK)
        self.objects = dict(self.store.space.objects)
        self.begin_again()

    def begin_again(self) -> None:
        """Return to the root as it was before the removal."""
        self.store.space.objects.clear()
        self.store.space.objects.update(self.objects)
        self.acknowledged: list[bytes] = []

    def restore(self) -> None:
        restore(self.store, self.copy)
        others = open_cluster(self.store, clock=self.clock)
        for number in range(self.new):
            append(others, b"new %d" % number)
        self.acknowledged = values(others)


@contextmanager
def restored_at(restored: Restored, step: int) -> Iterator[FaultyStore]:
    """A store that is restored before its request number ``step``."""

    def before(number: int, call: Call) -> None:
        if number == step:
            restored.restore()

    yield FaultyStore(restored.store, before=before)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("has_checkpoint", "has_newest", "new"), [(False, False, 3), (True, False, 3), (False, True, 3), (False, True, 0)]
)
@pytest.mark.parametrize("run", [remove_commits, remove_inline, remove_checkpoints])
def test_a_root_that_is_restored_at_any_step_of_a_removal_loses_nothing(
    run: Run, has_checkpoint: bool, has_newest: bool, new: int
) -> None:
    restored = Restored(has_checkpoint, has_newest, new)
    counting = FaultyStore(restored.store)
    run(counting, restored.clock)
    calls = list(counting.calls)
    assert any(call.operation == "delete" for call in calls)
    for step, call in chosen(enumerate(calls)):
        restored.begin_again()
        with restored_at(restored, step) as store:
            run(store, restored.clock)
        assert restored.acknowledged, f"{step} {call}"
        opened = open_cluster(restored.store, clock=restored.clock)
        assert values(opened) == restored.acknowledged, f"{step} {call}"
        append(opened, b"more")
        assert values(open_cluster(restored.store, clock=restored.clock)) == [*restored.acknowledged, b"more"]


@pytest.mark.parametrize("run", [remove_commits, remove_inline])
def test_a_removal_goes_on_when_newer_checkpoints_have_replaced_its_own(run: Run) -> None:
    restored = Restored(has_checkpoint=False)
    newest = checkpoint.read_newest_listed(restored.store)
    assert newest is not None

    def before(number: int, call: Call) -> None:
        if call.key.startswith(COMMITS) and call.operation == "delete" and restored.store in writing:
            writing.clear()
            append(restored.root, b"more")
            restored.root.log.write_checkpoint()
            restored.store.delete(checkpoint.manifest_key(newest))

    writing = [restored.store]
    run(FaultyStore(restored.store, before=before), restored.clock)
    assert not writing
    assert min(stored(restored.store), default=99) > 2
    assert len(values(open_cluster(restored.store, clock=restored.clock))) == 11


def test_a_boundary_that_was_set_in_a_restored_root_is_taken_back() -> None:
    """With its mark; a mark of the restored root's own history stays."""
    for has_checkpoint in (False, True):
        restored = Restored(has_checkpoint)
        boundary = marked_boundary(restored.copy)
        counting = FaultyStore(restored.store)
        remove_commits(counting, restored.clock)
        restored.begin_again()
        marked = [number for number, call in enumerate(counting.calls) if is_boundary_mark(call.key)]
        with restored_at(restored, marked[0]) as store:
            remove_commits(store, restored.clock)
        assert read_certain_boundary(restored.store) == read_boundary(restored.store) == boundary


def test_a_checkpoint_of_a_former_timeline_replaces_no_checkpoint_of_the_log() -> None:
    """A writer that was stopped while the root was restored may have left two that are newer."""
    restored = Restored(has_checkpoint=True)
    former = {key: data for key, data in take_snapshot(restored.store).items() if key.startswith(CHECKPOINTS)}
    restored.restore()
    newest = max(key for key in former if manifest_version(key) is not None)
    restored.clock.advance(WEEK)
    for key, data in former.items():
        if not is_boundary_mark(key) and key not in restored.copy:
            restored.store.put(key, data)
    restored.clock.advance(WEEK)
    restored.store.put(newest, former[newest])
    cleanup.remove_checkpoints(restored.store, NONE_KEPT)
    assert values(open_cluster(restored.store, clock=restored.clock)) == restored.acknowledged


def test_a_checkpoint_that_lacks_files_replaces_no_other() -> None:
    restored = Restored(has_checkpoint=True)
    expected = values(open_cluster(restored.store, clock=restored.clock))
    manifests = sorted(info.key for info in restored.store.list(CHECKPOINTS) if info.key.endswith(".json"))
    newest = checkpoint.read_manifest(restored.store, manifests[-2])  # the last one is latest.json
    restored.store.delete(newest.heads.key)
    restored.clock.advance(WEEK)
    assert cleanup.remove_checkpoints(restored.store, NONE_KEPT) == 0
    assert values(open_cluster(restored.store, clock=restored.clock)) == expected


def test_a_boundary_beyond_the_newest_checkpoint_removes_nothing() -> None:
    """As a repair or a clean-up left it that was stopped while the root was restored."""
    restored = Restored(has_checkpoint=True)
    newest = restored.root.state.version
    for _ in range(3):
        append(restored.root, b"after")
    restored.clock.advance(WEEK)
    write_boundary(restored.store, Boundary(newest + 3))
    before = stored(restored.store)
    assert f"the boundary {newest + 3} is beyond" in clean(restored.root).kept_by
    assert stored(restored.store) == before


def test_a_clean_up_removes_no_commits_beyond_its_own_checkpoint() -> None:
    """Another one moves the boundary meanwhile, for a newer checkpoint, which a root that is restored then lacks."""
    store, clock = clocked_memory()
    root = cluster(store, clock, 4)
    root.log.write_checkpoint()
    for number in range(3):
        append(root, b"kept %d" % number)
    copy, expected, last = take_snapshot(store), values(root), root.state.version
    clock.advance(WEEK)
    done: list[str] = []

    def interfere(step: int, call: Call) -> None:
        if done[-1:] == ["moved"] and call == Call("get", commit_key(last)):
            done.append("restored")
            restore(store, copy)
        if call == Call("list", COMMITS):
            done.append("listed")
        if done == ["listed"] and call == Call("get", BOUNDARY_KEY):
            done.append("moved")
            append(root, b"former")
            root.log.write_checkpoint()
            clock.advance(WEEK)
            remove_commits(store, clock)
            assert read_boundary(store) == root.state.version

    remove_commits(FaultyStore(store, before=interfere), clock)
    assert done[:2] == ["listed", "moved"]
    if done[-1] == "moved":  # it did not ask for that commit
        restore(store, copy)
    assert values(open_cluster(store, clock=clock)) == expected


def test_a_writer_that_has_loaded_a_checkpoint_needs_no_commit_before_it() -> None:
    """A clean-up of the former timeline went on in the restored root, which has its checkpoint but no boundary."""
    store, clock = clocked_memory()
    root = cluster(store, clock, 4)
    writer = open_cluster(store, clock=clock)
    append(root, b"read one by one")
    writer.refresh()
    append(root, b"of the checkpoint")
    root.log.write_checkpoint()
    newest = root.state.version
    write_boundary(store, Boundary(newest - 1))
    for version in range(newest):
        store.delete(commit_key(version))
    writer.refresh()
    for key in [BOUNDARY_KEY, *(info.key for info in store.list(CHECKPOINTS) if is_boundary_mark(info.key))]:
        store.delete(key)
    append(writer, b"more")
    assert values(open_cluster(store, clock=clock))[-2:] == [b"of the checkpoint", b"more"]


def test_no_commits_are_removed_while_a_checkpoint_of_another_timeline_is_the_newest() -> None:
    """A stalled writer has left it at the same version; once the commit of that number is removed, nothing tells which
    of the two is the log's."""
    restored = Restored(has_checkpoint=False)
    others = open_cluster(restored.store, clock=restored.clock)
    append(others, b"last")
    others.log.write_checkpoint()
    own = checkpoint.read_newest_listed(restored.store)
    assert own is not None
    restored.clock.advance(WEEK)
    late = f"{CHECKPOINTS}{own.version:020d}-{'z' * 22}.json"  # its name comes after the own one's
    restored.store.put(late, restored.store.get(checkpoint.manifest_key(own)).replace(own.digest.encode(), b"00" * 32))
    before = stored(restored.store)
    for _ in range(2):
        cleanup.remove_some_commits(restored.store, restored.clock, REMOVE_ALL, own, NONE_KEPT)
        remove_commits(restored.store, restored.clock)
        assert stored(restored.store) == before
    restored.store.delete(late)
    assert cleanup.remove_some_commits(restored.store, restored.clock, REMOVE_ALL, own, NONE_KEPT)
