"""Retention, case by case as in Kafka's UnifiedLogTest (see docs/log-semantics.md), and properties for any log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from sparklog.protocol.plan.retention import (
    LOG_START_OFFSET,
    RETENTION_BYTES,
    RETENTION_MS,
    Deletable,
    Retention,
    deletable,
    may_delete,
    retention_of,
)
from sparklog.protocol.plan.rolling import Group
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State, TopicState

NOW = 1_000_000
RECORDS = 5
SIZE = 100


def segment(number: int, timestamp_ms: int = NOW, size: int = SIZE) -> Segment:
    """The segment of offsets ``[5 n, 5 n + 5)``."""
    return Segment(
        partition=0,
        base_offset=number * RECORDS,
        end_offset=(number + 1) * RECORDS,
        records=RECORDS,
        path=f"t-0/{number:020d}-v1-x.log",
        broker=0,
        first_batch=0,
        batches=1,
        first_row=0,
        size_bytes=size,
        min_timestamp_us=0,
        max_timestamp_us=timestamp_ms * 1000,
        append_time_ms=-1,
        leader_epoch=0,
        version=number + 1,
    )


def log(ages_ms: Sequence[int], log_start_offset: int = 0) -> tuple[list[Group], PartitionState]:
    """One segment of 100 bytes per age, and the partition they make up."""
    segments = [segment(number, NOW - age) for number, age in enumerate(ages_ms)]
    return [Group([one]) for one in segments], partition_of(segments, log_start_offset)


def partition_of(segments: Sequence[Segment], log_start_offset: int = 0) -> PartitionState:
    return PartitionState(
        replicas=(0,),
        isr=(0,),
        leader=0,
        log_start_offset=log_start_offset,
        log_end_offset=segments[-1].end_offset if segments else 0,
        segments=len(segments),
        size_bytes=sum(one.size_bytes for one in segments),
    )


def deleted(deletion: Deletable | None) -> list[int]:
    """The numbers of the deleted segments."""
    return [one.base_offset // RECORDS for one in deletion.segments] if deletion else []


BY_AGE = Retention(True, retention_ms=1000)


# -- by age


def test_a_segment_is_deleted_once_its_newest_record_exceeds_retention_ms() -> None:
    groups, partition = log([3000, 1001, 1000, 0])
    deletion = deletable(groups, partition, BY_AGE, NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1]
    assert deletion.end_offset == 2 * RECORDS
    assert deletion.reasons == {RETENTION_MS: 2}


def test_segments_younger_than_retention_ms_are_kept() -> None:
    groups, partition = log([1000, 10, 0])
    assert deletable(groups, partition, BY_AGE, NOW) is None


def test_deletion_by_age_stops_at_the_first_retained_segment() -> None:
    groups, partition = log([3000, 0, 3000, 3000])
    assert deleted(deletable(groups, partition, BY_AGE, NOW)) == [0]


def test_a_timestamp_in_the_future_keeps_its_segment_and_all_later_ones() -> None:
    groups, partition = log([3000, -10_000_000, 3000])
    assert deleted(deletable(groups, partition, BY_AGE, NOW)) == [0]


def test_a_retention_of_minus_one_keeps_everything_for_ever() -> None:
    groups, partition = log([NOW, NOW])
    assert deletable(groups, partition, Retention(True, -1, -1), NOW) is None


def test_the_active_segment_is_deleted_as_a_whole_when_all_of_it_expired() -> None:
    segments = [segment(number, NOW - 5000) for number in range(4)]
    deletion = deletable([Group(segments)], partition_of(segments), BY_AGE, NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1, 2, 3]
    assert deletion.end_offset == 4 * RECORDS


def test_one_young_record_keeps_the_whole_active_segment() -> None:
    segments = [segment(number, NOW - 5000) for number in range(4)] + [segment(4, NOW)]
    assert deletable([Group(segments)], partition_of(segments), BY_AGE, NOW) is None


def test_a_retention_of_0_ms_keeps_only_records_of_the_present_or_later() -> None:
    groups, partition = log([2, 1, 0])
    assert deleted(deletable(groups, partition, Retention(True, 0), NOW)) == [0, 1]


# -- by size


def test_size_retention_leaves_at_least_retention_bytes() -> None:
    groups, partition = log([0] * 5)
    deletion = deletable(groups, partition, Retention(True, -1, 250), NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1]
    assert deletion.reasons == {RETENTION_BYTES: 2}
    assert partition.size_bytes - deletion.size_bytes >= 250


def test_size_retention_may_leave_exactly_retention_bytes() -> None:
    groups, partition = log([0] * 5)
    assert deleted(deletable(groups, partition, Retention(True, -1, 300), NOW)) == [0, 1]


def test_size_retention_keeps_a_log_within_retention_bytes() -> None:
    groups, partition = log([0] * 5)
    for size in (401, 500, 501):
        assert deletable(groups, partition, Retention(True, -1, size), NOW) is None


def test_size_retention_stops_at_a_segment_too_large_to_delete() -> None:
    segments = [segment(0, size=100), segment(1, size=1000), segment(2, size=10)]
    groups = [Group([one]) for one in segments]
    assert deleted(deletable(groups, partition_of(segments), Retention(True, -1, 500), NOW)) == [0]


def test_a_size_of_0_deletes_the_active_segment_too() -> None:
    groups, partition = log([0] * 3)
    deletion = deletable(groups, partition, Retention(True, -1, 0), NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1, 2]
    assert deletion.end_offset == partition.log_end_offset


def test_size_retention_deletes_the_files_of_a_segment_together_or_not_at_all() -> None:
    segments = [segment(number) for number in range(6)]
    groups = [Group(segments[:4]), Group(segments[4:])]
    assert deletable(groups, partition_of(segments), Retention(True, -1, 201), NOW) is None
    assert deleted(deletable(groups, partition_of(segments), Retention(True, -1, 200), NOW)) == [0, 1, 2, 3]


def test_age_retention_deletes_beyond_size_retention() -> None:
    groups, partition = log([5000, 5000, 5000, 0, 0])
    deletion = deletable(groups, partition, Retention(True, 1000, 400), NOW)
    assert deletion is not None
    assert deletion.reasons == {RETENTION_BYTES: 1, RETENTION_MS: 2}


# -- by log start offset


def test_segments_below_the_log_start_offset_are_deleted() -> None:
    groups, partition = log([0] * 5, log_start_offset=2 * RECORDS)
    deletion = deletable(groups, partition, Retention(True), NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1]
    assert deletion.reasons == {LOG_START_OFFSET: 2}


def test_a_segment_that_contains_the_log_start_offset_is_kept() -> None:
    groups, partition = log([0] * 5, log_start_offset=2 * RECORDS - 1)
    assert deleted(deletable(groups, partition, Retention(True), NOW)) == [0]


def test_files_of_the_active_segment_below_the_log_start_offset_are_deleted_unrolled() -> None:
    segments = [segment(number) for number in range(4)]
    deletion = deletable([Group(segments)], partition_of(segments, 3 * RECORDS), Retention(True), NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1, 2]
    assert deletion.end_offset == 3 * RECORDS


def test_all_segments_are_deleted_when_the_log_starts_at_its_end() -> None:
    groups, partition = log([0] * 3, log_start_offset=3 * RECORDS)
    deletion = deletable(groups, partition, Retention(False), NOW)
    assert deletion is not None
    assert deleted(deletion) == [0, 1, 2]
    assert deletion.end_offset == 3 * RECORDS


def test_size_retention_ignores_segments_below_the_log_start_offset() -> None:
    groups, partition = log([0] * 5, log_start_offset=2 * RECORDS)
    assert deleted(deletable(groups, partition, Retention(True, -1, 300), NOW)) == [0, 1]
    assert deleted(deletable(groups, partition, Retention(True, -1, 200), NOW)) == [0, 1, 2]


# -- by policy and high watermark


@pytest.mark.parametrize(
    ("policy", "goes"), [("delete", [0, 1]), ("compact,delete", [0, 1]), ("compact", []), ("", [])]
)
def test_age_and_size_apply_only_with_the_delete_policy(policy: str, goes: list[int]) -> None:
    groups, partition = log([5000, 5000, 0])
    configs = {"cleanup.policy": policy, "retention.ms": "1000", "retention.bytes": "0"}
    for name in ("retention.ms", "retention.bytes"):
        own = {key: value for key, value in configs.items() if key in (name, "cleanup.policy")}
        topic = TopicState(name="t", topic_id="i", created_ms=0, partitions=(partition,), configs=own)
        retention = retention_of(State(cluster_id="c", topics=Map({"t": topic})), topic)
        deletion = deleted(deletable(groups, partition, retention, NOW))
        assert deletion == (goes if name == "retention.ms" or not goes else [0, 1, 2])


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact", ""])
def test_segments_below_the_log_start_offset_are_deleted_under_any_policy(policy: str) -> None:
    groups, partition = log([0] * 3, log_start_offset=RECORDS)
    topic = TopicState(
        name="t", topic_id="i", created_ms=0, partitions=(partition,), configs={"cleanup.policy": policy}
    )
    retention = retention_of(State(cluster_id="c", topics=Map({"t": topic})), topic)
    assert deleted(deletable(groups, partition, retention, NOW)) == [0]


def test_cluster_defaults_apply_to_a_topic_without_own_configs() -> None:
    topic = TopicState(name="t", topic_id="i", created_ms=0, partitions=())
    state = State(
        cluster_id="c", topics=Map({"t": topic}), configs={"log.retention.hours": "1", "log.retention.bytes": "7"}
    )
    assert retention_of(state, topic) == Retention(True, 3_600_000, 7)
    assert retention_of(State(cluster_id="c"), topic) == Retention(True, 604_800_000, -1)


def test_segments_at_or_above_the_high_watermark_are_kept() -> None:
    groups, partition = log([5000] * 4)
    for end, goes in ((0, []), (2 * RECORDS - 1, [0]), (2 * RECORDS, [0, 1])):
        shorter = PartitionState(
            replicas=(0,), isr=(0,), leader=0, log_end_offset=end, segments=4, size_bytes=partition.size_bytes
        )
        assert deleted(deletable(groups, shorter, BY_AGE, NOW)) == goes
        assert deleted(deletable(groups, shorter, Retention(True, -1, 0), NOW)) == goes


def test_the_log_starts_at_the_next_existing_record_after_a_compaction_gap() -> None:
    first, last = segment(0, NOW - 5000), segment(7)
    deletion = deletable([Group([first]), Group([last])], partition_of([first, last]), BY_AGE, NOW)
    assert deletion is not None
    assert deletion.end_offset == 7 * RECORDS


# -- properties


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Group], PartitionState]:
    sizes = draw(st.lists(st.integers(1, 300), max_size=12))
    segments = [segment(n, NOW - draw(st.integers(-500, 3000)), size) for n, size in enumerate(sizes)]
    start = draw(st.integers(0, len(segments) * RECORDS))
    groups: list[Group] = []
    rest = segments
    while rest:
        count = draw(st.integers(1, len(rest)))
        groups.append(Group(rest[:count]))
        rest = rest[count:]
    return groups, partition_of(segments, start)


retentions = st.builds(Retention, st.booleans(), st.integers(-1, 3000), st.integers(-1, 2000))


@given(logs(), retentions)
def test_retention_deletes_the_oldest_part_and_no_more_than_each_rule_requires(
    log: tuple[list[Group], PartitionState], retention: Retention
) -> None:
    groups, partition = log
    segments = [one for group in groups for one in group.segments]
    deletion = deletable(groups, partition, retention, NOW)
    count = len(deletion.segments) if deletion else 0
    assert not deletion or segments[:count] == deletion.segments
    assert not deletion or may_delete(partition, retention)
    below = sum(one.end_offset <= partition.log_start_offset for one in segments)
    assert count >= below
    if not retention.delete:
        assert count == below
    left = partition.size_bytes - (deletion.size_bytes if deletion else 0)
    by_size = deletion.reasons.get(RETENTION_BYTES, 0) if deletion else 0
    if by_size:
        assert left + sum(one.size_bytes for one in segments[below + by_size : count]) >= retention.retention_bytes
    kept = segments[count:]
    if deletion and kept:
        assert deletion.end_offset == kept[0].base_offset
    assert deletable(_cut(groups, count), _after(partition, deletion), retention, NOW) is None, (
        "a second run finds more"
    )


def _cut(groups: list[Group], count: int) -> Iterator[Group]:
    for group in groups:
        skipped = min(count, len(group.segments))
        count -= skipped
        if group.segments[skipped:]:
            yield Group(group.segments[skipped:])


def _after(partition: PartitionState, deletion: Deletable | None) -> PartitionState:
    if deletion is None:
        return partition
    return PartitionState(
        replicas=(0,),
        isr=(0,),
        leader=0,
        log_start_offset=max(partition.log_start_offset, deletion.end_offset),
        log_end_offset=partition.log_end_offset,
        segments=partition.segments - len(deletion.segments),
        size_bytes=partition.size_bytes - deletion.size_bytes,
    )


# -- the limit of files


def test_a_limit_cuts_a_segment_that_the_log_start_offset_has_passed() -> None:
    """It may consist of more small files than a listing holds."""
    segments = [segment(number) for number in range(5)]
    deletion = deletable([Group(segments)], partition_of(segments, 4 * RECORDS), BY_AGE, NOW, 3)
    assert deletion is not None
    assert (deleted(deletion), deletion.end_offset, deletion.more) == ([0, 1, 2], 3 * RECORDS, True)


@given(
    ages=st.lists(st.sampled_from([0, 5000]), min_size=1, max_size=8),
    start=st.integers(0, 8),
    size=st.sampled_from([-1, 0, 250]),
    limit=st.integers(1, 3),
)
def test_deletions_within_a_limit_remove_together_what_one_removes(
    ages: list[int], start: int, size: int, limit: int
) -> None:
    segments = [segment(number, NOW - age) for number, age in enumerate(ages)]
    log_start = min(start, len(ages)) * RECORDS
    retention = Retention(True, 1000, size)
    at_once = deletable([Group([one]) for one in segments], partition_of(segments, log_start), retention, NOW)
    in_steps: list[int] = []
    more = True
    while more:
        step = deletable([Group([one]) for one in segments], partition_of(segments, log_start), retention, NOW, limit)
        more = step is not None and step.more
        assert len(deleted(step)) <= limit
        in_steps += deleted(step)
        segments = segments[len(deleted(step)) :]
    assert in_steps == deleted(at_once)
