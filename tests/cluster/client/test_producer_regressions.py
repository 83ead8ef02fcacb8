"""A producer after unexpected and after permanent errors of the storage, when the outcome of a commit is unknown."""

from __future__ import annotations

import uuid

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster
from sparklog.errors import (
    ClusterMovedError,
    IndeterminateCommitError,
    SparklogError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore


class BrokenStore(FaultyStore):
    """A faulty driver: it stores the object, and then raises an unexpected error."""

    armed = False

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.armed:
            self.armed = False
            raise RuntimeError("a mistake of the driver")


def test_records_after_an_unexpected_error_are_not_mistaken_for_a_repetition() -> None:
    store = BrokenStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store)
    cluster.create_topic("orders")
    with Producer(cluster=cluster) as producer:
        producer.send("orders", b"0").get(30)
        store.armed = True
        failed = producer.send("orders", b"1")
        producer.flush()
        assert isinstance(failed.exception, IndeterminateCommitError)
        assert isinstance(failed.exception.__cause__, RuntimeError)
        assert producer.send("orders", b"2").get(30).offset == 2
    with LogReader(cluster) as reader:
        assert [record.value for record in reader.records("orders", 0, 0, 3)] == [b"0", b"1", b"2"]


class DeniedStore(FaultyStore):
    """Once armed, loses the response of the next commit; then ``silent`` reads are unavailable, and ``refused`` reads
    raise ``error``."""

    armed = False
    silent, refused = 5, 6
    error: SparklogError = StoragePermissionError("403: credentials expired")

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.armed and key.startswith("meta/commits/"):
            self.armed, self.is_down = False, True
            raise StorageUnavailableError("no answer", path=key)

    is_down = False

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        if self.is_down and key.startswith("meta/"):
            if self.silent:
                self.silent -= 1
                raise StorageUnavailableError("503", path=key)
            if self.refused:
                self.refused -= 1
                raise self.error
        return super().get(key, max_bytes)


def test_files_of_an_unknown_commit_are_not_taken_apart_when_an_error_names_no_partition() -> None:
    """Their records were written again under another producer id, and were in the log twice."""
    store = DeniedStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store)
    places = [("a", 0), ("b", 0), ("a", 1), ("x", 0)]
    for topic, partitions in (("a", 2), ("b", 1), ("x", 1)):
        cluster.create_topic(topic, partitions)
    with Producer(cluster=cluster, linger_ms=60_000, retry_backoff_ms=1) as producer:
        for topic, partition in places:
            producer.send(topic, b"before", partition=partition)
        producer.flush()
        store.armed = True
        sent = {
            (topic, partition): producer.send(topic, b"%s %d" % (topic.encode(), partition), partition=partition)
            for topic, partition in places
        }
        producer.flush()
    assert not store.is_down or not store.refused
    cluster.refresh()
    with LogReader(cluster) as reader:
        for (topic, partition), future in sent.items():
            end = cluster.state.partition(topic, partition).high_watermark
            values = [record.value for record in reader.records(topic, partition, 0, end)]
            assert values == [b"before", b"%s %d" % (topic.encode(), partition)]
            assert future.succeeded() or isinstance(future.exception, IndeterminateCommitError)


@pytest.mark.parametrize("error", [StoragePermissionError("403"), ClusterMovedError("moved to another root")])
def test_records_that_may_be_in_the_log_never_fail_as_if_they_were_not(error: SparklogError) -> None:
    store = DeniedStore(MemoryStore(uuid.uuid4().hex))
    store.error, store.refused = error, 1_000
    cluster = create_cluster(store)
    cluster.create_topic("a")
    with Producer(cluster=cluster, retry_backoff_ms=1) as producer:
        producer.send("a", b"before").get(30)
        store.armed = True
        failed = producer.send("a", b"record")
        producer.flush()
        store.is_down = False
    assert isinstance(failed.exception, IndeterminateCommitError)
    assert failed.exception.__cause__ is error
    cluster.refresh()
    with LogReader(cluster) as reader:
        assert [record.value for record in reader.records("a", 0, 0, 2)] == [b"before", b"record"]
