"""Kafka's internal topics at the command line: none can be written, ``__consumer_offsets`` can be read."""

from __future__ import annotations

import json
from functools import partial

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.offsets_topic import PARTITIONS, RECORDS_PER_COMMIT, partition_of
from sparklog.protocol.commits import CreateTopic
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, delete_group, delete_group_offsets
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata

from .conftest import Run, commit

NAME = "__consumer_offsets"
ALL = [str(number) for number in range(PARTITIONS)]


@pytest.fixture
def grouped(cluster: Coordinator) -> Coordinator:
    """Group g has committed 5 and 6 in a topic, and the second offset was deleted."""
    cluster.create_topic("orders", 2)
    append_records(cluster, "orders", [Record(value=b"v", partition=0)])
    cluster.submit(
        partial(
            commit_group_offsets,
            commit=GroupCommit(group="g", offsets={("orders", 0): 5, ("orders", 1): OffsetAndMetadata(6, "m", 2)}),
        )
    )
    cluster.submit(partial(delete_group_offsets, group="g", partitions=[("orders", 1)]))
    return cluster


@pytest.fixture
def real(cluster: Coordinator) -> Coordinator:
    """A topic named __consumer_offsets, as older versions could create it."""
    topic_id = cluster.log.ids.topic_id()
    commit(cluster, CreateTopic(topic=NAME, topic_id=topic_id, replicas=[[0]], configs={}))
    return open_cluster(cluster.store.root)


@pytest.mark.parametrize("name", [NAME, "__transaction_state", "__share_group_state"])
def test_an_internal_topic_can_be_neither_created_nor_written(run: Run, cluster: Coordinator, name: str) -> None:
    before = cluster.refresh().version
    for result in (
        run("topics", "--create", "--topic", name),
        run("console-producer", "--topic", name, stdin=b"hi\n"),
    ):
        assert result.code == 1
        assert f"topic '{name}' is internal" in result.err
    assert cluster.refresh().version == before


def test_the_offsets_topic_is_listed_and_described_if_there_are_groups(run: Run, cluster: Coordinator) -> None:
    assert run("topics", "--list").lines == []
    cluster.create_topic("orders")
    assert run("topics", "--describe").lines[0].startswith("Topic: orders\t")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 5})))
    assert run("topics", "--list").lines == [NAME, "orders"]
    assert run("topics", "--list", "--exclude-internal").lines == ["orders"]
    described = run("topics", "--describe", "--topic", NAME)
    assert described.lines[0].startswith(f"Topic: {NAME}\tTopicId: ")
    assert "\tPartitionCount: 50\tReplicationFactor: 1\t" in described.lines[0]
    assert described.lines[50].startswith(f"\tTopic: {NAME}\tPartition: 49\tLeader: 0\tReplicas: 0\tIsr: 0\t")
    assert len(run("topics", "--describe").lines) == 51 + 2


def test_the_offsets_topic_can_be_described_by_name_without_groups(run: Run, root: str) -> None:
    assert len(run("topics", "--describe", "--topic", NAME).lines) == 51
    assert run("get-offsets", "--topic", NAME, "--partitions", "3", "--time", "earliest").lines == [f"{NAME}:3:0"]


def test_offsets_of_the_offsets_topic_are_printed(run: Run, grouped: Coordinator) -> None:
    end = (grouped.refresh().version + 1) * RECORDS_PER_COMMIT
    last = (grouped.state.version) * RECORDS_PER_COMMIT
    partition = partition_of("g")
    assert run("get-offsets", "--topic", NAME).lines == [f"{NAME}:{number}:{end}" for number in ALL]
    assert run("get-offsets", "--topic", NAME, "--time", "earliest").lines == [f"{NAME}:{number}:0" for number in ALL]
    assert run("get-offsets", "--topic", NAME, "--time", "max-timestamp").lines == [f"{NAME}:{partition}:{last}"]
    now = grouped.state.timestamp_ms
    assert run("get-offsets", "--topic", NAME, "--time", str(now)).lines == [f"{NAME}:{partition}:{last}"]
    assert run("get-offsets", "--topic", NAME, "--time", str(now + 1)).lines == []
    assert run("get-offsets", "--exclude-internal-topics").lines == ["orders:0:1", "orders:1:0"]
    assert len(run("get-offsets").lines) == 52


READ = ("console-consumer", "--topic", NAME, "--from-beginning", "--timeout-ms", "1")


@pytest.mark.parametrize(
    "formatter", ["OffsetsMessageFormatter", "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"]
)
def test_the_console_consumer_prints_committed_offsets_as_kafka_3(
    run: Run, grouped: Coordinator, formatter: str
) -> None:
    version = grouped.refresh().version - 1
    stamp = next(grouped.log.commits(version, version)).timestamp
    result = run(*READ, "--formatter", formatter)
    assert result.code == 0
    assert result.lines == [
        "[g,orders,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional.empty, metadata=, "
        f"commitTimestamp={stamp}, expireTimestamp=None)",
        "[g,orders,1]::OffsetAndMetadata(offset=6, leaderEpoch=Optional[2], metadata=m, "
        f"commitTimestamp={stamp}, expireTimestamp=None)",
        "[g,orders,1]::NULL",
    ]


def test_the_console_consumer_prints_committed_offsets_as_kafka_4(run: Run, grouped: Coordinator) -> None:
    result = run(*READ, "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    first, second, third = map(json.loads, result.lines)
    assert first["key"] == {"type": 1, "data": {"group": "g", "topic": "orders", "partition": 0}}
    assert first["value"]["version"] == 3
    assert second["value"]["data"].items() >= {"offset": 6, "leaderEpoch": 2, "metadata": "m"}.items()
    assert list(second["value"]["data"]) == ["offset", "leaderEpoch", "metadata", "commitTimestamp"]
    assert third["value"] is None


def test_the_group_metadata_formatter_prints_deleted_groups(run: Run, grouped: Coordinator) -> None:
    grouped.submit(partial(delete_group, group="g"))
    assert run(*READ, "--formatter", "GroupMetadataMessageFormatter").lines == ["g::NULL"]
    kafka_4 = run(*READ, "--formatter", "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter")
    assert json.loads(kafka_4.out) == {"key": {"type": 2, "data": {"group": "g"}}, "value": None}


def test_a_formatter_skips_records_of_other_kinds(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(key=key, value=b"v") for key in (None, b"", b"\x00\x01", b"\x00\x09abc")])
    result = run(
        "console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "1", "--formatter",
        "OffsetsMessageFormatter",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "")


def test_one_partition_of_the_offsets_topic_is_read_from_an_offset(run: Run, grouped: Coordinator) -> None:
    at = ("--partition", str(partition_of("g")), "--offset", str((grouped.refresh().version) * RECORDS_PER_COMMIT))
    read = ("console-consumer", "--topic", NAME, "--timeout-ms", "1", "--formatter", "OffsetsMessageFormatter")
    assert run(*read, *at).lines == ["[g,orders,1]::NULL"]


def test_a_pattern_matches_the_offsets_topic_only_without_exclude_internal_topics(
    run: Run, grouped: Coordinator
) -> None:
    read = ("console-consumer", "--include", ".*", "--from-beginning", "--timeout-ms", "1")
    assert run(*read).lines == ["v"]
    assert len(run(*read, "--command-property", "exclude.internal.topics=false").out.splitlines()) > 3


def test_the_offsets_topic_cannot_be_read_in_a_group(run: Run, grouped: Coordinator) -> None:
    result = run(*READ, "--group", "g2")
    assert result.code == 1
    assert "leave out --group" in result.err


def test_an_existing_topic_with_an_internal_name_can_only_be_deleted(run: Run, real: Coordinator) -> None:
    refused = run("console-producer", "--topic", NAME, stdin=b"hi\n")
    assert "sparklog topics --delete --topic __consumer_offsets" in refused.err
    assert run("topics", "--list").lines == [NAME]
    assert run("topics", "--delete", "--topic", NAME).code == 0
    assert NAME not in real.refresh().topics
    assert run("topics", "--list").lines == []
