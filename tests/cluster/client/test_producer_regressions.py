"""A producer after an unexpected error of the storage."""

from __future__ import annotations

import uuid

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster
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
        assert isinstance(failed.exception, RuntimeError)
        assert producer.send("orders", b"2").get(30).offset == 2
    with LogReader(cluster) as reader:
        assert [record.value for record in reader.records("orders", 0, 0, 3)] == [b"0", b"1", b"2"]
