"""Split offset ranges into Spark tasks: one task per partition of a topic, or more or fewer if the user asks for them.

The rules for more are those of Spark's ``KafkaOffsetRangeCalculator``, so that a job keeps its number of tasks when it
moves: empty ranges get no task; ``maxRecordsPerPartition`` cuts a range into equal pieces of at most that size; then,
if there are fewer ranges than ``minPartitions``, the large ones are cut in proportion to their size, and the last piece
gets the remainder of rounding. Worked example: sizes 100 and 300 with minPartitions 4 become pieces of 100 and 3 x 100.

Kafka's source has no rule for fewer; that of ``maxPartitions`` follows Spark's for files: reading a range costs its
bytes and ``OPEN_COST_BYTES``, and tasks get about the same cost. ``auto`` makes tasks of ``AUTO_TASK_BYTES``. Worked
example: 64 ranges of 300 kB cost 4.5 MB each, and become three tasks.

Rules: pure; the order of partitions and of offsets in them is kept, so that records of a partition stay in order in a
task and across tasks. Not for: reading.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from sparklog.errors import InvalidOptionError
from sparklog.types import OffsetRange

MAX_TASKS = 1_000_000
"""tasks. Spark's driver holds each of them in memory; a larger number is almost certainly a mistake."""
OPEN_COST_BYTES = 4 << 20
"""What opening a range costs, in bytes that could be read meanwhile: Spark's ``spark.sql.files.openCostInBytes``."""
AUTO_TASK_BYTES = 128 << 20
"""What a task reads by ``maxPartitions=auto``: Spark's ``spark.sql.files.maxPartitionBytes``."""
MaxPartitions: TypeAlias = int | Literal["auto"] | None
"""Tasks; None: each range is a task."""


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """Return the ranges that tasks read, one task each. Sizes in records; None disables a rule.

    Raises InvalidOptionError for more than ``MAX_TASKS``.
    """
    pieces = [span for span in ranges if span.size > 0]
    _check_number(pieces, max_records_per_partition)
    if max_records_per_partition is not None:
        pieces = [piece for span in pieces for piece in _cut(span, -(-span.size // max_records_per_partition))]
    if min_partitions is not None and len(pieces) < min_partitions:
        _check_minimum(pieces, min_partitions)
        pieces = list(_split_in_proportion(pieces, min_partitions))
    return pieces


def group_ranges(sizes: Sequence[int], most: MaxPartitions, min_partitions: int | None = None) -> list[list[int]]:
    """Return the numbers of the ranges that each task reads, ascending. ``sizes`` are bytes.

    >>> group_ranges([300, 100, 100, 100], 2)
    [[0, 3], [1, 2]]
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    if most == "auto":
        large = sum(cost >= AUTO_TASK_BYTES for cost in costs)
        rest = sum(cost for cost in costs if cost < AUTO_TASK_BYTES)
        most = max(large + math.ceil(rest / AUTO_TASK_BYTES), min_partitions or 1)
    if most is None or most >= len(costs):
        return [[number] for number in range(len(costs))]
    tasks: list[list[int]] = [[] for _ in range(most)]
    loads = [(0, task) for task in range(most)]
    for number in sorted(range(len(costs)), key=lambda number: (-costs[number], number)):  # the largest rest first
        load, task = heapq.heappop(loads)
        tasks[task].append(number)
        heapq.heappush(loads, (load + costs[number], task))
    return sorted(sorted(task) for task in tasks)


def _check_number(ranges: Sequence[OffsetRange], most: int | None) -> None:
    tasks = sum(-(-span.size // most) for span in ranges) if most else 0
    if tasks > MAX_TASKS:
        raise InvalidOptionError(
            f"maxRecordsPerPartition={most} would split {sum(span.size for span in ranges):,} records into {tasks:,} "
            f"tasks, over the limit of {MAX_TASKS:,}; choose a larger number",
            option="maxRecordsPerPartition",
        )


def _check_minimum(ranges: Sequence[OffsetRange], least: int) -> None:
    tasks = min(least, sum(span.size for span in ranges))  # a task reads at least one record
    if tasks > MAX_TASKS:
        raise InvalidOptionError(
            f"minPartitions={least} would create {tasks:,} tasks, over the limit of {MAX_TASKS:,}; choose a smaller "
            "number",
            option="minPartitions",
        )


def _split_in_proportion(ranges: Sequence[OffsetRange], min_partitions: int) -> Iterator[OffsetRange]:
    """Yield the pieces. Ranges too small to be cut do not count in the proportions, so large ones get their tasks."""
    total = sum(span.size for span in ranges)
    small = {span for span in ranges if _count_pieces(span.size, total, min_partitions) == 1}
    rest = total - sum(span.size for span in small)
    tasks = max(min_partitions - len(small), 1)
    for span in ranges:
        yield from _cut(span, 1 if span in small else _count_pieces(span.size, rest, tasks))


def _count_pieces(size: int, total: int, tasks: int) -> int:
    return max(math.floor(size / total * tasks + 0.5), 1)


def _cut(span: OffsetRange, pieces: int) -> Iterator[OffsetRange]:
    start, remaining = span.start, span.size
    pieces = min(pieces, remaining)
    for piece in range(pieces):
        size = remaining // (pieces - piece)
        remaining -= size
        if size:
            yield OffsetRange(span.topic, span.partition, start, start + size)
        start += size
