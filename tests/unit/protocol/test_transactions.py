"""Transactions: each is one commit, made once, by one instance."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace

from sparklog.errors import CorruptMetadataError, ProducerFencedError, UnknownProducerIdError
from sparklog.limits import IDEMPOTENT_BATCHES_KEPT, MAX_PRODUCER_ID
from sparklog.protocol.commits import InitProducer
from sparklog.protocol.decide.append import PartitionAppend, decide_append
from sparklog.protocol.decide.expiry import forget_transactional_ids
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.decide.producers import MAX_PRODUCER_EPOCH, ProducerIdentity, init_producer
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.state import State
from tests.unit.protocol.states import after, commit, item, request, with_topic


def begun() -> tuple[State, ProducerIdentity]:
    state = with_topic()
    decision = init_producer(state, "tx")
    return after(state, decision), decision.result


def run_of(producer: ProducerIdentity, records: int = 3, partition: int = 0) -> PartitionAppend:
    return item(
        records, partition, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0
    )


@pytest.mark.parametrize("forged", [1, 2**40, MAX_PRODUCER_ID])
def test_an_id_out_of_order_cannot_exhaust_the_ids(forged: int) -> None:
    state = with_topic()
    with pytest.raises(CorruptMetadataError, match="the next one is 0"):
        commit(state, [InitProducer(producer_id=forged, producer_epoch=0)])
    assert init_producer(state).result == ProducerIdentity(0, 0)


def test_a_transaction_commits_records_and_offsets_at_once_and_raises_the_epoch() -> None:
    state, producer = begun()
    offsets = GroupCommit(group="g", offsets={("orders", 1): 4})
    decision = decide_append(state, request(run_of(producer), groups=[offsets], transaction=producer))
    state = after(state, decision)
    assert decision.result.producer == ProducerIdentity(producer.producer_id, 1)
    assert state.topics["orders"].partitions[0].log_end_offset == 3
    assert state.groups["g"].offsets["t1:1"].offset == 4
    assert state.producers[producer.producer_id].committed_epoch == 0


def test_a_repeated_transaction_returns_its_first_result() -> None:
    state, producer = begun()
    transaction = request(run_of(producer), run_of(producer, 2, 1), transaction=producer)
    first = decide_append(state, transaction)
    again = decide_append(after(state, first), transaction)
    assert again.actions == []
    assert again.result.appended == first.result.appended
    assert (again.result.duplicate, again.result.producer) == (True, first.result.producer)


def test_a_repeated_transaction_of_many_runs_of_one_partition_returns_its_first_result() -> None:
    state, producer = begun()
    state = after(state, decide_append(state, request(item(7))))
    runs = [
        item(3, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=3 * number)
        for number in range(IDEMPOTENT_BATCHES_KEPT + 4)
    ]
    transaction = request(*runs, transaction=producer)
    first = decide_append(state, transaction)
    again = decide_append(after(state, first), transaction)
    assert again.result.appended == first.result.appended


def test_a_repeated_transaction_of_offsets_only_has_no_effect() -> None:
    state, producer = begun()
    transaction = request(groups=[GroupCommit(group="g", offsets={("orders", 1): 4})], transaction=producer)
    state = after(state, decide_append(state, transaction))
    assert decide_append(state, transaction).actions == []


def test_a_repeated_transaction_of_runs_without_sequences_has_no_effect() -> None:
    state, producer = begun()
    transaction = request(item(), transaction=producer)
    state = after(state, decide_append(state, transaction))
    again = decide_append(state, transaction)
    assert (again.actions, again.result.appended, again.result.duplicate) == ([], [], True)


def test_a_fenced_instance_cannot_commit() -> None:
    state, producer = begun()
    state = after(state, init_producer(state, "tx"))
    with pytest.raises(ProducerFencedError, match="taken over"):
        decide_append(state, request(run_of(producer), transaction=producer))


def test_a_fenced_instance_is_told_that_its_last_transaction_was_committed() -> None:
    state, producer = begun()
    transaction = request(run_of(producer), transaction=producer)
    state = after(state, decide_append(state, transaction))
    state = after(state, init_producer(state, "tx"))
    answer = decide_append(state, transaction)
    assert (answer.actions, answer.result.duplicate) == ([], True)
    following = answer.result.producer
    assert following is not None
    with pytest.raises(ProducerFencedError):
        decide_append(state, request(run_of(following), transaction=following))


def test_sequences_restart_at_0_in_the_next_transaction() -> None:
    state, producer = begun()
    decision = decide_append(state, request(run_of(producer), transaction=producer))
    state, following = after(state, decision), decision.result.producer
    assert following is not None
    state = after(state, decide_append(state, request(run_of(following, 2), transaction=following)))
    assert state.topics["orders"].partitions[0].log_end_offset == 5


def test_a_producer_with_exhausted_epochs_must_be_reinitialised_and_the_old_one_is_fenced() -> None:
    state, producer = begun()
    last = ProducerIdentity(producer.producer_id, MAX_PRODUCER_EPOCH - 1)
    exhausted = replace(state.producers[producer.producer_id], epoch=last.producer_epoch)
    state = with_indexes(replace(state, producers=Map({producer.producer_id: exhausted})))
    transaction = request(run_of(last), transaction=last)
    decision = decide_append(state, transaction)
    assert decision.result.producer is None
    state = after(state, decision)
    renewed = init_producer(state, "tx")
    assert renewed.result == ProducerIdentity(producer.producer_id + 1, 0)
    state = after(state, renewed)
    assert decide_append(state, transaction).result.duplicate
    assert init_producer(state, "tx").result == ProducerIdentity(producer.producer_id + 1, 1)


def test_a_producer_with_exhausted_epochs_takes_nothing_over_from_one_that_was_initialised_since() -> None:
    state, producer = begun()
    last = ProducerIdentity(producer.producer_id, MAX_PRODUCER_EPOCH - 1)
    exhausted = replace(state.producers[producer.producer_id], epoch=last.producer_epoch)
    state = with_indexes(replace(state, producers=Map({producer.producer_id: exhausted})))
    state = after(state, decide_append(state, request(run_of(last), transaction=last)))
    assert init_producer(state, "tx", last).result == ProducerIdentity(producer.producer_id + 1, 0)
    state = after(state, init_producer(state, "tx"))
    with pytest.raises(ProducerFencedError, match="a newer instance has taken over"):
        init_producer(state, "tx", last)


def test_an_expired_transactional_id_cannot_commit() -> None:
    state, producer = begun()
    state = after(state, forget_transactional_ids(state, ["tx"]))
    assert producer.producer_id not in state.producers
    with pytest.raises(UnknownProducerIdError):
        decide_append(state, request(run_of(producer), transaction=producer))


def test_producers_without_a_transactional_id_add_nothing_to_the_state() -> None:
    state = with_topic()
    for expected in range(3):
        decision = init_producer(state)
        assert decision.result == ProducerIdentity(expected, 0)
        state = after(state, decision)
    assert not state.producers
