"""Coordinators over a real commit log: races, group commit, checkpoints, boundary, lost answers."""

from __future__ import annotations

import itertools
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster, shared_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterNotFoundError,
    CorruptMetadataError,
    IndeterminateCommitError,
    InvalidRequestError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.ids import SeededIds
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.protocol.commits import AlterConfig, commit_key
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.fold import Draft
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import ERROR, UNAVAILABLE, Fault, FaultyStore

from .helpers import append_values, commits_held, read_values, write_values


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "cluster")


def test_a_new_cluster_has_broker_0_and_nothing_else(root: str) -> None:
    state = create_cluster(root).state
    assert (list(state.brokers), len(state.topics), state.version) == ([0], 0, 0)
    assert open_cluster(root).state == state


def test_a_root_holds_one_cluster(root: str) -> None:
    created = create_cluster(root)
    with pytest.raises(ClusterAlreadyExistsError, match=created.state.cluster_id):
        create_cluster(root)


def test_a_folder_without_a_cluster_is_refused_with_the_command_that_creates_one(root: str) -> None:
    with pytest.raises(ClusterNotFoundError, match="sparklog cluster create"):
        open_cluster(root)


def test_a_cluster_of_a_newer_layout_asks_for_an_upgrade(root: str) -> None:
    create_cluster(root)
    Path(root, "cluster.json").write_text('{"format":99,"cluster_id":"x","more":1}')
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        open_cluster(root)


def test_a_damaged_cluster_file_is_named(root: str) -> None:
    create_cluster(root)
    Path(root, "cluster.json").write_text('{"format":')
    with pytest.raises(CorruptMetadataError, match=r"cluster\.json"):
        open_cluster(root)


def test_an_edited_commit_is_refused_and_named(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    path = Path(root, commit_key(1))
    path.write_text(path.read_text().replace("orders", "ordres"))
    with pytest.raises(CorruptMetadataError, match="00000000000000000001"):
        open_cluster(root)


def test_a_commit_exchanged_for_another_is_detected_at_the_next_commit(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    coordinator.create_topic("returns")
    other = create_cluster(root + "-other")
    other.create_topic("orders")
    Path(root, commit_key(1)).write_bytes(Path(root + "-other", commit_key(1)).read_bytes())
    with pytest.raises(CorruptMetadataError, match="does not follow"):
        open_cluster(root)


def test_records_are_read_back_with_their_offsets(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders", partitions=2)
    append_values(coordinator, "orders", 1, [b"a", b"b"])
    append_values(coordinator, "orders", 1, [b"c"])
    assert read_values(open_cluster(root), "orders", 1) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert read_values(coordinator, "orders", 1, start=1) == [(1, b"b"), (2, b"c")]
    assert read_values(coordinator, "orders", 0) == []


def test_two_coordinators_see_each_others_commits(root: str) -> None:
    first, second = create_cluster(root), open_cluster(root)
    first.create_topic("orders")
    with pytest.raises(TopicAlreadyExistsError):
        second.create_topic("orders")
    append_values(second, "orders", 0, [b"a"])
    append_values(first, "orders", 0, [b"b"])
    assert read_values(second, "orders", 0) == [(0, b"a"), (1, b"b")]


def test_a_coordinator_that_lost_the_race_commits_after_the_winner(root: str) -> None:
    first, second = create_cluster(root), open_cluster(root)
    first.create_topic("orders")
    second.refresh()
    items = [write_values(second, "orders", 0, [b"late"])]
    append_values(first, "orders", 0, [b"early"])
    assert second.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.LOST
    second.append(AppendRequest(appends=items))
    assert read_values(first, "orders", 0) == [(0, b"early"), (1, b"late")]


def test_threads_share_commits_and_every_record_is_stored_once(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    threads = [
        threading.Thread(
            target=lambda n=n: [append_values(coordinator, "orders", 0, [b"%d-%d" % (n, i)]) for i in range(20)]
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read_values(open_cluster(root), "orders", 0)
    assert [offset for offset, _ in records] == list(range(160))
    assert sorted(value for _, value in records) == sorted(b"%d-%d" % (n, i) for n in range(8) for i in range(20))


def test_waiting_requests_are_committed_together_and_a_failed_one_does_not_affect_the_others(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    outcomes: list[object] = []
    names = ["a", "orders", "b", "c"]

    def create(name: str) -> None:
        try:
            outcomes.append(coordinator.create_topic(name))
        except TopicAlreadyExistsError as error:
            outcomes.append(error.topic)

    before = coordinator.state.version
    threads = [threading.Thread(target=create, args=(name,)) for name in names]
    with commits_held(coordinator):
        for thread in threads:
            thread.start()
        while len(coordinator.pending) < len(names):
            pass
    for thread in threads:
        thread.join()
    assert coordinator.state.version == before + 1
    assert set(coordinator.state.topics) == {"orders", "a", "b", "c"}
    assert outcomes.count("orders") == 1


def test_commit_times_increase_although_the_clock_goes_back(root: str) -> None:
    clock = ManualClock()
    coordinator = create_cluster(root, clock=clock)
    times = [coordinator.state.timestamp_ms]
    for step in range(5):
        clock.set_ms(1_600_000_000_000 - step)
        coordinator.create_topic(f"t{step}")
        times.append(coordinator.state.timestamp_ms)
    assert times == sorted(set(times))


def test_log_append_time_is_the_time_of_the_commit(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    append_values(coordinator, "orders", 0, [b"a", b"b"])
    segment = coordinator.segments("orders").partition(0)[0]
    assert segment.append_time_ms == coordinator.state.timestamp_ms
    assert segment.max_timestamp_us == coordinator.state.timestamp_ms * 1000


# -- checkpoints and the boundary


def fill(root: str, commits: int) -> None:
    coordinator = open_cluster(root)
    for number in range(commits):
        append_values(coordinator, "orders", number % 2, [b"%d" % number])
    coordinator.log.wait_for_checkpoint()


def test_opening_from_a_checkpoint_gives_the_state_of_all_commits(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders", partitions=2)
    coordinator.submit(partial(init_producer, transactional_id="tx"))
    coordinator.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 0})))
    fill(root, 3 * limits.CHECKPOINT_INTERVAL_COMMITS)
    coordinator.refresh()
    opened = open_cluster(root)
    newest = checkpoint.read_newest(opened.store)
    assert newest is not None
    assert newest.version >= 2 * limits.CHECKPOINT_INTERVAL_COMMITS
    assert opened.state == coordinator.state
    for partition in (0, 1):
        expected = list(coordinator.segments("orders").partition(partition))
        assert list(opened.segments("orders").partition(partition)) == expected
    assert len(read_values(opened, "orders", 0)) == 3 * limits.CHECKPOINT_INTERVAL_COMMITS // 2


def list_of(coordinator: Coordinator, manifest: checkpoint.Manifest, topic: str) -> lists.TopicList:
    return checkpoint.read_lists(coordinator.store, manifest).of(coordinator.state.topics[topic].topic_id)


def test_a_checkpoint_does_not_rewrite_topics_that_did_not_change(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)
    coordinator = create_cluster(root)
    for topic in ("orders", "quiet"):
        coordinator.create_topic(topic)
        append_values(coordinator, topic, 0, [b"x"])
    first = coordinator.log.write_checkpoint()
    append_values(coordinator, "orders", 0, [b"y"])
    second = coordinator.log.write_checkpoint()
    assert list_of(coordinator, second, "quiet") == list_of(coordinator, first, "quiet")
    assert list_of(coordinator, second, "orders") != list_of(coordinator, first, "orders")


def test_a_topic_of_many_checkpoints_has_few_segment_files(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    for number in range(40):
        append_values(coordinator, "orders", 0, [b"%d" % number])
        manifest = coordinator.log.write_checkpoint()
    files = list_of(coordinator, manifest, "orders").files
    assert sum(file.rows for file in files) == 40
    assert len(files) <= 6
    assert [offset for offset, _ in read_values(open_cluster(root), "orders", 0)] == list(range(40))


def test_with_a_stale_or_lost_hint_the_newest_checkpoint_is_found_after_commits_were_removed(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    hint = Path(root, checkpoint.LATEST_KEY)
    coordinator.log.write_checkpoint()
    stale = hint.read_bytes()
    append_values(coordinator, "orders", 0, [b"x"])
    coordinator.log.write_checkpoint()
    remove_commits(root, coordinator.state.version)
    hint.write_bytes(stale)
    assert open_cluster(root).state == coordinator.state
    hint.unlink()
    assert open_cluster(root).state == coordinator.state


def remove_commits(root: str, boundary: int) -> None:
    Path(root, "meta/boundary.json").write_text(json.dumps({"boundary": boundary}))
    for version in range(boundary + 1):
        Path(root, commit_key(version)).unlink()


def test_a_stalled_writer_cannot_create_a_removed_commit(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    stalled = open_cluster(root)
    item = write_values(stalled, "orders", 0, [b"late"])
    for value in (b"1", b"2", b"3"):
        append_values(coordinator, "orders", 0, [value])
    coordinator.log.write_checkpoint()
    remove_commits(root, coordinator.state.version)
    # its next number is free again, so put-if-absent alone would let it win
    assert stalled.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.LOST
    stalled.append(AppendRequest(appends=[item]))
    assert [value for _, value in read_values(stalled, "orders", 0)] == [b"1", b"2", b"3", b"late"]
    assert open_cluster(root).state.configs == {}


def test_a_reader_behind_removed_commits_continues_from_a_checkpoint(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    reader = open_cluster(root)
    append_values(coordinator, "orders", 0, [b"1"])
    coordinator.log.write_checkpoint()
    remove_commits(root, coordinator.state.version)
    assert reader.refresh() == coordinator.state


def test_removed_commits_without_a_checkpoint_are_an_error_not_an_empty_cluster(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    remove_commits(root, coordinator.state.version)
    with pytest.raises(CorruptMetadataError, match="were removed"):
        open_cluster(root)


def test_a_damaged_checkpoint_file_is_named(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    heads = Path(root, coordinator.log.write_checkpoint().heads.key)
    damaged = bytearray(heads.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    heads.write_bytes(damaged)
    with pytest.raises(CorruptMetadataError, match=heads.name):
        open_cluster(root)


def test_a_reader_keeps_its_snapshot_while_others_write_and_checkpoint(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    append_values(coordinator, "orders", 0, [b"1"])
    state = coordinator.state
    append_values(coordinator, "orders", 0, [b"2"])
    coordinator.log.write_checkpoint()
    append_values(coordinator, "orders", 0, [b"3"])
    assert [s.base_offset for s in coordinator.segments("orders", state).partition(0)] == [0]
    assert [s.base_offset for s in coordinator.segments("orders").partition(0)] == [0, 1, 2]


def test_a_process_that_only_reads_drops_events_that_checkpoints_contain(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders", partitions=2)
    reader = open_cluster(root)
    fill(root, 5 * limits.CHECKPOINT_INTERVAL_COMMITS)
    reader.refresh()
    kept = reader.log.take_snapshot(None).events.values()
    assert sum(len(events) for events in kept) <= limits.CHECKPOINT_INTERVAL_COMMITS
    assert len(read_values(reader, "orders", 0)) == 5 * limits.CHECKPOINT_INTERVAL_COMMITS // 2


# -- sharing within a process


def test_a_shared_coordinator_is_reopened_for_a_recreated_cluster(root: str) -> None:
    import shutil

    create_cluster(root).create_topic("orders")
    first = shared_cluster(root)
    assert shared_cluster(root) is first
    shutil.rmtree(root)
    create_cluster(root)
    second = shared_cluster(root)
    assert second is not first
    assert not second.state.topics


def test_a_recreated_topic_starts_empty_under_a_new_id(root: str) -> None:
    coordinator = create_cluster(root)
    first = coordinator.create_topic("orders")
    append_values(coordinator, "orders", 0, [b"old"])
    delete_topic(coordinator, "orders")
    with pytest.raises(UnknownTopicOrPartitionError):
        read_values(coordinator, "orders", 0)
    assert coordinator.create_topic("orders") != first
    assert read_values(coordinator, "orders", 0) == []


def test_the_same_seed_and_clock_write_the_same_bytes() -> None:
    def run(name: str) -> list[bytes]:
        clock = ManualClock()
        store = MemoryStore(name, clock)
        log = CommitLog.create(store, clock, SeededIds(5))
        log.attempt([AlterConfig(set={"num.partitions": "3"})])
        return [store.get("cluster.json"), store.get(commit_key(0)), store.get(commit_key(1))]

    assert run("seed-a") == run("seed-b")


def test_many_segments_in_few_commits_make_a_checkpoint_due(root: str) -> None:
    coordinator = create_cluster(root, settings=LogSettings(checkpoint_interval_segments=10))
    coordinator.create_topic("orders")
    for _ in range(4):
        coordinator.append(AppendRequest(appends=[write_values(coordinator, "orders", 0, [b"x"]) for _ in range(6)]))
        coordinator.log.wait_for_checkpoint()
    opened = open_cluster(root)
    newest = checkpoint.read_newest(opened.store)
    assert newest is not None
    assert newest.version == coordinator.state.version
    assert len(read_values(opened, "orders", 0)) == 24


def test_the_segments_of_an_unchanged_topic_are_listed_once(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    append_values(coordinator, "orders", 0, [b"1"])
    first = coordinator.segments("orders")
    coordinator.create_topic("other")
    assert coordinator.segments("orders") is first
    append_values(coordinator, "orders", 0, [b"2"])
    assert len(coordinator.segments("orders").partition(0)) == 2


# -- requests that wait together, and failures after a commit was won


class InterruptAt:
    """A trace function that raises KeyboardInterrupt once: at this call of a function of the coordinator's module."""

    def __init__(self, call: int) -> None:
        self.armed = False
        self.interrupted = False
        self._calls = itertools.count(1)
        self._call = call

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        in_coordinator = frame.f_code.co_filename.endswith("coordinator/coordinator.py")
        if self.armed and in_coordinator and event == "call" and next(self._calls) == self._call:
            self.interrupted = True
            raise KeyboardInterrupt


@contextmanager
def traced(trace: InterruptAt | None) -> Iterator[None]:
    """Trace the threads that are started inside the block."""
    before = threading.gettrace()
    threading.settrace(trace or before)
    try:
        yield
    finally:
        threading.settrace(before)


def submit_together(
    coordinator: Coordinator, requests: Sequence[Callable[[], object]], trace: InterruptAt | None = None
) -> list[object]:
    """Commit the requests as one group; return the result or error of each. ``trace`` traces their threads."""
    outcomes: list[object] = [None] * len(requests)

    def run(number: int) -> None:
        try:
            outcomes[number] = requests[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(requests))]
    with commits_held(coordinator), traced(trace):
        for number, thread in enumerate(threads):
            thread.start()
            while len(coordinator.pending) <= number:
                pass
        if trace is not None:
            trace.armed = True
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.parametrize("value", [5, "\ud800"])
def test_a_request_that_cannot_be_stored_does_not_affect_those_that_wait_with_it(root: str, value: str) -> None:
    coordinator = create_cluster(root)
    unstorable = Decision([AlterConfig(set={"name": value})], None)
    outcomes = submit_together(
        coordinator, [lambda: coordinator.create_topic("a"), lambda: coordinator.submit(lambda state: unstorable)]
    )
    assert isinstance(outcomes[0], str)
    assert isinstance(outcomes[1], InvalidRequestError)
    assert list(open_cluster(root).state.topics) == ["a"]


def test_an_exception_in_one_request_is_raised_to_its_caller_only(root: str) -> None:
    coordinator = create_cluster(root)
    outcomes = submit_together(
        coordinator,
        [lambda: coordinator.create_topic("a"), lambda: coordinator.submit(lambda state: 1 // 0)],  # type: ignore[arg-type,return-value]
    )
    assert isinstance(outcomes[0], str)
    assert isinstance(outcomes[1], ZeroDivisionError)
    assert list(open_cluster(root).state.topics) == ["a"]


def test_no_request_is_acknowledged_if_committing_one_by_one_is_interrupted(root: str) -> None:
    coordinator = create_cluster(root)
    commit = coordinator.log.commit
    tries: list[int] = []

    def interrupted(draft: Draft) -> CommitOutcome:
        tries.append(len(draft.actions))
        if len(tries) == 1:
            raise RecordListTooLargeError("together they are too large")
        if len(tries) == 3:
            raise KeyboardInterrupt
        return commit(draft)

    coordinator.log.commit = interrupted  # type: ignore[method-assign]
    outcomes = submit_together(coordinator, [partial(coordinator.create_topic, n) for n in "abcd"])
    assert tries == [4, 1, 1]
    assert not any(isinstance(outcome, str) for outcome in outcomes[1:])
    assert list(open_cluster(root).state.topics) == ["a"]


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE])
def test_only_an_indeterminate_error_may_follow_a_stored_commit(kind: str) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner)
    store = FaultyStore(inner)
    coordinator = open_cluster(store, clock=ManualClock())
    coordinator.create_topic("first")  # the first commit of a process reads the storage's time
    store.reset_counts()
    coordinator.create_topic("a")
    created = next(step for step, call in enumerate(store.calls) if call.operation == "put_if_absent")
    for faults in (1, 50):
        store.reset_counts()
        for step in range(created + 1, created + 1 + faults):
            store.inject(Fault(step, kind))
        name = f"topic-{faults}"
        with nullcontext() if faults == 1 else pytest.raises(IndeterminateCommitError):
            coordinator.create_topic(name)
        store.reopen()
        assert name in open_cluster(inner).state.topics


def test_a_commit_is_acknowledged_even_if_its_checkpoint_fails(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = create_cluster(root, settings=LogSettings(checkpoint_interval_commits=1))

    def broken(*_: object) -> None:
        raise pa.ArrowInvalid("too large for a checkpoint")

    monkeypatch.setattr(checkpoint, "write_checkpoint", broken)
    coordinator.create_topic("orders")
    assert "orders" in open_cluster(root).state.topics


def test_a_damaged_checkpoint_of_another_process_does_not_stop_a_running_one(root: str) -> None:
    settings = LogSettings(checkpoint_interval_commits=5, checkpoint_interval_segments=1)
    coordinator = create_cluster(root, settings=settings)
    coordinator.create_topic("orders")
    damaged = Path(root, f"meta/checkpoints/{1:020d}-x.json")
    damaged.parent.mkdir()
    damaged.write_text("damaged")
    for _ in range(22):  # more than the 20 after which it looks for a newer checkpoint
        append_values(coordinator, "orders", 0, [b"x"])
    coordinator.refresh()
    assert len(read_values(coordinator, "orders", 0)) == 22


@pytest.mark.parametrize("hint", ['{"manifest":"../../x"}', '{"manifest":"' + "x" * 70_000, "[" * 60_000, "\0"])
def test_a_damaged_hint_is_ignored(root: str, hint: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    coordinator.log.write_checkpoint()
    Path(root, "meta/checkpoints/latest.json").write_text(hint)
    opened = open_cluster(root)
    assert opened.state == coordinator.state
    assert checkpoint.read_newest(opened.store) is not None


@pytest.mark.parametrize("key", ["cluster.json", "meta/boundary.json"])
def test_a_file_of_endless_brackets_is_damaged(root: str, key: str) -> None:
    create_cluster(root)
    Path(root, key).write_text('{"x":' + "[" * 60_000)
    with pytest.raises(CorruptMetadataError, match=key):
        open_cluster(root)


def test_an_old_state_of_a_deleted_topic_raises_once_its_segments_are_no_longer_listed(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("orders")
    append_values(coordinator, "orders", 0, [b"1"])
    state = coordinator.state
    delete_topic(coordinator, "orders")
    assert len(coordinator.segments("orders", state).partition(0)) == 1
    coordinator.log.write_checkpoint()
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted since"):
        coordinator.segments("orders", state)


def test_a_commit_whose_folder_could_not_be_synced_is_not_acknowledged(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = create_cluster(root)

    sync = os.fsync

    def fail(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").endswith("meta/commits"):
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(IndeterminateCommitError, match="power failure"):
        coordinator.create_topic("orders")


def test_waiting_requests_get_an_answer_wherever_the_committing_thread_is_interrupted() -> None:
    for call in itertools.count(1):
        coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
        trace = InterruptAt(call)
        outcomes = submit_together(coordinator, [partial(coordinator.create_topic, name) for name in "abc"], trace)
        if not trace.interrupted:
            break
        assert sum(isinstance(outcome, KeyboardInterrupt) for outcome in outcomes) == 1
        assert all(isinstance(outcome, str | IndeterminateCommitError | KeyboardInterrupt) for outcome in outcomes)
        acknowledged = {name for name, outcome in zip("abc", outcomes, strict=True) if isinstance(outcome, str)}
        assert acknowledged <= set(coordinator.refresh().topics)
        assert isinstance(coordinator.create_topic("d"), str)
    assert call > 10


def test_a_forked_child_may_neither_read_nor_list_segments(root: str) -> None:
    coordinator = create_cluster(root)
    coordinator.create_topic("t")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        results = []
        for action in (coordinator.refresh, lambda: coordinator.segments("t"), lambda: coordinator.create_topic("u")):
            try:
                action()
                results.append(b"done")
            except BaseException as error:
                results.append(type(error).__name__.encode())
        os.write(write_end, b" ".join(results))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        assert file.read() == b"IllegalStateError IllegalStateError IllegalStateError"
    os.waitpid(child, 0)
