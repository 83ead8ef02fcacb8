"""A file is live while any partition has a segment in it, and may be needed at every replica of these partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.coordinator.live_files import LiveFiles, read_live_partitions
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.replicas import alter_reassignments
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    """Partition 0 on brokers 1 and 2, partition 1 on 2 and 3."""
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2], [2, 3]])
    replicas.produce(2, 0)
    replicas.produce(1, 1)
    return replicas


def live(replicas: Replicas, *paths: str) -> LiveFiles:
    return LiveFiles(read_live_partitions(replicas.cluster, replicas.cluster.refresh()), paths or None)


def needed_at(files: LiveFiles, path: str) -> list[int]:
    return [broker for broker in range(4) if files.may_need(path, broker)]


def test_a_file_may_be_needed_at_the_replicas_of_its_partition(replicas: Replicas) -> None:
    first, second = replicas.live_paths(0)
    (other,) = replicas.live_paths(1)
    files = live(replicas)
    assert [needed_at(files, path) for path in (first, second, other)] == [[1, 2], [1, 2], [2, 3]]
    assert files.without_replica(1) == {other}
    assert files.without_replica(2) == set()
    assert files.without_replica(3) == {first, second}
    assert first in files
    assert "orders-0/other.log" not in files


def test_only_the_requested_files_are_included(replicas: Replicas) -> None:
    first, second = replicas.live_paths(0)
    files = live(replicas, first, "orders-0/other.log")
    assert first in files
    assert second not in files
    assert needed_at(files, "orders-0/other.log") == []
    assert first not in LiveFiles(read_live_partitions(replicas.cluster, replicas.cluster.state), [])


def test_a_file_may_be_needed_at_a_replica_that_is_being_added(replicas: Replicas) -> None:
    replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [3]}))
    (first, _), files = replicas.live_paths(0), live(replicas)
    assert replicas.partition(0).adding == (3,)
    assert needed_at(files, first) == [1, 2, 3]
    assert first not in files.without_replica(3)


def test_a_file_may_be_needed_at_its_original_broker_where_it_is_a_surplus_replica(replicas: Replicas) -> None:
    first, _ = replicas.live_paths(0)
    reassign(replicas.cluster, {(TOPIC, 0): [2, 3]}, InProcess())
    files = live(replicas)
    assert needed_at(files, first) == [1, 2, 3]
    assert first in files.without_replica(1)
