"""Read Spark's expressions as filters: those that compare one column with values.

Rules: an expression that is not understood in full is no filter, and prunes nothing.
Not for: what a filter prunes (``source.filters``, ``files``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from math import isnan
from typing import Any, NamedTuple

from sparklog.spark.source.filters import (
    EPOCH,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

MAX_VALUES = 100
"""Values of a list (``IN``) up to which it is read: each takes calls of the JVM."""

_COMPARISONS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    kind.__name__: kind for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
}
_MIRRORED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_NULLS: dict[str, Callable[[tuple[str, ...]], Filter]] = {"IsNull": IsNull, "IsNotNull": IsNotNull}


class _Literal(NamedTuple):
    value: Any


def items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def read_filter(expression: Any) -> Filter | None:
    """Return an expression as a filter; None if it is anything but a column compared with values."""
    kind = _kind(expression)
    if kind in ("AttributeReference", "Not"):  # of a boolean column
        column = _operand(expression if kind == "AttributeReference" else expression.child())
        return EqualTo((column,), kind != "Not") if isinstance(column, str) else None
    if kind in ("In", "InSet"):
        return _read_list(kind, expression)
    if kind in _NULLS:
        column = _operand(expression.child())
        return _NULLS[kind]((column,)) if isinstance(column, str) else None
    if kind not in _COMPARISONS:
        return None
    left, right = _operand(expression.left()), _operand(expression.right())
    if isinstance(left, _Literal):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if isinstance(left, str) and isinstance(right, _Literal):
        return _COMPARISONS[kind]((left,), right.value)
    return None


def _read_list(kind: str, expression: Any) -> Filter | None:
    """Return a list of values as a filter. Spark holds the values of a long list in a set."""
    column = _operand(expression.value() if kind == "In" else expression.child())
    found = expression.list() if kind == "In" else expression.hset().toSeq()
    if not isinstance(column, str) or found.size() > MAX_VALUES:
        return None
    if kind == "In":
        literals = [_operand(each) for each in items(found)]
    else:
        name = expression.child().dataType().simpleString()
        literals = [_literal(each, name) for each in items(found)]
    values = [each.value for each in literals if isinstance(each, _Literal)]
    return In((column,), tuple(values)) if len(values) == len(literals) else None


def _operand(expression: Any) -> str | _Literal | None:
    """Return the name of a column, a value, or None for other expressions."""
    kind = _kind(expression)
    if kind == "AttributeReference":
        return str(expression.name())
    return _literal(expression.value(), expression.dataType().simpleString()) if kind == "Literal" else None


def _literal(value: Any, name: str) -> _Literal | None:
    """Return a value of the type with this name, as Spark holds it; None if Python has no such value."""
    try:
        return _Literal(None if value is None else _READERS.get(name.partition("(")[0], _refuse)(value))
    except (OverflowError, ValueError, InvalidOperation):
        return None


def _number(value: float) -> float:
    """Return a number. Spark compares NaN otherwise than Python."""
    if isnan(value):
        raise ValueError("NaN")
    return value


def _single(value: float) -> float:
    """Return a number of 32 bits: py4j passes on its shortest text, which is another number of 64 bits."""
    return float(struct.unpack("f", struct.pack("f", _number(value)))[0])


def _text(value: Any) -> str:
    """Return a text, unless Java may have replaced bytes that are not UTF-8."""
    text = str(value.toString())
    if "\ufffd" in text:
        raise ValueError(text)
    return text


def _refuse(value: Any) -> Any:
    raise ValueError(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), lambda value: value),
    "double": _number,
    "float": _single,
    "decimal": lambda value: Decimal(value.toString()),
    "string": _text,
    "date": lambda value: EPOCH.date() + timedelta(days=value),
    "timestamp": lambda value: EPOCH + timedelta(microseconds=value),
}


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
