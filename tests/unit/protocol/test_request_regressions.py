"""Regressions: requests repeated late, and unusual requests."""

from __future__ import annotations

import pytest

from sparklog.errors import CommitFailedError, InvalidRequestError, InvalidTopicError, ProducerFencedError
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide.append import UNKNOWN_OFFSET, AppendRequest, decide_append
from sparklog.protocol.decide.expiry import expire_partition_producers
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest
from sparklog.protocol.decide.producers import ProducerIdentity, init_producer
from sparklog.protocol.decide.topics import NewTopic, create_topic, delete_topic
from sparklog.protocol.state import State
from tests.unit.protocol.states import after, commit, item, request, with_topic

DAY_MS = 86_400_000


def committed_transaction() -> tuple[State, AppendRequest, ProducerIdentity]:
    state = with_topic()
    decision = init_producer(state, "tx")
    state, producer = after(state, decision), decision.result
    transaction = request(
        item(3, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0),
        transaction=producer,
    )
    return after(state, decide_append(state, transaction)), transaction, producer


@pytest.mark.parametrize("again", [[], [1], [2]], ids=["deleted", "recreated smaller", "recreated"])
def test_a_repeated_transaction_is_committed_although_its_topic_was_deleted(again: list[int]) -> None:
    state, transaction, _ = committed_transaction()
    state = after(state, delete_topic(state, "orders"))
    for partitions in again:
        new = NewTopic(name="orders", topic_id="t2", partitions=partitions)
        state = after(state, create_topic(state, new))
    answer = decide_append(state, transaction)
    assert (answer.actions, answer.result.duplicate) == ([], True)
    assert [one.base_offset for one in answer.result.appended] == [UNKNOWN_OFFSET]


def test_a_repeated_transaction_is_committed_although_its_producer_expired() -> None:
    state, transaction, _ = committed_transaction()
    state = commit(state, [], timestamp=state.timestamp_ms + DAY_MS + 1)
    state = after(state, expire_partition_producers(state, state.timestamp_ms))
    answer = decide_append(state, transaction)
    assert (answer.actions, answer.result.appended[0].base_offset) == ([], UNKNOWN_OFFSET)


def test_bumping_an_epoch_does_not_fence_a_newer_instance() -> None:
    state, _, producer = committed_transaction()
    assert init_producer(state, "tx", producer).result.producer_epoch == producer.producer_epoch + 2
    replaced = after(state, init_producer(state, "tx"))
    for present in (producer, ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)):
        with pytest.raises(ProducerFencedError):
            init_producer(replaced, "tx", present)


def test_offsets_of_a_topic_recreated_after_reading_are_refused() -> None:
    state = with_topic()
    state = after(state, decide_groups.join_group(state, JoinRequest(group="g", member="m", topics=["orders"])))
    state = after(state, delete_topic(state, "orders"))
    state = after(state, create_topic(state, NewTopic(name="orders", topic_id="t2", partitions=2)))
    generation = state.groups["g"].generation
    stale, fresh = (
        GroupCommit(group="g", member="m", generation=generation, offsets={("orders", 0): 50}, topic_ids={"orders": id})
        for id in ("t1", "t2")
    )
    with pytest.raises(CommitFailedError, match="created again"):
        decide_groups.commit_group_offsets(state, stale)
    assert decide_groups.commit_group_offsets(state, fresh).actions


def test_a_member_cannot_take_over_the_instance_id_of_another_member() -> None:
    state = with_topic()
    for member, instance in (("a", ""), ("b", "i")):
        joins = JoinRequest(group="g", member=member, instance_id=instance, topics=["orders"])
        state = after(state, decide_groups.join_group(state, joins))
    other = JoinRequest(group="g", member="a", instance_id="i", topics=["orders"], assignors=["sticky"])
    with pytest.raises(InvalidRequestError, match="another member id"):
        decide_groups.join_group(state, other)


def test_a_request_that_creates_a_topic_twice_is_refused() -> None:
    new = NewTopic(name="new", topic_id="n", partitions=1)
    with pytest.raises(InvalidTopicError, match="twice"):
        decide_append(with_topic(), AppendRequest(appends=[], new_topics=[new, new]))
