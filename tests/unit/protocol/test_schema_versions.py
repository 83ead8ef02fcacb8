"""Versions of a topic's schemas in the state: what the fold of commits makes of changes of the schema configs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidConfigurationError
from sparklog.log.checkpoints import heads
from sparklog.protocol.commits import (
    AlterConfig,
    CreateTopic,
    DeleteSegments,
    DeleteTopic,
    LiveSegment,
    RemovedSegments,
    ReplaceSegments,
    ResetTime,
)
from sparklog.protocol.decide.append import decide_append
from sparklog.protocol.decide.topics import NewTopic, alter_configs, create_topic
from sparklog.protocol.schema_versions import find_current
from sparklog.protocol.segment_checksum import run_hash, to_text
from sparklog.protocol.state import SchemaVersion, State
from tests.unit.protocol.states import after, commit, item, new_cluster, request, run, with_topic

PARTITION: dict[str, Any] = {"topic": "orders", "topic_id": "t1", "partition": 0}
TYPED = {"value.format": "json", "value.schema": "a string"}


def typed_topic() -> State:
    state = new_cluster()
    return after(state, create_topic(state, NewTopic(name="orders", topic_id="t1", configs=TYPED)))


def set_schema(state: State, text: str, config: str = "value.schema") -> State:
    return commit(state, [AlterConfig(topic="orders", set={config: text})])


def texts(state: State, config: str = "value.schema") -> list[tuple[str, int]]:
    return [(schema.text, schema.version) for schema in state.topics["orders"].schemas.get(config, ())]


def current(state: State) -> int:
    return find_current(state.topics["orders"], "value.schema")


def test_a_topic_created_with_a_schema_has_version_1_of_that_commit() -> None:
    state = typed_topic()
    created = SchemaVersion(text="a string", version=1, timestamp_ms=state.timestamp_ms)
    assert state.topics["orders"].schemas == {"value.schema": (created,)}
    assert current(state) == 1


def test_a_topic_without_a_schema_has_no_version() -> None:
    state = with_topic()
    assert (state.topics["orders"].schemas, current(state)) == ({}, 0)


def test_each_new_text_gets_the_next_number_and_the_commit_that_set_it() -> None:
    state = set_schema(typed_topic(), "a string, b int")
    assert (texts(state), current(state)) == ([("a string", 1), ("a string, b int", 2)], 2)


def test_an_earlier_text_keeps_its_number_and_is_current_again() -> None:
    state = set_schema(set_schema(typed_topic(), "a string NOT NULL"), "a string")
    assert (texts(state), current(state)) == ([("a string", 1), ("a string NOT NULL", 2)], 1)


def test_other_changes_of_configs_add_no_version() -> None:
    state = typed_topic()
    same = commit(state, [AlterConfig(topic="orders", set={"retention.ms": "1", "value.schema": "a string"})])
    assert same.topics["orders"].schemas == state.topics["orders"].schemas
    assert commit(same, [AlterConfig(set={"value.schema": "z int"})]).topics == same.topics


def test_a_schema_that_is_deleted_leaves_its_versions() -> None:
    state = commit(typed_topic(), [AlterConfig(topic="orders", delete=["value.schema"])])
    assert (texts(state), current(state)) == ([("a string", 1)], 0)
    assert texts(set_schema(state, "b int")) == [("a string", 1), ("b int", 3)]


def test_keys_and_values_have_versions_of_their_own() -> None:
    state = set_schema(typed_topic(), "id string", "key.schema")
    assert (texts(state), texts(state, "key.schema")) == ([("a string", 1)], [("id string", 2)])


def test_a_topic_that_is_created_again_begins_with_version_1() -> None:
    state = set_schema(typed_topic(), "a string, b int")
    created = CreateTopic(topic="orders", topic_id="t2", replicas=[[0]], configs={"value.schema": "c int"})
    assert texts(commit(state, [DeleteTopic(topic="orders", topic_id="t1"), created])) == [("c int", 3)]


def test_a_reset_of_the_time_sets_later_times_of_versions_to_it() -> None:
    state = typed_topic()
    reset = commit(state, [ResetTime(time_ms=1)], timestamp=1)
    assert [schema.timestamp_ms for schema in reset.topics["orders"].schemas["value.schema"]] == [1]


def test_a_version_more_than_are_kept_is_refused_and_one_of_them_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SCHEMA_VERSIONS", 2)
    state = set_schema(typed_topic(), "a string, b int")
    with pytest.raises(InvalidConfigurationError, match=r"value.schema of topic 'orders' has had 2 versions"):
        alter_configs(state, "orders", {"value.schema": "a string, b int, c int"})
    assert alter_configs(state, "orders", {"value.schema": "a string"}).actions


def test_a_checkpoint_has_the_versions_as_rows_of_their_own() -> None:
    state = set_schema(typed_topic(), "a string, b int")
    rows = heads.all_rows(state)
    assert [row[:3] for row in rows["schemas"]] == [("orders", "value.schema", 1), ("orders", "value.schema", 2)]
    assert not rows["topics"][0][1].schemas
    assert heads.assemble([heads.ENCODING.encode(rows)]) == state


# -- values that do not fit


REMOVED = RemovedSegments(segments=1, size_bytes=10, checksum=to_text(run_hash("t1", 0, 0, run(3))))
ROLLED = to_text(run_hash("t1", 0, 0, run(3, "history")))


def rolled(unfit: int, removed: RemovedSegments = REMOVED) -> State:
    """Return a topic with 3 records in a history segment, of which so many do not fit."""
    state = with_topic()
    state = after(state, decide_append(state, request(item())))
    live = LiveSegment(base_offset=0, end_offset=3, run=run(3, "history"), unfit=unfit)
    replacement = ReplaceSegments(**PARTITION, start_offset=0, end_offset=3, removed=removed, added=[live])
    return commit(state, [replacement])


def test_a_partition_counts_the_values_of_its_segments_that_do_not_fit() -> None:
    state = rolled(2)
    assert state.partition("orders", 0).unfit == 2
    removed = RemovedSegments(segments=1, size_bytes=10, checksum=ROLLED, unfit=2)
    assert commit(state, [DeleteSegments(**PARTITION, end_offset=3, removed=removed)]).partition("orders", 0).unfit == 0


def test_segments_cannot_remove_more_values_that_do_not_fit_than_there_are() -> None:
    with pytest.raises(CorruptMetadataError, match="1 records that do not fit are more than there are"):
        rolled(0, replace(REMOVED, unfit=1))
    removed = RemovedSegments(segments=1, size_bytes=10, checksum=ROLLED, unfit=3)
    with pytest.raises(CorruptMetadataError, match="3 records that do not fit are more than there are"):
        commit(rolled(2), [DeleteSegments(**PARTITION, end_offset=3, removed=removed)])
