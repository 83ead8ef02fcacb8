"""A copy counts only if it is certain to be there: reused broker ids, replaced and moved locations, stopped jobs."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import open_cluster
from sparklog.coordinator.broker_stores import BrokerStores
from sparklog.coordinator.brokers import add_broker, cordon_broker, move_broker, remove_broker, replace_location
from sparklog.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    NotLeaderOrFollowerError,
    SparklogError,
)
from sparklog.maintenance.gc import surplus_replicas
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.locations import begin_removal, end_removal
from sparklog.protocol.decide.replicas import CaughtUp, alter_reassignments, expand_isr
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from sparklog.types import TopicPartition
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas
from tests.cluster.maintenance.test_lost_files import assert_in_sync_replicas_are_complete, written_file


def test_a_file_at_the_former_location_of_a_broker_id_is_refused(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    item = written_file(replicas, (1,))
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    remove_broker(replicas.cluster, 1)
    assert add_broker(replicas.cluster, str(tmp_path / "other"), 1) == 1
    reassign(replicas.cluster, {(TOPIC, 0): [1]}, InProcess())
    assert replicas.partition().isr == (1,)
    with pytest.raises(NotLeaderOrFollowerError, match="write the records again"):
        replicas.cluster.append(AppendRequest(appends=[item]))


def test_a_file_at_a_broker_that_was_removed_does_not_count(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    item = written_file(replicas, (1, 2))
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    remove_broker(replicas.cluster, 1)
    replicas.cluster.append(AppendRequest(appends=[item]))
    assert replicas.partition().isr == (2,)
    assert list(replicas.cluster.segments(TOPIC).partition(0))[-1].broker == 2


@pytest.mark.parametrize("holders", [(1,), (1, 2)])
def test_a_replaced_location_has_nothing_from_before_without_waiting_for_the_controller(
    tmp_path: Path, holders: tuple[int, ...]
) -> None:
    replicas = Replicas(tmp_path, assignment=[holders])
    item = written_file(replicas, holders)
    shutil.rmtree(replicas.disk(1))
    replicas.disk(1).mkdir()
    replicas.cluster.brokers.forget()
    replace_location(replicas.cluster, 1)
    if len(holders) == 1:
        with pytest.raises(NotLeaderOrFollowerError, match="write the records again"):
            replicas.cluster.append(AppendRequest(appends=[item]))
    else:
        assert replicas.partition().isr == (2,)
        replicas.cluster.append(AppendRequest(appends=[item]))
        assert_in_sync_replicas_are_complete(replicas)
        replicate(replicas.cluster, InProcess())
        assert replicas.partition().isr == (1, 2)
        assert_in_sync_replicas_are_complete(replicas)


def test_another_brokers_location_does_not_replace_a_lost_one(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    before = replicas.cluster.refresh().version
    shutil.copy(replicas.disk(2) / IDENTITY_KEY, replicas.disk(1) / IDENTITY_KEY)
    with pytest.raises(DuplicateBrokerRegistrationError, match="is broker 2"):
        replace_location(replicas.cluster, 1)
    assert replicas.cluster.refresh().version == before


# -- moves


def test_a_broker_is_not_moved_to_a_copy_without_the_newest_files(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=[[1]])
    replicas.produce(2)
    copy = replicas.copy_of(1)
    replicas.produce(1)
    newest = list(replicas.live_paths())[-1]
    with pytest.raises(BrokerNotAvailableError, match="lacks 1 live file") as refused:
        move_broker(replicas.cluster, 1, str(copy))
    assert newest in refused.value.message
    assert replicas.cluster.refresh().brokers[1].url == str(replicas.disk(1))
    shutil.copytree(replicas.disk(1), copy, dirs_exist_ok=True)
    assert move_broker(replicas.cluster, 1, str(copy))
    shutil.rmtree(replicas.disk(1))
    assert replicas.read() == replicas.sent[0]


@pytest.mark.parametrize("damage", ["truncated", "without its index"])
def test_a_file_that_was_not_copied_whole_is_missing(tmp_path: Path, damage: str) -> None:
    replicas = Replicas(tmp_path, assignment=[[1]])
    replicas.produce(2)
    copy = replicas.copy_of(1)
    path = copy / next(iter(replicas.live_paths()))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.with_suffix(".index").unlink()
    with pytest.raises(BrokerNotAvailableError, match="lacks 1 live file"):
        move_broker(replicas.cluster, 1, str(copy))


@pytest.mark.parametrize("old", ["unmounted", "emptied"])
def test_a_truncated_file_is_missing_although_the_old_location_has_no_sizes_to_compare_with(
    tmp_path: Path, old: str
) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(2)
    copy = replicas.copy_of(1)
    path = copy / list(replicas.live_paths())[-1]
    path.write_bytes(path.read_bytes()[:100])
    shutil.rmtree(replicas.disk(1))
    if old == "emptied":
        replicas.disk(1).mkdir()
        shutil.copy(copy / IDENTITY_KEY, replicas.disk(1) / IDENTITY_KEY)
    assert move_broker(replicas.cluster, 1, str(copy))
    assert replicas.partition().isr == (2,)
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)
    shutil.rmtree(replicas.disk(2))
    assert replicas.read() == replicas.sent[0]


def test_whole_copies_count_although_the_old_location_is_gone(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=[[1]])
    replicas.produce(2)
    copy = replicas.copy_of(1)
    shutil.rmtree(replicas.disk(1))
    assert move_broker(replicas.cluster, 1, str(copy))
    assert replicas.read() == replicas.sent[0]


def test_a_replica_whose_new_location_lacks_files_leaves_the_isr_with_the_move(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(2)
    copy = replicas.copy_of(1)
    replicas.produce(1)
    assert move_broker(replicas.cluster, 1, str(copy))
    assert (replicas.partition().isr, replicas.partition().leader) == ((2,), 2)
    shutil.rmtree(replicas.disk(1))
    assert replicas.read() == replicas.sent[0]
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)


def test_records_that_arrive_while_a_location_is_looked_at_are_not_lost(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=[[1]])
    replicas.produce(1)
    copy = replicas.copy_of(1)
    sent: list[Call] = []

    def produce(step: int, call: Call) -> None:
        if call.operation == "list" and not sent:
            sent.append(call)
            replicas.produce(1)

    with (
        substituted(FaultyStore(open_store(str(copy)), before=produce)),
        pytest.raises(BrokerNotAvailableError, match="only replica in sync"),
    ):
        move_broker(open_cluster(replicas.cluster.store.root), 1, str(copy))
    assert sent
    assert replicas.read() == replicas.sent[0]


@pytest.mark.parametrize("below", ["disk1/log", "root/data"])
def test_a_link_into_another_location_is_not_a_location(tmp_path: Path, below: str) -> None:
    replicas = Replicas(tmp_path)
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / below)
    before = replicas.cluster.refresh().version
    with pytest.raises(DuplicateBrokerRegistrationError, match="nested"):
        add_broker(replicas.cluster, str(link))
    assert replicas.cluster.refresh().version == before
    assert list((tmp_path / below).iterdir()) == []


# -- one state


def test_a_producer_takes_stores_and_version_from_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(tmp_path, assignment=[[1]])
    replicas.produce(1)
    copy, real = replicas.copy_of(1), BrokerStores.store_of
    moved: list[int] = []
    cluster = open_cluster(replicas.cluster.store.root)  # with a clock that a producer can wait for

    def store_of(stores: BrokerStores, state: State, broker: int) -> Store:
        store = real(stores, state, broker)
        if stores is cluster.brokers and broker == 1 and not moved:
            moved.append(broker)
            assert move_broker(open_cluster(replicas.cluster.store.root), 1, str(copy))
            cluster.refresh()
        return store

    monkeypatch.setattr(BrokerStores, "store_of", store_of)
    with Producer(cluster=cluster) as producer:
        producer.send(TOPIC, b"late", partition=0).get(10)
    assert moved
    shutil.rmtree(replicas.disk(1))
    assert replicas.read() == [*replicas.sent[0], b"late"]


# -- removal of surplus copies


def caught_up(replicas: Replicas, broker: int) -> CaughtUp:
    state = replicas.cluster.refresh()
    end = state.partition(TOPIC, 0).log_end_offset
    return CaughtUp(TOPIC, state.topics[TOPIC].topic_id, 0, broker, end, state.version)


def change(replicas: Replicas, target: list[int]) -> SparklogError | None:
    outcome = replicas.cluster.submit(partial(alter_reassignments, wanted={(TOPIC, 0): target}))
    return outcome[TopicPartition(TOPIC, 0)]


def test_a_copy_that_was_seen_before_it_was_removed_as_surplus_does_not_count(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(3)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    assert change(replicas, [2, 1]) is None
    seen = caught_up(replicas, 1)  # by a replication that is stopped here
    assert change(replicas, [2]) is None
    assert len(remove_surplus_replicas(replicas.cluster, 1)) == 6
    assert change(replicas, [2, 1]) is None
    expanded = replicas.cluster.submit(partial(expand_isr, caught_up=[seen]))
    assert [replica.broker for replica, _ in expanded.left_out] == [1]
    assert_in_sync_replicas_are_complete(replicas)


def test_a_partition_that_left_a_broker_while_a_removal_began_keeps_its_files(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=[[1, 2], [1, 2]])
    replicas.produce(2, 0)
    replicas.produce(2, 1)
    reassign(replicas.cluster, {(TOPIC, 1): [2]}, InProcess())
    removal = replicas.cluster.submit(partial(begin_removal, broker=1))
    assert removal.kept == {TopicPartition(TOPIC, 0)}
    assert replicas.cluster.submit(partial(end_removal, removal=removal))

    def leave(step: int, call: Call) -> None:
        if call.operation == "list" and replicas.cluster.refresh().brokers[1].cordoned:
            change(replicas, [2])

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=leave)):
        replicas.cluster.brokers.forget()
        assert len(remove_surplus_replicas(replicas.cluster, 1)) == 4
    assert set(replicas.live_paths(0)) <= set(replicas.files(1))


def test_a_removal_does_not_lift_the_cordon_that_another_one_relies_on(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(3)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    first = replicas.cluster.submit(partial(begin_removal, broker=1))
    refused: list[SparklogError | None] = []

    def finish_first(step: int, call: Call) -> None:
        if call.operation == "delete" and not refused:
            assert not replicas.cluster.submit(partial(end_removal, removal=first))
            refused.append(change(replicas, [2, 1]))

    problems: list[str] = []
    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=finish_first)):
        replicas.cluster.brokers.forget()
        assert len(remove_surplus_replicas(replicas.cluster, 1, problems=problems)) == 6
    assert refused[0] is not None
    assert replicas.cluster.refresh().brokers[1].cordoned


def test_of_two_removals_the_older_one_stops(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(3)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    problems: list[str] = []

    def begin_another(step: int, call: Call) -> None:
        state = replicas.cluster.refresh()
        if call.operation == "list" and state.brokers[1].cordoned and not problems:
            problems.append("")
            replicas.cluster.submit(partial(begin_removal, broker=1))

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=begin_another)):
        replicas.cluster.brokers.forget()
        assert remove_surplus_replicas(replicas.cluster, 1, problems=problems) == []
    assert "stays cordoned" in problems[-1]
    assert len(replicas.files(1)) == 6


def test_a_removal_that_was_suspended_deletes_no_live_file_of_a_broker_that_is_registered_anew(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(3)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    refused: list[SparklogError | None] = []
    store = open_store(str(replicas.disk(1)))

    def register_anew(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.endswith((".log", ".index")) and not refused:
            refused.append(None)
            operator = open_cluster(replicas.cluster.store.root)
            remove_broker(operator, 1)
            assert add_broker(operator, str(replicas.disk(1)), 1) == 1
            refused[0] = change(replicas, [1])
            replicate(operator, InProcess())

    with substituted(FaultyStore(store, before=register_anew)):
        replicas.cluster.brokers.forget()
        remove_surplus_replicas(replicas.cluster, 1)
    assert isinstance(refused[0], SparklogError)
    assert replicas.cluster.refresh().brokers[1].cordoned
    assert_in_sync_replicas_are_complete(replicas)
    assert cordon_broker(replicas.cluster, 1, False)
    assert change(replicas, [1]) is None
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1,)
    assert_in_sync_replicas_are_complete(replicas)


def test_a_broker_that_is_registered_anew_stops_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surplus_replicas, "DELETED_TOGETHER", 2)
    replicas = Replicas(tmp_path)
    replicas.produce(3)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    before = len(replicas.files(1))
    done: list[Call] = []

    def register_anew(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.endswith((".log", ".index")) and not done:
            done.append(call)
            operator = open_cluster(replicas.cluster.store.root)
            remove_broker(operator, 1)
            add_broker(operator, str(replicas.disk(1)), 1)

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=register_anew)):
        replicas.cluster.brokers.forget()
        assert len(remove_surplus_replicas(replicas.cluster, 1)) == 2
    assert len(replicas.files(1)) == before - 2


def test_an_empty_location_is_not_cordoned_when_it_is_registered(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    remove = tmp_path / "new"
    assert add_broker(replicas.cluster, str(remove)) == 3
    remove_broker(replicas.cluster, 3)
    assert add_broker(replicas.cluster, str(remove)) == 3
    assert not replicas.cluster.refresh().brokers[3].cordoned


def test_a_replica_does_not_join_beside_one_that_lost_files_since(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3, assignment=[[1]])
    replicas.produce(2)
    assert change(replicas, [1, 2]) is None
    seen = caught_up(replicas, 2)
    replace_location(replicas.cluster, 1)
    expanded = replicas.cluster.submit(partial(expand_isr, caught_up=[seen]))
    ((_, why),) = expanded.left_out
    assert why == f"broker 1, which is in sync, has lost files since version {seen.version}"
