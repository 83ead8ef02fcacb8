"""The lag follows from the rows of commits and the state after them; what does not follow is left out or null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from immutables import Map

from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.lag import LagHistory
from sparklog.protocol.state import GroupOffset, GroupState, PartitionState, State, TopicState, offset_key

ID, GONE = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def state(end: int = 0, offset: int | None = None) -> State:
    """A state with the topic t, and with an offset of the group g in it."""
    partition = PartitionState(replicas=(0,), isr=(0,), leader=0, log_end_offset=end)
    topics = Map({"t": TopicState(name="t", topic_id=ID, created_ms=0, partitions=(partition,))})
    groups: Map[str, GroupState] = Map()
    if offset is not None:
        committed = GroupOffset(
            topic="t", topic_id=ID, partition=0, offset=offset, leader_epoch=-1, metadata="", timestamp_ms=0
        )
        groups = Map({"g": GroupState(offsets=Map({offset_key(ID, 0): committed}))})
    return State(cluster_id="x", topics=topics, groups=groups)


def append(version: int, base_offset: int, records: int, topic_id: str = ID) -> tuple[Any, ...]:
    zero, name = (0, 0), "t" if topic_id == ID else "gone"
    return (version, version * 10, name, topic_id, 0, base_offset, records, 1, *zero, None, None, None, "")


def offset(version: int, value: int | None, topic_id: str | None = ID) -> tuple[Any, ...]:
    where = (None, None, None) if topic_id is None else ("t" if topic_id == ID else "gone", topic_id, 0)
    return (version, version * 10, "g", *where, value, None, None)


def change(version: int, name: str, topic_id: str, what: str) -> tuple[Any, ...]:
    return (version, version * 10, name, topic_id, what, 1, "")


def history(
    state: State,
    appends: Sequence[tuple[Any, ...]] = (),
    offsets: Sequence[tuple[Any, ...]] = (),
    changes: Sequence[tuple[Any, ...]] = (),
) -> LagHistory:
    rows = {"appends": appends, "offsets": offsets, "topic_changes": changes}
    tables: list[pa.Table] = [to_table(name, list(each)) for name, each in rows.items()]
    return LagHistory(state, *tables)


def lag(known: LagHistory, version: int) -> list[tuple[Any, ...]]:
    """Topic, offset, end, lag and seconds at a version, a second after its commit."""
    return [(row[2], *row[4:]) for row in known.rows_at(version, version * 10 + 1000)]


def test_seconds_count_from_the_commit_of_the_first_record_that_was_not_read() -> None:
    known = history(state(9), [append(1, 0, 4), append(3, 4, 5)], [offset(2, 0), offset(4, 4), offset(5, 9)])
    assert lag(known, 1) == []
    assert lag(known, 2) == [("t", 0, 4, 4, 1.01)]
    assert lag(known, 3) == [("t", 0, 9, 9, 1.02)]
    assert lag(known, 4) == [("t", 4, 9, 5, 1.01)]
    assert lag(known, 5) == [("t", 9, 9, 0, 0.0)]


def test_an_offset_beyond_the_end_has_a_negative_lag_as_in_describe() -> None:
    assert lag(history(state(9, offset=12)), 5) == [("t", 12, 9, -3, 0.0)]


def test_what_earlier_commits_would_tell_is_not_certain() -> None:
    assert history(state(9, offset=9)).is_certain(5)
    assert not history(state(9, offset=8)).is_certain(5)  # when was record 8 committed?
    assert lag(history(state(9, offset=8)), 5) == [("t", 8, 9, 1, None)]
    later = history(state(9, offset=9), offsets=[offset(7, 9)])
    assert not later.is_certain(6)  # had it an offset before?
    assert lag(later, 6) == []
    assert later.is_certain(7)
    new = [change(6, "t", ID, "create")]
    assert history(state(9, offset=9), offsets=[offset(7, 9)], changes=new).is_certain(6)


def test_deleted_groups_and_topics_may_have_had_offsets_that_no_known_commit_states() -> None:
    deleted = history(state(), offsets=[offset(7, None, topic_id=None)])
    assert (deleted.is_certain(6), deleted.is_certain(7)) == (False, True)
    gone = history(state(), changes=[change(7, "gone", GONE, "delete")])
    assert (gone.is_certain(6), gone.is_certain(7)) == (False, True)
    assert history(state(), changes=[change(5, "gone", GONE, "create"), change(7, "gone", GONE, "delete")]).is_certain(
        5
    )


def test_the_end_of_a_deleted_topic_is_null_unless_an_append_tells_it() -> None:
    deletion = [change(7, "gone", GONE, "delete")]
    known = history(state(), offsets=[offset(5, 3, GONE)], changes=deletion)
    assert lag(known, 5) == [("gone", 3, None, None, None)]
    assert not known.is_certain(5)
    known = history(state(), [append(6, 8, 2, GONE)], [offset(5, 3, GONE)], deletion)
    assert lag(known, 5) == [("gone", 3, 8, 5, None)]
    assert lag(known, 6) == [("gone", 3, 10, 7, None)]
    assert lag(known, 7) == []
    born = [change(4, "gone", GONE, "create"), *deletion]
    assert lag(history(state(), offsets=[offset(5, 0, GONE)], changes=born), 5) == [("gone", 0, 0, 0, 0.0)]
