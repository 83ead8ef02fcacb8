"""A streaming read planned against real clusters in a folder, without Spark."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, kept_reading, open_cluster, shared_cluster
from sparklog.coordinator.shared import forget_shared
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    DataLossError,
    InvalidOptionError,
    InvalidRequestError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.offsets import offsets_of_sources, parse
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.spark.versions.api import ReadAllAvailable, ReadMaxRows, ReadMinRows
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.types import TopicPartition
from tests.cluster.client.test_producer_restored_roots import ReadInBackground, pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot
from tests.cluster.spark.helpers import across, cluster, write_rows

ALL = ReadAllAvailable()


def produce(folder: Path, topic: str, *counts: int) -> None:
    """Append these numbers of records, one for each partition."""
    rows = [{"value": "v", "partition": number} for number, count in enumerate(counts) for _ in range(count)]
    write_rows(folder, "value string, partition int", rows, topic=topic)


def reader(folder: Path, clock: ManualClock | None = None, **options: str) -> SparklogStreamReader:
    chosen = {"path": str(folder), "startingOffsets": "earliest", **options}
    if not {"assign", "subscribePattern"} & set(chosen):
        chosen.setdefault("subscribe", "orders")
    checked = stream_options(chosen)
    return SparklogStreamReader(checked, read_schema(False), clock)


def positions(offsets: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {topic: found for topic, found in offsets.items() if not topic.startswith("$ids")}


def read(job: SparklogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [
        (row["topic"], row["partition"], row["offset"])
        for part in job.partitions(start, end)
        for batch in across(job).read(across(part))
        for row in batch.to_pylist()
    ]


def test_a_new_query_starts_at_its_starting_options(tmp_path: Path) -> None:
    cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    assert reader(tmp_path).initialOffset() == {"orders": {"0": 0, "1": 0}}
    assert reader(tmp_path, startingOffsets="latest").initialOffset() == {"orders": {"0": 5, "1": 2}}
    assert reader(tmp_path, startingOffsets='{"orders":{"0":3,"1":-1}}').initialOffset() == {"orders": {"0": 3, "1": 2}}
    assert reader(tmp_path, startingTimestamp="0").initialOffset() == {"orders": {"0": 0, "1": 0}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"orders":{"0":3}}'}, "leaves out"),
        ({"startingOffsets": '{"orders":{"0":3,"1":0,"2":0}}'}, "does not read"),
        ({"startingOffsets": '{"orders":{"0":9,"1":0}}'}, "the log has 0 to 5"),
        ({"subscribe": "nothing"}, "does not exist"),
        ({"assign": '{"nothing":[0]}'}, "does not exist"),
        ({"assign": '{"nothing":[0]}', "failOnDataLoss": "false"}, "does not exist"),
    ],
)
def test_offsets_that_do_not_fit_are_refused_before_the_first_batch(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    with pytest.raises((InvalidOptionError, DataLossError, UnknownTopicOrPartitionError), match=message):
        reader(tmp_path, **options).initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "does not apply to a streaming query"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "swap the two"),
        ({"maxTriggerDelay": "soon"}, "expected a time such as"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({"commitOffsets": "maybe"}, "true or false"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        stream_options({"path": "/data/log", "subscribe": "orders", **options})


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("1 h", 3_600_000), ("250", 250), ("2s", 2000)])
def test_delays_use_the_notation_of_spark(text: str, ms: int) -> None:
    options = {"path": "/data/log", "subscribe": "orders", "maxTriggerDelay": text}
    assert stream_options(options).max_trigger_delay_ms == ms


def test_the_source_supports_headers_and_both_kinds_of_options_in_streams() -> None:
    options = {"path": "/data/log", "subscribe": "orders", "includeHeaders": "true", "startingOffsets": "latest"}
    assert "headers" in SparklogDataSource(options).schema().names
    with pytest.raises(InvalidOptionError, match="in a batch query"):
        SparklogDataSource(options).reader(read_schema(True))


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_first_batch_that_is_run_again_starts_where_it_started(tmp_path: Path, starting: str) -> None:
    """Spark asks for the start of the first batch again after a crash, when ``latest`` has moved."""
    cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 0)
    job = reader(tmp_path, startingOffsets=starting)
    start = job.initialOffset()
    produce(tmp_path, "orders", 3, 2)
    end = job.latestOffset(start, ReadAllAvailable())
    rows = read(job, start, end)
    assert len(rows) == (5 if starting == "latest" else 10)
    produce(tmp_path, "orders", 4, 4)
    again = reader(tmp_path, startingOffsets=starting)
    assert read(again, again.initialOffset(), end) == rows
    following = again.latestOffset(end, ReadAllAvailable())
    assert len(read(again, end, following)) == 8
    assert again.latestOffset(following, ReadAllAvailable()) == following
    assert "/" not in str(following), "only the end of the first batch has its start"


def test_a_first_batch_of_topics_that_did_not_exist_before_is_run_again_from_their_beginning(tmp_path: Path) -> None:
    log = cluster(tmp_path)
    chosen: dict[str, Any] = {"subscribePattern": "or.*", "startingOffsets": "latest"}
    job = reader(tmp_path, **chosen)
    start = job.initialOffset()
    assert start == {}
    log.create_topic("orders", 1)
    produce(tmp_path, "orders", 5)
    end = job.latestOffset(start, ALL)
    assert len(read(job, start, end)) == 5
    again = reader(tmp_path, **chosen)
    assert len(read(again, again.initialOffset(), end)) == 5


def test_records_deleted_before_a_first_batch_is_run_again_are_lost(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 10)
    job = reader(tmp_path)
    start = job.initialOffset()
    end = job.latestOffset(start, ReadAllAvailable())
    open_cluster(str(tmp_path)).submit(partial(delete_records, offsets={("orders", 0): 6}))
    again = reader(tmp_path)
    with pytest.raises(DataLossError, match="orders-0 from offset 0 to 6"):
        again.partitions(again.initialOffset(), end)
    some = reader(tmp_path, failOnDataLoss="false")
    assert read(some, some.initialOffset(), end) == [("orders", 0, offset) for offset in range(6, 10)]


def test_a_task_of_a_batch_reads_several_small_partitions(tmp_path: Path) -> None:
    cluster(tmp_path, orders=3)
    produce(tmp_path, "orders", 5, 2, 4)
    job = reader(tmp_path, maxPartitions="auto")
    start, end = job.initialOffset(), job.latestOffset(job.initialOffset(), ReadAllAvailable())
    assert len(job.partitions(start, end)) == 1
    assert read(job, start, end) == [
        ("orders", n, offset) for n, size in enumerate((5, 2, 4)) for offset in range(size)
    ]


def test_limits_are_translated_to_read_limits_of_spark(tmp_path: Path) -> None:
    assert reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert reader(tmp_path, minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)
    both = reader(tmp_path, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="5")
    assert both.getDefaultReadLimit() == ReadMaxRows(5)


def test_batches_are_limited_and_prorated_until_the_end(tmp_path: Path) -> None:
    cluster(tmp_path, orders=3)
    produce(tmp_path, "orders", 101, 11, 1)
    job = reader(tmp_path)
    start = job.initialOffset()
    first = job.latestOffset(start, ReadMaxRows(10))
    assert positions(first) == {"orders": {"0": 8, "1": 1, "2": 1}}
    second = job.latestOffset(first, ReadMaxRows(10))
    assert positions(second) == {"orders": {"0": 17, "1": 2, "2": 1}}
    assert len(read(job, first, second)) == 10
    last = job.latestOffset(second, ALL)
    assert positions(last) == {"orders": {"0": 101, "1": 11, "2": 1}} == job.reportLatestOffset()
    assert job.latestOffset(last, ALL) == last
    assert job.partitions(last, last) == []


def test_a_minimum_waits_for_records_for_a_bounded_time(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 2)
    clock = ManualClock()
    job = reader(tmp_path, clock, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    limit = job.getDefaultReadLimit()
    first = job.latestOffset(job.initialOffset(), limit)
    assert positions(first) == {"orders": {"0": 2}}, "the first batch does not wait"
    produce(tmp_path, "orders", 3)
    assert job.latestOffset(first, limit) == first
    assert positions(job.latestOffset(first, ALL)) == {"orders": {"0": 5}}, "Trigger.Once ignores every limit"
    clock.advance(31)
    assert positions(job.latestOffset(first, limit)) == {"orders": {"0": 5}}
    produce(tmp_path, "orders", 12)
    assert positions(job.latestOffset(first, limit)) == {"orders": {"0": 17}}


def test_a_minimum_and_a_maximum_apply_together(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 8)
    job = reader(tmp_path, ManualClock(), minOffsetsPerTrigger="4", maxOffsetsPerTrigger="5")
    first = job.latestOffset(job.initialOffset(), job.getDefaultReadLimit())
    assert positions(first) == {"orders": {"0": 5}}
    assert job.latestOffset(first, job.getDefaultReadLimit()) == first, "three are fewer than four"


def test_available_now_ends_at_the_end_when_it_started(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 7)
    job = reader(tmp_path, minOffsetsPerTrigger="1000", subscribePattern="ord|new")
    job.prepareForTriggerAvailableNow()
    start = job.initialOffset()
    produce(tmp_path, "orders", 5)
    log.create_topic("newcomers")
    produce(tmp_path, "newcomers", 5)
    first = job.latestOffset(start, ReadMaxRows(4))
    assert positions(first) == {"orders": {"0": 4}}
    last = job.latestOffset(first, ReadMaxRows(4))
    assert positions(last) == {"orders": {"0": 7}}
    assert job.latestOffset(last, ReadMaxRows(4)) == last


def test_available_now_always_fails_when_its_end_cannot_be_reached(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 7)
    job = reader(tmp_path, failOnDataLoss="false")
    job.prepareForTriggerAvailableNow()
    start = job.initialOffset()
    delete_topic(log, "orders")
    with pytest.raises(DataLossError, match="start the query again"):
        job.latestOffset(start, ALL)


def test_topics_and_partitions_added_to_a_pattern_start_at_earliest(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 2)
    job = reader(tmp_path, subscribePattern="^ord", startingOffsets="latest")
    first = job.latestOffset(job.initialOffset(), ALL)
    log.create_topic("orders-eu")
    log.submit(partial(create_partitions, topic="orders", total=2))
    produce(tmp_path, "orders-eu", 1)
    produce(tmp_path, "orders", 0, 1)
    second = job.latestOffset(first, ALL)
    assert read(job, first, second) == [("orders", 1, 0), ("orders-eu", 0, 0)]


def test_a_recreated_topic_is_data_loss_even_if_its_offsets_would_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path)
    first = job.latestOffset(job.initialOffset(), ALL)
    delete_topic(log, "orders")
    log.create_topic("orders")
    produce(tmp_path, "orders", 9)
    with pytest.raises(DataLossError, match=r"orders-0 from offset 5 on.*created again"):
        job.latestOffset(first, ALL)
    lenient = reader(tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        second = lenient.latestOffset(first, ALL)
        assert lenient.latestOffset(first, ALL) == second
    assert caplog.text.count("created again") == 1, "logged once, not at every trigger"
    assert [offset for _, _, offset in read(lenient, first, second)] == list(range(9))


def test_a_start_that_was_found_in_a_former_topic_is_data_loss_too(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    strict = reader(tmp_path, startingOffsets="latest")
    lenient = reader(tmp_path, startingOffsets="latest", failOnDataLoss="false")
    start = strict.initialOffset()
    assert lenient.initialOffset() == start == {"orders": {"0": 5}}
    delete_topic(log, "orders")
    log.create_topic("orders")
    produce(tmp_path, "orders", 9)
    with pytest.raises(DataLossError, match=r"orders-0 from offset 5 on.*created again"):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)
    assert [offset for _, _, offset in read(lenient, start, end)] == list(range(9))


def test_a_restart_from_an_older_checkpoint_continues_and_detects_a_recreated_topic(
    tmp_path: Path,
) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    ids = {"cluster": log.state.cluster_id, "topics": {"orders": log.state.topic("orders").topic_id}}
    kept = {"orders": {"0": 3}, "$ids": ids}
    job = reader(tmp_path)
    end = job.latestOffset(kept, ALL)
    assert [offset for _, _, offset in read(job, kept, end)] == [3, 4]
    delete_topic(log, "orders")
    log.create_topic("orders")
    produce(tmp_path, "orders", 9)
    with pytest.raises(DataLossError, match="created again"):
        reader(tmp_path).latestOffset(kept, ALL)


def test_a_deleted_topic_is_data_loss_or_is_skipped(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1, clicks=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path, subscribe="orders,clicks")
    first = job.latestOffset(job.initialOffset(), ALL)
    delete_topic(log, "orders")
    with pytest.raises(DataLossError, match="orders-0 from offset 5 on: it no longer exists"):
        job.latestOffset(first, ALL)
    lenient = reader(tmp_path, subscribe="orders,clicks", failOnDataLoss="false")
    assert positions(lenient.latestOffset(first, ALL)) == {"clicks": {"0": 0}}
    delete_topic(log, "clicks")
    assert lenient.latestOffset(first, ALL) == first, "an empty offset is never written"


@pytest.mark.parametrize("how", [{"subscribe": "orders,clicks"}, {"assign": '{"orders":[0],"clicks":[0]}'}])
def test_a_deleted_topic_without_fail_on_data_loss_stays_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: dict[str, Any]
) -> None:
    log = cluster(tmp_path, orders=1, clicks=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path, failOnDataLoss="false", **how)
    first = job.latestOffset(job.initialOffset(), ALL)
    delete_topic(log, "orders")
    second = job.latestOffset(first, ALL)
    for count in (1, 2):
        produce(tmp_path, "clicks", 1)
        assert positions(job.latestOffset(second, ALL)) == {"clicks": {"0": count}}
    restarted = reader(tmp_path, failOnDataLoss="false", **how)
    assert positions(restarted.latestOffset(second, ALL)) == {"clicks": {"0": 2}}
    assert caplog.text.count("topics orders do not exist") == 2, "logged once by each reader, not at every trigger"
    with pytest.raises(UnknownTopicOrPartitionError, match="'orders' does not exist"):
        reader(tmp_path, **how).latestOffset(second, ALL)


def test_another_clusters_checkpoint_is_refused(tmp_path: Path) -> None:
    cluster(tmp_path / "a", orders=1)
    cluster(tmp_path / "b", orders=1)
    job = reader(tmp_path / "a")
    start = job.latestOffset(job.initialOffset(), ALL)
    with pytest.raises(InvalidRequestError, match="the checkpoint is of cluster"):
        reader(tmp_path / "b").latestOffset(start, ALL)
    with pytest.raises(InvalidRequestError, match="the checkpoint is of cluster"):
        reader(tmp_path / "b").partitions(start, start)


def test_a_batch_of_an_earlier_run_is_replanned_unchanged(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path)
    start = job.initialOffset()
    end = job.latestOffset(start, ReadMaxRows(3))
    produce(tmp_path, "orders", 5)
    assert [offset for _, _, offset in read(reader(tmp_path), start, end)] == [0, 1, 2]


def test_large_batches_are_split_as_batch_reads_are(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 10)
    job = reader(tmp_path, maxRecordsPerPartition="4")
    start = job.initialOffset()
    assert len(job.partitions(start, job.latestOffset(start, ALL))) == 3


def test_an_instance_of_a_query_that_was_suspended_moves_its_group_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path, **{"kafka.group.id": "billing"})  # type: ignore[arg-type]
    end = job.latestOffset(job.initialOffset(), ALL)
    others, submit = open_cluster(str(tmp_path)), Coordinator.submit

    def resume(coordinator: Coordinator, *request: Any, **more: Any) -> object:
        monkeypatch.undo()
        commit = GroupCommit(group="billing", offsets={("orders", 0): 30})
        submit(others, partial(commit_group_offsets, commit=commit))
        return submit(coordinator, *request, **more)

    monkeypatch.setattr(Coordinator, "submit", resume)
    job.commit(end)
    assert [one.offset for one in log.refresh().groups["billing"].offsets.values()] == [30]


def test_finished_batches_are_committed_to_the_group_once(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    job = reader(tmp_path, **{"kafka.group.id": "billing"})  # type: ignore[arg-type]
    end = job.latestOffset(job.initialOffset(), ALL)
    job.commit(end)
    committed = {one.partition: one.offset for one in log.refresh().groups["billing"].offsets.values()}
    assert committed == {0: 5, 1: 2}
    version = log.refresh().version
    job.commit(end)
    assert log.refresh().version == version, "unchanged offsets need no commit"
    delete_topic(log, "orders")
    shared_cluster(str(tmp_path)).refresh()
    job.commit(end)  # the failure never stops a query


def test_the_last_batch_is_committed_to_the_group_without_a_following_one(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 5)
    job = reader(tmp_path, **{"kafka.group.id": "billing"})  # type: ignore[arg-type]
    end = job.latestOffset(job.initialOffset(), ALL)
    assert "billing" not in log.refresh().groups, "nothing is finished yet"
    assert job.latestOffset(end, ALL) == end
    assert [one.offset for one in log.refresh().groups["billing"].offsets.values()] == [5]


def test_a_new_query_starts_at_the_offsets_of_its_group_unless_it_opts_out(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 3})))
    options: dict[str, Any] = {"path": str(tmp_path), "subscribe": "orders", "kafka.group.id": "billing"}
    job = SparklogStreamReader(stream_options(options), read_schema(False))
    assert job.initialOffset() == {"orders": {"0": 3, "1": 2}}, "without an offset of the group: latest"
    assert reader(tmp_path, **options).initialOffset() == {"orders": {"0": 0, "1": 0}}
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 9})))
    with pytest.raises(DataLossError, match="the log ends at 5"):
        SparklogStreamReader(stream_options(options), read_schema(False)).initialOffset()
    delete_topic(log, "orders")
    log.create_topic("orders", 2)
    fresh = SparklogStreamReader(stream_options(options), read_schema(False))
    assert fresh.initialOffset() == {"orders": {"0": 0, "1": 0}}, "the offsets were of another topic"


def test_no_offsets_are_committed_if_the_query_opts_out(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    cases: list[dict[str, Any]] = [{}, {"kafka.group.id": "billing", "commitOffsets": "false"}]
    for options in cases:
        job = reader(tmp_path, **options)
        job.commit(job.latestOffset(job.initialOffset(), ALL))
    assert not log.refresh().groups


def test_polling_for_new_records_costs_two_small_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(tmp_path, orders=2)
    produce(tmp_path, "orders", 5, 2)
    job = reader(tmp_path)
    start = job.latestOffset(job.initialOffset(), ALL)
    reads: list[str] = []
    get = LocalStore.get

    def counting(self: LocalStore, key: str, max_bytes: int | None = None) -> bytes:
        reads.append(key)
        return get(self, key, max_bytes)

    monkeypatch.setattr(LocalStore, "get", counting)
    assert job.latestOffset(start, ALL) == start
    assert len(reads) == 2


# -- a root that is restored from a copy


def restored_root(folder: Path, *, others: int = 10) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the offsets of a query at 4 and at 12 of a root that was restored to 4 since; its producers were started
    first, and have written ``others`` records."""
    log = cluster(folder, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    store = LocalStore(str(folder))
    produce(folder, "orders", 4)
    snapshot = {key: data for key, data in take_snapshot(store).items() if not key.startswith("leases/")}
    job = reader(folder)
    start = job.latestOffset(job.initialOffset(), ALL)
    produce(folder, "orders", 8)
    end = job.latestOffset(start, ALL)
    assert (positions(start), positions(end)) == ({"orders": {"0": 4}}, {"orders": {"0": 12}})
    restore(store, snapshot)
    forget_shared(str(folder))  # the query, and the producers, are started again
    if others:
        produce(folder, "orders", others)
    return start, end


@pytest.mark.parametrize("others", [0, 4, 8, 10])
def test_a_query_is_not_continued_in_another_timeline(tmp_path: Path, others: int) -> None:
    _, end = restored_root(tmp_path, others=others)
    with pytest.raises(DataLossError, match=r"orders-0 from offset 0 to 12: it was found at commit|longer before"):
        reader(tmp_path).latestOffset(end, ALL)


def test_a_query_that_accepts_losses_continues_in_another_timeline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, end = restored_root(tmp_path)
    job = reader(tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        later = job.latestOffset(end, ALL)
    assert positions(later) == {"orders": {"0": 14}}
    assert "restored from a copy" in caplog.text
    caplog.clear()
    assert [offset for _, _, offset in read(reader(tmp_path), end, later)] == [12, 13]
    assert reader(tmp_path).latestOffset(later, ALL) == later


def test_a_batch_that_was_planned_in_another_timeline_is_not_run(tmp_path: Path) -> None:
    start, end = restored_root(tmp_path)
    with pytest.raises(DataLossError, match=r"orders-0 from offset 4 to 12: it was found at commit"):
        reader(tmp_path).partitions(start, end)


def test_offsets_of_before_the_copy_are_continued(tmp_path: Path) -> None:
    start, _ = restored_root(tmp_path)
    job = reader(tmp_path)
    end = job.latestOffset(start, ALL)
    assert [offset for _, _, offset in read(job, start, end)] == list(range(4, 14))


def test_offsets_without_a_commit_and_of_a_removed_one_are_continued(tmp_path: Path) -> None:
    _, end = restored_root(tmp_path)
    former = {name.partition(",$")[0]: found for name, found in end.items()}
    assert positions(reader(tmp_path).latestOffset(former, ALL)) == {"orders": {"0": 14}}
    pass_by(LocalStore(str(tmp_path)))
    forget_shared(str(tmp_path))
    assert positions(reader(tmp_path).latestOffset(end, ALL)) == {"orders": {"0": 14}}


def test_a_planner_that_was_suspended_meanwhile_is_not_continued(tmp_path: Path) -> None:
    """The commits that it knew are removed, but it has read them."""
    log = cluster(tmp_path, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    produce(tmp_path, "orders", 4)
    job = reader(tmp_path)
    end = job.latestOffset(job.initialOffset(), ALL)
    job.latestOffset(end, ALL)
    jumps = shared_cluster(str(tmp_path)).log.unlinked_jumps
    pass_by(LocalStore(str(tmp_path)))
    with pytest.raises(DataLossError, match="commits were removed before this query had read them") as caught:
        job.latestOffset(end, ALL)
    assert "records were lost" not in str(caught.value)
    assert "start the query again" in str(caught.value)
    assert shared_cluster(str(tmp_path)).log.unlinked_jumps == jumps + 1
    assert reader(tmp_path).latestOffset(end, ALL) == end


def group_offset(folder: Path) -> int | None:
    committed = open_cluster(str(folder)).state.committed("billing", "orders", 0)
    return None if committed is None else committed.offset


def query_in_a_batch(folder: Path, *, is_first: bool, **options: str) -> tuple[SparklogStreamReader, dict[str, Any]]:
    """A query of group billing whose batch up to 7 is running, the first one or the second, which begins at 4."""
    log = cluster(folder, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 0})))
    produce(folder, "orders", 4)
    job = reader(folder, **{"kafka.group.id": "billing", **options})  # type: ignore[arg-type]
    at = job.initialOffset()
    if not is_first:
        at = job.latestOffset(at, ALL)
        job.commit(at)
    produce(folder, "orders", 3)
    end = job.latestOffset(at, ALL)
    assert positions(end) == {"orders": {"0": 7}}
    return job, end


@pytest.mark.parametrize("is_read", [True, False], ids=["read since", "not read since"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first batch", "later batch"])
def test_a_query_that_was_suspended_in_a_batch_commits_no_offsets_of_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_first: bool, is_read: bool
) -> None:
    """The root may have been restored meanwhile, with other records before the end of the batch."""
    job, end = query_in_a_batch(tmp_path, is_first=is_first)
    before = group_offset(tmp_path)
    pass_by(LocalStore(str(tmp_path)))
    if is_read:  # as the planner's thread does
        shared_cluster(str(tmp_path)).refresh()
    job.commit(end)
    assert group_offset(tmp_path) == before
    assert "could not commit offsets to consumer group billing" in caplog.text
    with pytest.raises(DataLossError, match="it is not known"):
        job.partitions(job.initialOffset(), end)


def test_a_query_that_accepts_losses_commits_offsets_again_once_it_has_read_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, end = query_in_a_batch(tmp_path, is_first=False, failOnDataLoss="false")
    pass_by(LocalStore(str(tmp_path)))
    for _ in range(3):
        assert job.latestOffset(end, ALL) == end
    assert caplog.text.count("commits were removed before this query had read them") == 1
    assert group_offset(tmp_path) == 4
    produce(tmp_path, "orders", 2)
    end = job.latestOffset(end, ALL)
    assert read(job, end, end) == []
    job.commit(end)
    assert group_offset(tmp_path) == 9


def test_a_start_that_was_found_in_a_former_timeline_is_not_read_from(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    produce(tmp_path, "orders", 4)
    job = reader(tmp_path, startingOffsets="latest")
    start = job.initialOffset()
    pass_by(LocalStore(str(tmp_path)))
    with pytest.raises(DataLossError, match="it is not known"):
        job.latestOffset(start, ALL)
    again = reader(tmp_path, startingOffsets="latest")
    assert positions(again.latestOffset(again.initialOffset(), ALL)) == {"orders": {"0": 4}}


def test_a_planner_reads_the_log_between_triggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be further apart than commits are kept."""
    log = cluster(tmp_path, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    produce(tmp_path, "orders", 4)
    monkeypatch.setattr(kept_reading, "SECONDS", 0.01)
    job = reader(tmp_path)
    end = job.latestOffset(job.initialOffset(), ALL)
    job.latestOffset(end, ALL)
    produce(tmp_path, "orders", 3)
    ours = shared_cluster(str(tmp_path))
    pass_by(LocalStore(str(tmp_path)), ReadInBackground(ours))
    later = job.latestOffset(end, ALL)
    assert read(job, end, later) == [("orders", 0, offset) for offset in (4, 5, 6)]
    assert ours.log.unlinked_jumps == 0
    job.stop()


def test_reading_between_triggers_outlives_errors_and_ends_with_the_query(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore("planner"))
    others = create_cluster(MemoryStore("planner"))
    ours = open_cluster(store, clock=clock)
    seen: list[bool] = []

    def wait(seconds: float) -> bool:
        assert 0 < seconds <= 60 / 2
        clock.advance(seconds)
        seen.append(ours.state.version == others.state.version)
        others.create_topic(f"t{len(seen)}")
        store.before = fail if len(seen) in (2, 3) else None
        return len(seen) == 6

    def fail(step: int, call: Call) -> None:
        raise (StorageError("the disk is gone") if len(seen) == 2 else ZeroDivisionError())

    with caplog.at_level(logging.INFO):
        kept_reading.read_until(ours, wait)
    assert seen == [True, True, False, False, True, True]
    assert "the disk is gone" in caplog.text


def test_planners_of_one_process_share_the_reading() -> None:
    clock, store = ManualClock(), FaultyStore(MemoryStore("planners"))
    create_cluster(MemoryStore("planners"))
    ours, requests = open_cluster(store, clock=clock), list[int]()

    def wait(seconds: float) -> bool:
        requests.append(len(store.calls))
        clock.advance(seconds)
        if len(requests) == 2:
            assert ours.claim_check(seconds / 2)  # another one reads
        return len(requests) == 4

    kept_reading.read_until(ours, wait)
    assert requests[1] > requests[0]
    assert requests[2] == requests[1]
    assert requests[3] > requests[2]


@pytest.mark.parametrize("how", ["stopped", "dropped"])
def test_the_thread_of_a_planner_ends_with_it(tmp_path: Path, how: str) -> None:
    cluster(tmp_path, orders=1)
    before = set(threading.enumerate())
    job = reader(tmp_path)
    job.initialOffset()
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    if how == "stopped":
        job.stop()
        job.stop()
    else:
        del job
    thread.join(30)
    assert not thread.is_alive()
    reader(tmp_path).stop()  # has not planned anything


def test_a_planner_without_a_thread_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 4)
    monkeypatch.setattr(threading.Thread, "start", start)
    job = reader(tmp_path)
    assert positions(job.latestOffset(job.initialOffset(), ALL)) == {"orders": {"0": 4}}


def test_commits_that_add_no_records_make_no_batch(tmp_path: Path) -> None:
    """Spark runs a batch if the offset differs in any way."""
    log = cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 4)
    job = reader(tmp_path)
    end = job.latestOffset(job.initialOffset(), ALL)
    log.create_topic("another")
    assert list(job.latestOffset(end, ALL).items()) == list(end.items())
    assert list(reader(tmp_path).latestOffset(end, ALL).items()) == list(end.items())


def test_of_two_sources_of_a_topic_the_group_stands_where_the_slower_one_is(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    produce(tmp_path, "orders", 10)
    job = reader(tmp_path)
    faster = parse(job.latestOffset(job.initialOffset(), ReadAllAvailable()))
    slower = replace(faster, partitions={TopicPartition("orders", 0): 3})
    state = open_cluster(str(tmp_path)).state
    for sources in ([faster, slower], [slower, faster]):
        assert offsets_of_sources(sources, state) == {("orders", 0): 3}
