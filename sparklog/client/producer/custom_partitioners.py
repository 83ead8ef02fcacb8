"""Partitioner classes: they choose the partition of a record that names none.

    class ByCountry(Partitioner):
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            return value["country"] % len(cluster.partitions_for_topic(topic))

    producer = Producer(bootstrap_servers="/data/log", partitioner=ByCountry())

A producer without a partitioner hashes keys in the same way, and sends records without a key to one partition until its
batch has ``batch_size`` bytes.

Rules: the interface is kafka-python's (version 3). Functions of (key bytes, all partitions, available partitions) are
accepted too. Thread-safe. Not for: the hash itself (``protocol.plan.partitioner``).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sparklog.client.config import invalid_argument, takes
from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.ids import Ids, RandomIds
from sparklog.protocol.plan import partitioner as hashing

ChoosePartition = Callable[[str, Any, "bytes | None", Any, "bytes | None", ClusterMetadata], Any]
"""(topic, key, key bytes, value, value bytes, cluster) -> partition."""

RotatePartition = Callable[[str, ClusterMetadata, int], object]
"""(topic, cluster, previous partition), called before a record without a key begins a batch."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit hash of a key, from 0 to 2**32 - 1."""
    return hashing.murmur2(bytes(data)) & 0xFFFFFFFF


class Partitioner(ABC):
    """Chooses partitions.

    May also have ``on_new_batch(topic, cluster, prev_partition)``, which is called before a record without a key begins
    a batch; ``partition`` is then called again.
    """

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: ClusterMetadata,
    ) -> int:
        """Return the number of a partition of the topic.

        ``key`` and ``value`` are the arguments of ``send``, which raises the errors of this method unchanged.
        """


class DefaultPartitioner(Partitioner):
    """Chooses the partition of a key by its hash, as Kafka's Java client does, and for a record without a key a random
    partition that has a leader."""

    def __init__(self, ids: Ids | None = None) -> None:
        self._ids = ids or RandomIds()

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: ClusterMetadata,
    ) -> int:
        """Return the partition. Raises ValueError if the topic does not exist."""
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if not partitions:
            raise ValueError(f"topic {topic!r} does not exist in this cluster")
        if serialized_key is not None:
            return _by_key(serialized_key, partitions)
        return self._without_key(topic, sorted(cluster.available_partitions_for_topic(topic) or ()) or partitions)

    def _without_key(self, topic: str, choices: Sequence[int]) -> int:
        return self._any(choices)

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """Return the same, called as in kafka-python 2."""
        if key is not None:
            return _by_key(key, all_partitions)
        return self._any(available or all_partitions)

    def _any(self, choices: Sequence[int]) -> int:
        return choices[int(self._ids.jitter() * len(choices))]


class StickyPartitioner(DefaultPartitioner):
    """As DefaultPartitioner, but records without a key stay in one partition until they begin a batch (KIP-480)."""

    def __init__(self, ids: Ids | None = None) -> None:
        super().__init__(ids)
        self._sticky: dict[str, int] = {}
        self._lock = threading.RLock()

    def _without_key(self, topic: str, choices: Sequence[int]) -> int:
        with self._lock:
            chosen = self._sticky.get(topic)
            if chosen is None or chosen not in choices:
                chosen = self._sticky[topic] = self._any(choices)
            return chosen

    def on_new_batch(self, topic: str, cluster: ClusterMetadata, prev_partition: int) -> None:
        """Choose another partition, unless another thread has already done so."""
        choices = sorted(cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic) or ())
        with self._lock:
            if choices and self._sticky.get(topic) == prev_partition:
                others = [number for number in choices if number != prev_partition]
                self._sticky[topic] = self._any(others or choices)


def _by_key(key: bytes, partitions: Sequence[int]) -> int:
    return partitions[hashing.partition_for_key(bytes(key), len(partitions))]


def resolve_partitioner(given: Any) -> tuple[ChoosePartition | None, RotatePartition | None]:
    """Return the argument ``partitioner`` as a ChoosePartition, and its ``on_new_batch`` if it has one.

    It may be an object with ``partition(topic, key, serialized_key, value, serialized_value, cluster)``, one with the
    older ``partition(topic, serialized_key, cluster)``, or a function of (key bytes, all partitions, available
    partitions). Raises InvalidClientConfigurationError for anything else.
    """
    if given is None:
        return None, None
    method: Any = None if isinstance(given, str | bytes) else getattr(given, "partition", None)
    if callable(method):
        rotate: Any = getattr(given, "on_new_batch", None)
        if takes(method, "topic", "key", b"key", "value", b"value", None):
            return method, rotate
        return lambda topic, key, key_bytes, value, value_bytes, cluster: method(topic, key_bytes, cluster), rotate
    if not callable(given):
        what = "give a Partitioner, or a function of (key bytes, all partitions, available partitions)"
        raise invalid_argument("Producer", "partitioner", given, what)

    def choose(topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: Any, cluster: Any) -> Any:
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        return given(key_bytes, partitions, sorted(cluster.available_partitions_for_topic(topic) or partitions))

    return choose, None
