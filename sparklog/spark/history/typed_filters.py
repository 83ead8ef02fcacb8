"""Which files can hold records that pass a query's filters on typed columns, by the statistics that the roll stored.

Rules: pure. A file whose statistics do not say it is kept, and so is a filter that is not understood: Spark evaluates
all filters again on the records. Not for: the statistics themselves (``format.parquet.delta_stats``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparklog.format.parquet.delta_stats import FileStats, decode_stats
from sparklog.spark.source.filters import Filter

_TYPES: dict[str, type] = {
    "boolean": bool,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "date": date,
    "timestamp": datetime,
}
"""The types of bounds, by those of columns."""

_PASSES: dict[str, Callable[[Any, Any, Any], bool]] = {
    "EqualTo": lambda least, most, value: least <= value <= most,
    "EqualNullSafe": lambda least, most, value: least <= value <= most,
    "GreaterThan": lambda least, most, value: most > value,
    "GreaterThanOrEqual": lambda least, most, value: most >= value,
    "LessThan": lambda least, most, value: least < value,
    "LessThanOrEqual": lambda least, most, value: least <= value,
    "In": lambda least, most, values: any(least <= value <= most for value in values if value is not None),
}
"""Whether a value between the bounds can pass a filter, by its kind."""


class TypedFilters:
    """The filters of a query that are on typed columns of these types. Immutable, thread-safe."""

    def __init__(self, filters: Iterable[Filter], types: Mapping[str, DataType]) -> None:
        self._tests: list[tuple[str, DataType, Filter]] = []
        for predicate in filters:
            name = ".".join(getattr(predicate, "attribute", ()))
            kind = types.get(name)
            if kind is not None and not isinstance(kind, (ArrayType, MapType, StructType)):
                self._tests.append((name, kind, predicate))

    def admit(self, stats: str) -> bool:
        """Return whether a file with these statistics can hold records that pass the filters."""
        stated = decode_stats(stats) if self._tests else None
        return stated is None or all(_can_pass(stated, *test) for test in self._tests)


NO_FILTERS = TypedFilters((), {})


def _can_pass(stats: FileStats, column: str, kind: DataType, predicate: Filter) -> bool:
    name = type(predicate).__name__
    value = getattr(predicate, "value", None)
    nulls = stats.nulls(column)
    if name == "IsNull" or (name == "EqualNullSafe" and value is None):
        return nulls != 0
    if (name == "IsNotNull" or name in _PASSES) and nulls == stats.num_records:
        return False
    if name not in _PASSES or value is None:
        return True
    bounds = stats.bounds(column, _TYPES.get(kind.simpleString().partition("(")[0], type(None)))
    try:
        return bounds is None or _PASSES[name](*bounds, value)
    except TypeError:  # a value of another type
        return True
