"""Surplus replicas that a reassignment leaves are deleted, and nothing that a replica needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import open_cluster
from sparklog.errors import BrokerNotAvailableError
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.vacuum import NO_REPLICA, vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from sparklog.types import TopicPartition
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def moved(tmp_path: Path) -> Replicas:
    """Partition 0 has moved from brokers 1 and 2 to 2 and 3; partition 1 is still on 1 and 2."""
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2], [1, 2]])
    replicas.produce(3, 0)
    replicas.produce(2, 1)
    reassign(replicas.cluster, {(TOPIC, 0): [2, 3]}, InProcess())
    return replicas


def test_only_surplus_replicas_are_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    assert len(remove_surplus_replicas(replicas.cluster, 1, dry_run=True)) == 6
    assert len(replicas.files(1)) == 10
    assert len(remove_surplus_replicas(replicas.cluster, 1)) == 6
    assert sorted(replicas.files(1)) == sorted(
        key for path in replicas.live_paths(1) for key in (path, path.replace(".log", ".index"))
    )
    assert remove_surplus_replicas(replicas.cluster, 2) == remove_surplus_replicas(replicas.cluster, 3) == []
    assert not replicas.cluster.refresh().brokers[1].cordoned
    assert [replicas.read(number) for number in (0, 1)] == [replicas.sent[number] for number in (0, 1)]


def test_a_replica_cannot_be_added_again_while_its_files_are_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    refused: list[object] = []

    def reassign_back(step: int, call: Call) -> None:
        if call.operation == "delete" and not refused:
            outcome = replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [2, 1]}))
            refused.append(outcome[TopicPartition(TOPIC, 0)])

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=reassign_back)):
        replicas.cluster.brokers.forget()
        remove_surplus_replicas(replicas.cluster, 1)
    assert refused[0] is not None
    replicas.cluster.brokers.forget()
    reassign(replicas.cluster, {(TOPIC, 0): [2, 1]}, InProcess())
    assert set(replicas.live_paths(0)) <= set(replicas.files(1))


def test_a_reader_from_before_the_move_finds_the_new_replicas(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3)
    replicas.produce()
    old_reader = open_cluster(replicas.cluster.store.root)
    old_state = old_reader.state
    reassign(replicas.cluster, {(TOPIC, 0): [3]}, InProcess())
    for broker in (1, 2):
        remove_surplus_replicas(replicas.cluster, broker)
        assert replicas.files(broker) == {}
    with LogReader(old_reader) as reader:
        assert [record.value for record in reader.records(TOPIC, 0, 0, 3, old_state)] == replicas.sent[0]


def test_surplus_replicas_of_an_offline_broker_are_not_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    replicas.unmount(1)
    replicas.controller.check()
    with pytest.raises(BrokerNotAvailableError):
        remove_surplus_replicas(replicas.cluster, 1)


def test_a_vacuum_deletes_surplus_replicas_too(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    dry = vacuum(replicas.cluster)
    assert {(orphan.broker, orphan.why) for orphan in dry.files} == {(1, NO_REPLICA)}
    assert len(replicas.files(1)) == 10
    assert len(vacuum(replicas.cluster, dry_run=False).files) == 6
    assert len(replicas.files(1)) == 4
    assert vacuum(replicas.cluster).files == []
