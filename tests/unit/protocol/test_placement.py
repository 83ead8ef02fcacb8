"""Replicas of new partitions are placed by Kafka's round-robin with a shift."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError
from sparklog.protocol.commits import ChangeBroker
from sparklog.protocol.decide.topics import NewTopic, create_partitions, create_topic
from sparklog.protocol.plan.placement import available_brokers, spread, start_and_shift
from tests.unit.protocol.states import after, commit, new_cluster


def test_placement_matches_the_example_of_kafka() -> None:
    assignment = spread([0, 1, 2, 3, 4], 10, 3, start=0, shift=0)
    assert assignment[:5] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]
    assert assignment[5:] == [[0, 2, 3], [1, 3, 4], [2, 4, 0], [3, 0, 1], [4, 1, 2]]


@given(
    brokers=st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True),
    partitions=st.integers(1, 60),
    topic_id=st.text(min_size=1, max_size=22),
    data=st.data(),
)
def test_leaders_and_replicas_are_spread_evenly(
    brokers: list[int], partitions: int, topic_id: str, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = start_and_shift(topic_id, len(brokers))
    assignment = spread(brokers, partitions, factor, start=start, shift=shift)
    assert all(len(set(replicas)) == factor for replicas in assignment)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1
    assert assignment == spread(brokers, 1, factor, start=start, shift=shift) + (
        spread(brokers, partitions - 1, factor, start=start, shift=shift, first=1)
    )


def test_leaders_of_single_partition_topics_are_spread_over_brokers() -> None:
    leaders = {start_and_shift(f"topic-{number}", 4)[0] for number in range(64)}
    assert leaders == {0, 1, 2, 3}


def test_added_partitions_continue_from_the_first_broker_of_the_topic() -> None:
    state = new_cluster(brokers=3)
    state = after(state, create_topic(state, NewTopic(name="a", topic_id="t", assignment=[[1], [2]])))
    state = after(state, create_partitions(state, "a", 4))
    assert [p.leader for p in state.topics["a"].partitions] == [1, 2, 0, 1]


def test_cordoned_and_offline_brokers_get_no_new_replicas() -> None:
    state = commit(
        new_cluster(brokers=4), [ChangeBroker(broker=1, cordoned=True), ChangeBroker(broker=2, online=False)]
    )
    assert available_brokers(state) == [0, 3]
    state = after(state, create_topic(state, NewTopic(name="a", topic_id="t", partitions=4, replication_factor=2)))
    assert {broker for p in state.topics["a"].partitions for broker in p.replicas} == {0, 3}
    with pytest.raises(InvalidReplicationFactorError, match="cordoned"):
        create_topic(state, NewTopic(name="b", topic_id="u", replication_factor=3))
    with pytest.raises(InvalidReplicationAssignmentError, match="cordoned"):
        create_topic(state, NewTopic(name="b", topic_id="u", assignment=[[1, 0]]))
