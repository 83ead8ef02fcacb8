"""What a query's filters say about where its records are: topics, partitions, offsets and times that can be left out.

Spark hands the simple comparisons of a ``WHERE`` to the reader and evaluates all of them again afterwards, so leaving
out too little is only slow. Leaving out too much would lose records, so what is not understood prunes nothing.

Rules: pure; filters are recognised by their class names and attributes, those of ``pyspark.sql.datasource``; a null
compares to nothing. Not for: evaluating filters on records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

LOWEST, HIGHEST = -(2**63), 2**63 - 1
NEVER_NULL = ("partition", "timestampType", "topic", "offset", "timestamp")
_NEVER_NULL_PATHS = [(name,) for name in NEVER_NULL]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COMPARISONS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


@dataclass(frozen=True)
class Span:
    """Whole numbers from ``first`` to ``last``, both included; offsets, or microseconds since the epoch."""

    first: int = LOWEST
    last: int = HIGHEST

    def __contains__(self, value: int) -> bool:
        return self.first <= value <= self.last

    def cut(self, first: int = LOWEST, last: int = HIGHEST) -> Span:
        return Span(max(self.first, first), min(self.last, last))

    def overlaps(self, first: int, last: int) -> bool:
        return first <= self.last and last >= self.first


@dataclass(frozen=True)
class Pruning:
    """Where records can be that pass the filters. None means any topic, any partition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_span: Span = Span()
    offsets: Span = Span()
    timestamps_us: Span = Span()

    def admits(self, topic: str, partition: int) -> bool:
        """Whether the partition can hold such records."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and partition in self.partition_span
        )


def pruning(filters: Iterable[Any]) -> Pruning:
    """What all of these filters together leave."""
    found = Pruning()
    for one in filters:
        kind = type(one).__name__
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if kind in _COMPARISONS and len(attribute) == 1:
            found = _narrow(found, attribute[0].lower(), kind, one.value)
    return found


def keeps_all(one: Any) -> bool:
    """Whether every row passes, since the column is never null."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return type(one).__name__ == "IsNotNull" and attribute in _NEVER_NULL_PATHS


def _narrow(found: Pruning, column: str, kind: str, value: Any) -> Pruning:
    if column == "topic":
        topics = _members(kind, value, str)
        return found if topics is None else replace(found, topics=_both(found.topics, topics))
    if column == "partition":
        partitions = _members(kind, value, int)
        if partitions is not None:
            return replace(found, partitions=_both(found.partitions, partitions))
        return replace(found, partition_span=_cut(found.partition_span, kind, _whole(value)))
    if column == "offset":
        return replace(found, offsets=_cut_all(found.offsets, kind, value, _whole))
    if column == "timestamp":
        return replace(found, timestamps_us=_cut_all(found.timestamps_us, kind, value, _microseconds))
    return found


def _members(kind: str, value: Any, wanted: type) -> frozenset[Any] | None:
    """The values a column may have; None where the filter is no list of values of this type."""
    values = value if kind == "In" else (value,) if kind in ("EqualTo", "EqualNullSafe") else None
    if values is None or not all(one is None or (type(one) is wanted) for one in values):
        return None
    return frozenset(one for one in values if one is not None)


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _cut_all(span: Span, kind: str, value: Any, number: Any) -> Span:
    if kind != "In":
        return _cut(span, kind, number(value))
    numbers = [number(one) for one in value if one is not None]
    if not numbers or any(one is None for one in numbers):
        return span
    return span.cut(min(numbers), max(numbers))


def _cut(span: Span, kind: str, number: int | None) -> Span:
    if number is None:
        return span
    if kind in ("EqualTo", "EqualNullSafe"):
        return span.cut(number, number)
    if kind == "GreaterThan":
        return span.cut(first=number + 1)
    if kind == "GreaterThanOrEqual":
        return span.cut(first=number)
    if kind == "LessThan":
        return span.cut(last=number - 1)
    return span.cut(last=number) if kind == "LessThanOrEqual" else span


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """A timestamp that says its zone, as Spark sends TIMESTAMP values; others prune nothing."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)
