"""Which topic partition each row goes to, and whether the topic takes it.

In this order: the option ``topic`` or the column ``topic`` names the topic; a partition in the column ``partition`` is
taken; else the partitioner decides. ``default`` is Kafka's: a key goes to the partition its murmur2 hash says, rows
without a key go together to one partition, a batch of rows at a time, with the next batch to another partition.
Tasks begin at partitions far from each other, so that few rows in each spread over all partitions too.

Rules: rows keep their order within a partition; a row that its topic refuses is an error that says topic, partition,
reason and size, and nothing of the write becomes visible. Not for: files (``output``).
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
"""Binary keys and a number of partitions -> partitions as int32; null leaves a row to the rule for rows without key."""

RECORD_OVERHEAD_BYTES = 12
"""bytes. What Kafka's limit allows for beside the record itself: its default is 1 MiB and these (``LOG_OVERHEAD``)."""

STICKY_ROWS = 10_000
"""rows without a key that stay together: what Spark's batches have by default."""

_GOLDEN = 0.6180339887498949


class Routed(NamedTuple):
    """Records for one partition of a topic, and their bytes.

    ``is_part`` says that they are a slice, which keeps a larger batch in memory.
    """

    target: TopicTarget
    partition: int
    records: pa.RecordBatch
    size: int
    is_part: bool


class Router:
    """Sends the rows of one task to partitions. Not thread-safe: remembers where rows without keys go next.

    ``task`` is the task's number in its job. ``targets`` holds the topics that rows went to, by name; ``spread`` those
    of which some went to partitions that another run of the same rows may choose otherwise.
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
        """Where these rows go. Raises InvalidRecordError and its kinds, UnknownTopicOrPartitionError."""
        if rows.topics is None:
            yield from self._to_topic(self._target(self._topic), rows, now_ms)
            return
        if rows.topics.null_count:
            raise InvalidRecordError("a row has a null topic; give every row one, or set the option topic for all")
        codes = rows.topics.dictionary_encode()
        if len(codes.dictionary) == 1:
            yield from self._to_topic(self._target(codes.dictionary[0].as_py()), rows, now_ms)
            return
        for number, start, count, ordered in _grouped(rows, codes.indices, len(codes.dictionary)):
            target = self._target(codes.dictionary[number].as_py())
            yield from self._to_topic(target, _slice(ordered, start, count), now_ms)

    def _target(self, topic: str) -> TopicTarget:
        found = self.targets.get(topic)
        if found is None:
            found = self.targets[topic] = self._target_of(topic)
        return found

    def _to_topic(self, target: TopicTarget, rows: Rows, now_ms: int) -> Iterator[Routed]:
        partitions = self._partitions(target, rows)
        check_rows(target, rows, partitions, now_ms)
        if isinstance(partitions, int):
            yield Routed(target, partitions, rows.records, rows.records.nbytes, rows.is_part)
            return
        sizes: SliceSizes | None = None
        for partition, start, count, ordered in _grouped(rows, partitions, target.partitions):
            sizes = sizes or SliceSizes(ordered.records)
            records = ordered.records.slice(start, count)
            yield Routed(target, partition, records, sizes.bytes(start, count), is_part=True)

    def _partitions(self, target: TopicTarget, rows: Rows) -> pa.Array | int:
        """One partition for all rows, or one for each."""
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
        if self._partitioner not in CERTAIN:
            self.spread.add(target.topic)
        chosen = self._partitioner(keys, target.partitions)
        if chosen.null_count == len(chosen):
            return self._next_partitions(target, len(chosen))
        if not chosen.null_count:
            return chosen
        return pc.coalesce(chosen, _filled(self._next_partitions(target, len(chosen)), len(chosen)))

    def _next_partitions(self, target: TopicTarget, rows: int) -> pa.Array | int:
        """Where these rows would go if none had a key: ``STICKY_ROWS`` at a time to the partition with the fewest."""
        sticky = self._sticky_of(target)
        if rows <= STICKY_ROWS:
            return sticky.next_partition(rows)
        counts = [min(STICKY_ROWS, rows - start) for start in range(0, rows, STICKY_ROWS)]
        return pa.concat_arrays([pa.repeat(pa.scalar(sticky.next_partition(n), pa.int32()), n) for n in counts])

    def _sticky_of(self, target: TopicTarget) -> StickyPartitions:
        """The topic's own, which starts at a partition of this task's own."""
        self.spread.add(target.topic)
        sticky = self._sticky.get(target.topic)
        if sticky is None:
            first = int(self._task * _GOLDEN % 1.0 * target.partitions)
            sticky = self._sticky[target.topic] = StickyPartitions(target.partitions, first)
        return sticky


def _filled(chosen: pa.Array | int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(chosen, pa.int32()), rows) if isinstance(chosen, int) else chosen


def _grouped(rows: Rows, numbers: pa.Array, groups: int) -> Iterator[tuple[int, int, int, Rows]]:
    """The rows sorted by number (below ``groups``), stably; each number with where its rows start and how many."""
    positions, counts = split_by_partition(numbers, groups)
    ordered = rows.take(positions)
    start = 0
    for number, count in enumerate(counts):
        if count:
            yield number, start, count, ordered
        start += count


class SliceSizes:
    """The bytes of slices of a batch, from the offsets of its key and value; ``nbytes`` takes several times as long."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records
        self._is_simple = HEADERS not in records.schema.names and not any(column.offset for column in records.columns)
        texts = [records.column(name) for name in (KEY, VALUE) if name in records.schema.names]
        self._offsets = [memoryview(column.buffers()[1]).cast("i") for column in texts] if self._is_simple else []
        self._fixed = 8 + 4 * len(texts)

    def bytes(self, start: int, count: int) -> int:
        """Bytes of rows ``[start, start + count)``."""
        if not self._is_simple:
            return int(self._records.slice(start, count).nbytes)
        return self._fixed * count + sum(offsets[start + count] - offsets[start] for offsets in self._offsets)


def _slice(rows: Rows, start: int, count: int) -> Rows:
    partitions = None if rows.partitions is None else rows.partitions.slice(start, count)
    return Rows(rows.records.slice(start, count), None, partitions, rows.stamped, is_part=True)


# -- partitioners


def partitioner(name: str, ignore_keys: bool = False) -> Partitioner:
    """The partitioner of this name: ``default``, ``integer_key``, or a function of the user's as ``module:callable``.

    Raises InvalidOptionError where there is no such function.
    """
    if ignore_keys:
        return _no_choice
    if name == "default":
        return _default
    if name == "integer_key":
        return _integer
    return _Own(name, _function(name))


def _default(keys: pa.Array, partitions: int) -> pa.Array:
    return partition_keys(keys, partitions)


def _integer(keys: pa.Array, partitions: int) -> pa.Array:
    return partition_integer_keys(keys, partitions)


CERTAIN = (_default, _integer)
"""Partitioners that give the same key the same partition every time."""


def _no_choice(keys: pa.Array, partitions: int) -> pa.Array:
    return pa.nulls(len(keys), pa.int32())


def _function(name: str) -> Callable[..., object]:
    module, colon, attribute = name.partition(":")
    problem = "it is none of default, integer_key and module:callable"
    if colon:
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            problem = f"{error} (the module must be importable on every executor: install it, or use --py-files)"
        else:
            if callable(found):
                return found  # type: ignore[no-any-return]
            problem = f"{attribute} in {module} is not callable"
    raise InvalidOptionError(f"option partitioner cannot be {name!r}: {problem}", option="partitioner")


class _Own:
    """A user's function, called with a list of keys (bytes or None) and the number of partitions.

    It returns as many partitions; None leaves the choice to the default for rows without keys.
    """

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self._name = name
        self._function = function

    def __call__(self, keys: pa.Array, partitions: int) -> pa.Array:
        found = self._function(keys.to_pylist(), partitions)
        try:
            chosen = pa.array(found, pa.int32())
            limits = pc.min_max(chosen).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRecordError(f"partitioner {self._name} gave no list of whole numbers: {error}") from error
        if len(chosen) != len(keys):
            raise InvalidRecordError(f"partitioner {self._name} gave {len(chosen)} partitions for {len(keys)} rows")
        if limits["min"] is not None and not 0 <= limits["min"] <= limits["max"] < partitions:
            raise InvalidRecordError(
                f"partitioner {self._name} gave partitions from {limits['min']} to {limits['max']}, and the topic has "
                f"0 to {partitions - 1}"
            )
        return chosen


# -- what a topic refuses


def _check_given(target: TopicTarget, given: pa.Array) -> None:
    found = pc.min_max(given).as_py()
    if found["min"] < 0 or found["max"] >= target.partitions:
        wrong = found["min"] if found["min"] < 0 else found["max"]
        raise InvalidRecordError(
            f"a row asks for partition {wrong} of topic {target.topic!r}, which has partitions 0 to "
            f"{target.partitions - 1}; correct the column partition, or leave it null",
            topic=target.topic,
            partition=wrong,
        )


def check_rows(target: TopicTarget, rows: Rows, partitions: pa.Array | int, now_ms: int) -> None:
    """Whether the topic takes all of these rows. Raises InvalidRecordError and its kinds."""
    if target.needs_key:
        _check_keys(target, rows.records, partitions)
    if rows.records.nbytes > target.max_message_bytes:
        _check_sizes(target, rows.records, partitions)
    if rows.stamped and not target.log_append_time:
        _check_timestamps(target, rows.records, partitions, now_ms)


def check_has_key(topic: str, columns: Sequence[str]) -> None:
    """Raise InvalidRecordError for rows without a column of keys, of which a compacted topic takes none."""
    if not any(name.lower() == KEY for name in columns):
        raise InvalidRecordError(
            f"topic {topic!r} is compacted, and the rows have no column key; add one, or take compact out of the "
            "topic's cleanup.policy",
            topic=topic,
        )


def _check_keys(target: TopicTarget, records: pa.RecordBatch, partitions: pa.Array | int) -> None:
    check_has_key(target.topic, records.schema.names)
    keys = records.column(KEY)
    if not keys.null_count:
        return
    where = _partition_of(partitions, pc.index(keys.is_null(), True).as_py())
    raise InvalidRecordError(
        f"a record for {target.topic}-{where} has no key, and the topic is compacted; give every row a key",
        topic=target.topic,
        partition=where,
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
    where = _partition_of(partitions, row)
    raise MessageSizeTooLargeError(
        f"a record of {sizes[row].as_py():,} bytes (key, value and headers) for {target.topic}-{where} is over the "
        f"topic's max.message.bytes of {target.max_message_bytes:,}; raise that config, or write smaller records",
        topic=target.topic,
        partition=where,
        size=sizes[row].as_py(),
        limit=target.max_message_bytes,
    )


def record_sizes(records: pa.RecordBatch) -> pa.Array:
    """bytes of each record that ``max.message.bytes`` is compared with: key, value and headers before compression."""
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
    found = dict(zip(sums["row"].to_pylist(), sums["size_sum"].to_pylist(), strict=True))
    return pa.array([found.get(row, 0) for row in range(len(headers))], pa.int64())


def _check_timestamps(target: TopicTarget, records: pa.RecordBatch, partitions: pa.Array | int, now_ms: int) -> None:
    times = records.column(TIMESTAMP).view(pa.int64())
    earliest, latest = max(now_ms - target.before_max_ms, 0), now_ms + target.after_max_ms
    found = pc.min_max(times).as_py()
    if found["min"] // 1000 >= earliest and found["max"] // 1000 <= latest:
        return
    late = found["max"] // 1000 > latest
    wrong = found["max"] if late else found["min"]
    where = _partition_of(partitions, pc.index(times, wrong).as_py())
    config = "message.timestamp.after.max.ms" if late else "message.timestamp.before.max.ms"
    raise InvalidTimestampError(
        f"a record for {target.topic}-{where} has the timestamp {wrong // 1000} ms, and {config} admits {earliest} to "
        f"{latest}; correct the timestamp, or raise that config",
        topic=target.topic,
        partition=where,
        timestamp_ms=wrong // 1000,
    )


def _partition_of(partitions: pa.Array | int, row: int) -> int:
    return partitions if isinstance(partitions, int) else int(partitions[row].as_py())
