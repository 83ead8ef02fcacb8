"""A Spark task as a member of a consumer group, run without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, open_cluster, shared_cluster
from sparklog.errors import InvalidRecordError, NoOffsetForPartitionError, UnlinkedHistoryError
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group, leave_group
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.spark.group.consume import prepare
from sparklog.spark.group.task import ConsumeContext, ConsumeSettings, ConsumeTask, MemberReport, Process
from sparklog.store.open import open_store
from sparklog.types import TopicPartition
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot
from tests.cluster.spark.helpers import cluster, values, write_rows

DDL = "value string, partition int"


def filled(folder: Path, records: int = 20) -> Coordinator:
    cluster(folder, orders=2, out=1)
    write_rows(folder, DDL, [{"value": str(n), "partition": n % 2} for n in range(records)], topic="orders")
    log = shared_cluster(str(folder))
    log.refresh()
    return log


def settings(folder: Path, log: Coordinator, **more: Any) -> ConsumeSettings:
    ends = prepare(log, "g", ["orders"], "earliest")
    return ConsumeSettings(**{"root": str(folder), "group": "g", "topics": ("orders",), "ends": ends, **more})


def run(folder: Path, log: Coordinator, process: Process, **more: Any) -> MemberReport:
    return ConsumeTask(settings(folder, log, **more), process, 0).run()


def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
    context.send("out", records.select(["value"]))


def committed(log: Coordinator) -> dict[int, int]:
    return {one.partition: one.offset for one in log.refresh().groups["g"].offsets.values()}


def test_every_record_is_processed_once_in_order_and_its_offset_committed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    seen: dict[int, list[bytes]] = {0: [], 1: []}

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        assert (context.end_offset - context.start_offset, context.topic) == (records.num_rows, "orders")
        seen[context.partition] += records.column("value").to_pylist()

    report = run(tmp_path, log, process, max_records=3)
    assert seen == {side: [str(n).encode() for n in range(20) if n % 2 == side] for side in (0, 1)}
    assert (report.records, report.partitions, report.calls) == (20, ("orders-0", "orders-1"), 8)
    assert committed(log) == {0: 10, 1: 10}
    assert log.state.groups["g"].members == {}


def test_batches_are_pandas_frames_on_request(tmp_path: Path) -> None:
    log = filled(tmp_path)
    found: list[int] = []
    run(tmp_path, log, lambda frame, _: found.extend(frame["offset"].tolist()), frames=True)
    assert sorted(found) == sorted([*range(10), *range(10)])


def test_records_sent_by_the_function_are_in_the_commit_of_the_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    run(tmp_path, log, copy, max_records=4)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(20))
    commits = [one.actions for one in log.log.commits(0, log.refresh().version)]
    with_records = [actions for actions in commits if any(getattr(one, "topic", "") == "out" for one in actions)]
    assert len(with_records) > 2
    assert all({"CommitOffsets", "Append"} <= {type(one).__name__ for one in actions} for actions in with_records[1:])


def test_a_failed_call_publishes_nothing_and_its_records_are_read_again(tmp_path: Path) -> None:
    log = filled(tmp_path)

    def fails(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        if context.start_offset >= 6:
            raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError):
        run(tmp_path, log, fails, max_records=3)
    assert log.refresh().groups["g"].members == {}
    run(tmp_path, log, copy)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(20))


def test_a_member_removed_during_a_call_publishes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    files = lambda: len(list((tmp_path / "out-0").glob("*.log"))) if (tmp_path / "out-0").exists() else 0  # noqa: E731
    taken: list[str] = []

    def expired_once(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        if not taken:
            taken.extend(log.refresh().groups["g"].members)
            log.submit(partial(leave_group, group="g", members=taken, reason="expired"))

    run(tmp_path, log, expired_once)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(20))
    assert files() == 2


def test_a_second_member_takes_its_share_without_repeating_records(tmp_path: Path) -> None:
    log = filled(tmp_path, 400)
    both = threading.Barrier(2, timeout=30)
    waited = threading.Event()

    def together(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        if not waited.is_set() and context.start_offset == 0 and len(log.state.groups["g"].members) < 2:
            both.wait()
            joined.wait(30)
            waited.set()

    joined = threading.Event()

    class Second(ConsumeTask):
        def run(self) -> MemberReport:
            both.wait()
            self._member.join(("orders",))
            joined.set()
            return super().run()

    configured = settings(tmp_path, log, max_records=20)
    reports: list[MemberReport] = []
    second = threading.Thread(target=lambda: reports.append(Second(configured, copy, 1).run()))
    second.start()
    reports.append(ConsumeTask(configured, together, 0).run())
    second.join(60)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(400))
    assert sum(report.records for report in reports) == 400
    assert all(report.records for report in reports)


def test_a_group_resumes_at_its_offsets_or_else_by_its_reset_policy(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 8})))
    assert run(tmp_path, log, copy).records == 2 + 10
    with pytest.raises(NoOffsetForPartitionError, match="auto_offset_reset is none"):
        prepare(log, "other", ["orders"], "none")
    assert prepare(log, "other", ["orders"], "latest") == {}
    assert {one.offset for one in log.state.groups["other"].offsets.values()} == {10}


def test_a_driver_that_was_suspended_before_it_commits_its_starts_moves_no_offset_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path)
    others = open_cluster(log.store)
    submit = Coordinator.submit

    def resume(coordinator: Coordinator, *request: Any, **more: Any) -> object:
        monkeypatch.undo()
        commit = GroupCommit(group="g", offsets={("orders", 0): 30, ("orders", 1): 20})
        submit(others, partial(commit_group_offsets, commit=commit))
        return submit(coordinator, *request, **more)

    monkeypatch.setattr(Coordinator, "submit", resume)
    prepare(log, "g", ["orders"], "latest")
    committed = log.refresh().groups["g"].offsets.values()
    assert {one.partition: one.offset for one in committed} == {0: 30, 1: 20}


def test_a_start_of_a_former_timeline_is_not_committed_for_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root was restored while the program was suspended: its log may end before that start now."""
    log = filled(tmp_path)
    log.create_topic("t")
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    submit = Coordinator.submit

    def resume(coordinator: Coordinator, *request: Any, **more: Any) -> object:
        if coordinator is log:
            monkeypatch.undo()
            pass_by(log.store)
        return submit(coordinator, *request, **more)

    monkeypatch.setattr(Coordinator, "submit", resume)
    with pytest.raises(UnlinkedHistoryError):
        prepare(log, "other", ["orders"], "latest")
    assert "other" not in open_cluster(log.store).state.groups


def test_a_continuous_member_stops_on_request(tmp_path: Path) -> None:
    log = filled(tmp_path)

    def stops(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        if context.end_offset == 11:
            log.store.put("leases/stop/1", b"stop")
        elif context.end_offset == 10 and context.partition == 0:
            write_rows(tmp_path, DDL, [{"value": "20", "partition": 0}], topic="orders")

    report = run(tmp_path, log, stops, ends=None, stop_key="leases/stop/1", heartbeat_interval_ms=10)
    assert report.records == 21
    assert committed(log) == {0: 11, 1: 10}


def test_partitions_added_during_a_run_are_read(tmp_path: Path) -> None:
    log = filled(tmp_path)
    grown = threading.Event()

    def grows(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        if not grown.is_set():
            grown.set()
            log.submit(partial(create_partitions, topic="orders", total=3))
            write_rows(tmp_path, DDL, [{"value": "20", "partition": 2}], topic="orders")
        elif context.partition == 2:
            log.store.put("leases/stop/1", b"stop")

    run(tmp_path, log, grows, ends=None, stop_key="leases/stop/1", heartbeat_interval_ms=10)
    assert committed(log)[2] == 1


@pytest.mark.parametrize("rows", [[b"v"], "text", {"value": [b"v"]}, None])
def test_invalid_rows_from_the_function_are_refused(tmp_path: Path, rows: object) -> None:
    log = filled(tmp_path)
    send: Callable[[pa.RecordBatch, ConsumeContext], None] = lambda _, context: context.send("out", rows)  # noqa: E731
    with pytest.raises(InvalidRecordError, match=r"pa\.Table"):
        run(tmp_path, log, send)
    assert log.refresh().topics["out"].partitions[0].log_end_offset == 0


def test_ends_of_a_deleted_partition_count_as_reached() -> None:
    from sparklog.protocol.state import State
    from sparklog.spark.group.task import find_unfinished

    assert find_unfinished(State(cluster_id="c"), "g", {TopicPartition("gone", 0): 5}) == []


def test_a_consumer_client_shares_the_group_with_a_task(tmp_path: Path) -> None:
    log = filled(tmp_path)
    came: list[str] = []

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        copy(records, context)
        group = log.refresh().groups["g"]
        if not came:
            came.append("z")
            log.submit(
                partial(
                    join_group,
                    request=JoinRequest(group="g", member="z", topics=("orders",), assignors=("cooperative-sticky",)),
                )
            )
        elif "z" in group.members and group.members["z"].assigned:
            log.submit(partial(leave_group, group="g", members=["z"], reason="left"))

    assert ConsumeTask(settings(tmp_path, log, max_records=1), process, 0).run().records == 20
    assert committed(log) == {0: 10, 1: 10}


def test_a_task_uses_a_new_producer_after_a_restore_of_the_root(tmp_path: Path) -> None:
    """Otherwise its transaction could be mistaken for one of the producer that has its id there, and be skipped."""
    log = filled(tmp_path)
    store = open_store(str(tmp_path))
    log.create_topic("t")  # its configs are changed by the other tests
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    snapshots: list[dict[str, bytes]] = []

    def restored_once(records: pa.RecordBatch, context: ConsumeContext) -> None:
        if not snapshots:
            snapshots.append(take_snapshot(store))
        elif len(snapshots) == 1:
            snapshots.append({})
            restore(store, snapshots[0])
            others = open_cluster(str(tmp_path))
            with Producer(cluster=others, transactional_id="another") as another:
                another.init_transactions()
                for _ in range(2):
                    another.begin_transaction()
                    another.send("out", b"another's")
                    another.commit_transaction()
            pass_by(store)
        copy(records, context)

    run(tmp_path, log, restored_once, max_records=5)
    published = values(tmp_path, subscribe="out")
    assert published.count(b"another's") == 2
    assert sorted(int(value) for value in published if value != b"another's") == list(range(20))
