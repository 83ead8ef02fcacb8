"""Decisions on brokers, the controller, elections, the ISR and reassignments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import (
    BrokerIdNotRegisteredError,
    ControllerMovedError,
    DuplicateBrokerRegistrationError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import Append, ChangeBroker, RegisterBroker, Run
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import elections
from sparklog.protocol.decide import replicas as decide_replicas
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.elections import CheckedBrokers, UncleanElection
from sparklog.protocol.decide.replicas import CaughtUp
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.decide.topics import NewTopic, alter_configs, create_topic, delete_topic
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.protocol.state import PartitionState, State
from sparklog.types import TopicPartition
from tests.sample import examples
from tests.unit.protocol.states import after, commit, new_cluster

ROOT = "/data/log"

ORDERS_0 = TopicPartition("orders", 0)


def with_replicas(assignment: Sequence[Sequence[int]] = ((0, 1, 2),), brokers: int = 4) -> State:
    """Topic orders with these replicas, and a controller of epoch 1."""
    state = new_cluster(brokers)
    new = NewTopic(name="orders", topic_id="t1", assignment=[list(replicas) for replicas in assignment])
    state = after(state, create_topic(state, new))
    return after(state, decide_brokers.elect_controller(state, "c", 0))


def run_on(brokers: Sequence[int], records: int = 2, path: str = "orders-0/x.log") -> Run:
    return Run(
        path=path,
        broker=brokers[0],
        replicas=list(brokers),
        batches=1,
        records=records,
        size_bytes=10,
        min_timestamp_us=1,
        max_timestamp_us=5,
    )


def appended(state: State, brokers: Sequence[int], records: int = 2, number: int = 0) -> State:
    """A run on these brokers, committed without an election."""
    end = state.partition("orders", number).log_end_offset
    run = run_on(brokers, records, f"orders-{number}/{end:020d}-v1-x.log")
    return commit(state, [Append(topic="orders", topic_id="t1", partition=number, base_offset=end, run=run)])


def checked(state: State, **what: Sequence[int]) -> State:
    return after(state, elections.broker_checks(state, state.controller.epoch, CheckedBrokers(**what)))


def orders(state: State, number: int = 0) -> PartitionState:
    return state.partition("orders", number)


# -- brokers


def test_a_broker_is_registered_under_the_requested_or_the_next_free_id() -> None:
    state = new_cluster()
    decision = decide_brokers.register_broker(state, None, "/disk1", ROOT)
    assert decision.result == 1
    state = after(state, decision)
    assert state.brokers[1].url == "/disk1"
    assert decide_brokers.register_broker(state, 7, "/disk2", ROOT).result == 7


@pytest.mark.parametrize("url", [ROOT, "/disk1", f"{ROOT}/disk", "/disk1/inner", "/data", "/"])
def test_a_location_that_is_used_or_overlaps_a_used_one_is_refused(url: str) -> None:
    state = commit(new_cluster(), [RegisterBroker(broker=1, url="/disk1")])
    with pytest.raises(DuplicateBrokerRegistrationError):
        decide_brokers.register_broker(state, None, url.rstrip("/"), ROOT)


def test_locations_with_a_common_name_prefix_do_not_overlap() -> None:
    state = commit(new_cluster(), [RegisterBroker(broker=1, url="/disk1")])
    assert decide_brokers.register_broker(state, None, "/disk10", ROOT).result == 2


@pytest.mark.parametrize("broker", [-1, 2**31])
def test_an_impossible_broker_id_is_refused(broker: int) -> None:
    with pytest.raises(InvalidRequestError):
        decide_brokers.register_broker(new_cluster(), broker, "/disk1", ROOT)


def test_a_broker_id_that_is_taken_is_refused() -> None:
    with pytest.raises(DuplicateBrokerRegistrationError, match=ROOT):
        decide_brokers.register_broker(new_cluster(), 0, "/disk1", ROOT)


def test_only_brokers_without_replicas_are_removed_and_never_the_root() -> None:
    state = commit(with_replicas([[1]], 1 + 1), [RegisterBroker(broker=5, url="/disk5")])
    state = commit(state, [ChangeBroker(broker=1, url="/disk1")])
    with pytest.raises(PolicyViolationError, match="orders-0"):
        decide_brokers.unregister_broker(state, 1, "/disk1")
    with pytest.raises(PolicyViolationError, match="root"):
        decide_brokers.unregister_broker(state, 0, "")
    with pytest.raises(BrokerIdNotRegisteredError):
        decide_brokers.unregister_broker(state, 9, "/disk9")
    assert 5 not in after(state, decide_brokers.unregister_broker(state, 5, "/disk5")).brokers


def test_a_location_that_got_the_id_of_another_one_is_not_removed_in_its_place() -> None:
    state = commit(new_cluster(1), [RegisterBroker(broker=1, url="/other")])
    with pytest.raises(DuplicateBrokerRegistrationError, match="/disk1, and is at /other"):
        decide_brokers.unregister_broker(state, 1, "/disk1")


def test_a_cordoned_broker_keeps_its_replicas() -> None:
    state = with_replicas([[1, 2]])
    state = after(state, decide_brokers.cordon(state, 1, True))
    assert state.brokers[1].cordoned
    assert orders(state).isr == (1, 2)
    assert decide_brokers.cordon(state, 1, True) == Decision([], False)
    for cordoned in (True, False):
        stopped = after(state, decide_brokers.stop_removal(state, 1, cordoned))
        assert (stopped.brokers[1].cordoned, stopped.brokers[1].lost_files_at) == (cordoned, stopped.version)
    assert not after(state, decide_brokers.cordon(state, 1, False)).brokers[1].cordoned


def test_a_location_can_move_to_an_unused_address() -> None:
    state = commit(new_cluster(), [RegisterBroker(broker=1, url="/a"), RegisterBroker(broker=2, url="/b")])
    assert after(state, decide_brokers.move_broker(state, 1, "/c", ROOT)).brokers[1].url == "/c"
    with pytest.raises(DuplicateBrokerRegistrationError):
        decide_brokers.move_broker(state, 1, "/b", ROOT)


# -- the controller


def test_only_one_of_two_candidates_takes_over_from_a_controller() -> None:
    state = new_cluster()
    decision = decide_brokers.elect_controller(state, "a", 0)
    assert decision.result == 1
    state = after(state, decision)
    with pytest.raises(ControllerMovedError, match="a"):
        decide_brokers.elect_controller(state, "b", 0)


def test_a_replaced_controller_is_fenced() -> None:
    state = with_replicas()
    state = after(state, decide_brokers.elect_controller(state, "d", 1))
    with pytest.raises(ControllerMovedError):
        elections.broker_checks(state, 1, CheckedBrokers(offline=[0]))


# -- brokers that fail and return


def test_a_failed_leader_is_replaced_by_the_next_in_sync_replica_in_one_commit() -> None:
    state = with_replicas([[0, 1, 2], [1, 2, 0]])
    state = checked(state, offline=[0])
    assert (orders(state).leader, orders(state).leader_epoch, orders(state).isr) == (1, 1, (1, 2))
    assert (orders(state, 1).leader, orders(state, 1).leader_epoch, orders(state, 1).isr) == (1, 0, (1, 2))
    assert not state.brokers[0].online
    assert orders(state).replicas == (0, 1, 2)


def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_when_it_returns() -> None:
    state = checked(appended(with_replicas([[0, 1]]), [0]), offline=[0])
    assert (orders(state).leader, orders(state).isr, orders(state).leader_epoch) == (-1, (0,), 1)
    state = checked(state, online=[0])
    assert (orders(state).leader, orders(state).isr, orders(state).leader_epoch) == (0, (0,), 2)


def test_a_returned_broker_is_out_of_sync_until_it_has_caught_up() -> None:
    state = checked(checked(with_replicas(), offline=[0]), online=[0])
    assert state.brokers[0].online
    assert orders(state).isr == (1, 2)


def test_an_online_location_that_lost_files_leaves_the_isr() -> None:
    state = checked(with_replicas(), online=[0, 1, 2], went_back=[0])
    assert (orders(state).leader, orders(state).isr) == (1, (1, 2))
    assert state.brokers[0].online


def test_a_location_that_lost_files_does_not_lead_while_an_intact_one_is_offline() -> None:
    state = appended(with_replicas([[0, 1]]), [0, 1])
    state = checked(state, offline=[1], went_back=[0])
    assert (orders(state).leader, orders(state).isr) == (-1, (1,))


def test_checks_without_changes_write_nothing() -> None:
    state = checked(with_replicas(), offline=[0])
    assert elections.broker_checks(state, 1, CheckedBrokers(online=[1, 2, 3], offline=[0])).actions == []


def test_changes_beyond_the_limit_of_a_commit_are_made_by_the_next_ones() -> None:
    state = with_replicas([[0, 1]] * 5)
    decision = elections.broker_checks(state, 1, CheckedBrokers(offline=[0]), limit=2)
    assert (len(decision.result.partitions), decision.result.more) == (2, True)
    state = after(state, decision)
    for _ in range(2):
        decision = elections.broker_checks(state, 1, CheckedBrokers(), limit=2)
        state = after(state, decision)
    assert not decision.result.more
    assert {orders(state, number).leader for number in range(5)} == {1}


# -- requested elections


def test_the_preferred_leader_leads_again() -> None:
    state = checked(checked(with_replicas(), offline=[0]), online=[0])
    waiting = elections.elect_preferred(state, [("orders", 0)])
    assert isinstance(waiting.result[ORDERS_0], PreferredLeaderNotAvailableError)
    state = after(state, decide_replicas.expand_isr(state, [caught_up(state, 0)]))
    assert (orders(state).leader, orders(state).isr) == (1, (0, 1, 2))
    decision = elections.elect_preferred(state)
    assert decision.result == {("orders", 0): None}
    state = after(state, decision)
    assert (orders(state).leader, orders(state).leader_epoch) == (0, 2)
    assert isinstance(elections.elect_preferred(state, [("orders", 0)]).result[ORDERS_0], ElectionNotNeededError)
    assert elections.elect_preferred(state) == Decision([], {})
    assert isinstance(
        elections.elect_preferred(state, [("x", 0)]).result[TopicPartition("x", 0)], UnknownTopicOrPartitionError
    )


def test_the_controller_elects_preferred_leaders_only_as_long_as_the_cluster_allows_it() -> None:
    state = checked(with_replicas([[0, 1]]), offline=[0])
    state = checked(state, online=[0])
    caught_up = CaughtUp("orders", "t1", 0, 0, 0, state.version)
    state = after(state, decide_replicas.expand_isr(state, [caught_up]))
    assert elections.elect_preferred(state, [("orders", 0)], epoch=1).actions
    with pytest.raises(ControllerMovedError):
        elections.elect_preferred(state, [("orders", 0)], epoch=0)
    state = after(state, alter_configs(state, "", {"auto.leader.rebalance.enable": "false"}))
    assert elections.elect_preferred(state, [("orders", 0)], epoch=1) == Decision([], {})
    assert elections.elect_preferred(state, [("orders", 0)]).actions, "an administrator may"


def test_imbalance_is_the_share_of_preferred_partitions_led_by_other_brokers() -> None:
    state = with_replicas([[0, 1], [0, 1], [1, 0]])
    assert elections.imbalance(state) == {0: 0.0, 1: 0.0}
    assert elections.imbalance(checked(state, offline=[0])) == {0: 1.0, 1: 0.0}


def segment(state: State, base: int, end: int, broker: int = 0) -> Segment:
    path = f"orders-0/{base:020d}-v1-x.log"
    return Segment(0, base, end, end - base, path, broker, 0, 1, 0, 10, 1, 5, NO_APPEND_TIME, 0, state.version)


def test_an_unclean_leader_drops_the_records_it_lacks_and_offsets_are_not_reused() -> None:
    state = appended(appended(with_replicas([[0, 1]]), [0, 1]), [0])
    state = checked(state, offline=[0])
    assert elections.needs_unclean_election(state, "orders", 0) == [1]
    dropped = removed("t1", [segment(state, 2, 4)])
    lost = Replacement(topic="orders", topic_id="t1", partition=0, start_offset=2, end_offset=4, removed=dropped)
    asked = UncleanElection("orders", "t1", 0, 1, 4, state.version, [lost])
    (refused,) = elections.elect_unclean(state, [asked], epoch=1).result.values()
    assert "was set to false" in str(refused), "the controller elects only where the topic allows it"
    decision = elections.elect_unclean(state, [asked])
    assert decision.result == {("orders", 0): None}
    state = after(state, decision)
    partition = orders(state)
    assert (partition.leader, partition.isr, partition.segments, partition.log_end_offset) == (1, (1,), 1, 4)
    assert isinstance(elections.elect_unclean(state, [asked]).result[ORDERS_0], ElectionNotNeededError)


def test_an_unclean_election_planned_before_a_change_is_refused() -> None:
    state = checked(appended(with_replicas([[0, 1]]), [0]), offline=[0])
    asked = UncleanElection("orders", "t1", 0, 1, 1, state.version, [])
    outcome = elections.elect_unclean(state, [asked]).result
    assert isinstance(outcome[ORDERS_0], EligibleLeadersNotAvailableError)


def test_an_unclean_election_is_refused_once_a_replica_that_was_not_inspected_is_back() -> None:
    state = checked(appended(with_replicas([[0, 1, 2]]), [0]), offline=[0, 2])
    asked = UncleanElection("orders", "t1", 0, 1, 2, state.version, [])
    assert elections.elect_unclean(state, [asked]).result == {ORDERS_0: None}
    state = checked(state, online=[2])
    outcome = elections.elect_unclean(state, [asked]).result
    assert isinstance(outcome[ORDERS_0], EligibleLeadersNotAvailableError)
    assert elections.elect_unclean(state, [asked._replace(others=[2])]).result == {ORDERS_0: None}


def test_no_unclean_election_while_an_in_sync_replica_is_online() -> None:
    state = appended(with_replicas([[0, 1]]), [0])
    assert elections.needs_unclean_election(state, "orders", 0) == []


# -- joining the ISR


def caught_up(state: State, broker: int, number: int = 0) -> CaughtUp:
    return CaughtUp("orders", "t1", number, broker, orders(state, number).log_end_offset, state.version)


def test_a_caught_up_replica_joins_the_isr_in_replica_order() -> None:
    state = appended(with_replicas(), [2])
    assert orders(state).isr == (2,)
    state = after(state, decide_replicas.expand_isr(state, [caught_up(state, 1), caught_up(state, 0)]))
    assert orders(state).isr == (0, 1, 2)


def test_a_replica_that_misses_concurrent_appends_does_not_join_the_isr() -> None:
    state = appended(with_replicas([[0, 1]]), [0])
    looked_at = caught_up(state, 1)
    followed = appended(appended(state, [0, 1]), [0, 1])
    assert orders(followed).followed_from == {1: 2}
    joined = after(followed, decide_replicas.expand_isr(followed, [looked_at]))
    assert orders(joined).isr == (0, 1)
    assert orders(joined).followed_from == {}
    missed = appended(appended(followed, [0]), [0, 1])
    assert orders(missed).followed_from == {1: 8}
    result = decide_replicas.expand_isr(missed, [looked_at]).result
    assert result.joined == []
    assert "offset 2" in result.left_out[0][1]


def test_a_removed_or_offline_replica_does_not_join_the_isr() -> None:
    state = appended(with_replicas([[0, 1]]), [0])
    looked_at = caught_up(state, 1)
    for changed in (
        checked(state, offline=[1]),
        after(state, delete_topic(state, "orders")),
        after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [0]})),
    ):
        assert decide_replicas.expand_isr(changed, [looked_at]).result.joined == []


def test_a_caught_up_replica_leads_a_partition_without_a_leader() -> None:
    state = checked(appended(with_replicas([[0, 1]]), [0]), offline=[0])
    state = after(state, decide_replicas.expand_isr(state, [caught_up(state, 1)]))
    assert (orders(state).leader, orders(state).isr) == (1, (0, 1))


# -- reassignment


def test_replicas_move_once_the_new_ones_are_in_sync_and_lead() -> None:
    state = with_replicas([[0, 1]])
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [2, 3]}))
    partition = orders(state)
    assert (partition.replicas, partition.adding, partition.removing) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert (partition.isr, partition.leader) == ((0, 1), 0)
    under_way = decide_replicas.reassignments(state)
    assert under_way[ORDERS_0] == ((2, 3, 0, 1), (2, 3), (0, 1))
    state = after(state, decide_replicas.expand_isr(state, [caught_up(state, 2)]))
    assert orders(state).adding == (2, 3)
    state = after(state, decide_replicas.expand_isr(state, [caught_up(state, 3)]))
    partition = orders(state)
    assert (partition.replicas, partition.isr, partition.adding, partition.removing) == ((2, 3), (2, 3), (), ())
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert decide_replicas.reassignments(state) == {}


def test_removing_or_reordering_replicas_completes_without_copying() -> None:
    state = with_replicas([[0, 1, 2]])
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [2, 1]}))
    assert (orders(state).replicas, orders(state).isr, orders(state).leader) == ((2, 1), (1, 2), 2)


def test_a_cancelled_reassignment_restores_the_original_replicas() -> None:
    state = with_replicas([[0, 1]])
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [2, 1]}))
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): None}))
    assert set(orders(state).replicas) == {0, 1}
    assert (orders(state).adding, orders(state).removing, orders(state).leader) == ((), (), 0)
    again = decide_replicas.alter_reassignments(state, {("orders", 0): None}).result
    assert isinstance(again[ORDERS_0], NoReassignmentInProgressError)


def test_a_running_reassignment_can_be_retargeted() -> None:
    state = with_replicas([[0, 1]])
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [0, 2]}))
    state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): [0, 3]}))
    partition = orders(state)
    assert (partition.replicas, partition.adding, partition.removing) == ((0, 3, 1), (3,), (1,))


@pytest.mark.parametrize("target", [[], [1, 1], [9], [3]])
def test_an_invalid_target_is_refused_and_the_others_are_started(target: list[int]) -> None:
    state = commit(with_replicas([[0, 1], [0, 1]]), [ChangeBroker(broker=3, cordoned=True)])
    decision = decide_replicas.alter_reassignments(state, {("orders", 0): target, ("orders", 1): [1]})
    assert isinstance(decision.result[ORDERS_0], InvalidReplicaAssignmentError)
    assert decision.result[TopicPartition("orders", 1)] is None
    assert len(decision.actions) == 1


def test_a_change_of_the_replication_factor_is_refused_where_it_is_not_allowed() -> None:
    state = with_replicas([[0, 1]])
    result = decide_replicas.alter_reassignments(state, {("orders", 0): [0]}, False).result
    assert isinstance(result[ORDERS_0], InvalidReplicaAssignmentError)


# -- invariants


@settings(max_examples=examples(150))
@given(data=st.data())
def test_the_leader_is_always_online_and_in_sync_and_holds_every_segment(data: st.DataObject) -> None:
    """Invariant under checks, appends, catching up and reassignments in any order: every member of the ISR has all live
    runs."""
    state = with_replicas([[0, 1, 2]])
    runs_of: dict[int, set[int]] = {broker: set() for broker in range(4)}
    epochs = [0]
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["check", "append", "catch up", "reassign", "cancel", "prefer"]))
        partition = orders(state)
        if step == "check":
            offline = data.draw(st.sets(st.integers(0, 3)))
            state = checked(state, offline=sorted(offline), online=sorted({0, 1, 2, 3} - offline))
        elif step == "append" and partition.leader >= 0:
            others = data.draw(st.sets(st.sampled_from(partition.replicas)))
            copies = [partition.leader, *sorted(others - {partition.leader})]
            for broker in copies:
                runs_of[broker].add(partition.log_end_offset)
            state = appended(state, copies)
        elif step == "catch up":
            broker = data.draw(st.sampled_from(partition.replicas))
            seen = caught_up(state, broker)
            runs_of[broker] |= set(range(0, partition.log_end_offset, 2))
            state = after(state, decide_replicas.expand_isr(state, [seen]))
        elif step == "reassign":
            target = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
            state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): target}))
        elif step == "cancel":
            state = after(state, decide_replicas.alter_reassignments(state, {("orders", 0): None}))
        else:
            state = after(state, elections.elect_preferred(state))
        partition = orders(state)
        assert partition.isr
        assert set(partition.isr) <= set(partition.replicas)
        for broker in partition.isr:
            assert runs_of[broker] >= set(range(0, partition.log_end_offset, 2))
        if partition.leader >= 0:
            assert partition.leader in partition.isr
        epochs.append(partition.leader_epoch)
    assert epochs == sorted(epochs)
