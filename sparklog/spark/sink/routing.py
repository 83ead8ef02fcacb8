"""Choose the topic partition of each row, and check that the topic accepts it.

In this order: the option ``topic`` or the column ``topic`` names the topic; a partition in the column ``partition`` is
used; otherwise the partitioner decides. ``default`` is Kafka's: the murmur2 hash of a key chooses its partition; rows
without a key go to one partition, a batch of rows at a time, and the next batch to another partition. Tasks start at
partitions far from each other, so that a few rows per task still spread over all partitions.

Rules: rows keep their order within a partition; a row that its topic refuses is an error with topic, partition, reason
and size, and nothing of the write becomes visible. Not for: files (``output``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
)
from sparklog.format.schema import HEADERS, KEY, TIMESTAMP, VALUE
from sparklog.protocol.plan.partitioner import (
    StickyPartitions,
    partition_integer_keys,
    partition_keys,
    split_by_partition,
)
from sparklog.spark.sink.conversion import Rows
from sparklog.spark.sink.topic_targets import TargetOf, TopicTarget

Partitioner = Callable[[pa.Array, int], pa.Array]
"""Binary keys and a number of partitions -> partitions as int32; a null row is placed like a row without a key."""

RECORD_OVERHEAD_BYTES = 12
"""bytes that count towards Kafka's limit besides the record itself: its default is 1 MiB + 12 (``LOG_OVERHEAD``)."""

STICKY_ROWS = 10_000
"""rows without a key that go to the same partition: the default size of Spark's batches."""

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
        self._sticky: dict[str, StickyPartitions] = {}

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
        partitions = self._partitions(target, rows)
        check_rows(target, rows, partitions, now_ms)
        if isinstance(partitions, int):
            yield Routed(target, partitions, rows.records, rows.records.nbytes, rows.is_slice)
            return
        sizes: SliceSizes | None = None
        for partition, start, count, ordered in _grouped(rows, partitions, target.partitions):
            sizes = sizes or SliceSizes(ordered.records)
            records = ordered.records.slice(start, count)
            yield Routed(target, partition, records, sizes.bytes(start, count), is_slice=True)

    def _partitions(self, target: TopicTarget, rows: Rows) -> pa.Array | int:
        """Return one partition for all rows, or one for each."""
        given = rows.partitions
        if given is not None and given.null_count == len(given):
            given = None
        if given is not None:
            _check_given(target, given)
            if not given.null_count:
                return given
        chosen = self._by_key(target, rows)
        return chosen if given is None else pc.coalesce(given, _filled(chosen, len(given)))

    def _by_key(self, target: TopicTarget, rows: Rows) -> pa.Array | int:
        keys = rows.records.column(KEY) if KEY in rows.records.schema.names else None
        if target.partitions == 1:
            return 0
        if keys is None:
            return self._sticky_of(target).next_partition(rows.records.num_rows)
        if keys.null_count == len(keys):
            return self._next_partitions(target, len(keys))
        if self._partitioner not in DETERMINISTIC:
            self.spread.add(target.topic)
        chosen = self._partitioner(keys, target.partitions)
        if chosen.null_count == len(chosen):
            return self._next_partitions(target, len(chosen))
        if not chosen.null_count:
            return chosen
        return pc.coalesce(chosen, _filled(self._next_partitions(target, len(chosen)), len(chosen)))

    def _next_partitions(self, target: TopicTarget, rows: int) -> pa.Array | int:
        """Return partitions for rows without keys: ``STICKY_ROWS`` at a time to the partition with the fewest rows."""
        sticky = self._sticky_of(target)
        if rows <= STICKY_ROWS:
            return sticky.next_partition(rows)
        counts = [min(STICKY_ROWS, rows - start) for start in range(0, rows, STICKY_ROWS)]
        return pa.concat_arrays([pa.repeat(pa.scalar(sticky.next_partition(n), pa.int32()), n) for n in counts])

    def _sticky_of(self, target: TopicTarget) -> StickyPartitions:
        """Return the topic's ``StickyPartitions``; the partition at which they start depends on the task."""
        self.spread.add(target.topic)
        sticky = self._sticky.get(target.topic)
        if sticky is None:
            first = int(self._task * _GOLDEN % 1.0 * target.partitions)
            sticky = self._sticky[target.topic] = StickyPartitions(target.partitions, first)
        return sticky


def _filled(chosen: pa.Array | int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(chosen, pa.int32()), rows) if isinstance(chosen, int) else chosen


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
        return _default
    if name == "integer_key":
        return _integer
    return _UserPartitioner(name, _load_function(name))


def _default(keys: pa.Array, partitions: int) -> pa.Array:
    return partition_keys(keys, partitions)


def _integer(keys: pa.Array, partitions: int) -> pa.Array:
    return partition_integer_keys(keys, partitions)


DETERMINISTIC = (_default, _integer)
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


class _UserPartitioner:
    """A user's function, called with a list of keys (bytes or None) and the number of partitions.

    It returns a list of as many partitions; a row with None is placed like a row without a key.
    """

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self._name = name
        self._function = function

    def __call__(self, keys: pa.Array, partitions: int) -> pa.Array:
        returned = self._function(keys.to_pylist(), partitions)
        try:
            chosen = pa.array(returned, pa.int32())
            limits = pc.min_max(chosen).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRecordError(
                f"partitioner {self._name} did not return a list of whole numbers: {error}"
            ) from error
        if len(chosen) != len(keys):
            raise InvalidRecordError(f"partitioner {self._name} returned {len(chosen)} partitions for {len(keys)} rows")
        if limits["min"] is not None and not 0 <= limits["min"] <= limits["max"] < partitions:
            raise InvalidRecordError(
                f"partitioner {self._name} returned partitions from {limits['min']} to {limits['max']}, but the topic "
                f"has 0 to {partitions - 1}"
            )
        return chosen


# -- checks


def _check_given(target: TopicTarget, given: pa.Array) -> None:
    limits = pc.min_max(given).as_py()
    if limits["min"] < 0 or limits["max"] >= target.partitions:
        wrong = limits["min"] if limits["min"] < 0 else limits["max"]
        raise InvalidRecordError(
            f"a row asks for partition {wrong} of topic {target.topic!r}, which has partitions 0 to "
            f"{target.partitions - 1}; correct the column partition, or leave it null",
            topic=target.topic,
            partition=wrong,
        )


def check_rows(target: TopicTarget, rows: Rows, partitions: pa.Array | int, now_ms: int) -> None:
    """Check that the topic accepts all of these rows. Raises InvalidRecordError and its subclasses."""
    if target.needs_key:
        _check_keys(target, rows.records, partitions)
    if rows.records.nbytes > target.max_message_bytes:
        _check_sizes(target, rows.records, partitions)
    if rows.stamped and not target.log_append_time:
        _check_timestamps(target, rows.records, partitions, now_ms)


def check_has_key(topic: str, columns: Sequence[str]) -> None:
    """Raise InvalidRecordError if there is no column key, which a compacted topic requires."""
    if not any(name.lower() == KEY for name in columns):
        raise InvalidRecordError(
            f"topic {topic!r} is compacted, and the rows have no column key; add one, or remove compact from the "
            "topic's cleanup.policy",
            topic=topic,
        )


def _check_keys(target: TopicTarget, records: pa.RecordBatch, partitions: pa.Array | int) -> None:
    check_has_key(target.topic, records.schema.names)
    keys = records.column(KEY)
    if not keys.null_count:
        return
    partition = _partition_of(partitions, pc.index(keys.is_null(), True).as_py())
    raise InvalidRecordError(
        f"a record for {target.topic}-{partition} has no key, and the topic is compacted; give every row a key",
        topic=target.topic,
        partition=partition,
    )


def _check_sizes(target: TopicTarget, records: pa.RecordBatch, partitions: pa.Array | int) -> None:
    names = records.schema.names
    largest = [pc.max(_length(records.column(name))).as_py() or 0 for name in (KEY, VALUE) if name in names]
    if sum(largest) + RECORD_OVERHEAD_BYTES <= target.max_message_bytes and HEADERS not in names:
        return
    sizes = record_sizes(records)
    row = pc.index(pc.greater(sizes, target.max_message_bytes), True).as_py()
    if row < 0:
        return
    partition = _partition_of(partitions, row)
    raise MessageSizeTooLargeError(
        f"a record of {sizes[row].as_py():,} bytes (key, value and headers) for {target.topic}-{partition} is over the "
        f"topic's max.message.bytes of {target.max_message_bytes:,}; raise that config, or write smaller records",
        topic=target.topic,
        partition=partition,
        size=sizes[row].as_py(),
        limit=target.max_message_bytes,
    )


def record_sizes(records: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each record that count for ``max.message.bytes``: key, value and headers, uncompressed."""
    total = pa.repeat(pa.scalar(RECORD_OVERHEAD_BYTES, pa.int64()), records.num_rows)
    for name in (KEY, VALUE):
        if name in records.schema.names:
            total = pc.add(total, pc.fill_null(_length(records.column(name)), 0))
    if HEADERS in records.schema.names:
        total = pc.add(total, _header_sizes(records.column(HEADERS)))
    return total


def _length(column: pa.Array) -> pa.Array:
    return pc.binary_length(column)


def _header_sizes(headers: pa.Array) -> pa.Array:
    items = headers.flatten()
    sizes = pc.add(pc.fill_null(_length(items.field("key")), 0), pc.fill_null(_length(items.field("value")), 0))
    table = pa.table({"row": pc.list_parent_indices(headers), "size": sizes})
    sums = table.group_by("row").aggregate([("size", "sum")])
    size_by_row = dict(zip(sums["row"].to_pylist(), sums["size_sum"].to_pylist(), strict=True))
    return pa.array([size_by_row.get(row, 0) for row in range(len(headers))], pa.int64())


def _check_timestamps(target: TopicTarget, records: pa.RecordBatch, partitions: pa.Array | int, now_ms: int) -> None:
    times = records.column(TIMESTAMP).view(pa.int64())
    earliest, latest = max(now_ms - target.before_max_ms, 0), now_ms + target.after_max_ms
    limits = pc.min_max(times).as_py()
    if limits["min"] // 1000 >= earliest and limits["max"] // 1000 <= latest:
        return
    is_late = limits["max"] // 1000 > latest
    wrong = limits["max"] if is_late else limits["min"]
    partition = _partition_of(partitions, pc.index(times, wrong).as_py())
    config = "message.timestamp.after.max.ms" if is_late else "message.timestamp.before.max.ms"
    raise InvalidTimestampError(
        f"a record for {target.topic}-{partition} has timestamp {wrong // 1000} ms, but {config} allows {earliest} to "
        f"{latest}; correct the timestamp, or raise that config",
        topic=target.topic,
        partition=partition,
        timestamp_ms=wrong // 1000,
    )


def _partition_of(partitions: pa.Array | int, row: int) -> int:
    return partitions if isinstance(partitions, int) else int(partitions[row].as_py())
