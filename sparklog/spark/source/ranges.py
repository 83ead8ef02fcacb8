"""From ranges of offsets to Spark tasks: one task per partition of a topic, or more where the user asks for them.

The rules are those of Spark's ``KafkaOffsetRangeCalculator``, so that a job keeps its number of tasks when it moves:
empty ranges make no task; ``maxRecordsPerPartition`` cuts a range into equal pieces of at most that size; then, where
there are fewer ranges than ``minPartitions``, the large ones are cut in proportion to their size, and the last piece
takes what rounding leaves. Worked example: sizes 100 and 300 with minPartitions 4 become pieces of 100 and 3 x 100.

Rules: pure; the order of partitions and of offsets in them is kept, so that records of a partition stay in order over
the tasks. Not for: reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sparklog.errors import InvalidOptionError
from sparklog.types import OffsetRange

MAX_TASKS = 1_000_000
"""tasks. Spark's driver holds each of them; more is a slip of the pen."""


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """The ranges that tasks read, one task each. Sizes in records; None switches a rule off."""
    found = [one for one in ranges if one.size > 0]
    _check_number(found, max_records_per_partition)
    if max_records_per_partition is not None:
        found = [piece for one in found for piece in _cut(one, -(-one.size // max_records_per_partition))]
    if min_partitions is not None and len(found) < min_partitions:
        _check_minimum(found, min_partitions)
        found = list(_split_in_proportion(found, min_partitions))
    return found


def _check_number(ranges: Sequence[OffsetRange], most: int | None) -> None:
    tasks = sum(-(-one.size // most) for one in ranges) if most else 0
    if tasks > MAX_TASKS:
        raise InvalidOptionError(
            f"maxRecordsPerPartition={most} would make {tasks:,} tasks of {sum(one.size for one in ranges):,} records, "
            f"and a job may have {MAX_TASKS:,}; choose a larger number",
            option="maxRecordsPerPartition",
        )


def _check_minimum(ranges: Sequence[OffsetRange], least: int) -> None:
    tasks = min(least, sum(one.size for one in ranges))  # a task has a record at least
    if tasks > MAX_TASKS:
        raise InvalidOptionError(
            f"minPartitions={least} would make {tasks:,} tasks, and a job may have {MAX_TASKS:,}; choose a smaller "
            "number",
            option="minPartitions",
        )


def _split_in_proportion(ranges: Sequence[OffsetRange], min_partitions: int) -> Iterator[OffsetRange]:
    """Ranges too small to be cut are left out of the reckoning, so that large ones get the tasks they would take."""
    total = sum(one.size for one in ranges)
    small = {one for one in ranges if _parts(one.size, total, min_partitions) == 1}
    rest = total - sum(one.size for one in small)
    tasks = max(min_partitions - len(small), 1)
    for one in ranges:
        yield from _cut(one, 1 if one in small else _parts(one.size, rest, tasks))


def _parts(size: int, total: int, tasks: int) -> int:
    return max(math.floor(size / total * tasks + 0.5), 1)


def _cut(one: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    start, remaining = one.start, one.size
    parts = min(parts, remaining)
    for part in range(parts):
        size = remaining // (parts - part)
        remaining -= size
        if size:
            yield OffsetRange(one.topic, one.partition, start, start + size)
        start += size
