"""Reading while segments are rolled, compacted and deleted: each remaining record once, and positions past gaps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.reader import LogReader, to_records
from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import RECORDS_PER_COMMIT, partition_of
from sparklog.errors import DataLossError, OffsetOutOfRangeError
from sparklog.log.layout import BOUNDARY_KEY
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import Cluster, at, flat, read, until, values
from tests.cluster.log.rewriting import delete_files, drop_segments, rewrite


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Offsets 0 to 11 of orders-0, three in each of four files."""
    cluster = Cluster("", store=FaultyStore(MemoryStore(request.node.name)))
    for first in range(0, 12, 3):
        cluster.write(0, *(b"%d" % offset for offset in range(first, first + 3)))
    return cluster


def compact(cluster: Cluster, *kept: int, first: int = 0, count: int | None = None) -> list[str]:
    return rewrite(cluster.admin, first, count, topic="orders", keep=kept.__contains__)


def offsets_of(reader: LogReader, start: int = 0, end: int = 100) -> list[int]:
    return [record.offset for record in reader.records("orders", 0, start, end)]


# -- ranges


def test_records_have_their_own_offsets(cluster: Cluster) -> None:
    compact(cluster, 0, 4, 5, 9)
    with LogReader(cluster.coordinator()) as reader:
        records = list(reader.records("orders", 0, 0, 12))
        assert [(record.offset, record.value) for record in records] == [(n, b"%d" % n) for n in (0, 4, 5, 9)]
        assert [fetched.end_offset for fetched in reader.fetch("orders", 0, 0, 12)] == [6, 10]
        assert offsets_of(reader, 1, 9) == [4, 5]


def test_a_range_continues_in_the_replacement_files(cluster: Cluster) -> None:
    with LogReader(cluster.coordinator()) as reader:
        reading = reader.fetch("orders", 0, 0, 12)
        offsets = [record.offset for record in to_records("orders", 0, next(reading))]
        delete_files(cluster.store, compact(cluster, 1, 4, 7, 11))
        offsets += [record.offset for fetched in reading for record in to_records("orders", 0, fetched)]
        assert offsets == [0, 1, 2, 4, 7, 11]


def test_a_range_survives_repeated_rolls(cluster: Cluster) -> None:
    with LogReader(cluster.coordinator()) as reader:
        offsets: list[int] = []
        for fetched in reader.fetch("orders", 0, 0, 12):
            offsets += [record.offset for record in to_records("orders", 0, fetched)]
            delete_files(cluster.store, rewrite(cluster.admin, topic="orders", batch_rows=2))
        assert offsets == list(range(12))


def test_an_older_state_is_read_from_the_current_files(cluster: Cluster) -> None:
    coordinator = cluster.coordinator()
    before = coordinator.state
    cluster.write(0, b"later")
    delete_files(cluster.store, rewrite(cluster.admin, topic="orders"))
    coordinator.refresh()
    with LogReader(coordinator) as reader:
        assert [r.offset for r in reader.records("orders", 0, 0, 100, state=before)] == list(range(12))


def test_a_missing_file_that_the_newest_state_names_is_data_loss(cluster: Cluster) -> None:
    path = cluster.admin.segments("orders").partition(0)[1].path
    rewrite(cluster.admin, 2, 2, topic="orders")
    delete_files(cluster.store, [path])
    with LogReader(cluster.coordinator()) as reader, pytest.raises(DataLossError, match="records 3 to 5"):
        offsets_of(reader)


def test_records_deleted_during_a_read_are_out_of_range(cluster: Cluster) -> None:
    with LogReader(cluster.coordinator()) as reader:
        reading = reader.fetch("orders", 0, 0, 12)
        next(reading)
        delete_files(cluster.store, drop_segments(cluster.admin, 3, "orders"))
        with pytest.raises(OffsetOutOfRangeError, match="the log starts at 9") as caught:
            next(reading)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 3)


def test_records_before_the_start_of_the_log_are_not_read(cluster: Cluster) -> None:
    cluster.admin.submit(partial(delete_records, offsets={("orders", 0): 4}))
    with LogReader(cluster.coordinator()) as reader:
        assert offsets_of(reader) == list(range(4, 12))
        assert reader.offset("orders", 0, 0) == 4


def test_a_search_by_time_continues_in_the_replacement_files(cluster: Cluster) -> None:
    with LogReader(cluster.coordinator()) as reader:
        delete_files(cluster.store, compact(cluster, 2, 7))
        assert reader.offset("orders", 0, 0) == 2
        largest = reader.max_timestamp("orders", 0)
        assert largest is not None
        assert largest.offset in (2, 7)


# -- consumers


def test_a_consumer_reads_the_remaining_records_and_its_position_reaches_the_end(cluster: Cluster) -> None:
    compact(cluster, 1, 5)
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([at(0)])
        assert [(r.offset, r.value) for r in read(consumer, 2)] == [(1, b"1"), (5, b"5")]
        until(lambda: consumer.position(at(0)) == 12, lambda: consumer.poll(20))
        consumer.commit()
        assert consumer.committed(at(0)) == 12
        cluster.write(0, b"new")
        assert [r.offset for r in read(consumer, 1)] == [12]


def test_a_consumer_skips_a_range_without_remaining_records(cluster: Cluster) -> None:
    compact(cluster, first=1)
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        consumer.seek(at(0), 5)
        until(lambda: consumer.position(at(0)) == 12, lambda: consumer.poll(20))
        assert consumer.poll_batches() == []
        cluster.write(0, b"new")
        assert [r.offset for r in read(consumer, 1)] == [12]


def test_a_consumer_at_the_end_of_a_gap_reads_no_files(cluster: Cluster) -> None:
    compact(cluster, 1)
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        until(lambda: consumer.position(at(0)) == 12, lambda: consumer.poll(20))
        store = cluster.store
        assert isinstance(store, FaultyStore)
        store.reset_counts()
        until(lambda: store.counts["get"] >= 40, lambda: consumer.poll(5))  # two small reads for each check
        assert store.counts["get_range"] == store.counts["open_input"] == 0


def test_iteration_and_batches_skip_gaps(cluster: Cluster) -> None:
    compact(cluster, 0, 2, 3, 10)
    with cluster.consumer(consumer_timeout_ms=300) as consumer:
        consumer.assign([at(0)])
        iterator: Iterator[object] = iter(consumer)
        assert next(iterator).offset == 0  # type: ignore[attr-defined]
        assert consumer.position(at(0)) == 1
        assert [record.offset for record in consumer] == [2, 3, 10]
        assert consumer.position(at(0)) == 12
        consumer.seek_to_beginning()
        batches: list[Any] = []
        until(lambda: sum(b.batch.num_rows for b in batches) == 4, lambda: batches.extend(consumer.poll_batches(20)))
        offsets = [b.offsets.to_pylist() if b.offsets is not None else b.base_offset for b in batches]
        assert offsets == [[0, 2, 3], 10]
        assert [b.end_offset for b in batches] == [4, 11]


def test_records_with_gaps_are_returned_in_portions_and_repeatedly(cluster: Cluster) -> None:
    compact(cluster, 0, 5, 7, 10)
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        until(lambda: [r.offset for r in flat(consumer.poll(20, max_records=2, update_offsets=False))] == [0, 5])
        assert [r.offset for r in flat(consumer.poll(1000, max_records=2))] == [0, 5]
        assert consumer.position(at(0)) == 6
        assert [r.offset for r in read(consumer, 2)] == [7, 10]


def test_a_deserialization_error_names_the_offset_of_its_record(cluster: Cluster) -> None:
    compact(cluster, 0, 5, 7)

    def number(data: bytes) -> int:
        if data == b"7":
            raise ValueError("no sevens")
        return int(data)

    with cluster.consumer(value_deserializer=number) as consumer:
        consumer.assign([at(0)])
        assert values(read(consumer, 2)) == [0, 5]
        assert consumer.position(at(0)) == 6
        with pytest.raises(ValueError, match="no sevens") as raised:
            until(lambda: False, lambda: consumer.poll(20))
        if sys.version_info >= (3, 11):
            assert "offset 7 of orders-0" in raised.value.__notes__[0]
        consumer.seek(at(0), 8)
        until(lambda: consumer.position(at(0)) == 12, lambda: consumer.poll(20))


def test_a_consumer_continues_in_the_replacement_files(cluster: Cluster) -> None:
    with cluster.consumer(max_partition_fetch_bytes=1, fetch_max_bytes=1, max_poll_records=3) as consumer:
        consumer.assign([at(0)])
        offsets = [record.offset for record in read(consumer, 3)]
        delete_files(cluster.store, rewrite(cluster.admin, topic="orders", batch_rows=2))
        offsets += [record.offset for record in read(consumer, 9)]
        assert offsets == list(range(12))


def test_a_consumer_resets_its_position_if_retention_removes_its_records(cluster: Cluster) -> None:
    with cluster.consumer(max_partition_fetch_bytes=1, fetch_max_bytes=1) as consumer:
        consumer.assign([at(0)])
        consumer.seek(at(0), 1)
        delete_files(cluster.store, drop_segments(cluster.admin, 3, "orders"))
        until(lambda: (consumer.position(at(0)) or 0) >= 12, lambda: consumer.poll(20))


# -- __consumer_offsets


def test_consumer_offsets_stays_readable_when_old_commits_are_removed(cluster: Cluster) -> None:
    internal = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_of("g"))
    for offset in range(5):
        cluster.admin.submit(
            partial(
                commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): OffsetAndMetadata(offset)})
            )
        )
    with cluster.consumer(max_poll_records=1) as reading, cluster.consumer() as late:
        reading.assign([internal])
        before = read(reading, 2)
        boundary = before[-1].offset // RECORDS_PER_COMMIT
        remove_commits(cluster.admin, boundary)
        after = read(reading, 3)
        assert [r.offset // RECORDS_PER_COMMIT for r in before + after] == list(range(boundary - 1, boundary + 4))
        late.assign([internal])
        assert [r.offset for r in read(late, 3)] == [r.offset for r in after]
        assert late.beginning_offsets([internal]) == {internal: (boundary + 1) * RECORDS_PER_COMMIT}
        remove_commits(cluster.admin, boundary + 2)
        late.seek(internal, after[0].offset)
        assert [r.offset for r in read(late, 1)][-1] >= after[0].offset


def test_a_consumer_of_removed_commits_continues_with_the_remaining_ones(cluster: Cluster) -> None:
    internal = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_of("g"))
    for offset in range(9):
        cluster.admin.submit(
            partial(
                commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): OffsetAndMetadata(offset)})
            )
        )
    newest = cluster.admin.state.version
    with cluster.consumer() as consumer:
        consumer.assign([internal])
        consumer.seek_to_end(internal)
        assert consumer.position(internal) == (newest + 1) * RECORDS_PER_COMMIT
        remove_commits(cluster.admin, newest - 2)
        consumer.seek(internal, (newest - 5) * RECORDS_PER_COMMIT)
        assert [record.offset // RECORDS_PER_COMMIT for record in read(consumer, 2)] == [newest - 1, newest]


def test_a_position_in_removed_commits_is_out_of_range(cluster: Cluster) -> None:
    for offset in range(5):
        cluster.admin.submit(
            partial(
                commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): OffsetAndMetadata(offset)})
            )
        )
    with ConsumerReader(cluster.coordinator()) as reader:
        bounds = reader.bounds(CONSUMER_OFFSETS_TOPIC, 0)
        assert bounds is not None
        remove_commits(cluster.admin, 5)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            list(reader.fetch(CONSUMER_OFFSETS_TOPIC, partition_of("g"), bounds.start, bounds.end))
        assert (caught.value.topic, caught.value.partition) == (CONSUMER_OFFSETS_TOPIC, partition_of("g"))
        moved = reader.fresh_bounds(CONSUMER_OFFSETS_TOPIC, 0)
        assert moved is not None
        assert (moved.start, moved.end) == (6 * RECORDS_PER_COMMIT, bounds.end)


def remove_commits(coordinator: Coordinator, boundary: int) -> None:
    """Remove the commits up to ``boundary`` after writing a checkpoint."""
    coordinator.log.write_checkpoint()
    coordinator.store.put(BOUNDARY_KEY, b'{"boundary":%d}' % boundary)
    for version in range(boundary + 1):
        coordinator.store.delete(commit_key(version))
