"""Regressions: a Spark task as a member of a group, interrupted or overtaken at the worst moments."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.log.elapsed import Moment
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group, leave_group
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.spark.group.output import TaskSends
from sparklog.spark.group.task import ConsumeContext, ConsumeTask, find_unfinished
from sparklog.store.open import open_store
from sparklog.types import TopicPartition
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot
from tests.cluster.spark.helpers import values, write_rows
from tests.cluster.spark.test_group_task import DDL, committed, copy, filled, run, settings


def test_a_task_interrupted_after_its_commit_keeps_the_published_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path)
    append = log.append

    def interrupted(request: AppendRequest, written: Moment | None = None) -> AppendResult:
        append(request, written)
        monkeypatch.undo()
        raise KeyboardInterrupt

    task = ConsumeTask(settings(tmp_path, log), copy, 0)
    monkeypatch.setattr(log, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        task.run()
    assert len(values(tmp_path, subscribe="out")) == 10
    run(tmp_path, log, copy)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(20))


@pytest.mark.parametrize("sends", [True, False])
def test_a_topic_recreated_during_a_call_is_read_from_its_first_record(tmp_path: Path, sends: bool) -> None:
    log = filled(tmp_path)
    seen: list[bytes] = []
    recreated: list[str] = []

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        if sends:
            copy(records, context)
        if not recreated:
            delete_topic(log, "orders")
            recreated.append(log.create_topic("orders", 2))
            new = [{"value": str(n), "partition": n % 2} for n in range(100, 140)]
            write_rows(tmp_path, DDL, new, topic="orders")
            return
        seen.extend(records.column("value").to_pylist())

    run(tmp_path, log, process)
    assert sorted(map(int, seen)) == list(range(100, 120))  # up to the ends at the start of the run
    assert committed(log) == {0: 10, 1: 10}


@pytest.mark.parametrize("before", [10, 7])
def test_a_job_does_not_wait_for_records_that_were_deleted_before_a_task_had_the_partition(
    tmp_path: Path, before: int
) -> None:
    log = filled(tmp_path)
    task = ConsumeTask(settings(tmp_path, log), copy, 0)
    log.submit(partial(delete_records, offsets={("orders", 0): before}))
    task.run()
    assert committed(log) == {0: 10, 1: 10}
    assert len(values(tmp_path, subscribe="out")) == 20 - before


@pytest.mark.parametrize("is_recreated", [False, True])
@pytest.mark.parametrize("more", [0, 3])
def test_a_job_does_not_wait_for_records_that_its_reset_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recreated: bool, more: int
) -> None:
    """The committed offset has fallen out of the log since the job began, or its topic was created again."""
    log = filled(tmp_path)
    offsets = {("orders", 0): 3, ("orders", 1): 10}
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets=offsets)))
    calls: list[tuple[int, int]] = []
    task = ConsumeTask(
        settings(tmp_path, log, reset="latest"), lambda _, at: calls.append((at.partition, at.start_offset)), 0
    )
    if is_recreated:
        delete_topic(log, "orders")
        log.create_topic("orders", 2)
    else:
        log.submit(partial(delete_records, offsets={("orders", 0): 5}))
    write_rows(tmp_path, DDL, [{"value": str(n), "partition": 0} for n in range(more)], topic="orders")
    log.refresh()
    looks, refresh = [0], log.refresh

    def looked() -> State:
        looks[0] += 1
        assert looks[0] < 20, "it waits for records that it does not read"
        return refresh()

    monkeypatch.setattr(log, "refresh", looked)
    task.run()
    assert calls == []
    found = committed(log)
    if not is_recreated:
        assert found == {0: 10 + more, 1: 10}
    elif more:
        assert found[0] == more


def test_a_job_does_not_wait_for_ends_that_a_recreated_topic_may_never_reach(tmp_path: Path) -> None:
    log = filled(tmp_path)
    ends = {TopicPartition("orders", 0): 10}
    delete_topic(log, "orders")
    log.create_topic("orders", 2)
    assert find_unfinished(log.refresh(), "g", ends) == []
    write_rows(tmp_path, DDL, [{"value": "1", "partition": 0}], topic="orders")
    assert find_unfinished(log.refresh(), "g", ends) == list(ends)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 1})))
    assert find_unfinished(log.refresh(), "g", ends) == []


# -- a root that is restored from a copy while a task is suspended


class RestoredRoot:
    """A root with a copy of it as of a moment during the first call, to which it is restored once, later; other clients
    then write other records, and the commits that the task knew are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = filled(folder, records=0)
        self.log.create_topic("t")  # its configs are changed by the other clients
        self.log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
        self.write("base", 10)
        self.store = open_store(str(folder))
        self.snapshot: dict[str, bytes] = {}
        self.restored = False

    def write(self, name: str, records: int) -> None:
        rows = [{"value": f"{name}{number}", "partition": 0} for number in range(records)]
        write_rows(self.folder, DDL, rows, topic="orders")

    def copy(self) -> None:
        self.snapshot = {key: data for key, data in take_snapshot(self.store).items() if not key.startswith("leases/")}

    def restore(self, noticed: bool = False) -> None:
        """Restore the root, once, while all threads of this process are suspended. ``noticed``: afterwards the
        heartbeat reads the log first."""
        if self.restored:
            return
        self.restored = True
        with self.log.log.held:
            restore(self.store, self.snapshot)
            pass_by(self.store)
        if noticed:
            self.log.refresh()


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_files_of_another_timeline_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, noticed: bool
) -> None:
    """The task is suspended between its files and their commit; the restored root does not have the files."""
    root, calls = RestoredRoot(tmp_path), [0]
    write = TaskSends.write

    def suspended(sends: TaskSends) -> object:
        written = write(sends)
        if calls[0] == call:
            root.restore(noticed)
        return written

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        calls[0] += 1
        if calls[0] == call and not root.restored:
            root.copy()
        copy(records, context)

    monkeypatch.setattr(TaskSends, "write", suspended)
    report = run(tmp_path, root.log, process, max_records=3)
    assert root.restored
    assert root.log.log.unlinked_jumps == 1
    assert values(tmp_path, subscribe="out") == [b"base%d" % number for number in range(10)]
    assert report.records == 10
    assert committed(root.log) == {0: 10}


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("sends", [False, True])
def test_records_of_another_timeline_are_read_from_the_committed_offset(
    tmp_path: Path, sends: bool, noticed: bool
) -> None:
    """The task has read on since the copy was made; the restored root has other records at its position."""
    root, seen, calls = RestoredRoot(tmp_path), list[bytes](), [0]

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        calls[0] += 1
        if calls[0] == 2:
            root.copy()  # 3 are committed
        if calls[0] == 4:
            root.restore(noticed)
        if sends:
            copy(records, context)
        seen.extend(records.column("value").to_pylist())

    run(tmp_path, root.log, process, max_records=3)
    assert seen == [b"base%d" % number for number in (*range(10), *range(3, 10))]
    assert committed(root.log) == {0: 10}
    if sends:
        assert sorted(values(tmp_path, subscribe="out")) == [b"base%d" % number for number in range(10)]


def test_nothing_is_skipped_where_a_group_that_starts_at_the_end_has_committed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, looks, seen = RestoredRoot(tmp_path), [0], list[bytes]()
    refresh = root.log.refresh

    def restored() -> State:
        looks[0] += 1
        assert looks[0] < 100, "it waits for records after the end"
        if looks[0] == 2:  # it has started at the end
            root.copy()
            root.restore()
        return refresh()

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        seen.extend(records.column("value").to_pylist())
        raise ZeroDivisionError("it has read")

    task = ConsumeTask(settings(tmp_path, root.log, reset="latest", ends=None), process, 0)
    monkeypatch.setattr(root.log, "refresh", restored)
    with pytest.raises(ZeroDivisionError):
        task.run()
    assert root.restored
    assert seen == [b"base%d" % number for number in range(10)]


def test_a_rebalance_does_not_take_a_call_into_another_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is refused since the group is in another generation, and the root is restored before the next try."""
    root, tries = RestoredRoot(tmp_path), [0]
    append = Coordinator.append

    def overtaken(log: Coordinator, request: AppendRequest, written: Moment | None = None) -> AppendResult:
        if not request.groups or log is not root.log:
            return append(log, request, written)
        tries[0] += 1
        if tries[0] == 1:
            other = JoinRequest(group="g", member="other", topics=("other",), assignors=("cooperative-sticky",))
            log.submit(partial(join_group, request=other))
            log.submit(partial(leave_group, group="g", members=["other"], reason="left"))
            try:
                return append(log, request, written)
            finally:
                root.restore(noticed=True)
        return append(log, request, written)

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        if not root.restored:
            root.copy()
        copy(records, context)

    monkeypatch.setattr(Coordinator, "append", overtaken)
    run(tmp_path, root.log, process, max_records=3)
    assert root.restored
    assert values(tmp_path, subscribe="out") == [b"base%d" % number for number in range(10)]


@pytest.mark.parametrize("length", [1, 200, 249])
def test_a_group_id_of_any_allowed_length_sends_records(tmp_path: Path, length: int) -> None:
    log = filled(tmp_path)
    run(tmp_path, log, copy, group="g" * length)
    assert len(values(tmp_path, subscribe="out")) == 20
    (producer, *_) = log.refresh().indexes.transactional_ids
    assert producer.startswith("g")
    assert open_cluster(str(tmp_path)).state.groups["g" * length].offsets
