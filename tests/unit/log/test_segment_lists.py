"""The lists of live segments of a state, from a checkpoint and later commits."""

from __future__ import annotations

import pytest

from sparklog.errors import CorruptMetadataError, UnknownTopicOrPartitionError
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.protocol.commits import DeleteTopic
from tests.unit.log.small_log import TOPIC_ID, SmallLog


def test_a_list_is_that_of_the_requested_state_despite_later_commits() -> None:
    log = SmallLog()
    first = log.append("a")
    second = log.append("b")
    assert log.paths(first) == ["a"]
    assert log.paths(second) == ["a", "b"]


def test_a_newer_base_changes_no_list() -> None:
    log = SmallLog()
    states = [log.append(path) for path in "abcd"]
    before = [log.paths(state) for state in states]
    log.lists.rebase(log.checkpointer.write(), log.state)
    assert log.lists.recent_count == 0
    states.append(log.append("e"))
    assert [log.paths(state) for state in states] == [*before, ["a", "b", "c", "d", "e"]]


def test_changes_since_a_version_are_those_of_later_commits() -> None:
    log = SmallLog()
    log.append("a")
    version = log.state.version
    log.append("b")
    events, touched = log.lists.changes_since(version)
    assert [event.path for event in events[TOPIC_ID]] == ["b"]  # type: ignore[union-attr]
    assert ("partitions", "orders", 0) in touched
    assert ("brokers", 0) not in touched


def test_missing_files_of_a_base_are_a_distinct_error() -> None:
    log = SmallLog()
    log.append("a")
    manifest = log.checkpointer.write()
    for part in manifest.lists:
        log.store.delete(part.key)
    log.lists = SegmentLists(log.store, ListCache(log.store), manifest)  # as in a process that did not write it
    with pytest.raises(CorruptMetadataError) as raised:
        log.paths(log.state)
    assert raised.value.missing


def test_a_deleted_topic_is_listed_until_a_checkpoint_without_it_is_the_base() -> None:
    log = SmallLog()
    before = log.append("a")
    log.commit(DeleteTopic(topic="orders", topic_id=TOPIC_ID))
    assert log.paths(before) == ["a"]
    log.lists.rebase(log.checkpointer.write(), log.state)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted since"):
        log.paths(before)
