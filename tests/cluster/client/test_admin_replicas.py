"""Elections, reassignments and log dirs through the admin client, with kafka-python's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ElectionType
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.unclean_election import UncleanSearch
from sparklog.errors import (
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.elections import UncleanElection
from sparklog.protocol.decide.reassignment import LISTS, RATES
from sparklog.protocol.file_names import index_path
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition
from tests.cluster.maintenance.replicas import TOPIC, Replicas

FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    created = Replicas(tmp_path, locations=3)
    created.produce()
    return created


@pytest.fixture
def admin(replicas: Replicas) -> AdminClient:
    return AdminClient(cluster=replicas.cluster)


def lose_leader(replicas: Replicas) -> None:
    replicas.unmount(1)
    replicas.controller.check()


def test_a_failed_location_is_shown_as_fenced_and_offline(replicas: Replicas, admin: AdminClient) -> None:
    lose_leader(replicas)
    described = admin.describe_cluster()
    assert [broker["is_fenced"] for broker in described["brokers"]] == [False, True, False, False]
    (partition,) = admin.describe_topics([TOPIC])[0]["partitions"]
    assert (partition["leader_id"], partition["isr_nodes"], partition["offline_replicas"]) == (2, [2], [1])
    codes = [broker["log_dirs"][0]["error_code"] for broker in admin.describe_log_dirs()]
    assert codes == [0, 56, 0, 0]
    assert admin.describe_log_dirs(brokers=[1])[0]["log_dirs"][0]["topics"] == []
    replicas.mount(1)
    replicas.controller.check()
    (lagging,) = admin.describe_log_dirs(brokers=[1])[0]["log_dirs"][0]["topics"][0]["partitions"]
    assert lagging["offset_lag"] == -1


def test_an_unreachable_location_is_shown_offline_before_the_controller_notices(
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
    result = admin.elect_leaders("preferred")
    assert result["replica_election_results"] == [
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


def test_an_unclean_election_is_refused_if_a_replica_with_more_records_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator's process is suspended since it looked at the replicas that were online."""
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2, 3]])
    for broker in (2, 3, 1):
        replicas.produce()
        replicas.unmount(broker)
        replicas.controller.check()
    replicas.mount(2)
    replicas.controller.check()
    find = UncleanSearch.find

    def mount(search: UncleanSearch, topic: str, number: int) -> UncleanElection:
        found = find(search, topic, number)
        replicas.mount(3)
        replicas.controller.check()
        return found

    with monkeypatch.context() as patch, AdminClient(bootstrap_servers=str(tmp_path / "root")) as admin:
        patch.setattr(UncleanSearch, "find", mount)
        with pytest.raises(EligibleLeadersNotAvailableError):
            admin.elect_leaders(ElectionType.UNCLEAN, {TOPIC: [0]})
    assert replicas.partition().leader == -1
    AdminClient(cluster=replicas.cluster).elect_leaders(ElectionType.UNCLEAN, {TOPIC: [0]})
    assert replicas.partition().leader == 3
    assert replicas.read() == replicas.sent[0][:6]


def test_a_replica_with_other_files_under_committed_names_lacks_their_records(
    replicas: Replicas, admin: AdminClient
) -> None:
    with Producer(cluster=replicas.cluster, linger_ms=10_000) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(TOPIC, value)
    *_, one, many = replicas.live_paths()
    for path in (index_path, str):  # a file and its index, which fit each other, of fewer records than were committed
        (replicas.disk(2) / path(many)).write_bytes((replicas.disk(2) / path(one)).read_bytes())
    replicas.produce(1, acks=1)
    lose_leader(replicas)
    admin.elect_leaders(ElectionType.UNCLEAN, {TOPIC: [0]})
    assert (replicas.partition().leader, replicas.partition().segments) == (2, 3)
    assert replicas.read() == replicas.sent[0][:3]


def test_an_unclean_election_needs_an_online_replica(replicas: Replicas, admin: AdminClient) -> None:
    for number in (1, 2):
        replicas.unmount(number)
    replicas.controller.check()
    with pytest.raises(EligibleLeadersNotAvailableError):
        admin.elect_leaders(ElectionType.UNCLEAN, [TOPIC])


def test_a_reassignment_is_listed_until_it_is_complete(replicas: Replicas, admin: AdminClient) -> None:
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({FIRST: [2, 3]}) == {FIRST: None}
    move = {"replicas": [2, 3, 1], "adding_replicas": [3], "removing_replicas": [1]}
    assert admin.list_partition_reassignments() == {FIRST: move}
    assert admin.list_partition_reassignments([FIRST]) == admin.list_partition_reassignments({TOPIC: [0]})
    replicate(replicas.cluster, InProcess())
    assert admin.list_partition_reassignments() == {}
    assert replicas.partition().replicas == (2, 3)


def test_invalid_reassignments_return_their_error_class(admin: AdminClient) -> None:
    assert admin.alter_partition_reassignments({FIRST: [9]}) == {FIRST: InvalidReplicaAssignmentError}
    assert admin.alter_partition_reassignments({FIRST: None}) == {FIRST: NoReassignmentInProgressError}
    nowhere = TopicPartition("nope", 0)
    assert admin.alter_partition_reassignments({nowhere: [1]}) == {nowhere: UnknownTopicOrPartitionError}
    with pytest.raises(InvalidRequestError, match="cancel"):
        admin.alter_partition_reassignments({FIRST: []})


def test_reassignments_and_their_throttle_are_set_together_or_not_at_all(
    replicas: Replicas, admin: AdminClient
) -> None:
    nowhere = TopicPartition("nope", 0)
    refused = admin.reassign_partitions({FIRST: [2, 3], nowhere: [1]}, throttle=1000)
    assert (refused[FIRST], type(refused[nowhere])) == (None, UnknownTopicOrPartitionError)
    assert admin.list_partition_reassignments() == {}
    assert admin.read_state().configs == {}
    before = replicas.cluster.refresh().version
    assert admin.reassign_partitions({FIRST: [2, 3]}, throttle=1000) == {FIRST: None}
    state = admin.read_state()
    assert state.version == before + 1
    assert dict(state.configs) == dict.fromkeys(RATES, "1000")
    assert [state.topics[TOPIC].configs[name] for name in LISTS] == ["0:1,0:2", "0:3"]
    admin.clear_throttle([TOPIC, "nope"])
    state = admin.read_state()
    assert (state.configs, state.topics[TOPIC].configs) == ({}, {})


def test_a_change_of_the_replication_factor_can_be_disallowed(admin: AdminClient) -> None:
    refused = admin.reassign_partitions({FIRST: [1, 2, 3]}, allow_replication_factor_change=False)
    assert isinstance(refused[FIRST], InvalidReplicaAssignmentError)


def test_cancelling_reassignments_returns_errors_per_partition(admin: AdminClient) -> None:
    admin.reassign_partitions({FIRST: [2, 3]})
    outcome = admin.reassign_partitions({FIRST: None, TopicPartition(TOPIC, 9): None}, all_or_none=False)
    assert outcome[FIRST] is None
    assert isinstance(outcome[TopicPartition(TOPIC, 9)], UnknownTopicOrPartitionError)
    assert admin.list_partition_reassignments() == {}


def test_an_assignment_is_proposed_only_for_eligible_brokers(admin: AdminClient) -> None:
    (replicas,) = admin.propose_assignment([TOPIC], [2, 3]).values()
    assert sorted(replicas) == [2, 3]
    admin.cordon_broker(3)
    for brokers, message in (([1, 9], "Unknown broker id 9"), ([1], "has 2 replicas"), ([2, 3], "is cordoned")):
        with pytest.raises(InvalidReplicaAssignmentError, match=message):
            admin.propose_assignment([TOPIC], brokers)


def test_brokers_are_added_cordoned_drained_and_removed(replicas: Replicas, admin: AdminClient, tmp_path: Path) -> None:
    added = admin.add_broker(str(tmp_path / "another"))
    assert admin.check_brokers()[added].state == "online"
    assert (admin.cordon_broker(added), admin.cordon_broker(added)) == (True, False)
    assert admin.cordon_broker(added, False)
    assert admin.drain_broker(1) == [FIRST]
    state = admin.read_state()
    assert (state.brokers[1].cordoned, state.partition(*FIRST).removing) == (True, (1,))
    with pytest.raises(PolicyViolationError):
        admin.unregister_broker(1)
    replicate(replicas.cluster, InProcess())
    admin.unregister_broker(1)
    assert 1 not in admin.read_state().brokers
    with pytest.raises(PolicyViolationError, match="it is the root"):
        admin.drain_broker(0)


def test_locations_outside_the_root_are_allowed_and_disallowed(admin: AdminClient) -> None:
    elsewhere, url = "s3://other-bucket/logs/", "s3://other-bucket/logs"
    assert (admin.allow_location(elsewhere), admin.allow_location(elsewhere)) == ((url, True), (url, False))
    assert (admin.disallow_location(elsewhere), admin.disallow_location(elsewhere)) == ((url, True), (url, False))


def test_the_log_is_described_and_an_unneeded_time_reset_does_nothing(replicas: Replicas, admin: AdminClient) -> None:
    described = admin.describe_log()
    assert (described.root, described.boundary) == (replicas.cluster.store.root, -1)
    assert admin.reset_time() == 0


def test_a_time_reset_that_was_suspended_does_not_set_the_time_of_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore("reset-time"), clock=clock)
    submit, days = Coordinator.submit, list[int]()

    def go_on(coordinator: Coordinator, *arguments: Any) -> Any:
        if not days:
            days.append(8)
            clock.advance(8 * 86_400)
            coordinator.create_topic("t")
        return submit(coordinator, *arguments)

    monkeypatch.setattr(Coordinator, "submit", go_on)
    assert AdminClient(cluster=cluster).reset_time() == 0
    assert cluster.refresh().timestamp_ms >= clock.now_ms()
