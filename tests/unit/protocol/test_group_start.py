"""Where a consumer starts, and which committed offsets of a group are valid."""

from __future__ import annotations

import pytest
from immutables import Map

from sparklog.protocol.group.start_offset import find_start
from sparklog.protocol.state import GroupOffset, GroupState, State, TopicState, offset_key
from sparklog.types import TopicPartition


@pytest.mark.parametrize("committed", [3, 5, 9])
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_committed_offset_within_the_log_overrides_the_reset_policy(reset: str, committed: int) -> None:
    assert find_start(reset, 3, 9, committed) == committed


@pytest.mark.parametrize("committed", [None, 2, 10])
@pytest.mark.parametrize(("reset", "start"), [("earliest", 3), ("latest", 9), ("none", None)])
def test_the_reset_policy_applies_without_a_committed_offset_within_the_log(
    reset: str, start: int | None, committed: int | None
) -> None:
    assert find_start(reset, 3, 9, committed) == start


def test_offsets_of_a_recreated_or_deleted_topic_are_ignored() -> None:
    def offset(topic: str, topic_id: str) -> GroupOffset:
        return GroupOffset(
            topic=topic, topic_id=topic_id, partition=0, offset=7, leader_epoch=0, metadata="", timestamp_ms=0
        )

    offsets = [offset("kept", "a"), offset("recreated", "old"), offset("deleted", "b")]
    group = GroupState(offsets=Map({offset_key(one.topic_id, 0): one for one in offsets}))
    topics = Map(
        {
            name: TopicState(name=name, topic_id=topic_id, created_ms=0, partitions=())
            for name, topic_id in [("kept", "a"), ("recreated", "new")]
        }
    )
    state = State(cluster_id="c", topics=topics, groups=Map({"g": group}))
    assert state.committed_offsets("g") == {TopicPartition("kept", 0): offsets[0]}
    assert state.committed("g", "kept", 0) == offsets[0]
    for group_id, topic, partition in [("g", "kept", 1), ("g", "recreated", 0), ("g", "deleted", 0), ("h", "kept", 0)]:
        assert state.committed(group_id, topic, partition) is None
