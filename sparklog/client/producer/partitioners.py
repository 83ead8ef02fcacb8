"""Partitioners as objects: which partition a record goes to that names none.

    class ByCountry(Partitioner):
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            return value["country"] % len(cluster.partitions_for_topic(topic))

    producer = Producer(bootstrap_servers="/data/log", partitioner=ByCountry())

A producer without a partitioner of its own hashes keys as these do, and keeps records without a key in one partition
until it has ``batch_size`` bytes.

Rules: the interface is kafka-python's (version 3). Functions of (key bytes, all partitions, available partitions) do as
well. Thread-safe. Not for: the hash itself (``protocol.partitioner``).
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.errors import InvalidClientConfigurationError
from sparklog.ids import Ids, RandomIds
from sparklog.protocol.plan import partitioner as hashing

ChoosePartition = Callable[[str, Any, "bytes | None", Any, "bytes | None", ClusterMetadata], Any]
"""(topic, key, key bytes, value, value bytes, cluster) -> partition."""

RotatePartition = Callable[[str, ClusterMetadata, int], object]
"""(topic, cluster, partition so far), called before a record without a key begins a batch."""


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, from 0 to 2**32 - 1."""
    return hashing.murmur2(bytes(data)) & 0xFFFFFFFF


class Partitioner(ABC):
    """Chooses partitions. May also have ``on_new_batch(topic, cluster, prev_partition)``, which is called before a
    record without a key begins a batch; then the partitioner is asked once more."""

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
        """The number of a partition of the topic. ``key`` and ``value`` are what was given to ``send``. What this
        raises comes out of ``send``."""


class DefaultPartitioner(Partitioner):
    """A key goes where its hash says, as in Kafka's Java client; a record without a key to any partition that has a
    leader, chosen at random."""

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
        """The partition. Raises ValueError for a topic that does not exist."""
        everything = _partitions(topic, cluster)
        if serialized_key is not None:
            return _by_key(serialized_key, everything)
        return self._without_key(topic, sorted(cluster.available_partitions_for_topic(topic) or ()) or everything)

    def _without_key(self, topic: str, choices: Sequence[int]) -> int:
        return self._any(choices)

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """The same, as kafka-python 2 calls it."""
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
        self._lock = threading.Lock()

    def _without_key(self, topic: str, choices: Sequence[int]) -> int:
        with self._lock:
            chosen = self._sticky.get(topic)
            if chosen is None or chosen not in choices:
                chosen = self._sticky[topic] = self._any(choices)
            return chosen

    def on_new_batch(self, topic: str, cluster: ClusterMetadata, prev_partition: int) -> None:
        """Choose another partition, unless another thread has done so already."""
        choices = sorted(cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic) or ())
        with self._lock:
            if choices and self._sticky.get(topic) == prev_partition:
                others = [number for number in choices if number != prev_partition]
                self._sticky[topic] = self._any(others or choices)


def _partitions(topic: str, cluster: ClusterMetadata) -> list[int]:
    everything = cluster.partitions_for_topic(topic)
    if not everything:
        raise ValueError(f"topic {topic!r} does not exist in this cluster")
    return sorted(everything)


def _by_key(key: bytes, everything: Sequence[int]) -> int:
    return everything[hashing.partition_for_key(bytes(key), len(everything))]


def as_choice(given: object) -> tuple[ChoosePartition | None, RotatePartition | None]:
    """One signature for all that a producer takes as its partitioner, and its ``on_new_batch`` if it has one.

    Objects with ``partition(topic, key, serialized_key, value, serialized_value, cluster)``, with the older
    ``partition(topic, serialized_key, cluster)``, and functions of (key bytes, all partitions, available partitions).
    Raises InvalidClientConfigurationError for anything else.
    """
    if given is None:
        return None, None
    method: Any = None if isinstance(given, str | bytes) else getattr(given, "partition", None)
    if callable(method):
        rotate: Any = getattr(given, "on_new_batch", None)
        if _arguments(method) == 3:
            return lambda topic, key, key_bytes, value, value_bytes, cluster: method(topic, key_bytes, cluster), rotate
        return method, rotate
    if not callable(given):
        raise InvalidClientConfigurationError(
            f"Producer(partitioner={given!r}): give a Partitioner, or a function of (key bytes, all partitions, "
            "available partitions)",
            config="partitioner",
            value=given,
        )
    function: Any = given

    def choose(topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: Any, cluster: Any) -> Any:
        everything = sorted(cluster.partitions_for_topic(topic) or ())
        return function(key_bytes, everything, sorted(cluster.available_partitions_for_topic(topic) or everything))

    return choose, None


def _arguments(method: Callable[..., object]) -> int | None:
    """How many positional arguments a method needs; None where it does not say."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
