"""Retention and the sweep on real clusters: which segments are deleted, in how many commits, when their files go."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest

from sparklog import limits
from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.reader_leases import CLOCK_SLACK_MS, READERS
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    OffsetOutOfRangeError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commits.retired_files import REMOVED
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.gc import sweep as deletion
from sparklog.maintenance.gc.sweep import FAILURES_IN_A_ROW, sweep
from sparklog.maintenance.segments import retention
from sparklog.maintenance.segments.retention import retain
from sparklog.protocol.commits import ChangeBroker, ChangePartition
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import HIGH_WATERMARK, delete_records
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import ERROR, Fault, FaultyStore
from sparklog.types import TopicPartition
from tests.cluster.maintenance.logs import Written, append, batch_of, live, log_files, records

HOUR = 60


def cluster(store: MemoryStore | FaultyStore | None = None, **configs: str) -> tuple[Coordinator, ManualClock]:
    """Topic orders of 2 partitions with small segments; records start at minute 0, which is also the current time."""
    clock = ManualClock(0)
    coordinator = create_cluster(store or MemoryStore(uuid.uuid4().hex), clock=clock)
    settings = {"internal.segment.bytes": "1", "segment.ms": "60000"}
    settings |= {name.replace("_", "."): value for name, value in configs.items()}
    coordinator.create_topic("orders", 2, configs=settings)
    return coordinator, clock


def fill(coordinator: Coordinator, count: int, partition: int = 0, first_minute: int = 0) -> None:
    """Append one file a minute, each a segment."""
    for number in range(count):
        append(
            coordinator, "orders", [Written(value=b"%d" % number, minute=first_minute + number)], partition=partition
        )


def values(coordinator: Coordinator, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records(coordinator, "orders", partition)]


def advance_to_minute(clock: ManualClock, minute: float) -> None:
    clock.advance(minute * 60 - clock.monotonic())


# -- which segments are deleted


def test_old_segments_of_all_partitions_of_a_topic_are_deleted_in_one_commit() -> None:
    coordinator, clock = cluster(retention_ms="600000")
    fill(coordinator, 20, 0)
    fill(coordinator, 5, 1)
    advance_to_minute(clock, 22)
    before = coordinator.refresh().version
    result = retain(coordinator)
    assert coordinator.refresh().version == before + 1
    assert (result.partitions, result.segments, result.commits) == (2, 17, 1)
    assert values(coordinator) == [b"%d" % n for n in range(12, 20)]
    assert values(coordinator, 1) == []
    state = coordinator.state
    assert [partition.log_start_offset for partition in state.topic("orders").partitions] == [12, 5]
    assert [partition.log_end_offset for partition in state.topic("orders").partitions] == [20, 5]


def test_more_partitions_than_fit_one_commit_are_deleted_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, clock = cluster(retention_ms="600000")
    for partition in (0, 1):
        fill(coordinator, 3, partition)
    advance_to_minute(clock, 100)
    monkeypatch.setattr(retention, "COMMIT_BYTES", retention.DELETION_BYTES + len("orders"))
    result = retain(coordinator)
    assert (result.partitions, result.segments, result.commits) == (2, 6, 2)
    assert len(coordinator.refresh().removed_files) == 2


def test_more_files_than_a_listing_holds_are_deleted_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that is full, a listing has to fit into the reserve."""
    coordinator, clock = cluster(retention_ms="600000")
    fill(coordinator, 5, 0)
    fill(coordinator, 3, 1)
    advance_to_minute(clock, 100)
    monkeypatch.setattr(limits, "LISTED_FILES", 4)  # each file counts twice, as if it was elsewhere than its replica
    result = retain(coordinator)
    assert (result.partitions, result.segments, result.commits) == (2, 8, 5)
    assert max(listing.files for listing in coordinator.refresh().removed_files.values()) == 2
    assert (values(coordinator), values(coordinator, 1)) == ([], [])


def test_the_next_append_continues_at_the_log_end_offset_after_everything_was_deleted() -> None:
    coordinator, clock = cluster(retention_ms="1000")
    fill(coordinator, 3)
    advance_to_minute(clock, 10)
    retain(coordinator)
    append(coordinator, "orders", [Written(value=b"next", minute=10)])
    assert [(r.offset, r.value) for r in records(coordinator, "orders")] == [(3, b"next")]


def test_offsets_before_the_log_start_offset_are_out_of_range() -> None:
    coordinator, clock = cluster(retention_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 5)
    retain(coordinator)
    with Consumer(cluster=coordinator, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek(TopicPartition("orders", 0), 0)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(100)


def test_retention_bytes_counts_the_size_of_a_partitions_files() -> None:
    coordinator, _ = cluster(retention_ms="-1")
    fill(coordinator, 10)
    sizes = [segment.size_bytes for segment in live(coordinator, "orders")]
    coordinator.submit(partial(alter_configs, topic="orders", changes={"retention.bytes": str(sum(sizes[-4:]))}))
    assert retain(coordinator).segments == 6
    assert values(coordinator) == [b"%d" % n for n in range(6, 10)]
    assert retain(coordinator).segments == 0


def test_compacted_topics_lose_only_segments_below_the_log_start_offset() -> None:
    coordinator, clock = cluster(retention_ms="1000")
    append(coordinator, "orders", [Written(key=b"k", minute=0)])
    append(coordinator, "orders", [Written(key=b"k", minute=2)])
    coordinator.submit(partial(delete_records, offsets={("orders", 0): 1}))
    coordinator.submit(partial(alter_configs, topic="orders", changes={"cleanup.policy": "compact"}))
    advance_to_minute(clock, 1000)
    result = retain(coordinator)
    assert result.reasons == {"log start offset": 1}
    assert len(live(coordinator, "orders")) == 1


def test_files_of_deleted_records_are_freed_by_the_next_retention() -> None:
    coordinator, clock = cluster(retention_ms="-1", file_delete_delay_ms="0")
    fill(coordinator, 5)
    coordinator.submit(partial(delete_records, offsets={("orders", 0): HIGH_WATERMARK}))
    assert retain(coordinator).segments == 5
    clock.advance(1)
    assert sweep(coordinator).files == 5
    assert log_files(coordinator) == []


def test_if_nothing_is_due_there_is_no_commit_and_no_listing() -> None:
    coordinator, _ = cluster()
    fill(coordinator, 5)
    before = coordinator.refresh().version
    result = retain(coordinator)
    assert (result.partitions, result.commits) == (0, 0)
    assert coordinator.refresh().version == before
    assert list(coordinator.store.list(REMOVED)) == []


def test_retention_of_a_missing_topic_is_an_error() -> None:
    coordinator, _ = cluster()
    with pytest.raises(UnknownTopicOrPartitionError):
        retain(coordinator, ["nothing"])


def interrupted(coordinator: Coordinator, callback: Callable[[Coordinator], object]) -> Coordinator:
    """A coordinator of the same cluster whose retention is interrupted by the callback just before its commit."""
    inner = coordinator.store
    waiting = [callback]

    def before(step: int, call: object) -> None:
        if waiting and "meta/removed/" in getattr(call, "key", "") and getattr(call, "operation", "") == "close":
            waiting.pop()(open_cluster(inner, clock=coordinator.log.clock))

    return open_cluster(FaultyStore(inner, before=before), clock=coordinator.log.clock)


def test_limits_that_are_raised_during_a_retention_are_respected() -> None:
    coordinator, clock = cluster(retention_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    slow = interrupted(
        coordinator, lambda other: other.submit(partial(alter_configs, topic="orders", changes={"retention.ms": "-1"}))
    )
    result = retain(slow)
    assert result.segments == 0
    assert "limits have changed" in result.left_out[0]
    assert len(values(coordinator)) == 5
    assert list(coordinator.store.list(REMOVED)) == []


def test_two_concurrent_retentions_delete_everything_once() -> None:
    coordinator, clock = cluster(retention_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 3)
    result = retain(interrupted(coordinator, retain))
    assert result.segments == 0
    assert len(result.left_out) == 1
    assert values(coordinator) == [b"2", b"3", b"4"]
    assert len(coordinator.refresh().removed_files) == 1


def test_records_appended_during_a_retention_are_kept() -> None:
    coordinator, clock = cluster(retention_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    late = [Written(value=b"late", minute=0)]
    assert retain(interrupted(coordinator, lambda other: append(other, "orders", late))).segments == 5
    assert values(coordinator) == [b"late"]


def test_deleting_a_topic_during_a_retention_does_no_harm() -> None:
    coordinator, clock = cluster(retention_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    assert retain(interrupted(coordinator, lambda other: delete_topic(other, "orders"))).segments == 0
    assert len(coordinator.refresh().removed_files) == 1


# -- when files are deleted


def test_files_are_deleted_after_file_delete_delay_ms_and_not_before() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="60000")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    retain(coordinator)
    assert len(log_files(coordinator)) == 5
    result = sweep(coordinator)
    assert (result.files, result.listings_not_due) == (0, 1)
    clock.advance(60.5)
    result = sweep(coordinator)
    assert (result.files, result.listings) == (5, 1)
    assert [info.key for info in coordinator.store.list() if "orders-" in info.key] == []
    assert not coordinator.refresh().removed_files
    assert list(coordinator.store.list(REMOVED)) == []


class _KeepsMostLogs(MemoryStore):
    """Refuses to delete any .log but the one that begins at offset 0."""

    def delete(self, key: str) -> None:
        if key.endswith(".log") and f"/{0:020}-" not in key:
            raise StoragePermissionError(f"{key}: Permission denied", path=key)
        super().delete(key)


def test_only_deleted_files_count_as_freed() -> None:
    coordinator, clock = cluster(_KeepsMostLogs(uuid.uuid4().hex), retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 3)
    advance_to_minute(clock, 100)
    retain(coordinator)
    (listing,) = coordinator.refresh().removed_files.values()
    before = log_files(coordinator)
    clock.advance(1)
    result = sweep(coordinator)
    assert len(set(before) - set(log_files(coordinator))) == 1
    assert (result.files, 3 * result.size_bytes) == (1, listing.size_bytes), "the three files have the same size"
    assert result.problems[0].startswith("broker 0: 2 files could not be deleted, the next sweep retries them: ")


def test_a_deleted_topics_files_are_deleted_and_another_topics_are_kept() -> None:
    coordinator, clock = cluster()
    coordinator.create_topic("audit")
    fill(coordinator, 3)
    append(coordinator, "audit", [Written(value=b"kept")])
    delete_topic(coordinator, "orders")
    clock.advance(61)
    assert sweep(coordinator).files == 3
    assert [key.split("/")[0] for key in log_files(coordinator)] == ["audit-0"]


def test_a_recreated_topic_keeps_its_own_files() -> None:
    coordinator, clock = cluster()
    fill(coordinator, 3)
    delete_topic(coordinator, "orders")
    coordinator.create_topic("orders")
    fill(coordinator, 2)
    clock.advance(61)
    assert sweep(coordinator).files == 3
    assert values(coordinator) == [b"0", b"1"]


def take_reader_lease(coordinator: Coordinator, version: int, until_ms: int) -> None:
    body = json.dumps({"version": version, "until_ms": until_ms}).encode()
    coordinator.store.put(f"{READERS}r1", body)


def test_a_reader_lease_keeps_retired_files_until_it_expires() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    reader = open_cluster(coordinator.store, clock=clock)
    take_reader_lease(coordinator, reader.state.version, clock.now_ms() + 10_000)
    segments = list(reader.segments("orders").partition(0))
    retain(coordinator)
    clock.advance(1)
    result = sweep(coordinator)
    assert (result.files, result.listings_held_by_readers) == (0, 1)
    parts = Fetcher(lambda broker: reader.store).read("orders", segments, 0, 5, ["value"])
    assert sum(part.batch.num_rows for part in parts) == 5
    clock.advance(10 + CLOCK_SLACK_MS / 1000)
    assert sweep(coordinator).files == 5


def test_a_reader_lease_on_a_later_version_keeps_no_files() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    retain(coordinator)
    take_reader_lease(coordinator, coordinator.refresh().version, clock.now_ms() + 3_600_000)
    clock.advance(1)
    assert sweep(coordinator).files == 5


def test_an_unreadable_reader_lease_counts_for_an_hour() -> None:
    clock = ManualClock(0)
    coordinator, _ = cluster(MemoryStore(uuid.uuid4().hex, clock), retention_ms="60000", file_delete_delay_ms="0")
    coordinator = open_cluster(coordinator.store, clock=clock)
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    coordinator.store.put(f"{READERS}r1", b"{")
    retain(coordinator)
    clock.advance(1)
    assert sweep(coordinator).listings_held_by_readers == 1
    clock.advance(3601)
    assert sweep(coordinator).files == 5


def test_a_file_with_live_records_of_another_partition_is_kept() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    coordinator.create_topic("audit", configs={"retention.ms": "-1"})
    state = coordinator.refresh()
    writer = SegmentFileWriter(coordinator.store, segment_key("orders", 0, 0, state.version, "w"), has_key=False)
    for topic in ("orders", "audit"):
        writer.start_run(RunTarget(topic, state.topic(topic).topic_id, 0))
        writer.write(batch_of([Written(value=topic.encode())], ["value", "timestamp"]))
    coordinator.append(AppendRequest(appends=writer.finish()))
    advance_to_minute(clock, 100)
    retain(coordinator)
    clock.advance(1)
    result = sweep(coordinator)
    assert (result.files, result.files_in_use, result.listings) == (0, 1, 1)
    assert [record.value for record in records(coordinator, "audit")] == [b"audit"]
    delete_topic(coordinator, "audit")
    clock.advance(61)
    assert sweep(coordinator).files == 1
    assert log_files(coordinator) == []


def with_second_broker(tmp_path: Path) -> tuple[Coordinator, ManualClock, Path]:
    """Partition 0 of orders has replicas at brokers 0 and 1; broker 1 has a copy of each file."""
    clock = ManualClock(0)
    root, other = tmp_path / "root", tmp_path / "other"
    coordinator = create_cluster(str(root), clock=clock)
    add_broker(coordinator, str(other))
    configs = {"retention.ms": "60000", "file.delete.delay.ms": "0"}
    coordinator.create_topic("orders", 1, configs=configs, assignment=[[0]])
    fill(coordinator, 3)
    topic_id = coordinator.refresh().topic("orders").topic_id
    for info in list(coordinator.store.list("orders-0/")):
        target = other / info.key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(coordinator.store.get(info.key))
    change = ChangePartition(
        topic="orders", topic_id=topic_id, partition=0, leader=0, leader_epoch=1, isr=[0], replicas=[0, 1]
    )
    coordinator.submit(lambda state: Decision([change], None))
    advance_to_minute(clock, 100)
    return coordinator, clock, other


def test_the_files_of_every_replica_are_deleted(tmp_path: Path) -> None:
    coordinator, clock, other = with_second_broker(tmp_path)
    retain(coordinator)
    clock.advance(1)
    assert sweep(coordinator).files == 6
    assert list((other / "orders-0").iterdir()) == []
    assert log_files(coordinator) == []


def test_an_offline_brokers_files_are_deleted_when_it_is_back(tmp_path: Path) -> None:
    coordinator, clock, other = with_second_broker(tmp_path)
    coordinator.submit(lambda state: Decision([ChangeBroker(broker=1, online=False)], None))
    retain(coordinator)
    clock.advance(1)
    result = sweep(coordinator)
    assert (result.files, result.listings) == (3, 0)
    assert "broker 1" in result.problems[0]
    assert len(list((other / "orders-0").iterdir())) == 6
    coordinator.submit(lambda state: Decision([ChangeBroker(broker=1, online=True)], None))
    assert sweep(coordinator).listings == 1
    assert list((other / "orders-0").iterdir()) == []


def test_a_file_that_cannot_be_deleted_is_deleted_by_the_next_sweep() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    retain(coordinator)
    clock.advance(1)
    counted = FaultyStore(coordinator.store)
    failing = open_cluster(counted, clock=clock)
    counted.reset_counts()
    counted.inject(*(Fault(step, ERROR) for step in range(6, 14)))
    try:
        first = sweep(failing)
        assert first.problems
    except StorageError:
        pass
    assert sweep(coordinator).listings == 1
    assert log_files(coordinator) == []


def test_files_that_could_not_be_deleted_do_not_count_as_freed() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    retain(coordinator)
    clock.advance(1)

    def refuse(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.endswith((".log", ".index")):
            raise StoragePermissionError("read-only", path=call.key)

    result = sweep(open_cluster(FaultyStore(coordinator.store, before=refuse), clock=clock))
    assert result.problems
    assert (result.files, result.size_bytes) == (0, 0)
    freed = sweep(coordinator)
    assert freed.files == 5
    assert freed.size_bytes > 0


def test_a_lost_listing_does_not_block_the_sweep() -> None:
    coordinator, clock = cluster(retention_ms="60000", file_delete_delay_ms="0")
    fill(coordinator, 5)
    advance_to_minute(clock, 100)
    retain(coordinator)
    (key,) = coordinator.refresh().removed_files
    coordinator.store.delete(key)
    clock.advance(1)
    result = sweep(coordinator)
    assert "vacuum" in result.problems[0]
    assert not coordinator.refresh().removed_files


def several_listings(count: int) -> tuple[Coordinator, ManualClock, list[str]]:
    """A cluster with this many due listings, of one file each."""
    coordinator, clock = cluster(retention_ms="-1", file_delete_delay_ms="0")
    fill(coordinator, count)
    for offset in range(1, count + 1):
        coordinator.submit(partial(delete_records, offsets={("orders", 0): offset}))
        retain(coordinator)
    clock.advance(1)
    listings = sorted(coordinator.refresh().removed_files)
    assert len(listings) == count
    return coordinator, clock, listings


def failing_for(coordinator: Coordinator, clock: ManualClock, keys: Collection[str], calls: list[str]) -> Coordinator:
    """The cluster on a storage that does not return these objects."""

    def refuse(step: int, call: Call) -> None:
        calls.append(call.key)
        if call.operation == "get" and call.key in keys:
            raise StorageUnavailableError("it does not answer", path=call.key)

    return open_cluster(FaultyStore(coordinator.store, before=refuse), clock=clock)


def test_an_unreadable_listing_delays_only_its_own_files() -> None:
    coordinator, clock, listings = several_listings(5)
    result = sweep(failing_for(coordinator, clock, {listings[0], listings[3]}, []))
    assert (result.listings, result.files) == (3, 3)
    assert [key for key in listings if any(key in problem for problem in result.problems)] == [listings[0], listings[3]]
    assert sorted(coordinator.refresh().removed_files) == [listings[0], listings[3]]
    assert sweep(coordinator).files == 2
    assert log_files(coordinator) == []


def test_a_sweep_stops_if_the_storage_is_unavailable() -> None:
    coordinator, clock, listings = several_listings(6)
    calls: list[str] = []
    with pytest.raises(StorageUnavailableError):
        sweep(failing_for(coordinator, clock, set(listings), calls))
    assert sum(key in listings for key in calls) == FAILURES_IN_A_ROW
    assert sweep(coordinator).files == 6


def test_a_sweep_that_fails_later_does_not_repeat_its_committed_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "LISTINGS_PER_COMMIT", 2)
    coordinator, clock, listings = several_listings(7)
    with pytest.raises(StorageUnavailableError):
        sweep(failing_for(coordinator, clock, set(listings[4:]), []))
    assert sorted(coordinator.refresh().removed_files) == listings[4:]
