"""The filter of a scan: an expression of Arrow on the columns of a topic.

    wanted = parse_filter(pc.field("amount") > 100, schema)
    wanted.admits({"amount": ColumnBounds(pa.scalar(1.0), pa.scalar(9.0))})     # False: nothing there can pass

Arrow analyses and evaluates the expression; here it is only checked before anything is read.

Rules: pure. A filter is refused unless it can be evaluated on rows of the schema. Pruning leaves out only what no row
can pass; every row that is read is tested. Not for: which bounds are known (``log.records.fetch``, ``delta_stats``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.format.column_bounds import Bounds

_FAULTS = (pa.ArrowException, ValueError, TypeError, NotImplementedError, OverflowError, LookupError)
_POSITIONAL = "FieldPath("
_UNKNOWN = re.compile(r"FieldRef\.Name\((.*?)\)")
_TYPES = re.compile(r"has no kernel matching input types \((.*)\)")
_NAN = re.compile(r"\bnan\b")
_TIMES = re.compile("date|time")
_IS_IN = re.compile(r"is_in\((.*?), \{value_set=(.*?):\[")
_LEAST = -(2**63)
"""No whole number of a column is less."""

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")


class RowFilter:
    """A filter on rows of a schema. Immutable, thread-safe."""

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self._expression = expression
        self.schema = schema

    @cached_property
    def columns(self) -> list[str]:
        """The columns that the filter is about: those without which it cannot be evaluated."""
        named = _text(self._expression)
        names = [name for name in self.schema.names if name in named]
        return [name for name in names if not self._is_valid_without(name)]

    @cached_property
    def _may_compare_nan(self) -> bool:
        return _NAN.search(_text(self._expression)) is not None

    @cached_property
    def _may_convert(self) -> bool:
        """Whether times of ``is_in`` may be of another type than the column: Arrow converts them to test a row, but not
        to draw conclusions from bounds."""
        text = _text(self._expression)
        types = {field.name: str(field.type) for field in self.schema}
        pairs = [{types.get(column, "time"), kind} for column, kind in _IS_IN.findall(text)]  # "time": not a column
        alike = [kinds for kinds in pairs if len(kinds) == 1 or not any(map(_TIMES.match, kinds))]
        return len(alike) != text.count("is_in(")

    def _is_valid_without(self, name: str) -> bool:
        fields = [field for field in self.schema if field.name != name]
        try:
            pa.schema(fields).empty_table().filter(self._expression)
        except pa.ArrowException:
            return False
        return True

    def admits(self, bounds: Bounds) -> bool:
        """Return whether a row within these bounds may pass."""
        return self.select([bounds])[0]

    def select(self, candidates: Sequence[Bounds]) -> list[bool]:
        """Return for each of these bounds whether a row within them may pass."""
        # Arrow concludes that all numbers are less than NaN, and then finds none that is
        if self._may_compare_nan or self._may_convert:
            return [True] * len(candidates)
        # Arrow answers this for files, by what the partition of each states; none is opened
        import pyarrow.dataset as dataset
        from pyarrow.fs import LocalFileSystem

        file_format, storage = dataset.ParquetFileFormat(), LocalFileSystem()
        fragments = [
            file_format.make_fragment(str(number), storage, partition_expression=_bounds_expression(bounds))
            for number, bounds in enumerate(candidates)
        ]
        files = dataset.FileSystemDataset(fragments, self.schema, file_format, storage)
        try:
            kept = {int(fragment.path) for fragment in files.get_fragments(self._expression)}
        except pa.ArrowException:  # a bound cannot be computed with; rows may all the same
            return [True] * len(candidates)
        return [number in kept for number in range(len(candidates))]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass. Raises InvalidConfigurationError if it cannot be evaluated on one."""
        try:
            return batch.filter(self._expression)
        except pa.ArrowException as error:
            raise InvalidConfigurationError(
                f"the filter {_text(self._expression)} cannot be evaluated on a row: {error}; compare with values of "
                "the column's type, or cast the column"
            ) from error


def parse_filter(given: Any, schema: pa.Schema) -> RowFilter:
    """Return the filter that an expression, or a list of tuples as of ``pyarrow.parquet``, states.

    Raises ValueError with the reason if it is none, or not on columns of this schema.
    """
    try:
        expression = given if isinstance(given, pc.Expression) else _from_tuples(given, schema)
        schema.empty_table().filter(expression)
    except _FAULTS as error:
        raise ValueError(_explain(str(error), schema)) from None
    if _POSITIONAL in _text(expression):
        raise ValueError("name columns, as in pyarrow.compute.field('offset'), instead of giving their positions")
    return RowFilter(expression, schema)


def _explain(fault: str, schema: pa.Schema) -> str:
    """Return what is wrong with a filter that Arrow refuses."""
    unknown, types = _UNKNOWN.search(fault), _TYPES.search(fault)
    if unknown and fault.startswith("No match"):
        if unknown[1] in schema.names:
            return f"column {unknown[1]!r}, a {schema.field(unknown[1]).type}, has no such field"
        hint = did_you_mean(unknown[1], schema.names)
        return f"unknown column {unknown[1]!r}; choose from {', '.join(schema.names)}{hint}"
    if types:
        return f"values of the types {types[1]} cannot be compared; give a value of the column's type"
    return fault.partition("\n")[0]


def _text(expression: pc.Expression) -> str:
    """Return an expression as text, in which Arrow may have cut long literals within a character."""
    try:
        return str(expression)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _from_tuples(given: Any, schema: pa.Schema) -> pc.Expression:
    from pyarrow.parquet import filters_to_expression

    if not isinstance(given, list) or not given:
        raise ValueError("give an expression of pyarrow.compute, or a list of tuples such as [('offset', '>=', 5)]")
    for column, operator, value in _conditions(given):
        if operator not in _OPERATORS:
            raise ValueError(f"unknown operator {operator!r}; choose from {', '.join(_OPERATORS)}")
        if value is None:
            raise ValueError(
                f"no row passes a comparison with None; for nulls give pyarrow.compute.field({column!r}).is_null(), "
                "for others .is_valid()"
            )
        if operator in ("in", "not in") and isinstance(value, (str, bytes)):
            raise ValueError(f"{operator!r} takes a list of values, not {value!r}")
        for each in value if isinstance(value, (list, tuple, set, frozenset)) else [value]:
            if operator in ("in", "not in"):  # Arrow would convert it to the column's type, or the column to its
                schema.empty_table().filter(pc.field(column) == pa.scalar(each))
            if isinstance(each, datetime) and each.tzinfo is None:
                raise ValueError(f"{each!r} has no time zone; add one, as in datetime(..., tzinfo=timezone.utc)")
    alternatives = given if isinstance(given[0], list) else [given]
    return filters_to_expression([[_in_whole_numbers(each, schema) for each in all_of] for all_of in alternatives])


def _in_whole_numbers(condition: tuple[Any, Any, Any], schema: pa.Schema) -> tuple[Any, Any, Any]:
    """Compare a column of whole numbers with a whole number if a fraction is given: Arrow would convert the column, and
    fails at a number that a fraction cannot state."""
    column, operator, value = condition
    index = schema.get_field_index(column) if isinstance(column, str) else -1
    is_whole = index >= 0 and pa.types.is_integer(schema.types[index])
    if not is_whole:
        return condition
    if operator in ("in", "not in"):
        possible = [each for each in value if not isinstance(each, float) or _is_whole(each)]
        return column, operator, [int(each) if isinstance(each, float) else each for each in possible] or value
    if not isinstance(value, float) or abs(value) >= -_LEAST or math.isnan(value):
        return condition
    if _is_whole(value):
        return column, operator, int(value)
    if operator in ("==", "=", "!="):  # no number is equal to it, each one that is not null differs
        return column, ">=" if operator == "!=" else "<", _LEAST
    return column, operator, (math.ceil if operator in ("<", ">=") else math.floor)(value)


def _is_whole(value: float) -> bool:
    return value.is_integer() and abs(value) < -_LEAST


def _conditions(given: Iterable[Any]) -> Iterable[tuple[Any, Any, Any]]:
    """Yield the conditions of a list, or of a list of lists."""
    for item in given:
        for condition in item if isinstance(item, list) else [item]:
            if not isinstance(condition, tuple) or len(condition) != 3:
                raise ValueError(f"{condition!r} is not a tuple of column, operator and value")
            yield condition


def _bounds_expression(bounds: Bounds) -> pc.Expression:
    """Return what bounds state, in the form from which Arrow draws conclusions."""
    stated = pc.scalar(True)
    for name, column in bounds.items():
        field = pc.field(name)
        if column.smallest is None or column.largest is None:
            stated &= field.is_null()
        elif column.may_be_null:
            stated &= (field >= column.smallest) | field.is_null()
            stated &= (field <= column.largest) | field.is_null()
        elif column.smallest == column.largest and not pa.types.is_floating(column.smallest.type):  # -0.0 equals 0.0
            stated &= field == column.smallest
        else:
            stated &= (field >= column.smallest) & (field <= column.largest)
    return stated
