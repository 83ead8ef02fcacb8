"""Derive from a query's filters which topics, partitions, offsets and times a read can skip.

Spark pushes the simple comparisons of a ``WHERE`` down to the reader and evaluates all of them again afterwards, so
pruning too little is only slow. Pruning too much would lose records, so an unknown filter prunes nothing.

Rules: pure; filters are recognised by their class names and attributes, those of ``pyspark.sql.datasource``, which
Spark 4.0 does not have: the classes here stand for them where sparklog reads a query's filters itself. A comparison
with null is never true. Not for: evaluating filters on records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

LOWEST, HIGHEST = -(2**63), 2**63 - 1
NEVER_NULL = ("partition", "timestampType", "topic", "offset", "timestamp")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COMPARISONS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


@dataclass(frozen=True)
class Filter:
    """A test of one column, named by its path."""

    attribute: tuple[str, ...]


class IsNull(Filter):
    """The column is null."""


class IsNotNull(Filter):
    """The column is not null."""


@dataclass(frozen=True)
class _Comparison(Filter):
    value: Any


class EqualTo(_Comparison):
    """The column equals the value."""


class EqualNullSafe(_Comparison):
    """The column equals the value, or both are null."""


class GreaterThan(_Comparison):
    """The column is greater than the value."""


class GreaterThanOrEqual(_Comparison):
    """The column is at least the value."""


class LessThan(_Comparison):
    """The column is less than the value."""


class LessThanOrEqual(_Comparison):
    """The column is at most the value."""


class In(_Comparison):
    """The column equals one of the values, a tuple."""


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
    """Where records that pass the filters can be. None means any topic, any partition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_span: Span = Span()
    offsets: Span = Span()
    timestamps_us: Span = Span()

    def admits(self, topic: str, partition: int) -> bool:
        """Return whether the partition can hold records that pass the filters."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and partition in self.partition_span
        )


def prune(filters: Iterable[Any]) -> Pruning:
    """Return where records that pass all of these filters can be."""
    pruning = Pruning()
    for predicate in filters:
        kind = type(predicate).__name__
        attribute: tuple[str, ...] = getattr(predicate, "attribute", ())
        if kind in _COMPARISONS and len(attribute) == 1:
            pruning = _narrow(pruning, attribute[0].lower(), kind, predicate.value)
    return pruning


def keeps_all(predicate: Any) -> bool:
    """Return whether every row passes the filter because its column is never null."""
    attribute: tuple[str, ...] = getattr(predicate, "attribute", ())
    return type(predicate).__name__ == "IsNotNull" and len(attribute) == 1 and attribute[0] in NEVER_NULL


def _narrow(pruning: Pruning, column: str, kind: str, value: Any) -> Pruning:
    if column == "topic":
        topics = _list_values(kind, value, str)
        return pruning if topics is None else replace(pruning, topics=_intersect(pruning.topics, topics))
    if column == "partition":
        partitions = _list_values(kind, value, int)
        if partitions is not None:
            return replace(pruning, partitions=_intersect(pruning.partitions, partitions))
        return replace(pruning, partition_span=_cut(pruning.partition_span, kind, _to_integer(value)))
    if column == "offset":
        return replace(pruning, offsets=_cut_all(pruning.offsets, kind, value, _to_integer))
    if column == "timestamp":
        return replace(pruning, timestamps_us=_cut_all(pruning.timestamps_us, kind, value, _to_microseconds))
    return pruning


def _list_values(kind: str, value: Any, expected: type) -> frozenset[Any] | None:
    """Return the values a column may have; None if the filter is not a list of values of this type."""
    values = value if kind == "In" else (value,) if kind in ("EqualTo", "EqualNullSafe") else None
    if values is None or not all(item is None or (type(item) is expected) for item in values):
        return None
    return frozenset(item for item in values if item is not None)


def _intersect(values: frozenset[Any] | None, others: frozenset[Any]) -> frozenset[Any]:
    return others if values is None else values & others


def _cut_all(span: Span, kind: str, value: Any, to_number: Any) -> Span:
    if kind != "In":
        return _cut(span, kind, to_number(value))
    numbers = [to_number(item) for item in value if item is not None]
    if not numbers or any(number is None for number in numbers):
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


def _to_integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _to_microseconds(value: Any) -> int | None:
    """Return a timestamp with a time zone, as Spark sends TIMESTAMP values; None for others, which do not prune."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - EPOCH) // timedelta(microseconds=1)
