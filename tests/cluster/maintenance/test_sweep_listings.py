"""Files that several listings name: the one that is due last decides; and what a sweep reads for many listings."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, live_files, open_cluster
from sparklog.coordinator.reader_leases import READERS
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import StorageUnavailableError
from sparklog.log.commits.retired_files import REMOVED
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.gc import sweep as deletion
from sparklog.maintenance.gc.sweep import due_files, sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.maintenance.logs import Written, append, batch_of, log_files

DELAY = {"file.delete.delay.ms": "4000"}


def cluster(partitions: int = 2, **configs: str) -> tuple[Coordinator, ManualClock]:
    clock = ManualClock(1_700_000_000)
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock)
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    coordinator.create_topic(
        "orders", partitions, configs={"internal.segment.bytes": "1", "retention.ms": "-1", **DELAY, **settings}
    )
    return coordinator, clock


def shared_file(coordinator: Coordinator, topics: tuple[str, ...] = ("orders", "orders")) -> None:
    """Append one file with a run of each topic: of partition 0 first, then of 1 if the topic is the same."""
    state = coordinator.refresh()
    key = segment_key(topics[0], 0, 0, state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    for number, topic in enumerate(topics):
        writer.start_run(RunTarget(topic, state.topic(topic).topic_id, number if topic == topics[0] else 0))
        writer.write(batch_of([Written(value=b"%d" % number)], ["value", "timestamp"]))
    coordinator.append(AppendRequest(appends=writer.finish()))


def retire(coordinator: Coordinator, partition: int, topic: str = "orders") -> None:
    """Delete the records of a partition, and commit that its segments left the log."""
    coordinator.submit(partial(delete_records, offsets={(topic, partition): -1}))
    assert retain(coordinator).segments


def take_lease(coordinator: Coordinator, until_ms: int) -> None:
    lease = {"version": coordinator.refresh().version, "until_ms": until_ms}
    coordinator.store.put(f"{READERS}r1", json.dumps(lease).encode())


def test_the_delay_of_a_shared_file_counts_from_when_its_last_run_left() -> None:
    coordinator, clock = cluster()
    shared_file(coordinator)
    retire(coordinator, 0)
    clock.advance(3)
    retire(coordinator, 1)
    clock.advance(2)  # the first listing is due, the second is not
    assert due_files(coordinator, clock.now_ms()) == []
    result = sweep(coordinator)
    assert (result.files, result.listings) == (0, 1)
    assert len(log_files(coordinator)) == 1
    clock.advance(3)
    assert sweep(coordinator).files == 1
    assert not coordinator.refresh().removed_files


def test_a_reader_lease_is_compared_with_the_version_at_which_a_file_left() -> None:
    coordinator, clock = cluster()
    shared_file(coordinator)
    retire(coordinator, 0)
    take_lease(coordinator, clock.now_ms() + 60_000)  # sees the second run
    retire(coordinator, 1)
    clock.advance(10)
    result = sweep(coordinator)
    assert (result.files, result.listings, result.listings_held_by_readers) == (0, 1, 1)
    assert len(log_files(coordinator)) == 1


class BeforeCommit(InProcess):
    """Runs the tasks, and then another job before their results are committed."""

    def __init__(self, job: Callable[[], None]) -> None:
        super().__init__()
        self._job = job

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        results = [function(item) for item in items]
        self._job()
        return iter(results)


def test_files_of_a_change_that_was_left_out_have_their_whole_delay_once_they_leave() -> None:
    coordinator, clock = cluster(internal_segment_bytes="1000000")
    for partition in (0, 1):
        for number in range(5):
            append(coordinator, "orders", [Written(value=b"%d" % number)], partition=partition)

    def delete_two() -> None:
        coordinator.submit(partial(delete_records, offsets={("orders", 0): 2}))
        assert retain(coordinator).segments == 2

    assert roll(open_cluster(coordinator.store, clock=clock), BeforeCommit(delete_two)).left_out
    clock.advance(3)
    take_lease(coordinator, clock.now_ms() + 60_000)
    retire(coordinator, 0)
    before = len(log_files(coordinator))
    clock.advance(2)  # the listing that names the files of the left out change is due
    sweep(coordinator)
    assert before - len(log_files(coordinator)) == 5 + 2, "the files of partition 1, and the two deleted ones"


def test_a_listing_added_while_a_sweep_runs_keeps_its_files() -> None:
    coordinator, clock = cluster()
    shared_file(coordinator)
    retire(coordinator, 0)
    clock.advance(5)
    (due,) = coordinator.refresh().removed_files
    retired: list[str] = []

    def retire_first(step: int, call: Call) -> None:
        if call.operation == "get" and call.key == due and not retired:
            retired.append(due)
            retire(open_cluster(coordinator.store, clock=clock), 1)

    assert sweep(open_cluster(FaultyStore(coordinator.store, before=retire_first), clock=clock)).files == 0
    assert retired
    assert len(log_files(coordinator)) == 1


@pytest.mark.parametrize("harm", ["damaged", "missing", "unavailable"])
def test_nothing_is_deleted_while_a_listing_that_may_name_any_file_cannot_be_read(harm: str) -> None:
    coordinator, clock = cluster()
    shared_file(coordinator)
    retire(coordinator, 0)
    clock.advance(3)
    retire(coordinator, 1)
    newest = max(coordinator.refresh().removed_files, key=lambda key: coordinator.state.removed_files[key].version)

    def refuse(step: int, call: Call) -> None:
        if harm == "unavailable" and call.operation == "get" and call.key == newest:
            raise StorageUnavailableError("it does not answer", path=call.key)

    if harm == "damaged":
        coordinator.store.put(newest, b"?")
    elif harm == "missing":
        coordinator.store.delete(newest)
    clock.advance(2)
    result = sweep(open_cluster(FaultyStore(coordinator.store, before=refuse), clock=clock))
    assert (result.files, result.listings) == (0, 0)
    assert newest in result.problems[0]
    assert len(log_files(coordinator)) == 1
    clock.advance(3)
    sweep(coordinator)  # it is due, and holds up no other one
    assert log_files(coordinator) == []


def test_another_listing_finished_meanwhile_holds_nothing_up() -> None:
    coordinator, clock = cluster()
    shared_file(coordinator)
    retire(coordinator, 0)
    clock.advance(5)
    late = open_cluster(coordinator.store, clock=clock)
    assert sweep(coordinator).listings == 1
    retire(coordinator, 1)
    clock.advance(5)
    assert sweep(late).files == 1


def test_the_lists_of_live_segments_are_read_once_for_many_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, clock = cluster(1)
    names = [f"t{number}" for number in range(30)]
    for name in names:
        coordinator.create_topic(name, configs=DELAY)
        append(coordinator, name, [Written()])
    for name in names[:20]:
        delete_topic(coordinator, name)
    clock.advance(5)
    reads: list[str] = []
    real = live_files.read_live_partitions

    def count(coordinator: Coordinator, state: State) -> Iterator[live_files.LivePartition]:
        for live in real(coordinator, state):
            reads.append(live.topic)
            yield live

    monkeypatch.setattr(deletion, "read_live_partitions", count)
    result = sweep(coordinator)
    assert (result.listings, result.files) == (20, 20)
    assert sorted(reads) == sorted(names[20:]), "each topic once, not once for each of the 20 listings"


def test_each_listing_is_read_once_by_a_sweep() -> None:
    coordinator, clock = cluster(1)
    names = [f"t{number}" for number in range(12)]
    for name in names:
        coordinator.create_topic(name, configs=DELAY)
        append(coordinator, name, [Written()])
    for number, name in enumerate(names):
        clock.advance(5 if number == 6 else 0)
        delete_topic(coordinator, name)
    read: list[str] = []

    def note(step: int, call: Call) -> None:
        if call.operation == "get" and call.key.startswith(REMOVED):
            read.append(call.key)

    sweep(open_cluster(FaultyStore(coordinator.store, before=note), clock=clock))
    assert len(read) == len(set(read)) == 12
