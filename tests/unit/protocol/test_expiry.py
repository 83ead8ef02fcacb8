"""Producers, transactional ids and applications expire by explicit actions, never by the time of a commit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import NotFoundError, UnknownProducerIdError
from sparklog.protocol.commits import InitProducer
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.decide.append import AppendResult, decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.expiry import (
    APPLICATION_ID_EXPIRATION,
    expiration_ms,
    expire_applications,
    expire_partition_producers,
    expire_transactional_ids,
    forget_applications,
    forget_transactional_ids,
)
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.file_names import file_name
from sparklog.protocol.state import State
from tests.unit.protocol.states import after, commit, item, request, with_topic

DAY_MS = 86_400_000


def produced(state: State, sequence: int, producer: int = 7) -> Decision[AppendResult]:
    return decide_append(state, request(item(producer_id=producer, producer_epoch=0, base_sequence=sequence)))


def advanced(state: State, ms: int) -> State:
    """A commit that much later by the clock of its writer."""
    return commit(state, [], timestamp=state.timestamp_ms + ms)


def test_a_commit_with_a_time_far_ahead_expires_no_producer() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    other = produced(state, 0, producer=8).actions
    state = commit(state, other, timestamp=state.timestamp_ms + 200 * 3_600_000)
    assert produced(state, 0).result.duplicate
    assert produced(state, 0).actions == []


def test_a_commit_with_a_time_far_ahead_expires_no_transactional_id() -> None:
    state = with_topic()
    decision = init_producer(state, "tx")
    state = after(state, decision)
    state = commit(state, init_producer(state, "other").actions, timestamp=state.timestamp_ms + 30 * DAY_MS)
    assert init_producer(state, "tx").result == (decision.result.producer_id, 1)


def test_maintenance_expires_a_producer_idle_for_a_day() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    state = advanced(state, DAY_MS)
    state = after(state, produced(state, 0, producer=8))
    decision = expire_partition_producers(state, state.timestamp_ms)
    assert decision.result == 1
    state = after(state, decision)
    assert set(state.topics["orders"].partitions[0].producers) == {8}
    assert expire_partition_producers(state, state.timestamp_ms).actions == []


def test_maintenance_expires_a_transactional_id_idle_for_a_week() -> None:
    state = with_topic()
    state = advanced(after(state, init_producer(state, "tx")), 7 * DAY_MS)
    state = after(state, init_producer(state, "fresh"))
    state = after(state, expire_transactional_ids(state, state.timestamp_ms))
    assert set(state.indexes.transactional_ids) == {"fresh"}
    assert init_producer(state, "tx").result == (state.next_producer_id, 0)


def test_a_fast_clock_of_the_maintenance_expires_nothing_early() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    state = after(state, init_producer(state, "tx"))
    ahead = state.timestamp_ms + 365 * DAY_MS
    assert expire_partition_producers(state, ahead).actions == []
    assert expire_transactional_ids(state, ahead).actions == []
    assert decide_expiry.expiry_now_ms(state, ahead) == state.timestamp_ms


def test_maintenance_uses_its_own_clock_when_the_log_time_is_ahead() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    now_ms = state.timestamp_ms
    assert expire_partition_producers(advanced(state, 365 * DAY_MS), now_ms).actions == []


def test_expiration_times_are_cluster_settings() -> None:
    state = with_topic()
    changes = {"transactional.id.expiration.ms": "1000", "producer.id.expiration.ms": "2000"}
    state = after(state, alter_configs(state, "", changes, []))
    state = after(state, produced(state, 0))
    state = after(state, init_producer(state, "tx"))
    state = advanced(state, 1500)
    assert expire_transactional_ids(state, state.timestamp_ms).result == 1
    assert expire_partition_producers(state, state.timestamp_ms).result == 0


def test_one_decision_expires_a_bounded_number() -> None:
    most = limits.MAX_FORGOTTEN_PER_COMMIT
    state, numbers = with_topic(), range(2 * most + 1)
    state = commit(state, [InitProducer(producer_id=n, producer_epoch=0, transactional_id=f"t{n}") for n in numbers])
    state = advanced(state, 8 * DAY_MS)
    expired = []
    while (decision := expire_transactional_ids(state, state.timestamp_ms)).actions:
        expired.append(decision.result)
        state = after(state, decision)
    assert expired == [most, most, 1]


def test_an_application_expires_by_the_version_of_its_newest_write() -> None:
    state = with_topic()
    for name in ("a", "b"):
        state = after(state, decide_append(state, request(item(), application=name, application_version=1)))
    newest = state.applications["b"].commit_version
    assert expire_applications(state, newest, 1000).actions == [], "the setting is another one now"
    state = after(state, expire_applications(state, newest, expiration_ms(state, APPLICATION_ID_EXPIRATION)))
    assert set(state.applications) == {"b"}


def test_an_expired_application_may_reuse_a_write_number() -> None:
    state = with_topic()
    write = request(item(), application="a", application_version=1)
    state = after(state, decide_append(state, write))
    assert decide_append(state, write).actions == []
    state = after(state, forget_applications(state, ["a", "a"]))
    assert decide_append(state, write).actions != []


def test_expiring_an_unknown_entry_is_an_error() -> None:
    state = with_topic()
    with pytest.raises(NotFoundError, match="'nobody'"):
        forget_applications(state, ["nobody"])
    with pytest.raises(NotFoundError, match="'nobody'"):
        forget_transactional_ids(state, ["nobody"])


# -- an append whose first attempt may have been forgotten


def file_of(state: State) -> str:
    """The path of a file begun now."""
    return f"t1/{file_name(0, state.version, 'w')}"


def sent(state: State, path: str, producer: int = 7, sequence: int = 0) -> Decision[AppendResult]:
    one = item(producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return decide_append(state, request(replace(one, run=replace(one.run, path=path))))


def forgotten(state: State) -> State:
    state = advanced(state, DAY_MS + 1)
    decision = expire_partition_producers(state, state.timestamp_ms)
    assert decision.result
    return after(state, decision)


@pytest.mark.parametrize("sequence", [0, 3])
def test_a_retried_append_of_an_expired_producer_is_refused(sequence: int) -> None:
    state = with_topic()
    if sequence:
        state = after(state, sent(state, file_of(state)))
    path = file_of(state)
    state = after(state, sent(state, path, sequence=sequence))
    assert sent(state, path, sequence=sequence).result.duplicate
    state = forgotten(state)
    with pytest.raises(UnknownProducerIdError) as refused:
        sent(state, path, sequence=sequence)
    assert (refused.value.topic, refused.value.partition, refused.value.path) == ("orders", 0, path)


def test_a_retried_append_of_an_expired_producer_is_refused_after_other_appends() -> None:
    state = with_topic()
    path = file_of(state)
    state = forgotten(after(state, sent(state, path)))
    state = after(state, sent(state, file_of(state), producer=8))
    with pytest.raises(UnknownProducerIdError):
        sent(state, path)


def test_an_expired_producer_can_append_files_begun_later() -> None:
    state = with_topic()
    state = forgotten(after(state, sent(state, file_of(state))))
    assert state.partition("orders", 0).producers_forgotten_at == state.version
    assert state.partition("orders", 1).producers_forgotten_at == -1
    assert sent(state, file_of(state), sequence=3).actions


def test_a_remembered_producer_can_append_after_others_expired() -> None:
    state = with_topic()
    state = after(state, sent(state, file_of(state), producer=8))
    state = advanced(state, DAY_MS)
    path = file_of(state)
    state = after(state, sent(state, path))
    state = advanced(state, 2)
    state = after(state, expire_partition_producers(state, state.timestamp_ms))
    assert set(state.partition("orders", 0).producers) == {7}
    assert sent(state, path).result.duplicate
    assert sent(state, path, sequence=3).actions


def test_a_transaction_may_outlast_the_expiry_of_its_producer() -> None:
    state = with_topic()
    state = after(state, init_producer(state, "tx"))
    path = file_of(state)
    state = forgotten(after(state, produced(state, 0, producer=8)))
    identity = state.indexes.transactional_ids.get("tx")
    assert identity is not None
    assert sent(state, path, producer=identity).actions
