"""Start and end offsets of streaming queries: limits, new partitions, and every kind of data loss."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataLossError, InvalidRequestError
from sparklog.spark.stream.lag_listener import find_lag
from sparklog.spark.stream.offsets import (
    Loss,
    OtherTimeline,
    PartitionLog,
    PlannedAt,
    StreamOffsets,
    check_cluster,
    check_target,
    count_records,
    describe_losses,
    find_batch_ranges,
    find_starts,
    has_ids,
    lag,
    parse,
    prorate,
    raise_losses,
    without_commit,
)
from sparklog.types import OffsetRange, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "id-a", "b": "id-b"}


def offsets(partitions: dict[TopicPartition, int], ids: dict[str, str] | None = None) -> StreamOffsets:
    return StreamOffsets(partitions, "cluster", IDS if ids is None else ids)


def logs(**found: tuple[str, int, int]) -> dict[TopicPartition, PartitionLog]:
    places = {"a0": A0, "a1": A1, "b0": B0}
    return {places[name]: PartitionLog(*log) for name, log in found.items()}


def test_offsets_are_the_json_of_the_connector_plus_topic_ids() -> None:
    at = offsets({TopicPartition("a", 10): 4, B0: 7, TopicPartition("a", 2): 5})
    assert json.dumps(at.to_json(), separators=(",", ":")) == (
        '{"a":{"2":5,"10":4},"b":{"0":7},"$ids:cluster:a=id-a,b=id-b":{}}'
    )
    assert parse(json.loads(json.dumps(at.to_json()))) == at


def test_offsets_name_the_commit_in_which_they_were_found() -> None:
    at = replace(offsets({A0: 5, B0: 7}), planned_at=PlannedAt(81, "5bf0"))
    text = json.dumps(at.to_json(), separators=(",", ":"))
    assert text == '{"a":{"0":5},"b":{"0":7},"$ids:cluster:a=id-a,b=id-b,$81=5bf0":{}}'
    assert parse(json.loads(text)) == at
    assert without_commit(text) == json.dumps(offsets({A0: 5, B0: 7}).to_json(), separators=(",", ":"))


def test_earlier_versions_read_past_the_commit() -> None:
    """They split the name like this, and look up the topics that they read."""
    *_, name = replace(offsets({A0: 5, B0: 7}), planned_at=PlannedAt(81, "5bf0")).to_json()
    _, cluster, pairs = name.split(":")
    ids = dict(pair.split("=", 1) for pair in pairs.split(",") if pair)
    assert (cluster, ids) == ("cluster", {**IDS, "$81": "5bf0"})


def test_offsets_of_another_timeline_are_a_loss_of_what_is_before_them() -> None:
    start = offsets({A0: 5, A1: 3, B0: 9})
    found = logs(a0=("id-a", 0, 9), a1=("id-a", 3, 3), b0=("id-b", 0, 7))
    assert find_starts(start, found)[1] == [Loss(B0, 7, 9, "the log ends at 7 and was longer before")]
    starts, losses = find_starts(start, found, OtherTimeline("restored", True))
    assert starts == {A0: 5, A1: 3, B0: 7}
    assert losses == [Loss(A0, 0, 5, "restored"), Loss(B0, 7, 9, "the log ends at 7 and was longer before")]
    restored = OtherTimeline("restored", True)
    ranges, losses = find_batch_ranges(offsets({A0: 2, A1: 3}), offsets({A0: 5, A1: 3}), found, restored)
    assert (ranges, losses) == ([OffsetRange("a", 0, 2, 5)], [Loss(A0, 2, 5, "restored")])


def test_iterating_topics_and_partitions_yields_the_offsets_of_sparks_kafka_source() -> None:
    raw = json.loads(json.dumps(offsets({A0: 5, B0: 7}).to_json()))
    iterated = {(topic, int(number)): int(offset) for topic, each in raw.items() for number, offset in each.items()}
    assert iterated == {("a", 0): 5, ("b", 0): 7}


@pytest.mark.parametrize("topics", [{}, {"a": "id-a"}, {"a": "-_id=", "b": "i"}])
def test_offsets_in_checkpoints_of_earlier_versions_are_read(topics: dict[str, str]) -> None:
    raw = {"a": {"0": 5}, "b": {"0": 7}, "$ids": {"cluster": "cluster", "topics": topics}}
    assert has_ids(raw)
    assert parse(raw) == offsets({A0: 5, B0: 7}, topics)


def test_offsets_without_ids_are_accepted_as_a_start() -> None:
    assert parse({"a": {"0": 5}}) == StreamOffsets({A0: 5})
    assert not has_ids({"a": {"0": 5}})
    assert not has_ids(7)


def test_the_first_offset_of_a_query_differs_from_equal_later_ones_and_is_logged() -> None:
    assert StreamOffsets({A0: 0}).to_json() == {"a": {"0": 0}} != offsets({A0: 0}).to_json()


@pytest.mark.parametrize(
    "raw", [[], 7, {"a": 7}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": -1}}, {"$ids": 1}, {"$ids:c": {}}]
)
def test_invalid_offsets_are_refused(raw: object) -> None:
    with pytest.raises(InvalidRequestError, match="use a new checkpointLocation"):
        parse(raw)


def test_another_clusters_checkpoint_is_refused() -> None:
    check_cluster(offsets({}), "cluster", "/data/log")
    check_cluster(StreamOffsets({}), "cluster", "/data/log")
    with pytest.raises(InvalidRequestError, match="of cluster cluster, but /data/log holds cluster other"):
        check_cluster(offsets({}), "other", "/data/log")


def test_a_limit_is_prorated_as_by_sparks_kafka_source() -> None:
    starts, ends = {A0: 0, A1: 0, B0: 0}, {A0: 101, A1: 11, B0: 1}
    first = prorate(starts, ends, 10)
    assert first == {A0: 8, A1: 1, B0: 1}
    second = prorate(first, ends, 10)
    assert {partition: second[partition] - first[partition] for partition in second} == {
        A0: 9,
        A1: 1,
        B0: 0,
    }
    assert prorate({A0: 0, A1: 0, B0: 0}, {A0: 21, A1: 11, B0: 1}, 20) == {A0: 12, A1: 6, B0: 1}


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 10**12)), min_size=1, max_size=8), st.integers(1, 10**9)
)
def test_limited_batches_reach_the_end_and_never_pass_it(sizes: list[tuple[int, int]], limit: int) -> None:
    starts = {TopicPartition("a", number): start for number, (start, _) in enumerate(sizes)}
    ends = {TopicPartition("a", number): start + size for number, (start, size) in enumerate(sizes)}
    prorated = prorate(starts, ends, limit)
    for partition, end in ends.items():
        assert starts[partition] <= prorated[partition] <= end
        assert (prorated[partition] > starts[partition]) == (end > starts[partition]), (
            "no partition starves or is read beyond its end"
        )
    assert count_records(starts, prorated) <= limit + len(sizes)


def test_a_known_partition_continues_and_a_new_one_starts_at_earliest() -> None:
    starts, losses = find_starts(offsets({A0: 5}), logs(a0=("id-a", 0, 9), a1=("id-a", 0, 4)))
    assert starts == {A0: 5, A1: 0}
    assert losses == []


@pytest.mark.parametrize(
    ("log", "begin", "loss"),
    [
        (("id-a", 7, 9), 7, "a-0 from offset 5 to 7: records were deleted before they were read"),
        (("id-a", 0, 3), 3, "a-0 from offset 3 to 5: the log ends at 3 and was longer before"),
        (
            ("id-new", 0, 9),
            0,
            "a-0 from offset 5 on: topic 'a' was deleted and created again (id id-a then, id-new now)",
        ),
    ],
)
def test_offsets_that_can_no_longer_be_read_are_losses(log: tuple[str, int, int], begin: int, loss: str) -> None:
    starts, losses = find_starts(offsets({A0: 5}), logs(a0=log))
    assert starts == {A0: begin}
    assert [str(one) for one in losses] == [loss]


def test_a_missing_partition_and_a_new_one_that_lost_records_are_losses() -> None:
    starts, losses = find_starts(offsets({B0: 5}), logs(a0=("id-a", 3, 9)))
    assert starts == {A0: 3}
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(A0, 0, 3), (B0, 5, None)]


def test_the_error_for_losses_names_the_lost_ranges() -> None:
    raise_losses([])
    with pytest.raises(DataLossError, match=r"a-0 from offset 5 to 7: gone.*failOnDataLoss=false") as failed:
        raise_losses([Loss(A0, 5, 7, "gone")])
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("a", 0, 5)
    assert describe_losses([Loss(A0, n, None, "gone") for n in range(25)]).endswith("and 5 more partitions")


def test_a_loss_that_is_not_certain_is_not_called_one() -> None:
    certain, possible = Loss(A0, 3, 5, "gone"), Loss(A1, 0, 9, "removed", is_certain=False)
    assert describe_losses([possible]) == (
        "it is not known whether records were replaced by others: a-1 from offset 0 to 9: removed"
    )
    assert describe_losses([possible, certain]).startswith("records were lost: a-0 from offset 3 to 5: gone; it is not")
    with pytest.raises(DataLossError, match="If the root was not restored, start the query again"):
        raise_losses([possible])
    with pytest.raises(DataLossError, match="Restore the records") as caught:
        raise_losses([possible, certain])
    assert (caught.value.partition, caught.value.offset) == (0, 3)


def test_a_batch_reads_the_records_between_its_offsets() -> None:
    there = logs(a0=("id-a", 0, 9), a1=("id-a", 0, 4), b0=("id-b", 0, 3))
    ranges, losses = find_batch_ranges(offsets({A0: 5, B0: 3}), offsets({A0: 9, A1: 2, B0: 3}), there)
    assert ranges == [OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 0, 2)]
    assert losses == []


def test_a_batch_after_a_topic_was_recreated_reads_it_from_the_beginning() -> None:
    start, end = offsets({A0: 5}), offsets({A0: 8}, {"a": "id-new"})
    assert find_batch_ranges(start, end, logs(a0=("id-new", 0, 8))) == ([OffsetRange("a", 0, 0, 8)], [])


@pytest.mark.parametrize(
    ("log", "read", "lost"),
    [
        (("id-a", 6, 9), [(6, 8)], [(5, 6)]),
        (("id-a", 9, 9), [], [(5, 8)]),
        (("id-a", 0, 7), [(5, 7)], [(7, 8)]),
        (("id-a", 0, 2), [], [(5, 8)]),
        (("id-new", 0, 9), [], [(5, 8)]),
    ],
)
def test_a_planned_batch_reports_its_lost_ranges(
    log: tuple[str, int, int], read: list[tuple[int, int]], lost: list[tuple[int, int]]
) -> None:
    ranges, losses = find_batch_ranges(offsets({A0: 5}), offsets({A0: 8}), logs(a0=log))
    assert [(one.start, one.end) for one in ranges] == read
    assert [(one.start, one.end) for one in losses] == lost
    assert find_batch_ranges(offsets({A0: 5}), offsets({A0: 8}), {})[1]


@pytest.mark.parametrize("now", [{}, {"a0": ("id-new", 0, 9)}, {"a0": ("id-a", 0, 8)}])
def test_a_fixed_end_that_cannot_be_reached_is_an_error(now: dict[str, tuple[str, int, int]]) -> None:
    check_target(offsets({A0: 9}), logs(a0=("id-a", 0, 12), b0=("id-b", 0, 1)))
    with pytest.raises(DataLossError, match=r"a-0 was to be read up to 9.*start the query again"):
        check_target(offsets({A0: 9}), logs(**now))


def test_lag_is_counted_per_partition() -> None:
    end, latest = offsets({A0: 5}), offsets({A0: 9, A1: 2, B0: 0})
    assert lag(end, latest) == {A0: 4, A1: 2, B0: 0}
    source = {"endOffset": end.to_json(), "latestOffset": latest.to_json()}
    found = find_lag({"id": "q", "batchId": 1, "sources": [source]})
    assert found is not None
    assert (found.min_offsets_behind_latest, found.max_offsets_behind_latest) == (0, 4)
    assert found.avg_offsets_behind_latest == 2.0


def test_a_query_that_has_read_no_partition_has_no_lag() -> None:
    found = find_lag({"id": "q", "batchId": 0, "sources": [{"endOffset": offsets({}).to_json()}]})
    assert found is not None
    assert (found.max_offsets_behind_latest, found.avg_offsets_behind_latest) == (0, 0.0)
