"""Find the topic of each row, check that it accepts the row, and let the partitioner choose the partition.

The option ``topic`` or the column ``topic`` names the topic; ``records.routing`` routes its rows. ``default`` is
Kafka's partitioner: the murmur2 hash of a key. Tasks start at partitions far from each other, so that a few rows per
task still spread over all partitions.

Rules: rows keep their order within a partition; a row that its topic refuses is an error, and nothing of the write
becomes visible. Not for: files (``output``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError, InvalidRecordError
from sparklog.format.schema import HEADERS, KEY, VALUE
from sparklog.protocol.plan.partitioner import partition_integer_keys, partition_keys, split_by_partition
from sparklog.records.routing import Partitioner, RowRouting
from sparklog.records.row_checks import check_partitions, check_rows
from sparklog.spark.sink.conversion import Rows
from sparklog.spark.sink.topic_targets import TargetOf, TopicTarget

_GOLDEN = 0.6180339887498949


class Routed(NamedTuple):
    """Records for one partition of a topic, and their size in bytes.

    ``is_slice`` says that they are a slice, which keeps a larger batch in memory.
    """

    target: TopicTarget
    partition: int
    records: pa.RecordBatch
    size: int
    is_slice: bool


class Router:
    """Routes the rows of one task to partitions. Not thread-safe: remembers the next partition of rows without keys.

    ``task`` is the task's number in its job. ``targets`` holds the topics that got rows, by name; ``spread`` the names
    of those for which another run of the same rows may choose other partitions.
    """

    def __init__(self, target_of: TargetOf, topic: str, partitioner: Partitioner, task: int = 0) -> None:
        self._target_of = target_of
        self._topic = topic
        self._partitioner = partitioner
        self._task = task
        self.targets: dict[str, TopicTarget] = {}
        self.spread: set[str] = set()
        self._routings: dict[str, RowRouting] = {}

    def route(self, rows: Rows, now_ms: int) -> Iterator[Routed]:
        """Yield these rows by partition. Raises InvalidRecordError and its subclasses, UnknownTopicOrPartitionError."""
        if rows.topics is None:
            yield from self._to_topic(self._target(self._topic), rows, now_ms)
            return
        if rows.topics.null_count:
            raise InvalidRecordError("a row has a null topic; give every row a topic, or set the option topic for all")
        codes = rows.topics.dictionary_encode()
        if len(codes.dictionary) == 1:
            yield from self._to_topic(self._target(codes.dictionary[0].as_py()), rows, now_ms)
            return
        for number, start, count, ordered in _grouped(rows, codes.indices, len(codes.dictionary)):
            target = self._target(codes.dictionary[number].as_py())
            yield from self._to_topic(target, _slice(ordered, start, count), now_ms)

    def _target(self, topic: str) -> TopicTarget:
        target = self.targets.get(topic)
        if target is None:
            target = self.targets[topic] = self._target_of(topic)
        return target

    def _to_topic(self, target: TopicTarget, rows: Rows, now_ms: int) -> Iterator[Routed]:
        if target.needs_key:
            check_has_key(target.topic, rows.records.schema.names)
        check_rows(rows.records, target, now_ms, rows.stamped)
        if rows.partitions is not None:
            check_partitions(rows.partitions, target.topic, target.partitions)
        routing = self._routing_of(target)
        keys = rows.records.column(KEY) if KEY in rows.records.schema.names else None
        partitions = routing.choose(rows.records.num_rows, keys, rows.partitions)
        if routing.varies:
            self.spread.add(target.topic)
        if isinstance(partitions, int):
            yield Routed(target, partitions, rows.records, rows.records.nbytes, rows.is_slice)
            return
        sizes: SliceSizes | None = None
        for partition, start, count, ordered in _grouped(rows, partitions, target.partitions):
            sizes = sizes or SliceSizes(ordered.records)
            records = ordered.records.slice(start, count)
            yield Routed(target, partition, records, sizes.bytes(start, count), is_slice=True)

    def _routing_of(self, target: TopicTarget) -> RowRouting:
        """Return the topic's routing; the partition at which rows without keys start depends on the task."""
        routing = self._routings.get(target.topic)
        if routing is None:
            first = int(self._task * _GOLDEN % 1.0 * target.partitions)
            is_repeatable = self._partitioner in DETERMINISTIC
            routing = RowRouting(target.partitions, first, self._partitioner, is_repeatable)
            self._routings[target.topic] = routing
        return routing


def _grouped(rows: Rows, numbers: pa.Array, groups: int) -> Iterator[tuple[int, int, int, Rows]]:
    """Sort the rows by number (below ``groups``), stably. Yield each number with the start and count of its rows, and
    the sorted rows."""
    positions, counts = split_by_partition(numbers, groups)
    ordered = rows.take(positions)
    start = 0
    for number, count in enumerate(counts):
        if count:
            yield number, start, count, ordered
        start += count


class SliceSizes:
    """Sizes of slices of a batch, from the offsets of its key and value; ``nbytes`` takes several times as long."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records
        self._is_simple = HEADERS not in records.schema.names and not any(column.offset for column in records.columns)
        texts = [records.column(name) for name in (KEY, VALUE) if name in records.schema.names]
        self._offsets = [memoryview(column.buffers()[1]).cast("i") for column in texts] if self._is_simple else []
        self._fixed = 8 + 4 * len(texts)

    def bytes(self, start: int, count: int) -> int:
        """Return the size in bytes of rows ``[start, start + count)``."""
        if not self._is_simple:
            return int(self._records.slice(start, count).nbytes)
        return self._fixed * count + sum(offsets[start + count] - offsets[start] for offsets in self._offsets)


def _slice(rows: Rows, start: int, count: int) -> Rows:
    partitions = None if rows.partitions is None else rows.partitions.slice(start, count)
    return Rows(rows.records.slice(start, count), None, partitions, rows.stamped, is_slice=True)


# -- partitioners


def partitioner(name: str, ignore_keys: bool = False) -> Partitioner:
    """Return the partitioner of this name: ``default``, ``integer_key``, or a user's function as ``module:callable``.

    Raises InvalidOptionError if the function does not exist.
    """
    if ignore_keys:
        return _ignore_keys
    if name == "default":
        return partition_keys
    if name == "integer_key":
        return partition_integer_keys
    return partial(_partition_by, name, _load_function(name))


DETERMINISTIC = (partition_keys, partition_integer_keys)
"""Partitioners that map a key to the same partition every time."""


def _ignore_keys(keys: pa.Array, partitions: int) -> pa.Array:
    return pa.nulls(len(keys), pa.int32())


def _load_function(name: str) -> Callable[..., object]:
    module, colon, attribute = name.partition(":")
    problem = "expected default, integer_key or module:callable"
    if colon:
        try:
            function = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            problem = f"{error} (the module must be importable on every executor: install it, or use --py-files)"
        else:
            if callable(function):
                return function  # type: ignore[no-any-return]
            problem = f"{attribute} in {module} is not callable"
    raise InvalidOptionError(f"invalid value {name!r} for option partitioner: {problem}", option="partitioner")


def _partition_by(name: str, function: Callable[..., object], keys: pa.Array, partitions: int) -> pa.Array:
    """Return the partitions that a user's function chooses, which is called with a list of keys (bytes or None) and the
    number of partitions.

    It returns a list of as many partitions; a row with None is placed like a row without a key.
    """
    returned = function(keys.to_pylist(), partitions)
    try:
        chosen = pa.array(returned, pa.int32())
        limits = pc.min_max(chosen).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRecordError(f"partitioner {name} did not return a list of whole numbers: {error}") from error
    if len(chosen) != len(keys):
        raise InvalidRecordError(f"partitioner {name} returned {len(chosen)} partitions for {len(keys)} rows")
    if limits["min"] is not None and not 0 <= limits["min"] <= limits["max"] < partitions:
        raise InvalidRecordError(
            f"partitioner {name} returned partitions from {limits['min']} to {limits['max']}, but the topic has 0 to "
            f"{partitions - 1}"
        )
    return chosen


# -- checks


def check_has_key(topic: str, columns: Sequence[str]) -> None:
    """Raise InvalidRecordError if there is no column key, which a compacted topic requires."""
    if not any(name.lower() == KEY for name in columns):
        raise InvalidRecordError(
            f"topic {topic!r} is compacted, and the rows have no column key; add one, or remove compact from the "
            "topic's cleanup.policy",
            topic=topic,
        )
