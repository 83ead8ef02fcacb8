"""Replicas catch up by whole files, whatever they lack, and are in sync only once they have every file."""

from __future__ import annotations

import pickle
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator.brokers import replace_location
from sparklog.errors import StorageFullError
from sparklog.maintenance.replicas.file_copies import CopyTask, FileToCopy, copy_files, is_sound
from sparklog.maintenance.replicas.replication import behind, replicate
from sparklog.maintenance.replicas.throttle import Throttle
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.file_names import index_path
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FULL, UNAVAILABLE, Call, CountingStore, Fault, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import TOPIC, Replicas, truncate


def assert_caught_up(replicas: Replicas, number: int = 0) -> None:
    """Every replica is in sync and has every live file."""
    replicas.controller.check()
    result = replicate(replicas.cluster, InProcess())
    assert result.problems == []
    assert result.behind == []
    partition = replicas.partition(number)
    assert set(partition.isr) == set(partition.replicas)
    for broker in partition.replicas:
        stored = replicas.files(broker)
        assert all(is_sound(open_store(str(replicas.disk(broker))), path) for path in replicas.live_paths(number))
        assert {path for path in stored if path.endswith(".log")} >= set(replicas.live_paths(number))


def test_a_write_with_acks_all_stores_the_same_bytes_at_every_replica(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    assert replicas.files(1) == replicas.files(2) != {}
    assert replicas.partition().isr == (1, 2)


def test_nothing_is_done_if_every_replica_is_in_sync(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    version = replicas.cluster.state.version
    result = replicate(replicas.cluster, InProcess())
    assert (result.rounds, result.files, replicas.cluster.refresh().version) == (0, 0, version)


def test_a_follower_of_a_topic_written_with_acks_1_catches_up(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    assert replicas.partition().isr == (1,)
    assert replicas.files(2) == {}
    result = replicate(replicas.cluster, InProcess())
    assert (result.files, len(result.joined)) == (3, 1)
    assert replicas.files(1) == replicas.files(2)
    assert replicas.partition().isr == (1, 2)


class FullStore(CountingStore):
    """Reads work; writes fail, as on a full disk."""

    def open_output(self, key: str) -> NoReturn:
        raise StorageFullError(f"no space left for {key.rpartition('.')[2]} files")


def test_a_full_target_is_one_problem_for_all_its_files(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    replicas.cluster.brokers.forget()
    with substituted(FullStore(open_store(str(replicas.disk(2))))):
        problems = replicate(replicas.cluster, InProcess()).problems
    (problem,) = [message for message in problems if "could not write to" in message]
    assert " and 2 more files for broker 2: " in problem


def read_identities(store: CountingStore) -> int:
    """Return the bytes of all reads of broker.json: each listing is of the right location before and after it."""
    return len(store.wrapped.get(IDENTITY_KEY)) * store.calls.count(Call("get", IDENTITY_KEY))


def test_each_byte_is_read_once_and_written_once(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    source, target = (CountingStore(open_store(str(replicas.disk(number)))) for number in (1, 2))
    replicas.cluster.brokers.forget()
    with substituted(source), substituted(target):
        result = replicate(replicas.cluster, InProcess())
    size = sum(len(data) for data in replicas.files(1).values())
    assert result.size_bytes == target.bytes_written == size
    footers = 2 * size  # footers are read a second time to be parsed, with the schema
    assert size <= source.bytes_read - read_identities(source) < size + footers
    assert target.bytes_read == read_identities(target)


def test_a_location_that_was_away_gets_only_the_files_it_missed(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.unmount(2)
    replicas.controller.check()
    replicas.produce()
    assert replicas.partition().isr == (1,)
    replicas.mount(2)
    replicas.controller.check()
    result = replicate(replicas.cluster, InProcess())
    assert result.files == 3
    assert_caught_up(replicas)


def test_an_older_copy_catches_up(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.controller.check()
    copy = replicas.copy_of(1)
    replicas.produce()
    replicas.controller.check()
    replicas.put_back(copy, 1)
    replicas.controller.check()
    assert replicas.partition().isr == (2,)
    assert_caught_up(replicas)
    assert replicas.read() == replicas.sent[0]


def test_truncated_files_are_replaced(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.unmount(2)
    replicas.controller.check()
    for path in replicas.away(2).rglob("*.log"):
        truncate(path)
        break
    for path in replicas.away(2).rglob("*.index"):
        truncate(path)
    replicas.mount(2)
    assert_caught_up(replicas)
    assert replicas.files(1) == replicas.files(2)


def test_an_empty_replacement_of_a_lost_location_gets_every_file(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.controller.check()
    shutil.rmtree(replicas.disk(1))
    replicas.controller.check()
    assert replicas.partition().leader == 2
    replace_location(replicas.cluster, 1)
    assert_caught_up(replicas)
    assert replicas.files(1) == replicas.files(2)


def test_a_damaged_file_is_not_copied_but_taken_from_another_replica(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2, 3]])
    replicas.produce()
    replicas.unmount(3)
    replicas.controller.check()
    replicas.produce()
    path = replicas.disk(1) / list(replicas.live_paths())[-1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    replicas.mount(3)
    replicas.controller.check()
    assert replicate(replicas.cluster, InProcess()).joined != []
    assert replicas.files(3) == replicas.files(2) != replicas.files(1)


def test_a_file_without_an_intact_copy_keeps_the_replica_out_of_sync_and_is_reported(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    path = replicas.disk(1) / next(iter(replicas.live_paths()))
    truncate(path)
    result = replicate(replicas.cluster, InProcess())
    assert result.joined == []
    assert result.behind == [((TOPIC, 0), 2)]
    assert "damaged" in result.problems[0]
    assert replicas.partition().isr == (1,)
    assert result.files == 2


def test_a_full_location_stays_out_of_sync_until_there_is_space(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    store = FaultyStore(open_store(str(replicas.disk(2))), seed=1, rates={FULL: 1.0})
    replicas.cluster.brokers.forget()
    with substituted(store):
        result = replicate(replicas.cluster, InProcess())
    assert (result.joined, result.files) == ([], 0)
    assert result.problems
    replicas.cluster.brokers.forget()
    assert_caught_up(replicas)


def test_a_source_that_stops_answering_is_not_tried_again_for_each_file(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2, 3]])
    replicas.produce(6)
    shutil.rmtree(replicas.disk(3) / f"{TOPIC}-0")
    stores = {number: open_store(str(replicas.disk(number))) for number in (1, 2, 3)}
    dead = FaultyStore(stores[1], seed=1, rates={UNAVAILABLE: 1.0})
    files = [FileToCopy(path, (1, 2), 0) for path in replicas.live_paths()]
    result = copy_files(CopyTask(3, {**stores, 1: dead}, files, clock=ManualClock()))
    assert (len(result.copied), result.failed) == (6, [])
    assert len(dead.calls) == 1
    empty = {3: stores[3], 1: FaultyStore(stores[1], seed=1, rates={UNAVAILABLE: 1.0})}
    shutil.rmtree(replicas.disk(3) / f"{TOPIC}-0")
    result = copy_files(CopyTask(3, empty, files, clock=ManualClock()))
    assert "unavailable" in result.failed[0][1]
    assert {why for _, why in result.failed[1:]} == {"broker 1 did not answer before"}


def test_concurrent_appends_do_not_keep_a_replica_out_of_sync(tmp_path: Path) -> None:
    """Each call of the target's storage is preceded by an append: records are added faster than files are copied."""
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.unmount(2)
    replicas.controller.check()
    replicas.produce()
    replicas.mount(2)
    replicas.controller.check()
    busy = False

    def write_one(step: int, call: object) -> None:
        nonlocal busy
        if not busy:
            busy = True
            replicas.produce(1)
            busy = False

    store = FaultyStore(open_store(str(replicas.disk(2))), before=write_one)
    with substituted(store):
        replicas.cluster.brokers.forget()
        result = replicate(replicas.cluster, InProcess())
    assert result.behind == []
    assert result.rounds <= 3
    assert replicas.partition().isr == (1, 2)
    assert replicas.read() == replicas.sent[0]
    replicas.cluster.brokers.forget()
    assert_caught_up(replicas)


def test_files_that_are_retired_and_deleted_while_they_are_copied_are_no_problem(tmp_path: Path) -> None:
    """A pass over a large location takes longer than deleted files are kept."""
    replicas = Replicas(tmp_path)
    replicas.produce(4, acks=1)

    class RetiresFirst(InProcess):
        def run(self, *arguments: Any) -> Any:
            before = set(replicas.live_paths())
            replicas.cluster.submit(partial(delete_records, offsets={(TOPIC, 0): 2}))
            retain(replicas.cluster)
            for path in before.difference(replicas.live_paths()):
                (replicas.disk(1) / path).unlink()
                (replicas.disk(1) / index_path(path)).unlink()
            return super().run(*arguments)

    result = replicate(replicas.cluster, RetiresFirst())
    assert replicas.partition().log_start_offset == 2
    assert (result.problems, result.behind, result.rounds) == ([], [], 2)
    assert_caught_up(replicas)


def test_a_file_shared_by_several_partitions_is_copied_once(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=[[1, 2], [1, 2]])
    with Producer(cluster=replicas.cluster, acks=1, linger_ms=1000) as producer:
        for number in (0, 1):
            producer.send(TOPIC, b"x", partition=number)
    paths = {path for number in (0, 1) for path in replicas.live_paths(number)}
    result = replicate(replicas.cluster, InProcess())
    assert result.files == len(paths)
    assert len(result.joined) == 2
    assert replicas.files(1) == replicas.files(2)


def test_only_the_requested_topics_and_brokers_are_replicated(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2, 3]])
    replicas.produce(acks=1)
    assert replicate(replicas.cluster, InProcess(), topics=["other"]).rounds == 0
    assert replicate(replicas.cluster, InProcess(), brokers=[3]).files == 3
    assert replicas.partition().isr == (1, 3)
    assert list(behind(replicas.cluster.state)) == [((TOPIC, 0), 2)]


def test_a_throttle_limits_the_bytes_per_second() -> None:
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    for _ in range(10):
        throttle.take(500)
    assert 4.0 <= clock.monotonic() <= 5.0
    unlimited = ManualClock()
    Throttle(0, unlimited).take(10**12)
    assert unlimited.monotonic() == 0


def test_tasks_and_results_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    files = [FileToCopy(path, (1,), 0) for path in replicas.live_paths()]
    stores = {number: open_store(str(replicas.disk(number))) for number in (1, 2)}
    task = pickle.loads(pickle.dumps(CopyTask(2, stores, files, bytes_per_second=1e9)))
    result = pickle.loads(pickle.dumps(copy_files(task)))
    assert result.copied == [file.path for file in files]


def test_two_consecutive_failed_calls_are_repaired_by_the_next_run(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    with ExitStack() as stack:
        store = FaultyStore(open_store(str(replicas.disk(2))), [Fault(step, UNAVAILABLE) for step in (2, 3)])
        stack.enter_context(substituted(store))
        replicas.cluster.brokers.forget()
        replicate(replicas.cluster, InProcess())
    replicas.cluster.brokers.forget()
    assert_caught_up(replicas)


def test_a_second_replica_costs_a_second_write_of_the_bytes_and_no_reads(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    first, second = (CountingStore(open_store(str(replicas.disk(number)))) for number in (1, 2))
    replicas.cluster.brokers.forget()
    with substituted(first), substituted(second):
        replicas.produce()
    size = sum(len(data) for data in replicas.files(1).values())
    assert first.bytes_written == second.bytes_written == size
    assert first.bytes_read == second.bytes_read == 0
    assert first.counts == second.counts
