"""Decisions and the fold together: the result of a request, and the state after it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from sparklog.errors import (
    CorruptMetadataError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commit_bytes import FORMAT
from sparklog.protocol.commits import AlterConfig, Append, Commit
from sparklog.protocol.decide.append import Appended, AppendResult, decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import MAX_PRODUCER_EPOCH, init_producer
from sparklog.protocol.decide.topics import NewTopic, alter_configs, create_partitions, create_topic, delete_topic
from sparklog.protocol.fold import Draft, fold
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.partition_fold import apply_append
from sparklog.protocol.segment_checksum import add, from_text, run_hash, to_text
from sparklog.protocol.state import PartitionProducer, PartitionState, ProducerState, SegmentChange, State
from tests.unit.protocol.states import after, commit, item, new_cluster, request, run, with_topic


def offsets_of(decision: Decision[AppendResult]) -> list[int]:
    return [appended.base_offset for appended in decision.result.appended]


# -- topics


def test_a_created_topic_has_its_partitions_led_by_broker_0_at_epoch_0() -> None:
    topic = with_topic(partitions=3).topics["orders"]
    assert len(topic.partitions) == 3
    assert {(p.leader, p.isr, p.replicas, p.leader_epoch) for p in topic.partitions} == {(0, (0,), (0,), 0)}


def test_a_topic_cannot_be_created_twice() -> None:
    with pytest.raises(TopicAlreadyExistsError, match="orders"):
        create_topic(with_topic(), NewTopic(name="orders", topic_id="t2"))


def test_a_name_that_differs_only_in_period_and_underscore_collides() -> None:
    with pytest.raises(InvalidTopicError, match=r"a\.b"):
        create_topic(with_topic("a.b"), NewTopic(name="a_b", topic_id="t2"))


@pytest.mark.parametrize("partitions", [0, -1, 100_001])
def test_an_impossible_partition_count_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidPartitionsError):
        create_topic(new_cluster(), NewTopic(name="a", topic_id="t", partitions=partitions))


@pytest.mark.parametrize("factor", [0, 2])
def test_a_replication_factor_above_the_number_of_brokers_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactorError):
        create_topic(new_cluster(), NewTopic(name="a", topic_id="t", replication_factor=factor))


def test_replicas_are_spread_over_the_brokers() -> None:
    state = new_cluster(brokers=3)
    new = NewTopic(name="a", topic_id="t", partitions=3, replication_factor=2)
    partitions = after(state, create_topic(state, new)).topics["a"].partitions
    assert sorted(p.leader for p in partitions) == [0, 1, 2]
    assert sorted(broker for p in partitions for broker in p.replicas) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("assignment", [[[5]], [[]], [[0, 0]], [[0], [0, 1]]])
def test_an_assignment_to_unknown_or_repeated_brokers_is_refused(assignment: list[list[int]]) -> None:
    with pytest.raises(InvalidReplicationAssignmentError):
        create_topic(new_cluster(2), NewTopic(name="a", topic_id="t", assignment=assignment))


def test_adding_partitions_keeps_existing_records() -> None:
    state = with_topic(partitions=1)
    state = after(state, decide_append(state, request(item())))
    state = after(state, create_partitions(state, "orders", 3))
    assert [p.log_end_offset for p in state.topics["orders"].partitions] == [3, 0, 0]


def test_reducing_partitions_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidPartitionsError, match="new topic"):
        create_partitions(with_topic(), "orders", 1)


def test_deleting_a_topic_removes_its_segments_from_the_checksum() -> None:
    state = with_topic()
    empty = state.checksum
    state = after(state, decide_append(state, request(item(), item(partition=1))))
    assert state.checksum != empty
    state = after(state, delete_topic(state, "orders"))
    assert state.checksum == empty
    assert not state.topics


def test_topics_are_not_deleted_where_the_cluster_forbids_it() -> None:
    state = with_topic()
    state = after(state, alter_configs(state, "", {"delete.topic.enable": "false"}, []))
    with pytest.raises(PolicyViolationError, match=r"forbid|enable is false"):
        delete_topic(state, "orders")


def test_unknown_configs_and_invalid_values_are_refused() -> None:
    state = with_topic()
    with pytest.raises(InvalidConfigurationError, match=r"retention\.ms"):
        alter_configs(state, "orders", {"retention.msx": "1"}, [])
    with pytest.raises(InvalidConfigurationError):
        alter_configs(state, "orders", {"retention.ms": "soon"}, [])
    with pytest.raises(InvalidConfigurationError, match="delete"):
        alter_configs(state, "orders", {}, ["retention.ms"])


def test_configs_are_set_and_deleted() -> None:
    state = with_topic()
    state = after(state, alter_configs(state, "orders", {"retention.ms": "5"}, []))
    assert state.topics["orders"].configs == {"retention.ms": "5"}
    state = after(state, alter_configs(state, "orders", {}, ["retention.ms"]))
    assert state.topics["orders"].configs == {}


# -- appends


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 50)), min_size=1, max_size=30))
def test_offsets_are_contiguous_per_partition_for_any_appends(appends: list[tuple[int, int]]) -> None:
    state = with_topic()
    ends = [0, 0]
    for partition, records in appends:
        decision = decide_append(state, request(item(records, partition)))
        assert offsets_of(decision) == [ends[partition]]
        ends[partition] += records
        state = after(state, decision)
    assert [p.log_end_offset for p in state.topics["orders"].partitions] == ends


def test_runs_of_one_partition_in_one_commit_are_contiguous() -> None:
    decision = decide_append(with_topic(), request(item(3), item(4), item(5, partition=1)))
    assert offsets_of(decision) == [0, 3, 0]


def test_the_checksum_covers_the_live_runs() -> None:
    state = with_topic()
    before = from_text(state.checksum)
    state = after(state, decide_append(state, request(item())))
    assert state.checksum == to_text(add(before, run_hash("t1", 0, 0, run(3))))


def test_an_append_to_a_recreated_topic_is_refused() -> None:
    state = with_topic()
    with pytest.raises(UnknownTopicOrPartitionError, match="created again"):
        decide_append(state, request(item(topic_id="older")))


def test_an_append_to_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="0 to 1, not 2"):
        decide_append(with_topic(), request(item(partition=2)))


def test_a_missing_topic_is_created_in_the_commit_of_the_append() -> None:
    state = new_cluster()
    new = NewTopic(name="orders", topic_id="t9", partitions=2)
    state = after(state, decide_append(state, request(item(topic_id="t9"), new_topics=[new])))
    assert state.topics["orders"].partitions[0].log_end_offset == 3


def test_a_topic_is_created_with_a_write_only_as_long_as_the_cluster_allows_it() -> None:
    new = NewTopic(name="orders", topic_id="t9")
    write = request(item(topic_id="t9"), new_topics=[new])
    state = after(new_cluster(), alter_configs(new_cluster(), "", {"auto.create.topics.enable": "false"}))
    with pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable is false"):
        decide_append(state, write)
    state = after(state, create_topic(state, new))
    assert decide_append(state, write).actions, "another writer has created it"


def test_a_topic_created_concurrently_with_the_same_partitions_is_used() -> None:
    new = NewTopic(name="orders", topic_id="t9", partitions=2)
    decision = decide_append(with_topic(), request(item(topic_id=""), new_topics=[new]))
    assert [type(action) for action in decision.actions] == [Append]
    assert decision.result.appended[0].topic_id == "t1"


def test_an_append_to_a_topic_created_concurrently_with_other_partitions_is_refused() -> None:
    new = NewTopic(name="orders", topic_id="t9", partitions=8)
    with pytest.raises(InvalidPartitionsError, match="created with 2 partitions while records were written for 8"):
        decide_append(with_topic(), request(item(topic_id=""), new_topics=[new]))


def test_topics_created_by_one_append_must_not_collide() -> None:
    new = [NewTopic(name=name, topic_id=name) for name in ("a.b", "a_b")]
    with pytest.raises(InvalidTopicError, match=r"'a\.b' and 'a_b'"):
        decide_append(with_topic(), request(new_topics=new))


# -- idempotence


def test_a_repeated_application_write_returns_its_first_offsets() -> None:
    state = with_topic()
    first = decide_append(state, request(item(), application="job", application_version=4))
    state = after(state, first)
    for version in (4, 3):
        again = decide_append(state, request(item(9), application="job", application_version=version))
        assert again.actions == []
        assert again.result.duplicate
        assert again.result.appended == first.result.appended
    newer = decide_append(state, request(item(), application="job", application_version=5))
    assert newer.actions
    assert offsets_of(newer) == [3]


def test_a_different_application_write_replaces_the_remembered_one_once() -> None:
    state = with_topic()
    state = after(state, decide_append(state, request(item(), application="job", application_version=4)))
    other = request(
        item(5), application="job", application_version=2, application_replaces=state.applications["job"].commit_version
    )
    decided = decide_append(state, other)
    assert offsets_of(decided) == [3]
    state = after(state, decided)
    assert state.applications["job"].version == 2
    assert decide_append(state, other).result.duplicate, "it is stored now and does not replace itself"
    assert offsets_of(decide_append(state, request(item(), application="job", application_version=3))) == [8]


def test_runs_of_a_partition_are_merged_into_one_range_of_an_application_write() -> None:
    state = with_topic()
    decided = decide_append(state, request(item(3), item(4), application="job", application_version=1))
    (remembered,) = after(state, decided).applications["job"].ranges
    assert (remembered.base_offset, remembered.records) == (0, 7)


def test_an_application_write_without_rows_is_remembered() -> None:
    state = with_topic()
    state = after(state, decide_append(state, request(application="job", application_version=1)))
    assert state.applications["job"].version == 1


def test_a_write_whose_rows_were_dropped_as_a_repetition_takes_no_number() -> None:
    state = with_topic()
    dropped = request(application="job", application_version=4, is_repetition=True)
    for _ in range(2):  # unknown, and an older number known
        with pytest.raises(InvalidRequestError, match="version 4 of application job was in the log"):
            decide_append(state, dropped)
        state = after(state, decide_append(state, request(item(), application="job", application_version=3)))
    state = after(state, decide_append(state, request(item(), application="job", application_version=4)))
    again = decide_append(state, dropped)
    assert (again.actions, again.result.duplicate) == ([], True)


def test_group_offsets_are_committed_with_the_records_and_only_once() -> None:
    state = with_topic()
    first = request(
        item(), application="q", application_version=0, groups=[GroupCommit(group="g", offsets={("orders", 1): 7})]
    )
    state = after(state, decide_append(state, first))
    assert state.groups["g"].offsets["t1:1"].offset == 7
    again = request(
        item(), application="q", application_version=0, groups=[GroupCommit(group="g", offsets={("orders", 1): 9})]
    )
    assert decide_append(state, again).actions == []


def produced(state: State, base: int, records: int = 3, epoch: int = 0) -> Decision[AppendResult]:
    return decide_append(state, request(item(records, producer_id=7, producer_epoch=epoch, base_sequence=base)))


def test_a_repeated_sequence_returns_its_first_offset() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    state = after(state, produced(state, 3))
    again = produced(state, 0)
    assert again.actions == []
    assert again.result.duplicate
    assert offsets_of(again) == [0]


@pytest.mark.parametrize("base", [1, 4, 100])
def test_a_gap_in_the_sequence_is_refused(base: int) -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    with pytest.raises(OutOfOrderSequenceNumberError, match="expects 3"):
        produced(state, base)


def test_a_higher_epoch_starts_at_sequence_0_and_fences_the_lower_one() -> None:
    state = with_topic()
    state = after(state, produced(state, 0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        produced(state, 3, epoch=1)
    state = after(state, produced(state, 0, epoch=1))
    with pytest.raises(ProducerFencedError):
        produced(state, 3, epoch=0)


def test_reinitialising_a_transactional_id_fences_the_older_instance() -> None:
    state = with_topic()
    first = init_producer(state, "tx")
    state = after(state, first)
    second = init_producer(state, "tx")
    state = after(state, second)
    assert (second.result.producer_id, second.result.producer_epoch) == (first.result.producer_id, 1)
    old = item(producer_id=first.result.producer_id, producer_epoch=0, base_sequence=0)
    with pytest.raises(ProducerFencedError):
        decide_append(state, request(old))


def test_a_producer_id_with_exhausted_epochs_is_fenced_and_replaced() -> None:
    state = after(with_topic(), init_producer(with_topic(), "tx"))
    number = next(iter(state.producers))
    last = MAX_PRODUCER_EPOCH - 1
    state = with_indexes(replace(state, producers=Map({number: ProducerState(epoch=last, transactional_id="tx")})))
    decision = init_producer(state, "tx")
    assert decision.result == (number + 1, 0)
    state = after(state, decision)
    with pytest.raises(ProducerFencedError):
        decide_append(state, request(item(producer_id=number, producer_epoch=last, base_sequence=0)))
    assert init_producer(state, "tx").result == (number + 1, 1)


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_an_invalid_offset_is_refused(offset: int) -> None:
    with pytest.raises(InvalidRequestError, match="invalid offset"):
        commit_group_offsets(with_topic(), GroupCommit(group="g", offsets={("orders", 0): offset}))


def test_producer_ids_are_never_reused() -> None:
    state = with_topic()
    seen = set()
    for _ in range(5):
        decision = init_producer(state)
        seen.add(decision.result.producer_id)
        state = after(state, decision)
    assert len(seen) == 5


def test_sequences_wrap_after_the_largest_32_bit_integer() -> None:
    state = with_topic()
    state = after(state, produced(state, 2**31 - 2, records=3))
    state = after(state, produced(state, 1))
    assert state.topics["orders"].partitions[0].log_end_offset == 6


# -- the fold refuses contradicting commits


def valid_append(state: State) -> Commit:
    decision = decide_append(state, request(item()))
    draft = Draft(state, state.timestamp_ms + 1)
    for action in decision.actions:
        draft.apply(action)
    return Commit(
        format=FORMAT,
        version=state.version + 1,
        write_id="w",
        timestamp=state.timestamp_ms + 1,
        previous=state.digest,
        checksum=draft.finish(0, "").checksum,
        actions=decision.actions,
    )


@pytest.mark.parametrize(
    "change",
    [{"version": 9}, {"previous": "f" * 64}, {"timestamp": 0}, {"checksum": "1" * 32}],
)
def test_a_commit_that_contradicts_the_state_is_refused(change: dict[str, object]) -> None:

    state = with_topic()
    good = valid_append(state)
    assert fold(state, good, "0" * 64).state.version == state.version + 1
    with pytest.raises(CorruptMetadataError):
        fold(state, replace(good, **change), "0" * 64)


def test_a_commit_that_appends_at_a_wrong_offset_is_refused() -> None:
    state = with_topic()
    append = decide_append(state, request(item())).actions
    state = commit(state, append)
    with pytest.raises(CorruptMetadataError, match="log ends at 3"):
        commit(state, append)


def test_a_returned_state_is_not_changed_by_later_commits() -> None:
    state = with_topic()
    before = repr(state)
    later = after(state, decide_append(state, request(item())))
    later = after(later, alter_configs(later, "orders", {"retention.ms": "5"}, []))
    after(later, delete_topic(later, "orders"))
    assert repr(state) == before


def test_the_result_lists_every_run_of_the_request_in_order() -> None:
    decision = decide_append(with_topic(), request(item(1, partition=1), item(2, partition=0)))
    assert decision.result.appended == [Appended("orders", "t1", 1, 0, 1), Appended("orders", "t1", 0, 0, 2)]


def test_a_record_without_a_key_is_refused_by_the_newest_policy_unless_it_is_in_the_log() -> None:
    keyless = request(item(2, null_keys=True, producer_id=7, producer_epoch=0, base_sequence=0))
    state = with_topic()
    written = after(state, decide_append(state, keyless))
    compacted = after(written, alter_configs(written, "orders", {"cleanup.policy": "compact"}, []))
    assert decide_append(compacted, keyless).result.duplicate
    with pytest.raises(InvalidRecordError, match="made compacted while records were written for orders-1"):
        decide_append(compacted, request(item(2, partition=1, null_keys=True)))
    assert decide_append(compacted, request(item(2, partition=1))).actions


def test_a_commit_stamps_records_by_the_newest_config() -> None:
    state = with_topic()
    for kind, is_stamped in (("LogAppendTime", True), ("CreateTime", False)):
        state = after(state, alter_configs(state, "orders", {"message.timestamp.type": kind}, []))
        decision = decide_append(state, request(item()))
        assert [action.log_append_time for action in decision.actions if isinstance(action, Append)] == [is_stamped]
        assert decision.result.appended[0].log_append_time is is_stamped


# -- the fold of an append


def test_an_append_changes_only_the_end_producers_and_isr_of_a_partition() -> None:
    before = PartitionState(
        replicas=(1, 2, 3),
        isr=(1, 2),
        leader=1,
        leader_epoch=4,
        log_start_offset=5,
        log_end_offset=9,
        segments=2,
        size_bytes=100,
        max_timestamp_us=7,
        producers=Map({3: PartitionProducer(epoch=0, appends=(), timestamp_ms=1)}),
        adding=(3,),
        removing=(2,),
        cleaned_offset=6,
        changes=(SegmentChange(1, 0, 5),),
        followed_from={3: 8},
        producers_forgotten_at=11,
        unfit=2,
    )
    for field in msgspec.structs.fields(PartitionState):
        assert getattr(before, field.name) != field.default, f"the test says nothing about {field.name}"
    append = Append(
        topic="orders",
        topic_id="t1",
        partition=0,
        base_offset=9,
        run=replace(run(3), broker=1),
        producer_id=7,
        log_append_time=True,
    )
    after = apply_append(before, append, timestamp_ms=5)
    changed = {name for name in before.__struct_fields__ if getattr(after, name) != getattr(before, name)}
    end = {"log_end_offset", "segments", "size_bytes", "max_timestamp_us"}
    assert changed == {*end, "producers", "isr", "followed_from"}


@pytest.mark.parametrize(
    ("stored", "changes", "deletions", "is_refused"),
    [
        ({}, {"group.min.session.timeout.ms": "1800001"}, [], True),
        ({}, {"group.max.session.timeout.ms": "5999"}, [], True),
        ({}, {"group.min.session.timeout.ms": "9000000", "group.max.session.timeout.ms": "9000000"}, [], False),
        ({"group.min.session.timeout.ms": "10"}, {"group.max.session.timeout.ms": "20"}, [], False),
        (
            {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "20"},
            {},
            ["group.min.session.timeout.ms"],
            True,
        ),
    ],
)
def test_session_timeouts_that_no_member_could_choose_are_refused(
    stored: dict[str, str], changes: dict[str, str], deletions: list[str], is_refused: bool
) -> None:
    state = new_cluster()
    for name, value in sorted(stored.items(), reverse=True):
        state = after(state, alter_configs(state, "", {name: value}))
    if is_refused:
        with pytest.raises(InvalidConfigurationError, match="no member could join"):
            alter_configs(state, "", changes, deletions)
    else:
        after(state, alter_configs(state, "", changes, deletions))


def test_contradictory_session_timeouts_of_an_earlier_version_stop_no_other_change() -> None:
    state = new_cluster()
    state = after(state, Decision([AlterConfig(set={"group.min.session.timeout.ms": "9000000"})], None))
    state = after(state, alter_configs(state, "", {"num.partitions": "3"}))
    after(state, alter_configs(state, "", {}, ["group.min.session.timeout.ms"]))
