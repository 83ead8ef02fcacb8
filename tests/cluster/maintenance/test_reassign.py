"""Replicas move to other brokers during appends, and the next run completes an interrupted move."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparklog.coordinator.brokers import remove_broker
from sparklog.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.plan.reassignment import plan_drain
from sparklog.types import TopicPartition
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def test_a_partition_moves_with_all_its_records(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=4)
    replicas.produce()
    result = reassign(replicas.cluster, {(TOPIC, 0): [3, 4]}, InProcess())
    assert (result.refused, result.under_way) == ({}, [])
    partition = replicas.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 4), (3, 4), 3)
    replicas.produce()
    for number in (1, 2):
        replicas.unmount(number)
    assert replicas.read() == replicas.sent[0]
    remove_broker(replicas.cluster, 1)


def test_records_written_while_replicas_are_added_are_at_the_new_replicas_too(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3)
    replicas.produce()
    replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [1, 3]}))
    replicas.produce()
    assert replicas.partition().followed_from == {3: 3}
    assert replicate(replicas.cluster, InProcess()).files == 3
    assert replicas.partition().replicas == (1, 3)
    assert replicas.files(3) == replicas.files(1)


def test_a_cancelled_move_restores_the_previous_replicas(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3)
    replicas.produce()
    replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [2, 3]}))
    reassign(replicas.cluster, {(TOPIC, 0): None}, InProcess())
    partition = replicas.partition()
    assert (set(partition.replicas), partition.adding, partition.leader) == ({1, 2}, (), 1)
    refused = reassign(replicas.cluster, {(TOPIC, 0): None}, InProcess()).refused
    assert isinstance(refused[TopicPartition(TOPIC, 0)], NoReassignmentInProgressError)


def test_a_throttled_move_reports_its_progress(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3)
    replicas.produce()
    size = sum(len(data) for data in replicas.files(1).values())
    progress: list[tuple[int, int]] = []
    replicas.cluster.submit(
        partial(alter_configs, topic="", changes={"follower.replication.throttled.rate": str(10**9)})
    )
    reassign(
        replicas.cluster,
        {(TOPIC, 0): [1, 3]},
        InProcess(),
        bytes_per_second=size * 20,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert progress[-1] == (size, size)


def test_a_broker_is_drained_onto_the_least_loaded_brokers(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=4, assignment=[[1, 2], [2, 1], [1, 3]])
    moves = plan_drain(replicas.cluster.refresh(), 1)
    assert all(1 not in target and len(set(target)) == 2 for target in moves.values())
    assert reassign(replicas.cluster, moves, InProcess()).under_way == []
    remove_broker(replicas.cluster, 1)


def test_a_broker_cannot_be_drained_if_no_other_could_take_its_replicas(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=2, assignment=[[0, 1, 2]])
    with pytest.raises(InvalidReplicaAssignmentError, match="register one"):
        plan_drain(replicas.cluster.refresh(), 1)
