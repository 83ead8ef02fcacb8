"""Each step plans its job for the whole cluster and reports it; a problem with one topic does not affect the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.controller import Controller
from sparklog.maintenance.loop import Loop, LoopReport
from sparklog.maintenance.runner import InProcess, StopRequested
from sparklog.maintenance.steps import STEPS, MaintenanceContext, steps
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import CountingStore
from sparklog.types import OffsetAndMetadata

DAY = 86_400.0


class Log:
    """A cluster with its own clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.cluster: Coordinator = create_cluster(str(folder / "log"), clock=self.clock)

    def append(self, topic: str, commits: int, key: Callable[[int], bytes | None] = lambda _: None) -> None:
        with Producer(cluster=self.cluster, acks="all") as producer:
            for number in range(commits):
                producer.send(topic, key=key(number), value=b"v", partition=0, timestamp_ms=self.clock.now_ms()).get()

    def run(self, *only: str, once: bool = True) -> dict[str, LoopReport]:
        with closing(MaintenanceContext(self.cluster, lambda _: InProcess(), once=once)) as context:
            return {report.step: report for report in Loop(steps(context, only), self.clock).once()}

    def files(self, topic: str) -> int:
        return len(list(Path(self.cluster.store.root, f"{topic}-0").glob("*.log")))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_every_step_has_a_setting_for_its_interval(log: Log) -> None:
    context = MaintenanceContext(log.cluster, lambda _: InProcess(), mirror="/nowhere")
    assert [step.name for step in steps(context)] == list(STEPS)
    assert all(step.interval_ms() >= 0 for step in steps(context))


def test_a_loop_with_one_location_and_nothing_to_do_sends_few_requests() -> None:
    clock = ManualClock()
    store = CountingStore(MemoryStore("one-location"))
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders", 4)
    until = clock.monotonic() + 3600

    def check() -> None:
        if clock.monotonic() >= until:
            raise StopRequested

    requests = {}
    for lane in sorted({step.lane for step in STEPS.values()} - {"mirror"}):
        names = [name for name, step in STEPS.items() if step.lane == lane]
        until, before = clock.monotonic() + 3600, len(store.calls)
        context = MaintenanceContext(cluster, lambda _: InProcess(), None, check, once=False)
        Loop(steps(context, names), clock, check).forever()
        requests[lane] = (len(store.calls) - before) / 3600
    assert requests["elections"] + requests["replication"] < 0.15
    assert sum(requests.values()) < 0.6


def test_a_location_that_is_added_during_a_loop_is_checked_within_a_minute(tmp_path: Path) -> None:
    log = Log(tmp_path)
    context = MaintenanceContext(log.cluster, lambda _: InProcess(), once=False)
    elections, _ = steps(context, ["elections", "replication"])
    assert elections.interval_ms() == 60_000
    add_broker(log.cluster, str(tmp_path / "second"))
    elections.run(LoopReport("elections"))
    assert elections.interval_ms() == 2000
    assert log.cluster.state.controller.controller


def test_an_empty_cluster_has_nothing_to_do(log: Log) -> None:
    for report in log.run().values():
        assert (report.counts, report.notes, report.problems) == (dict.fromkeys(report.counts, 0), [], [])


def test_old_segments_are_deleted_and_their_files_later(log: Log) -> None:
    log.cluster.create_topic("orders", configs={"retention.ms": "60000", "segment.ms": "1000"})
    log.append("orders", 3)
    log.clock.advance(120)
    log.append("orders", 1)
    reports = log.run("retention", "deletion")
    assert reports["retention"].counts["segments_out_of_the_log"] == 3
    assert reports["deletion"].counts["files_deleted"] == 0
    log.clock.advance(61)
    reports = log.run("deletion")
    assert reports["deletion"].counts["files_deleted"] >= 3
    assert reports["deletion"].counts["bytes_freed"] > 0
    assert log.files("orders") == 1


def test_compacted_topics_are_compacted(log: Log) -> None:
    log.cluster.create_topic(
        "users", configs={"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.1"}
    )
    log.append("users", 10, lambda number: b"k%d" % (number % 2))
    log.clock.advance(5)
    log.append("users", 1, lambda number: b"k")
    report = log.run("compaction")["compaction"]
    assert report.counts["records_removed"] == 8
    assert report.counts["bytes_read"] > report.counts["bytes_written"] > 0


def test_a_controller_elects_leaders_if_a_location_is_lost(log: Log, tmp_path: Path) -> None:
    add_broker(log.cluster, str(tmp_path / "disk1"))
    log.cluster.create_topic("orders", assignment=[[1, 0]])
    assert log.run("elections")["elections"].counts["brokers_checked"] == 1
    shutil.rmtree(tmp_path / "disk1")
    report = log.run("elections")["elections"]
    assert report.counts["partitions_with_another_leader_or_isr"] == 1
    (problem,) = report.problems
    assert problem.startswith("broker 1: failed: ")
    assert log.cluster.refresh().partition("orders", 0).leader == 0


def test_a_returned_location_catches_up(log: Log, tmp_path: Path) -> None:
    add_broker(log.cluster, str(tmp_path / "disk1"))
    log.cluster.create_topic("orders", assignment=[[0, 1]])
    log.append("orders", 2)
    shutil.move(tmp_path / "disk1", tmp_path / "away")
    log.run("elections")
    log.append("orders", 3)
    assert log.cluster.refresh().partition("orders", 0).isr == (0,)
    shutil.move(tmp_path / "away", tmp_path / "disk1")
    reports = log.run("elections", "replication")
    assert reports["replication"].counts["files_copied"] == 3
    assert reports["replication"].counts["replicas_in_sync_again"] == 1
    assert reports["replication"].problems == []
    assert log.cluster.refresh().partition("orders", 0).isr == (0, 1)


def test_elections_are_skipped_if_another_controller_is_active(log: Log, tmp_path: Path) -> None:
    add_broker(log.cluster, str(tmp_path / "disk1"))
    other = Controller(log.cluster)
    assert other.take_over()
    report = log.run("elections", once=False)["elections"]
    assert report.notes == [f"skipped: {other.name} is the active controller"]
    assert report.problems == []


def test_a_problem_with_one_topic_is_reported_and_the_others_are_rolled(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        log.cluster.create_topic(name)
        log.append(name, 6)
    listed = Coordinator.segments

    def damaged(self: Coordinator, topic: str, *more: object) -> object:
        if topic == "b":
            raise OSError("its list cannot be read")
        return listed(self, topic, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinator, "segments", damaged)
    report = log.run("roll")["roll"]
    monkeypatch.undo()
    assert report.problems == ["b: unexpected OSError: its list cannot be read"]
    segments = {name: topic.partitions[0].segments for name, topic in log.cluster.refresh().topics.items()}
    assert segments == {"a": 1, "b": 6, "c": 1}


def test_offsets_of_inactive_groups_expire(log: Log) -> None:
    log.cluster.create_topic("orders")
    log.cluster.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(0)})
        )
    )
    log.clock.advance(8 * DAY)
    assert log.run("cleanup")["cleanup"].counts["groups_whose_offsets_expired"] == 1
    assert not log.cluster.refresh().groups
