"""What is done with decoded values alike, whatever their format: they are measured, made plain, and made columns.

Rules: pure; values are untrusted. Not for: decoding (``typed_values`` for JSON, ``avro_values``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparklog.clock import give_way
from sparklog.errors import RecordListTooLargeError
from sparklog.schema.languages.ddl import UNFIT, SchemaField, SchemaType
from sparklog.schema.typed_columns import arrow_type, width

INEXACT = (pa.ArrowException, ValueError, ArithmeticError, TypeError)
"""What making an array of values raises if Arrow cannot hold one of them."""

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Size in bytes up to which a value is read: as Python objects it takes up to some twenty times as much memory."""

MAX_ELEMENT_BYTES = 64 * 1024 * 1024
"""Size in bytes up to which the lists and maps of a value are read: ``{}`` has 3 bytes in a list, and a struct of 1,000
fields takes 8,000 in a column."""

Plain = Callable[[Any], Any]
"""Returns a decoded value as Arrow takes it. Raises ValueError or OverflowError if it does not fit its type."""

Measure = Callable[[Any], int]
"""Returns how many bytes the elements of a decoded value's lists and maps take in Arrow, besides texts."""

FieldOf = Callable[[int, SchemaField], Callable[[Any], Any]]
"""Returns what takes a field, given its number, out of a decoded struct."""

ValuesOf = Callable[[Any], Iterable[Any]]
"""Returns the values of a decoded map."""


def field_name(field: SchemaField) -> str:
    """Return the name under which a reader returns a field: its own, but for one with the name of the reader's flag."""
    return f"field {UNFIT}" if field.name == UNFIT else field.name


def apply_plain(plain: Plain | None, value: Any) -> Any:
    """Return a value as Arrow takes it; ``plain`` is None for one that is so already."""
    return value if plain is None or value is None else plain(value)


def plain_elements(name: str, plain: Plain | None) -> Plain | None:
    """Return what makes a decoded ``array`` or ``map`` plain, None if it is, by what makes its elements plain."""
    if name == "map":
        return lambda entries: [(key, apply_plain(plain, value)) for key, value in entries.items()]
    return None if plain is None else lambda items: [apply_plain(plain, item) for item in items]


def make_measure(kind: SchemaType, field_of: FieldOf, values_of: ValuesOf) -> Measure | None:
    """Return what measures the lists and maps of a decoded value, None if it has none."""
    if kind.name == "struct":
        found = [
            (field_of(number, field), make_measure(field.type, field_of, values_of))
            for number, field in enumerate(kind.fields)
        ]
        members = [(take, measure) for take, measure in found if measure is not None]

        def measure_struct(row: Any) -> int:
            fields = ((measure, take(row)) for take, measure in members)
            return sum(measure(field) for measure, field in fields if field is not None)

        return measure_struct if members else None
    if kind.element is None:
        return None
    element_bytes = width(arrow_type(kind.element)) + (8 if kind.name == "map" else 0)
    inner = make_measure(kind.element, field_of, values_of)
    if inner is None:
        return lambda items: len(items) * element_bytes
    elements = values_of if kind.name == "map" else iter
    return lambda items: len(items) * element_bytes + sum(inner(item) for item in elements(items) if item is not None)


def check_element_bytes(size: int) -> None:
    """Raise ValueError if the lists and maps of one value take too many bytes in columns."""
    if size > MAX_ELEMENT_BYTES:
        raise ValueError(f"its lists and maps take {size:,} bytes in columns, and may take {MAX_ELEMENT_BYTES:,}")


def too_large(records: int, max_bytes: int) -> RecordListTooLargeError:
    """Return the error for typed columns of this many records that take too many bytes."""
    return RecordListTooLargeError(
        f"the typed columns of {records} records take over {max_bytes} bytes: read fewer at a time"
    )


def make_columns(make: Callable[[Sequence[Any]], list[Any]], rows: list[Any], unfit: list[bool]) -> list[Any]:
    """Return the columns that ``make`` makes of decoded values; those that Arrow cannot hold become None, and unfit.

    Yields to other threads before and after: a roll's encoding thread needs the interpreter often, and briefly.
    """
    give_way()
    try:
        return make(rows)
    except INEXACT:
        for number in _find_inexact(make, rows, range(len(rows))):
            rows[number], unfit[number] = None, True
        return make(rows)
    finally:
        give_way()


def _find_inexact(make: Callable[[Sequence[Any]], object], rows: Sequence[Any], numbers: range) -> Iterator[int]:
    """Yield the numbers of the rows that Arrow cannot hold, by halving: a bad one costs twice the time."""
    try:
        make(rows[numbers.start : numbers.stop])
    except INEXACT:
        if len(numbers) == 1:
            yield numbers.start
            return
        middle = len(numbers) // 2
        yield from _find_inexact(make, rows, numbers[:middle])
        yield from _find_inexact(make, rows, numbers[middle:])
