"""What producers and applications are remembered for, and who forgets them: explicit actions, never a commit's time."""

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
    """Some commit so much later, by its writer's clock."""
    return commit(state, [], timestamp=state.timestamp_ms + ms)


def test_a_commit_with_a_time_far_ahead_makes_no_partition_forget_a_producer() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    other = produced(state, 0, producer=8).actions
    state = commit(state, other, timestamp=state.timestamp_ms + 200 * 3_600_000)
    assert produced(state, 0).result.duplicate
    assert produced(state, 0).actions == []


def test_a_commit_with_a_time_far_ahead_makes_nobody_forget_a_transactional_id() -> None:
    state = with_topic()
    decision = init_producer(state, "tx")
    state = after(state, decision)
    state = commit(state, init_producer(state, "other").actions, timestamp=state.timestamp_ms + 30 * DAY_MS)
    assert init_producer(state, "tx").result == (decision.result.producer_id, 1)


def test_a_partition_forgets_a_producer_that_was_silent_for_a_day_when_the_maintenance_says_so() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    state = advanced(state, DAY_MS)
    state = after(state, produced(state, 0, producer=8))
    decision = expire_partition_producers(state, state.timestamp_ms)
    assert decision.result == 1
    state = after(state, decision)
    assert set(state.topics["orders"].partitions[0].producers) == {8}
    assert expire_partition_producers(state, state.timestamp_ms).actions == []


def test_a_transactional_id_that_was_silent_for_a_week_is_forgotten_when_the_maintenance_says_so() -> None:
    state = with_topic()
    state = advanced(after(state, init_producer(state, "tx")), 7 * DAY_MS)
    state = after(state, init_producer(state, "fresh"))
    state = after(state, expire_transactional_ids(state, state.timestamp_ms))
    assert set(state.indexes.transactional_ids) == {"fresh"}
    assert init_producer(state, "tx").result == (state.next_producer_id, 0)


def test_a_maintainer_whose_clock_is_ahead_expires_nothing_early() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    state = after(state, init_producer(state, "tx"))
    ahead = state.timestamp_ms + 365 * DAY_MS
    assert expire_partition_producers(state, ahead).actions == []
    assert expire_transactional_ids(state, ahead).actions == []
    assert decide_expiry.expiry_now_ms(state, ahead) == state.timestamp_ms


def test_a_maintainer_whose_log_is_ahead_goes_by_its_own_clock() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    now_ms = state.timestamp_ms
    assert expire_partition_producers(advanced(state, 365 * DAY_MS), now_ms).actions == []


def test_the_times_are_settings_of_the_cluster() -> None:
    state = with_topic()
    changes = {"transactional.id.expiration.ms": "1000", "producer.id.expiration.ms": "2000"}
    state = after(state, alter_configs(state, "", changes, []))
    state = after(state, produced(state, 0))
    state = after(state, init_producer(state, "tx"))
    state = advanced(state, 1500)
    assert expire_transactional_ids(state, state.timestamp_ms).result == 1
    assert expire_partition_producers(state, state.timestamp_ms).result == 0


def test_one_decision_forgets_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FORGOTTEN_PER_COMMIT", 2)
    state = with_topic()
    state = commit(state, [InitProducer(producer_id=n, producer_epoch=0, transactional_id=f"t{n}") for n in range(5)])
    state = advanced(state, 8 * DAY_MS)
    found = []
    while (decision := expire_transactional_ids(state, state.timestamp_ms)).actions:
        found.append(decision.result)
        state = after(state, decision)
    assert found == [2, 2, 1]


def test_an_application_is_forgotten_by_the_version_of_its_newest_write() -> None:
    state = with_topic()
    for name in ("a", "b"):
        state = after(state, decide_append(state, request(item(), application=name, application_version=1)))
    newest = state.applications["b"].commit_version
    state = after(state, expire_applications(state, newest))
    assert set(state.applications) == {"b"}


def test_a_forgotten_application_may_write_the_same_number_again() -> None:
    state = with_topic()
    write = request(item(), application="a", application_version=1)
    state = after(state, decide_append(state, write))
    assert decide_append(state, write).actions == []
    state = after(state, forget_applications(state, ["a", "a"]))
    assert decide_append(state, write).actions != []


def test_forgetting_what_is_not_known_is_an_error() -> None:
    state = with_topic()
    with pytest.raises(NotFoundError, match="'nobody'"):
        forget_applications(state, ["nobody"])
    with pytest.raises(NotFoundError, match="'nobody'"):
        forget_transactional_ids(state, ["nobody"])


# -- an append whose first try may have been forgotten


def file_of(state: State) -> str:
    """The path of a file that is begun now."""
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
def test_an_append_that_may_have_been_forgotten_is_not_stored_again(sequence: int) -> None:
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


def test_an_append_that_may_have_been_forgotten_is_refused_after_appends_of_others_too() -> None:
    state = with_topic()
    path = file_of(state)
    state = forgotten(after(state, sent(state, path)))
    state = after(state, sent(state, file_of(state), producer=8))
    with pytest.raises(UnknownProducerIdError):
        sent(state, path)


def test_a_producer_that_was_forgotten_goes_on_with_files_it_begins_since() -> None:
    state = with_topic()
    state = forgotten(after(state, sent(state, file_of(state))))
    assert state.partition("orders", 0).producers_forgotten_at == state.version
    assert state.partition("orders", 1).producers_forgotten_at == -1
    assert sent(state, file_of(state), sequence=3).actions


def test_what_a_partition_still_knows_of_a_producer_counts_whatever_it_forgot_of_others() -> None:
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


def test_a_transaction_may_take_longer_than_its_producer_is_remembered() -> None:
    state = with_topic()
    state = after(state, init_producer(state, "tx"))
    path = file_of(state)
    state = forgotten(after(state, produced(state, 0, producer=8)))
    identity = state.indexes.transactional_ids.get("tx")
    assert identity is not None
    assert sent(state, path, producer=identity).actions
