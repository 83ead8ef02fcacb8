"""Which brokers must hold appended records: ISR, acks, min.insync.replicas, leaders, and files that are too old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sparklog.errors import (
    InvalidReplicationFactorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    StaleWriteError,
    UnknownTopicOrPartitionError,
    WriteRefusedError,
)
from sparklog.protocol.commits import Append, ChangeBroker, ChangePartition, FenceWriters, Run
from sparklog.protocol.decide.acks import brokers_to_write, check_copies, needs
from sparklog.protocol.decide.append import PartitionAppend, decide_append
from sparklog.protocol.decide.topics import NewTopic, alter_configs, choose_replicas, create_topic
from sparklog.protocol.file_names import file_name
from sparklog.protocol.state import PartitionState, State
from tests.unit.protocol.states import after, commit, new_cluster, request

LEADER_ONLY = 1


def replicated(brokers: int = 3, factor: int = 3, partitions: int = 1, **configs: str) -> State:
    state = new_cluster(brokers)
    new = NewTopic(
        name="orders",
        topic_id="t1",
        assignment=[[(number + replica) % brokers for replica in range(factor)] for number in range(partitions)],
        configs={name.replace("_", "."): value for name, value in configs.items()},
    )
    return after(state, create_topic(state, new))


def on(brokers: Sequence[int], records: int = 3, path: str = "orders-0/x.log", **more: Any) -> PartitionAppend:
    """A run stored by these brokers."""
    run = Run(
        path=path,
        broker=brokers[0],
        replicas=list(brokers) if len(brokers) > 1 else [],
        batches=1,
        records=records,
        size_bytes=10,
        min_timestamp_us=1,
        max_timestamp_us=5,
    )
    return PartitionAppend(topic="orders", topic_id="t1", partition=0, run=run, **more)


def appended(state: State, *items: PartitionAppend, **more: Any) -> State:
    return after(state, decide_append(state, request(*items, **more)))


def led(state: State, partition: int = 0) -> PartitionState:
    return state.partition("orders", partition)


def without_leader(state: State) -> State:
    """A partition whose last in-sync replica went offline, as recorded by the controller."""
    now = led(state)
    return commit(
        state,
        [
            ChangeBroker(broker=now.leader, online=False),
            ChangePartition(
                topic="orders",
                topic_id="t1",
                partition=0,
                leader=-1,
                leader_epoch=now.leader_epoch + 1,
                isr=[now.leader],
                replicas=list(now.replicas),
            ),
        ],
    )


# -- the brokers to write to


def test_acks_all_writes_to_all_in_sync_replicas_and_other_acks_to_the_leader_only() -> None:
    state = replicated()
    assert brokers_to_write(state, "orders", 0) == (0, 1, 2)
    assert brokers_to_write(state, "orders", 0, acks=1) == (0,)
    assert brokers_to_write(state, "orders", 0, acks=0) == (0,)


def test_out_of_sync_replicas_are_written_last_to_catch_up() -> None:
    state = appended(replicated(), on([0, 2]))
    assert brokers_to_write(state, "orders", 0) == (0, 2, 1)
    assert brokers_to_write(state, "orders", 0, acks=1) == (0,)


def test_out_of_sync_replicas_that_are_offline_or_just_failed_are_not_written() -> None:
    state = appended(replicated(), on([0, 2]))
    assert brokers_to_write(state, "orders", 0, resting={1, 2}) == (0, 2)
    state = commit(state, [ChangeBroker(broker=1, online=False)])
    assert brokers_to_write(state, "orders", 0) == (0, 2)


def test_the_leader_is_written_first_for_any_order_of_replicas() -> None:
    state = appended(replicated(), on([2, 1]))
    assert led(state).leader == 1
    assert brokers_to_write(state, "orders", 0) == (1, 2, 0)


def test_too_few_in_sync_replicas_are_refused_before_anything_is_written() -> None:
    state = appended(replicated(min_insync_replicas="2"), on([1]), acks=LEADER_ONLY)
    with pytest.raises(NotEnoughReplicasError, match=r"orders-0 has 1 of its replicas .* needs 2") as raised:
        brokers_to_write(state, "orders", 0)
    assert (raised.value.topic, raised.value.partition, raised.value.retriable) == ("orders", 0, True)
    assert brokers_to_write(state, "orders", 0, acks=1) == (1,)


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_needs_all_of_them() -> None:
    """Kafka's effective minimum; otherwise such a topic could never be written."""
    state = replicated(factor=2, min_insync_replicas="3")
    assert brokers_to_write(state, "orders", 0) == (0, 1)
    assert led(appended(state, on([0, 1]))).log_end_offset == 3
    with pytest.raises(NotEnoughReplicasError):
        decide_append(state, request(on([0])))


def test_a_partition_without_a_leader_accepts_no_appends() -> None:
    state = without_leader(appended(replicated(factor=2), on([0])))
    with pytest.raises(NotLeaderOrFollowerError, match="has no leader"):
        brokers_to_write(state, "orders", 0, acks=0)


def test_the_error_names_a_topic_that_does_not_exist() -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        brokers_to_write(replicated(), "others", 0)


def test_a_file_on_too_few_brokers_is_refused_before_the_append() -> None:
    state = replicated(min_insync_replicas="2")
    needed = needs(state, "orders", 0)
    check_copies(needed, "orders", 0, on([2, 1]).run)
    with pytest.raises(NotEnoughReplicasError):
        check_copies(needed, "orders", 0, on([1]).run)
    check_copies(needs(state, "orders", 0, acks=1), "orders", 0, on([1]).run)
    behind = needs(appended(state, on([0, 1])), "orders", 0)
    with pytest.raises(NotLeaderOrFollowerError):
        check_copies(behind, "orders", 0, on([2]).run)
    with pytest.raises(NotEnoughReplicasError):
        check_copies(behind, "orders", 0, on([0, 2]).run)


# -- leader and ISR after an append


def test_brokers_that_hold_the_run_stay_in_sync() -> None:
    state = appended(replicated(), on([0, 1]))
    assert (led(state).isr, led(state).leader, led(state).leader_epoch) == ((0, 1), 0, 0)
    state = appended(state, on([0]))
    assert (led(state).isr, led(state).replicas) == ((0,), (0, 1, 2))


def test_holding_a_run_does_not_return_a_broker_to_the_isr() -> None:
    state = appended(replicated(), on([0, 1]))
    assert led(appended(state, on([0, 1, 2]))).isr == (0, 1)


def test_the_first_replica_that_holds_the_run_leads_if_the_leader_lacks_it() -> None:
    decision = decide_append(replicated(), request(on([2, 1])))
    change, added = decision.actions
    assert isinstance(change, ChangePartition)
    assert isinstance(added, Append)
    assert (change.leader, change.leader_epoch, change.isr, change.replicas) == (1, 1, [1, 2], [0, 1, 2])
    assert added.leader_epoch == 1
    state = after(replicated(), decision)
    assert (led(state).leader, led(state).leader_epoch, led(state).isr) == (1, 1, (1, 2))


def test_an_append_held_by_all_in_sync_replicas_keeps_leader_and_isr() -> None:
    assert [type(action) for action in decide_append(replicated(), request(on([0, 1, 2]))).actions] == [Append]


def test_runs_of_one_request_shrink_the_isr_together() -> None:
    decision = decide_append(replicated(), request(on([0, 1]), on([1, 2]), on([1])))
    assert [type(action) for action in decision.actions] == [Append, ChangePartition, Append, Append]
    epochs = [action.leader_epoch for action in decision.actions if isinstance(action, Append)]
    assert epochs == [0, 1, 1]
    state = after(replicated(), decision)
    assert (led(state).isr, led(state).leader, led(state).log_end_offset) == ((1,), 1, 9)


def test_a_run_held_by_no_in_sync_replica_fails_the_whole_request() -> None:
    state = appended(replicated(), on([0]))
    with pytest.raises(NotLeaderOrFollowerError, match=r"is on brokers \[1, 2\]") as raised:
        decide_append(state, request(on([1, 2])))
    assert isinstance(raised.value, WriteRefusedError)
    assert raised.value.path == "orders-0/x.log"
    with pytest.raises(NotLeaderOrFollowerError):
        decide_append(state, request(on([0]), on([1])))


def test_an_offline_broker_is_not_elected() -> None:
    state = commit(replicated(), [ChangeBroker(broker=1, online=False)])
    assert led(appended(state, on([1, 2]))).leader == 2
    with pytest.raises(NotLeaderOrFollowerError):
        decide_append(state, request(on([1])))


def test_a_file_begun_before_the_leader_was_lost_is_not_appended() -> None:
    state = without_leader(appended(replicated(), on([0])))
    with pytest.raises(NotLeaderOrFollowerError):
        decide_append(state, request(on([0])))


def test_the_only_replica_of_a_partition_must_hold_the_run() -> None:
    state = replicated(brokers=2, factor=1)
    assert led(appended(state, on([0]))).log_end_offset == 3
    with pytest.raises(NotLeaderOrFollowerError):
        decide_append(state, request(on([1])))


# -- acks


def test_acks_all_requires_min_insync_replicas_to_hold_the_run() -> None:
    state = replicated(min_insync_replicas="2")
    assert led(appended(state, on([0, 1]))).isr == (0, 1)
    with pytest.raises(NotEnoughReplicasError):
        decide_append(state, request(on([0])))


def test_acks_1_and_0_require_only_the_leader() -> None:
    for acks in (0, 1):
        assert led(appended(replicated(min_insync_replicas="2"), on([0]), acks=acks)).isr == (0,)


def test_min_insync_replicas_of_the_cluster_is_the_default_of_topics() -> None:
    state = replicated()
    state = after(state, alter_configs(state, "", {"min.insync.replicas": "3"}, []))
    with pytest.raises(NotEnoughReplicasError):
        decide_append(state, request(on([0, 1])))


# -- repetitions


def test_a_repetition_returns_the_first_result_for_any_isr() -> None:
    first = on([0, 1, 2], producer_id=7, producer_epoch=0, base_sequence=0)
    state = appended(replicated(min_insync_replicas="2"), first)
    state = appended(state, on([1]), acks=LEADER_ONLY)
    again = decide_append(state, request(on([0], producer_id=7, producer_epoch=0, base_sequence=0)))
    assert (again.actions, again.result.duplicate, again.result.appended[0].base_offset) == ([], True, 0)


def test_a_repetition_returns_the_first_result_for_a_file_of_any_age() -> None:
    path = f"orders-0/{file_name(0, 1, 'w')}"
    first = on([0], path=path, producer_id=7, producer_epoch=0, base_sequence=0)
    state = appended(replicated(factor=1), first)
    state = commit(state, [FenceWriters(version=state.version)])
    assert decide_append(state, request(first)).result.duplicate


# -- files that are too old


def test_files_begun_up_to_the_fence_are_refused_and_later_ones_accepted() -> None:
    state = replicated(factor=1)
    fence = state.version
    state = commit(state, [FenceWriters(version=fence)])
    for begun in (0, fence):
        path = f"orders-0/{file_name(0, begun, 'w')}"
        with pytest.raises(StaleWriteError, match=f"begun at version {begun}") as raised:
            decide_append(state, request(on([0], path=path)))
        assert raised.value.path == path
    later = f"orders-0/{file_name(0, fence + 1, 'w')}"
    assert led(appended(state, on([0], path=later))).log_end_offset == 3


def test_a_file_name_without_a_version_is_refused_once_a_fence_is_set() -> None:
    state = replicated(factor=1)
    assert decide_append(state, request(on([0]))).actions
    with pytest.raises(StaleWriteError):
        decide_append(commit(state, [FenceWriters(version=0)]), request(on([0])))


# -- topics created by the append


def test_a_topic_created_with_the_append_gets_the_replicas_its_writer_chose() -> None:
    state = new_cluster(3)
    new = choose_replicas(state, NewTopic(name="orders", topic_id="t1", partitions=2, replication_factor=2))
    assert new.assignment is not None
    assert [len(replicas) for replicas in new.assignment] == [2, 2]
    more = decide_append(state, request(on(new.assignment[0]), new_topics=[new]))
    state = after(state, more)
    assert [list(partition.replicas) for partition in state.topic("orders").partitions] == list(new.assignment)
    assert led(state).log_end_offset == 3


def test_a_topic_created_with_an_append_is_led_by_a_replica_that_holds_it() -> None:
    state = new_cluster(2)
    new = NewTopic(name="orders", topic_id="t1", assignment=[[0, 1]])
    state = after(state, decide_append(state, request(on([1]), new_topics=[new])))
    assert (led(state).leader, led(state).leader_epoch, led(state).isr) == (1, 1, (1,))


def test_min_insync_replicas_applies_to_a_topic_created_with_the_append() -> None:
    state = new_cluster(2)
    new = NewTopic(name="orders", topic_id="t1", assignment=[[0, 1]], configs={"min.insync.replicas": "2"})
    with pytest.raises(NotEnoughReplicasError):
        decide_append(state, request(on([0]), new_topics=[new]))


def test_more_replicas_than_brokers_are_refused_before_anything_is_written() -> None:
    with pytest.raises(InvalidReplicationFactorError):
        choose_replicas(new_cluster(1), NewTopic(name="orders", topic_id="t1", replication_factor=2))
