"""Elections, reassignments and log dirs through the admin client, with kafka-python's results."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ElectionType
from sparklog.errors import (
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.types import TopicPartition
from tests.cluster.maintenance.replicas import TOPIC, Replicas

FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    found = Replicas(tmp_path, locations=3)
    found.produce()
    return found


@pytest.fixture
def admin(replicas: Replicas) -> AdminClient:
    return AdminClient(cluster=replicas.cluster)


def lose_leader(replicas: Replicas) -> None:
    replicas.unmount(1)
    replicas.controller.check()


def test_a_location_that_failed_is_shown_as_such(replicas: Replicas, admin: AdminClient) -> None:
    lose_leader(replicas)
    described = admin.describe_cluster()
    assert [broker["is_fenced"] for broker in described["brokers"]] == [False, True, False, False]
    (partition,) = admin.describe_topics([TOPIC])[0]["partitions"]
    assert (partition["leader_id"], partition["isr_nodes"], partition["offline_replicas"]) == (2, [2], [1])
    codes = [found["log_dirs"][0]["error_code"] for found in admin.describe_log_dirs()]
    assert codes == [0, 56, 0, 0]
    assert admin.describe_log_dirs(brokers=[1])[0]["log_dirs"][0]["topics"] == []
    replicas.mount(1)
    replicas.controller.check()
    (lagging,) = admin.describe_log_dirs(brokers=[1])[0]["log_dirs"][0]["topics"][0]["partitions"]
    assert lagging["offset_lag"] == -1


def test_a_location_that_is_gone_is_not_online_though_no_controller_has_noticed(
    replicas: Replicas, admin: AdminClient
) -> None:
    replicas.unmount(1)
    assert replicas.cluster.refresh().brokers[1].online
    assert [broker["is_fenced"] for broker in admin.describe_cluster()["brokers"]] == [False, True, False, False]
    (log_dir,) = admin.describe_log_dirs(brokers=[1])[0]["log_dirs"]
    assert (log_dir["error_code"], log_dir["topics"]) == (56, [])
    assert log_dir["error_message"]
    states = [(condition.state, condition.problem is None) for condition in admin.check_brokers().values()]
    assert states == [("online", True), ("unreachable", False), ("online", True), ("online", True)]


def test_the_preferred_leader_is_elected_once_it_is_in_sync(replicas: Replicas, admin: AdminClient) -> None:
    lose_leader(replicas)
    replicas.mount(1)
    replicas.controller.check()
    with pytest.raises(PreferredLeaderNotAvailableError):
        admin.elect_leaders(ElectionType.PREFERRED, {TOPIC: [0]})
    replicate(replicas.cluster, InProcess())
    found = admin.elect_leaders("preferred")
    assert found["replica_election_results"] == [
        {"topic": TOPIC, "partition_result": [{"partition_id": 0, "error_code": 0, "error_message": None}]}
    ]
    assert replicas.partition().leader == 1
    again = admin.perform_leader_election(0, [TOPIC])["replica_election_results"][0]["partition_result"][0]
    assert again["error_code"] == 84
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {TOPIC: [7]})
    codes = admin.elect_leaders(0, {TOPIC: [7]}, raise_errors=False)["replica_election_results"][0]
    assert codes["partition_result"][0]["error_code"] == 3


def test_an_unclean_leader_is_elected_when_asked_for(replicas: Replicas, admin: AdminClient) -> None:
    replicas.produce(acks=1)
    lose_leader(replicas)
    assert replicas.partition().leader == -1
    with pytest.raises(PreferredLeaderNotAvailableError):
        admin.elect_leaders(0, {TOPIC: [0]})
    admin.elect_leaders(ElectionType.UNCLEAN, {TOPIC: [0]})
    partition = replicas.partition()
    assert (partition.leader, partition.isr, partition.log_end_offset) == (2, (2,), 6)
    assert replicas.read() == replicas.sent[0][:3]
    outcome = admin.elect_leaders(1, raise_errors=False)["replica_election_results"][0]["partition_result"][0]
    assert outcome["error_code"] == 84


def test_no_unclean_leader_is_found_where_no_replica_is_online(replicas: Replicas, admin: AdminClient) -> None:
    for number in (1, 2):
        replicas.unmount(number)
    replicas.controller.check()
    with pytest.raises(EligibleLeadersNotAvailableError):
        admin.elect_leaders(ElectionType.UNCLEAN, [TOPIC])


def test_a_move_is_listed_until_it_is_complete(replicas: Replicas, admin: AdminClient) -> None:
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({FIRST: [2, 3]}) == {FIRST: None}
    move = {"replicas": [2, 3, 1], "adding_replicas": [3], "removing_replicas": [1]}
    assert admin.list_partition_reassignments() == {FIRST: move}
    assert admin.list_partition_reassignments([FIRST]) == admin.list_partition_reassignments({TOPIC: [0]})
    replicate(replicas.cluster, InProcess())
    assert admin.list_partition_reassignments() == {}
    assert replicas.partition().replicas == (2, 3)


def test_moves_that_cannot_be_are_told_by_their_error_class(admin: AdminClient) -> None:
    assert admin.alter_partition_reassignments({FIRST: [9]}) == {FIRST: InvalidReplicaAssignmentError}
    assert admin.alter_partition_reassignments({FIRST: None}) == {FIRST: NoReassignmentInProgressError}
    nowhere = TopicPartition("nope", 0)
    assert admin.alter_partition_reassignments({nowhere: [1]}) == {nowhere: UnknownTopicOrPartitionError}
    with pytest.raises(InvalidRequestError, match="cancel"):
        admin.alter_partition_reassignments({FIRST: []})
