"""``__consumer_offsets`` as a topic: partitions and offsets of its records, and their bytes."""

from __future__ import annotations

import struct
from functools import partial

import pytest

from sparklog import AdminClient, Producer, limits
from sparklog.coordinator.offsets_topic import RECORDS_PER_COMMIT, group_key, offset_key, offset_value, partition_of
from sparklog.errors import RecordListTooLargeError
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, delete_group, delete_group_offsets
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import Cluster, read


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name)


def partition_for(group: str) -> TopicPartition:
    return TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_of(group))


def test_keys_and_values_have_kafkas_bytes() -> None:
    assert offset_key("g", "t", 1) == bytes.fromhex("0001 0001 67 0001 74 00000001")
    assert offset_value(258, 7, "m", 1000) == bytes.fromhex("0003 0000000000000102 00000007 0001 6d 00000000000003e8")
    assert group_key("gé") == b"\x00\x02\x00\x03g\xc3\xa9"


@pytest.mark.parametrize(("group", "partition"), [("g", 103 % 50), ("test-group", 12), ("polygenelubricants", 0)])
def test_the_partition_of_a_group_follows_kafkas_rule(group: str, partition: int) -> None:
    assert partition_of(group) == partition


def test_commits_and_deletions_of_offsets_are_records(cluster: Cluster) -> None:
    cluster.admin.submit(
        partial(
            commit_group_offsets,
            commit=GroupCommit(group="g", offsets={("orders", 0): 5, ("orders", 1): OffsetAndMetadata(6, "m", 2)}),
        )
    )
    first = cluster.admin.state.version
    cluster.admin.submit(partial(delete_group_offsets, group="g", partitions=[("orders", 0)]))
    cluster.admin.submit(partial(delete_group, group="g"))
    with cluster.consumer() as consumer:
        consumer.assign([partition_for("g")])
        records = read(consumer, 4)
        assert [record.key for record in records] == [
            offset_key("g", "orders", 0),
            offset_key("g", "orders", 1),
            offset_key("g", "orders", 0),
            group_key("g"),
        ]
        assert [record.offset - first * RECORDS_PER_COMMIT for record in records] == [0, 1, 65536, 131072]
        assert struct.unpack(">hqih", records[1].value[:16]) == (3, 6, 2, 1)
        assert [record.value for record in records[2:]] == [None, None]
        cluster.admin.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 7})))
        (last,) = read(consumer, 1)
        assert last.timestamp == cluster.admin.state.timestamp_ms
        by_time = consumer.offsets_for_times({partition_for("g"): last.timestamp})
        assert by_time == {partition_for("g"): (last.offset, last.timestamp, 0)}
        assert consumer.end_offsets([partition_for("g")]) == {
            partition_for("g"): (cluster.admin.state.version + 1) * 65536
        }


def test_a_pattern_matches_it_only_with_exclude_internal_topics_false(cluster: Cluster) -> None:
    for number in range(20):
        cluster.admin.submit(
            partial(commit_group_offsets, commit=GroupCommit(group=f"g-{number}", offsets={("orders", 0): number}))
        )
    with cluster.consumer(CONSUMER_OFFSETS_TOPIC) as consumer:
        assert len(read(consumer, 20)) == 20
        assert len(consumer.assignment()) == 50
        assert consumer.partitions_for_topic(CONSUMER_OFFSETS_TOPIC) == set(range(50))
        assert CONSUMER_OFFSETS_TOPIC not in consumer.topics()
    with cluster.consumer() as consumer:
        consumer.subscribe(pattern=".*")
        consumer.poll()
        assert {partition.topic for partition in consumer.assignment()} == {"orders"}
    with cluster.consumer(exclude_internal_topics=False) as consumer:
        consumer.subscribe(pattern=".*")
        assert len(read(consumer, 20)) == 20


def test_more_offsets_than_fit_one_commit_are_committed_in_several_and_each_is_a_record(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_COMMIT", 2)
    cluster.admin.create_topic("wide", 5)
    partitions = [TopicPartition("wide", number) for number in range(5)]
    before = cluster.admin.refresh().version
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign(partitions)
        consumer.commit({partition: OffsetAndMetadata(partition.partition) for partition in partitions})
    assert cluster.admin.refresh().version == before + 3
    with AdminClient(cluster=cluster.coordinator()) as admin:
        admin.alter_group_offsets("g", {partition: OffsetAndMetadata(9) for partition in partitions})
        assert cluster.admin.refresh().version == before + 6
        admin.delete_group_offsets("g", partitions[:3])
        assert cluster.admin.refresh().version == before + 8
    with cluster.consumer() as consumer:
        consumer.assign([partition_for("g")])
        keys = [record.key for record in read(consumer, 13)]
    wide = [offset_key("g", "wide", number) for number in range(5)]
    assert keys == [*wide, *wide, *wide[:3]]


def test_a_member_releases_more_partitions_than_fit_one_commit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_COMMIT", 2)
    cluster.admin.create_topic("wide", 8)
    for number in range(8):
        cluster.write(number, b"v", topic="wide")
    with cluster.consumer("wide", group_id="g") as first, cluster.consumer("wide", group_id="g") as second:
        assert len(read(first, 8)) == 8
        while not second.assignment():
            second.poll(10)
            first.poll(10)
    offsets = cluster.admin.refresh().groups["g"].offsets
    assert {offset.partition: offset.offset for offset in offsets.values()} == dict.fromkeys(range(8), 1)


def test_a_transaction_with_more_offsets_than_fit_one_commit_is_refused_whole(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_COMMIT", 2)
    cluster.admin.create_topic("wide", 5)
    with Producer(cluster=cluster.coordinator(), transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("wide", b"v")
        offsets = {TopicPartition("wide", number): OffsetAndMetadata(1) for number in range(5)}
        producer.send_offsets_to_transaction(offsets, "g")
        with pytest.raises(RecordListTooLargeError, match="5 offsets"):
            producer.commit_transaction()
        producer.abort_transaction()
    state = cluster.admin.refresh()
    assert state.partition("wide", 0).high_watermark == 0
    assert "g" not in state.groups
