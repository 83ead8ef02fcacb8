"""Numbers of numpy and pandas are taken wherever Python's are, and are stored as Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import sparklog
from sparklog import AdminClient, Consumer, NewPartitions, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.client.consumer.subscription_state import as_offset, as_partition
from sparklog.errors import InvalidArgumentError, InvalidArgumentTypeError
from sparklog.types import number, whole

KINDS: list[Callable[[int], Any]] = [np.int64, np.int32, np.uint8, lambda value: pd.Series([value]).iloc[0], np.array]


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    sparklog.create_cluster(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_take_partitions_offsets_and_times(root: str, kind: Callable[[int], Any]) -> None:
    if kind is np.array:
        pytest.skip("an array cannot be a key of a dict")
    partition = TopicPartition("t", kind(0))
    with Producer(bootstrap_servers=root, linger_ms=kind(0), max_request_size=np.int64(10**6)) as producer:
        for value in range(5):
            producer.send("t", b"%d" % value, partition=kind(0), timestamp_ms=kind(value + 1)).get()
    with Consumer(
        bootstrap_servers=root, group_id="g", max_poll_records=kind(2), consumer_timeout_ms=np.float32(100)
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, kind(2))
        assert consumer.position(partition) == 2
        records = consumer.poll(timeout_ms=kind(100), max_records=kind(1))
        assert [record.offset for batch in records.values() for record in batch] == [2]
        times = consumer.offsets_for_times({partition: kind(4)})
        assert [found.offset for found in times.values() if found] == [3]
        consumer.commit({partition: OffsetAndMetadata(kind(3), "text", kind(0))})
        assert consumer.committed(TopicPartition("t", 0)) == 3
        assert consumer.committed(partition) == 3
        consumer.pause(partition)
        assert consumer.paused() == {TopicPartition("t", 0)}
        assert consumer.end_offsets([partition]) == {TopicPartition("t", 0): 5}


@pytest.mark.parametrize("kind", KINDS)
def test_admin_clients_transactions_and_scans_take_them(root: str, kind: Callable[[int], Any]) -> None:
    with AdminClient(bootstrap_servers=root) as admin:
        admin.create_topics([NewTopic("t", kind(1), kind(1), topic_configs={"retention.ms": kind(100)})])
        admin.create_topics([NewTopic("u", replica_assignments={0: [kind(0)]})])
        admin.create_partitions({"t": NewPartitions(kind(2))})
        admin.create_partitions({"u": kind(3)})
        with Producer(bootstrap_servers=root, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(3):
                producer.send("u", b"v", partition=kind(0))
            if kind is not np.array:
                position = OffsetAndMetadata(kind(1), "", kind(0))
                producer.send_offsets_to_transaction({TopicPartition("u", kind(0)): position}, "g")
            producer.commit_transaction()
        if kind is not np.array:
            assert admin.list_group_offsets("g")["g"][TopicPartition("u", 0)].offset == 1
            admin.alter_group_offsets("g", {TopicPartition("u", kind(0)): OffsetAndMetadata(kind(2))})
            assert admin.list_group_offsets("g")["g"][TopicPartition("u", 0)].offset == 2
            admin.delete_records({TopicPartition("u", kind(0)): kind(1)})
    scan = sparklog.scan("u", root, partitions=[kind(0)], start={0: kind(1)}, end={0: kind(3)})
    assert scan.to_arrow().num_rows == 2


def test_booleans_texts_and_parts_are_no_whole_numbers() -> None:
    for value in (True, np.True_, "1", 1.0, np.float64(1.0), None, pd.NaT, pd.Timestamp(1)):
        assert whole(value) is None, value
    assert [number(value) for value in (np.float32(0.5), np.int8(-1), True, np.bool_(True), "1")] == [
        0.5,
        -1,
        None,
        None,
        None,
    ]
    for wrong in (np.True_, 1.5, np.float64(1), pd.Timestamp(0), "0"):
        with pytest.raises((InvalidArgumentError, InvalidArgumentTypeError)):
            as_partition(("t", wrong))
        with pytest.raises((InvalidArgumentError, InvalidArgumentTypeError)):
            as_offset(TopicPartition("t", 0), wrong)
