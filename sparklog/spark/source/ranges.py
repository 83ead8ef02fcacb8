"""Split offset ranges into Spark tasks: one task per partition of a topic, or more if the user asks for them.

The rules are those of Spark's ``KafkaOffsetRangeCalculator``, so that a job keeps its number of tasks when it moves:
empty ranges get no task; ``maxRecordsPerPartition`` cuts a range into equal pieces of at most that size; then, if there
are fewer ranges than ``minPartitions``, the large ones are cut in proportion to their size, and the last piece gets the
remainder of rounding. Worked example: sizes 100 and 300 with minPartitions 4 become pieces of 100 and 3 x 100.

Rules: pure; the order of partitions and of offsets in them is kept, so that records of a partition stay in order across
tasks. Not for: reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sparklog.errors import InvalidOptionError
from sparklog.types import OffsetRange

MAX_TASKS = 1_000_000
"""tasks. Spark's driver holds each of them in memory; a larger number is almost certainly a mistake."""


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
