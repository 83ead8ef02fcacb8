"""The values of metrics, from states and rows, and their text, which prometheus_client reads back."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sparklog.monitoring.exporter import families
from sparklog.monitoring.exporter.append_times import EXACT, AppendTimes
from sparklog.monitoring.exporter.commit_counters import DELAY_BOUNDS, CommitCounters
from sparklog.monitoring.exporter.families import FAMILIES, Family
from sparklog.monitoring.exporter.state_samples import (
    GroupOffsets,
    NameFilter,
    broker_rows,
    group_offsets,
    lag_rows,
    partition_rows,
    partition_values,
    state_values,
    topic_values,
)
from sparklog.monitoring.exporter.text import Labels, Value, histogram_lines, sample_lines, with_header
from sparklog.protocol.commits import (
    Action,
    Append,
    ChangePartition,
    Commit,
    DeleteSegments,
    FenceWriters,
    RemovedSegments,
    RemoveFiles,
    Run,
)
from sparklog.protocol.state import (
    BrokerState,
    GroupOffset,
    GroupState,
    MemberState,
    PartitionState,
    RemovedFiles,
    State,
    TopicState,
    offset_key,
)

LABELS = Labels({})
ANY = Family("any_metric", families.GAUGE, ("consumergroup",), "any")


def partition(**fields: object) -> PartitionState:
    return PartitionState(**{"replicas": (1, 2), "isr": (1, 2), "leader": 1, **fields})  # type: ignore[arg-type]


def topic(name: str, *partitions: PartitionState) -> TopicState:
    return TopicState(name=name, topic_id=f"{name}-id", created_ms=0, partitions=partitions)


def state(*topics: TopicState, **fields: object) -> State:
    return State(cluster_id="c", topics=Map({each.name: each for each in topics}), **fields)  # type: ignore[arg-type]


def group(*offsets: tuple[str, int, int], **fields: object) -> GroupState:
    entries = {
        offset_key(f"{name}-id", number): GroupOffset(
            topic=name, topic_id=f"{name}-id", partition=number, offset=offset, leader_epoch=0, metadata="",
            timestamp_ms=5000 + number,
        )
        for name, number, offset in offsets
    }  # fmt: skip
    return GroupState(offsets=Map(entries), **fields)  # type: ignore[arg-type]


def by_name(of: tuple[Family, ...], values: tuple[Value, ...]) -> dict[str, Value]:
    return dict(zip((family.name for family in of), values, strict=True))


def parse(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


# -- text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_label_value_and_nothing_else(value: str) -> None:
    (lines,) = sample_lines([ANY], [(LABELS.of(ANY.labels, value), (7,))])
    if "\r" not in value:  # at which the parser splits lines, unlike Prometheus
        (sample,) = parse(with_header(ANY, lines))
        assert (sample.labels, sample.value) == ({"consumergroup": value}, 7)
    assert lines.count("\n") == 1
    assert lines.endswith("} 7\n")


def test_constant_labels_are_escaped_and_on_every_sample_also_of_partitions() -> None:
    labels = Labels({"cluster": 'a"b'})
    rows = [*partition_rows(topic("t", partition()), labels), (labels.of(()), (1,) * 7)]
    text = "".join(map(with_header, families.PARTITION_FAMILIES, sample_lines(families.PARTITION_FAMILIES, rows)))
    assert {sample.labels["cluster"] for sample in parse(text)} == {'a"b'}


def test_a_family_without_samples_is_left_out() -> None:
    assert with_header(ANY, "") == ""
    assert sample_lines([ANY], [("", (None,))]) == ("",)


def test_the_counts_of_a_histogram_are_cumulative_and_end_with_all() -> None:
    family = families.APPEND_DELAY
    samples = parse(with_header(family, histogram_lines(family, LABELS, (0.5, 2.0), [3, 0, 4], 99.5)))
    assert [(each.name.removeprefix(family.name), each.labels.get("le"), each.value) for each in samples] == [
        ("_bucket", "0.5", 3), ("_bucket", "2.0", 3), ("_bucket", "+Inf", 7), ("_sum", None, 99.5), ("_count", None, 7),
    ]  # fmt: skip


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in FAMILIES.values():
        assert re.fullmatch(r"(kafka|sparklog)_[a-z]+(_[a-z]+)*", family.name)
        assert (family.kind == families.COUNTER) == family.name.endswith("_total")
        assert not any(character in family.help for character in "\n\\")


# -- partitions and topics


def test_a_partition_has_the_values_of_kafka_exporter() -> None:
    values = partition_values(partition(leader=2, isr=(2,), log_start_offset=3, log_end_offset=10))
    assert by_name(families.PARTITION_FAMILIES, values) == {
        "kafka_topic_partition_current_offset": 10,
        "kafka_topic_partition_oldest_offset": 3,
        "kafka_topic_partition_leader": 2,
        "kafka_topic_partition_leader_is_preferred": 0,
        "kafka_topic_partition_replicas": 2,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_under_replicated_partition": 1,
    }


def test_a_partition_without_a_leader_has_no_leader_metric() -> None:
    values = by_name(families.PARTITION_FAMILIES, partition_values(partition(leader=-1, isr=())))
    assert values["kafka_topic_partition_leader"] is None
    assert values["kafka_topic_partition_leader_is_preferred"] == 0


def test_a_topic_counts_its_bytes_at_all_replicas_in_sync() -> None:
    parts = (partition(size_bytes=10, segments=2, unfit=1), partition(size_bytes=5, segments=1, isr=(1,)))
    values = by_name(families.TOPIC_FAMILIES, topic_values(topic("t", *parts), 2))
    assert list(values.values()) == [2, 25, 3, 1, 2]


def test_the_cluster_counts_brokers_that_are_online_and_files_that_are_due() -> None:
    files = RemovedFiles(version=1, delete_at_ms=1000, files=2, size_bytes=20)
    later = RemovedFiles(version=1, delete_at_ms=3000, files=1, size_bytes=7)
    brokers = {0: BrokerState(broker=0), 1: BrokerState(broker=1, online=False, url="s3://b")}
    cluster = state(
        topic("t", partition(leader=-1), partition(adding=(3,))),
        brokers=brokers, version=41, timestamp_ms=2500, removed_files=Map({"a": files, "b": later}),
    )  # fmt: skip
    assert state_values(cluster, 900, 2000) == (1, 42, 900, 2.5, 1, 1, 3, 27, 2, 20, 1.0)
    assert list(broker_rows(brokers.values(), "/log", LABELS)) == [
        ('{id="0",address="/log"}', (1, 1)), ('{id="1",address="s3://b"}', (1, 0)),
    ]  # fmt: skip
    assert state_values(state(), 0, 0)[-1] is None


# -- groups


def test_a_group_has_lag_by_partition_and_sums_by_topic() -> None:
    cluster = state(
        topic("a", partition(log_end_offset=10), partition(log_end_offset=10)),
        topic("b", partition(log_end_offset=5)),
        groups=Map({"g": group(("a", 0, 4), ("a", 1, 12), ("b", 0, 5), members={"m": MemberState()}, generation=3)}),
    )
    offsets = group_offsets(cluster, "g", LABELS, lambda name: True)
    rows = lag_rows(cluster, [offsets], lambda topic_id, number, offset: 1.5)
    assert sorted(rows.partitions) == [
        ('{consumergroup="g",topic="a",partition="0"}', (4, 6, 1.5)),
        ('{consumergroup="g",topic="a",partition="1"}', (12, -2, 0.0)),
        ('{consumergroup="g",topic="b",partition="0"}', (5, 0, 0.0)),
    ]
    assert sorted(rows.topics) == [
        ('{consumergroup="g",topic="a"}', (16, 6)), ('{consumergroup="g",topic="b"}', (5, 0)),
    ]  # fmt: skip
    assert offsets.row == ('{consumergroup="g"}', (1, 3, 5.001))


def test_a_group_is_exported_without_topics_that_are_left_out_or_deleted() -> None:
    cluster = state(
        topic("a", partition()), topic("b", partition()), groups=Map({"g": group(("a", 0, 0), ("gone", 0, 9))})
    )
    offsets = group_offsets(cluster, "g", LABELS, lambda name: name != "a")
    assert offsets == GroupOffsets(('{consumergroup="g"}', (0, 0, 5.0)), [])
    assert lag_rows(cluster, [offsets], lambda *place: None) == ([], [])


@pytest.mark.parametrize(
    ("include", "exclude", "accepted"),
    [("", "^$", ["orders", "orders-dlq"]), ("dlq", "^$", ["orders-dlq"]), ("^orders$", "^$", ["orders"]),
     ("", "dlq", ["orders"])],
)  # fmt: skip
def test_filters_match_any_part_of_a_name_as_those_of_kafka_exporter(
    include: str, exclude: str, accepted: list[str]
) -> None:
    names = NameFilter(re.compile(include), re.compile(exclude))
    assert list(filter(names.accepts, ["orders", "orders-dlq"])) == accepted


# -- times of appends


def append(
    time_ms: int, base_offset: int, records: int = 1, replicas: Sequence[int] = (1, 2), number: int = 0
) -> Append:
    """An append to a partition of topic t, whose newest record is 40 ms older."""
    run = Run(
        path="p", batches=1, records=records, size_bytes=100, min_timestamp_us=0,
        max_timestamp_us=(time_ms - 40) * 1000, replicas=list(replicas),
    )  # fmt: skip
    return Append(topic="t", topic_id="t-id", partition=number, base_offset=base_offset, run=run)


def test_times_are_those_of_the_append_that_has_the_offset() -> None:
    times = AppendTimes()
    times.add(append(1000, 5, 2), 1000)
    times.add(append(2000, 7), 2000)
    known = [times.committed_ms("t-id", 0, offset) for offset in (4, 5, 6, 7, 8)]
    assert known == [None, 1000, 1000, 2000, None]
    assert times.committed_ms("t-id", 1, 5) is None
    times.keep(["other"])
    assert times.committed_ms("t-id", 0, 5) is None


@given(st.lists(st.integers(1, 10**6), min_size=2 * EXACT, max_size=1500))
def test_times_of_old_appends_are_late_by_less_than_a_tenth_of_their_age(gaps: list[int]) -> None:
    stamps = list(accumulate(gaps))
    times = AppendTimes()
    for number, stamp in enumerate(stamps):
        times.add(append(stamp, number), stamp)
    for number, stamp in enumerate(stamps):
        known = times.committed_ms("t-id", 0, number)
        assert known is not None
        assert 0 <= known - stamp <= (stamps[-1] - stamp) / 10
        assert known == stamp or number < len(stamps) - EXACT


# -- counters


def commit(time_ms: int, *actions: Action) -> Commit:
    return Commit(
        format=1, version=1, write_id="w", timestamp=time_ms, previous="0" * 64, checksum="0" * 32,
        actions=list(actions),
    )  # fmt: skip


def change(number: int, leader: int, isr: list[int]) -> ChangePartition:
    return ChangePartition(
        topic="t", topic_id="t-id", partition=number, leader=leader, leader_epoch=1, isr=isr, replicas=[1, 2]
    )


def test_changes_of_leaders_and_isr_are_counted_from_the_state_before_on() -> None:
    counters = CommitCounters()
    before = state(topic("t", partition(), partition()))
    changes = [change(0, 1, [1]), change(0, 1, [1, 2]), change(0, 2, [2]), change(1, 1, [1, 2]), change(7, 1, [1])]
    counters.add(before, [commit(number, each) for number, each in enumerate(changes)])
    assert (counters.isr_shrinks, counters.isr_expands, counters.leader_changes) == (2, 1, 1)


def test_an_append_that_a_replica_did_not_get_shrinks_the_isr_once() -> None:
    counters = CommitCounters()
    before = state(topic("t", partition(), partition(isr=(2,), leader=2)))
    missed = [append(1, 0, replicas=[2]), append(1, 1, replicas=[2]), append(1, 0, replicas=[1, 2], number=1)]
    counters.add(before, [commit(1, *missed)])
    assert (counters.isr_shrinks, counters.isr_expands, counters.leader_changes) == (1, 0, 1)


def test_appends_are_counted_by_topic_and_their_delay_by_how_long_it_was() -> None:
    counters = CommitCounters()
    counters.add(state(), [commit(1000, append(1000, 0), append(1000, 1))])
    assert counters.appended_bytes == {"t": 200}
    assert counters.delays[DELAY_BOUNDS.index(0.05)] == 2
    assert math.isclose(counters.delay_seconds, 0.08)


def test_maintenance_is_counted_by_step_and_its_time_noted() -> None:
    counters = CommitCounters()
    removed = RemovedSegments(segments=5, size_bytes=500, checksum="0" * 32)
    expired = DeleteSegments(topic="t", topic_id="t-id", partition=0, end_offset=9, removed=removed)
    retired = RemoveFiles(listing="meta/removed/x.arrow", files=9, size_bytes=70, delay_ms=1)
    counters.note_maintenance(commit(500, retired))
    counters.add(state(), [commit(1000, expired, retired), commit(2000, expired)])
    assert list(counters.maintenance_rows(LABELS)) == [
        ('{step="retention"}', (2, 1000, 0, 2.0)), ('{step="retire files"}', (1, 70, 0, 1.0)),
    ]  # fmt: skip
    counters.note_maintenance(commit(500, FenceWriters(version=0)))
    assert next(iter(counters.maintenance_rows(LABELS))) == ('{step="fence writers"}', (0, 0, 0, 0.5))
