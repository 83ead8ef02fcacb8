"""A root that is restored or recreated under running clients: none of them adds to it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog import Consumer, Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster, shared_cluster
from sparklog.errors import (
    IndeterminateCommitError,
    ObjectNotFoundError,
    RootReplacedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.log.layout import COMMITS
from sparklog.log.settings import DEFAULTS
from sparklog.protocol.commits import AlterConfig, commit_key
from sparklog.retry import ATTEMPTS
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records

Snapshot = dict[str, bytes]


def take_snapshot(store: Store) -> Snapshot:
    return {info.key: store.get(info.key) for info in store.list()}


def restore(store: Store, snapshot: Snapshot) -> None:
    for info in list(store.list()):
        store.delete(info.key)
    for key, data in snapshot.items():
        store.put(key, data)


def commits(store: Store) -> list[str]:
    return [info.key.removeprefix(COMMITS) for info in store.list(COMMITS)]


def test_a_client_that_is_ahead_of_a_restored_root_writes_nothing() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    client.create_topic("before")
    snapshot = take_snapshot(store)
    for number in range(10):
        client.create_topic(f"after-{number}")
    restore(store, snapshot)
    before = commits(store)
    with pytest.raises(RootReplacedError, match="commit 11"):
        client.create_topic("lost")
    with pytest.raises(RootReplacedError):
        client.refresh()
    assert commits(store) == before
    reopened = open_cluster(store)
    reopened.create_topic("found")
    assert sorted(reopened.state.topics) == ["before", "found"]


def test_a_client_notices_that_other_clients_continue_the_restored_root() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store, clock=ManualClock())
    snapshot = take_snapshot(store)
    for number in range(5):
        client.create_topic(f"old-{number}")
    restore(store, snapshot)
    other = open_cluster(store)
    for number in range(5, 25):
        other.create_topic(f"new-{number}")
        with pytest.raises(RootReplacedError):
            client.create_topic("lost")
    assert open_cluster(store).state == other.refresh()


def test_a_recreated_cluster_is_not_taken_for_the_previous_one() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    client.create_topic("old")
    restore(store, {})
    second = create_cluster(store)
    with pytest.raises(RootReplacedError):
        client.create_topic("lost")
    second.create_topic("new")
    assert list(open_cluster(store).state.topics) == ["new"]


def test_the_checkpoint_of_a_recreated_cluster_is_not_built_on() -> None:
    """Its lists are of other segments, although its version lies between those that the client has read."""
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    client.create_topic("t")
    for number in range(5):
        append_records(client, "t", [Record(b"%d" % number)])
    restore(store, {})
    second = create_cluster(store)
    for name in ("t", "u", "v"):
        second.create_topic(name)
    second.log.write_checkpoint()
    client.log.rebase_quietly()
    assert len(client.segments("t").partition(0)) == 5


def _calls_of_one_commit(store: MemoryStore) -> int:
    counting = FaultyStore(store)
    client = open_cluster(counting)
    client.create_topic("warm-up")
    counting.reset_counts()
    client.create_topic("counted")
    return len(counting.calls)


@pytest.mark.parametrize("others_continue", [False, True])
def test_a_root_restored_at_any_step_of_a_commit_never_gets_a_commit_after_a_gap(others_continue: bool) -> None:
    steps = _calls_of_one_commit(_new_cluster())
    acknowledged = 0
    for step in range(steps + 1):
        store = _new_cluster()
        snapshot = take_snapshot(store)
        paused: list[Callable[[], None]] = []
        faulty = FaultyStore(store, before=lambda number, call, at=step, todo=paused: _run_at(number, at, todo))  # type: ignore[misc]
        client = open_cluster(faulty)
        for number in range(3):
            client.create_topic(f"after-{number}")

        def restore_root(store: MemoryStore = store, snapshot: Snapshot = snapshot) -> None:
            restore(store, snapshot)
            if others_continue:
                open_cluster(store).create_topic("continued")

        faulty.reset_counts()
        paused.append(restore_root)
        try:
            client.create_topic("last")
            acknowledged += 1
        except RootReplacedError:
            pass
        if paused:
            paused.pop()()
        stored = commits(store)
        if len(paused) == 0 and step < steps:
            # the commits have no gap; those acknowledged before the restore are lost
            versions = [int(name.removesuffix(".json")) for name in stored]
            assert versions == list(range(len(versions))), step
        open_cluster(store).create_topic("works")
    assert 0 < acknowledged < steps + 1


def test_a_commit_to_a_root_unmounted_at_any_step_is_never_reported_as_not_written() -> None:
    """It is there when the root is mounted again: a client that got another answer would write it twice."""
    steps = _calls_of_one_commit(_new_cluster())
    unknown_outcomes = 0
    for step in range(steps + 1):
        store = _new_cluster()
        paused: list[Callable[[], None]] = []
        faulty = FaultyStore(store, before=lambda number, call, at=step, todo=paused: _run_at(number, at, todo))  # type: ignore[misc]
        client = open_cluster(faulty, clock=ManualClock())
        unmounted: list[Snapshot] = []

        def unmount(store: MemoryStore = store, unmounted: list[Snapshot] = unmounted) -> None:
            unmounted.append(take_snapshot(store))
            restore(store, {})

        faulty.reset_counts()
        paused.append(unmount)
        raised: SparklogError | None = None
        try:
            client.create_topic("last")
        except SparklogError as error:
            raised = error
        if not unmounted:
            assert raised is None
            continue
        restore(store, unmounted[0])
        is_there = "last" in open_cluster(store, clock=ManualClock()).state.topics
        unknown_outcomes += isinstance(raised, IndeterminateCommitError)
        assert raised is None or isinstance(raised, IndeterminateCommitError) or not is_there, (step, raised)
    assert unknown_outcomes > 0


def _run_at(number: int, at: int, todo: list[Callable[[], None]]) -> None:
    if number == at and todo:
        todo.pop()()


def _new_cluster() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    create_cluster(store).create_topic("before")
    return store


def test_a_stalled_reader_notices_another_timeline() -> None:
    clock = ManualClock()
    store = MemoryStore(uuid.uuid4().hex, clock)
    client = create_cluster(store, clock=clock)
    snapshot = take_snapshot(store)
    client.create_topic("old")
    restore(store, snapshot)
    other = open_cluster(store, clock=clock)
    for number in range(3):
        other.create_topic(f"new-{number}")
    other.log.write_checkpoint()
    clock.advance(DEFAULTS.away_seconds + 1)
    with pytest.raises(RootReplacedError):
        client.refresh()


def test_a_removed_commit_does_not_indicate_another_timeline() -> None:
    clock = ManualClock()
    store = MemoryStore(uuid.uuid4().hex, clock)
    reader = create_cluster(store, clock=clock)
    writer = open_cluster(store, clock=clock)
    writer.create_topic("a")
    reader.refresh()
    writer.create_topic("b")
    writer.log.write_checkpoint()
    store.put("meta/boundary.json", b'{"boundary":1}\n')
    for version in (0, 1):
        store.delete(commit_key(version))
    assert reader.refresh() == writer.state


def test_a_failed_read_does_not_indicate_a_replaced_root() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    looks = iter([True, False])

    def hide_once(number: int, call: Call) -> None:
        if call == Call("get", commit_key(0)) and next(looks, False):
            raise ObjectNotFoundError("not there at the moment")

    other = open_cluster(FaultyStore(store, before=hide_once), clock=ManualClock())
    client.create_topic("a")
    other.create_topic("b")
    assert sorted(client.refresh().topics) == ["a", "b"]


def test_a_process_can_reopen_a_restored_root(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    create_cluster(root).create_topic("before")
    snapshot = take_snapshot(open_store(root))
    first = shared_cluster(root)
    first.create_topic("after")
    restore(open_store(root), snapshot)
    with pytest.raises(RootReplacedError):
        first.create_topic("lost")
    reopened = shared_cluster(root)
    reopened.create_topic("found")
    assert set(reopened.state.topics) == {"before", "found"}


def test_a_consumer_raises_if_its_root_was_restored(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    create_cluster(root).create_topic("t")
    snapshot = take_snapshot(open_store(root))
    with Producer(bootstrap_servers=root) as producer:
        producer.send("t", b"x").get(60)
    with Consumer("t", bootstrap_servers=root, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        assert consumer.poll(60_000)
        restore(open_store(root), snapshot)
        with pytest.raises(RootReplacedError):
            poll_until_it_fails(consumer)


def poll_until_it_fails(consumer: Consumer) -> None:
    for _ in range(100):
        consumer.poll(1_000)


def test_an_empty_mount_point_is_not_taken_for_another_timeline() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store, clock=ManualClock())
    client.create_topic("a")
    mounted = take_snapshot(store)
    restore(store, {})
    with pytest.raises(StorageUnavailableError, match="mount"):
        client.refresh()
    restore(store, mounted)
    client.create_topic("b")
    assert set(client.state.topics) == {"a", "b"}


def test_a_checkpoint_of_the_previous_history_is_ignored() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    snapshot = take_snapshot(store)
    for number in range(3):
        client.create_topic(f"old-{number}")
    client.log.write_checkpoint()
    phantom = {key: data for key, data in take_snapshot(store).items() if key.startswith("meta/checkpoints/")}
    restore(store, snapshot)
    other = open_cluster(store)
    for number in range(5):
        other.create_topic(f"new-{number}")
    for key, data in phantom.items():  # its writer had been stopped just before
        store.put(key, data)
    assert open_cluster(store).state == other.refresh()
    other.log.write_checkpoint()
    assert open_cluster(store).state == other.state


def test_no_commit_follows_an_unlinked_commit_after_a_gap() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    first = create_cluster(store)
    snapshot = take_snapshot(store)
    first.create_topic("a")

    def restore_after_commit_2_was_read(step: int, call: Call) -> None:
        if call.key == commit_key(3):
            faulty.before = None
            restore(store, snapshot)
            store.put(commit_key(2), island)  # left by a client that dies before it reads back

    faulty = FaultyStore(store)
    second = open_cluster(faulty)
    first.create_topic("b")
    island = store.get(commit_key(2))
    faulty.before = restore_after_commit_2_was_read
    assert second.refresh().version == 2
    with pytest.raises(RootReplacedError):
        second.log.attempt([AlterConfig(set={"num.partitions": "3"})])
    assert commit_key(3) not in take_snapshot(store)


def test_a_thread_interrupted_while_it_advances_leaves_a_consistent_state(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(store)
    reader = open_cluster(store)
    for number in range(5):
        writer.create_topic(f"t{number}")
    take, calls = SegmentLists.take, []

    def interrupted(self: SegmentLists, *arguments: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        take(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentLists, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.refresh()
    monkeypatch.undo()
    assert reader.refresh() == writer.state
    reader.log.write_checkpoint()
    assert open_cluster(store).state == writer.state


@pytest.mark.parametrize("sleeps", range(1, ATTEMPTS + 2))
def test_a_root_mounted_again_at_any_attempt_is_not_taken_for_another_timeline(tmp_path: Path, sleeps: int) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    back_after = 0

    class Returning(ManualClock):
        """The root is mounted again during a wait."""

        def sleep(self, seconds: float) -> None:
            nonlocal back_after
            super().sleep(seconds)
            back_after -= 1
            if back_after == 0:
                away.rename(root)

    clock = Returning()
    create_cluster(open_store(str(root))).create_topic("t")
    client = open_cluster(open_store(str(root)), clock=clock)
    root.rename(away)
    back_after = sleeps
    assert "t" in client.refresh().topics
    client.create_topic("u")
    assert sorted(open_cluster(str(root)).state.topics) == ["t", "u"]


def test_a_root_that_is_away_for_one_request_of_a_commit_is_not_taken_for_another_timeline(tmp_path: Path) -> None:
    requests = away_at = 0
    root, away = tmp_path / "root", tmp_path / "away"

    def before(_: int, call: Call) -> None:
        nonlocal requests
        requests += call.operation == "get"
        if away.exists():
            away.rename(root)
        elif call.operation == "get" and requests == away_at:
            root.rename(away)

    create_cluster(open_store(str(root))).create_topic("t")
    client = open_cluster(FaultyStore(open_store(str(root)), before=before), clock=ManualClock())
    for number in range(1, 12):
        requests, away_at = 0, number
        with contextlib.suppress(StorageUnavailableError, IndeterminateCommitError):
            client.create_topic(f"new-{number}")
        if away.exists():
            away.rename(root)
        client.refresh()
    client.create_topic("last")


def test_a_manifest_of_the_previous_history_without_its_files_is_ignored() -> None:
    """A process stalled while the root was restored, and stored the last file of its checkpoint after that."""
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    snapshot = take_snapshot(store)
    for number in range(3):
        client.create_topic(f"old-{number}")
    manifest = client.log.write_checkpoint()
    key = manifest.heads.key.removesuffix(".heads") + ".json"
    late = store.get(key)
    restore(store, {**snapshot, key: late})
    with pytest.raises(RootReplacedError):
        client.refresh()
    other = open_cluster(store)
    other.create_topic("new")
    assert set(open_cluster(store).state.topics) == {"new"}


def test_a_complete_checkpoint_of_the_previous_history_ahead_of_the_restored_log_is_ignored() -> None:
    """Otherwise a process that opens the root would continue after a gap, and commits of others would be lost."""
    store = MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    client.create_topic("kept")
    snapshot = take_snapshot(store)
    for number in range(5):
        client.create_topic(f"old-{number}")
    before = set(take_snapshot(store))
    client.log.write_checkpoint()
    late = {key: data for key, data in take_snapshot(store).items() if key not in before}
    restore(store, {**snapshot, **late})
    opened = open_cluster(store)
    assert set(opened.state.topics) == {"kept"}
    for number in range(10):
        opened.create_topic(f"new-{number}")
    assert open_cluster(store).state == opened.state
