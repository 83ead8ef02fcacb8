"""Reads the typed columns of records from their values.

    columns = ValueReader(parse_ddl("customer string, amount double")).columns(batch.column("value"))

A JSON value fits a schema if it is an object whose fields have the schema's types; absent fields are null, unless they
are required, and other fields are ignored. Numbers are not read from strings, nor integers from numbers with a point;
decimals, dates (``2026-11-01``), timestamps (RFC 3339, and the texts of ``times``) and binary (Base64) are. A value
that does not fit has null in all typed columns, and ``_unfit``; so has one of over ``MAX_VALUE_BYTES``, which is not
read, or ``MAX_ELEMENT_BYTES``. A null value (a tombstone) has null everywhere and fits.

Rules: pure; values are untrusted. What Arrow could not hold, or would crash on (a decimal of a large exponent), is
refused before it gets there. Not for: the raw bytes, which are kept beside the columns.
"""

from __future__ import annotations

import datetime
import decimal
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Optional

import msgspec
import pyarrow as pa
from msgspec import Meta
from msgspec.structs import astuple

from sparklog.schema.languages.ddl import UNFIT, SchemaField, SchemaType
from sparklog.schema.typed_columns import FLOAT32_MAX, arrow_type, bytes_per_record
from sparklog.schema.values.decoded_values import (
    INEXACT,
    MAX_ELEMENT_BYTES,
    MAX_VALUE_BYTES,
    Plain,
    apply_plain,
    check_element_bytes,
    field_name,
    make_columns,
    make_measure,
    plain_elements,
    too_large,
)
from sparklog.schema.values.times import parse_time

_PYTHON: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "tinyint": Annotated[int, Meta(ge=-(2**7), lt=2**7)],
    "smallint": Annotated[int, Meta(ge=-(2**15), lt=2**15)],
    "int": Annotated[int, Meta(ge=-(2**31), lt=2**31)],
    "bigint": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "float": Annotated[float, Meta(ge=-FLOAT32_MAX, le=FLOAT32_MAX)],
    "double": float,
    "date": datetime.date,
    "binary": bytes,
}

_PACKED = {
    pa.int8().id: "b",
    pa.int16().id: "h",
    pa.int32().id: "i",
    pa.int64().id: "q",
    pa.float32().id: "f",
    pa.float64().id: "d",
}
"""The formats of ``struct`` for numbers in Arrow."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)

READ_BYTES = 4 * 1024 * 1024
"""Bytes of values that are held as Python objects at a time at most, about."""

CACHED_BYTES = 128 * 1024
"""Bytes of values whose Python objects stay in a processor's cache: more at a time take twice as long."""

_LEAST_ROWS = 64
"""Values that are read at a time nevertheless: each column of each part is an array of its own at first."""

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A digit matches in one way only: else a long text of digits that is no number would take the square of its length."""


class ValueReader:
    """Reads values of one schema. Immutable, thread-safe."""

    def __init__(self, schema: Sequence[SchemaField]) -> None:
        self._schema = tuple(schema)
        self._types = [arrow_type(field.type) for field in schema]
        self._plain = [_plain(field.type) for field in schema]
        self._nulls = (None,) * len(schema)
        self._measure = make_measure(SchemaType("struct", fields=self._schema), _take_field, dict.values)
        self._object_bytes = max((_largest_object(field.type, False) for field in schema), default=0)
        self._row_bytes = bytes_per_record(schema)
        self._decode_fast, self._decode_all = _decoder(schema, datetime.datetime), _decoder(schema, _Time)
        self._has_times = any(_has_times(field.type) for field in schema)

    def find_misfit(self, value: bytes | None) -> str:
        """Return why a value does not fit the schema, empty if it does."""
        if value is None:
            return ""
        try:
            self._parts([self._decode_checked(value)[0]])
        except (*_UNREADABLE, *INEXACT) as error:
            return str(error) or type(error).__name__
        return ""

    def columns(self, values: pa.Array, max_bytes: int | None = None) -> dict[str, pa.Array]:
        """Return the typed columns of records with these values, by name.

        Raises RecordListTooLargeError if they take more than ``max_bytes``.
        """
        value_bytes = values.nbytes // max(len(values), 1) + 1
        rows = min(READ_BYTES // value_bytes, max(CACHED_BYTES // value_bytes, _LEAST_ROWS))
        rows = max(1, min(rows, MAX_ELEMENT_BYTES // max(self._row_bytes, 1)))
        slices = [values.slice(first, rows) for first in range(0, len(values), rows)] or [values]
        parts: list[tuple[list[_Part], list[bool]]] = []
        size = 0
        for chunk in (chunk for part in slices for chunk in self._chunks(part.to_pylist())):
            parts.append(self._columns(chunk))
            size += sum(len(part) if type(part) is bytes else part.nbytes for part in parts[-1][0]) + len(parts[-1][1])
            if max_bytes is not None and size > max_bytes:
                raise too_large(len(values), max_bytes)
        columns = zip(*(columns for columns, _ in parts), strict=True)
        arrays = [_join(column, kind) for column, kind in zip(columns, self._types, strict=True)]
        unfit = pa.array([is_unfit for _, part in parts for is_unfit in part], pa.bool_())
        return {**{field_name(field): array for field, array in zip(self._schema, arrays, strict=True)}, UNFIT: unfit}

    def unfit_columns(self, rows: int) -> dict[str, pa.Array]:
        """Return the typed columns of records that do not fit."""
        nulls = {field_name(field): pa.nulls(rows, kind) for field, kind in zip(self._schema, self._types, strict=True)}
        return {**nulls, UNFIT: pa.array([True] * rows, pa.bool_())}

    def _decode(self, value: bytes) -> Any:
        """Decode a value; one with another text of a time than RFC 3339's takes some twenty times as long."""
        if not self._has_times:
            return self._decode_fast(value)
        try:
            return self._decode_fast(value)
        except msgspec.ValidationError:
            return self._decode_all(value)

    def _chunks(self, values: Sequence[bytes | None]) -> Iterator[_Chunk]:
        """Yield the values decoded, as many at a time as may be held."""
        if self._measure is None:
            yield self._read(values)
            return
        rows: list[Any] = []
        unfit: list[bool] = []
        size = 0
        for value in values:
            row, row_bytes = self._decode_or_none(value)
            rows.append(row)
            unfit.append(row is None and value is not None)
            size += row_bytes
            if size > MAX_ELEMENT_BYTES:
                yield rows, unfit
                rows, unfit, size = [], [], 0
        yield rows, unfit

    def _read(self, values: Sequence[bytes | None]) -> _Chunk:
        decode = self._decode
        short = [value if value is None or len(value) <= MAX_VALUE_BYTES else b"" for value in values]
        try:
            rows = [None if value is None else decode(value) for value in short]
        except _UNREADABLE:
            rows = [self._decode_or_none(value)[0] for value in short]
        return rows, [row is None and value is not None for row, value in zip(rows, values, strict=True)]

    def _decode_or_none(self, value: bytes | None) -> tuple[Any, int]:
        try:
            return (None, 0) if value is None else self._decode_checked(value)
        except _UNREADABLE:
            return None, 0

    def _decode_checked(self, value: bytes) -> tuple[Any, int]:
        """Return a value decoded, and the size of its lists and maps. Raises what ``_UNREADABLE`` names."""
        if len(value) > MAX_VALUE_BYTES:
            raise ValueError(f"it has {len(value):,} bytes, and typed values at most {MAX_VALUE_BYTES:,}")
        if len(value) * self._object_bytes > 2 * MAX_ELEMENT_BYTES:
            check_element_bytes(value.count(b"{") * self._object_bytes)
        row = self._decode(value)
        size = 0 if self._measure is None else self._measure(row)
        check_element_bytes(size)
        return row, size

    def _columns(self, chunk: _Chunk) -> tuple[list[_Part], list[bool]]:
        rows, unfit = chunk
        return make_columns(self._parts, rows, unfit), unfit

    def _parts(self, rows: Sequence[Any]) -> list[_Part]:
        columns: Iterable[Sequence[Any]] = [()] * len(self._types)
        if rows:
            columns = zip(*(self._nulls if row is None else astuple(row) for row in rows), strict=True)
        parts = []
        for number, (fields, plain, kind) in enumerate(zip(columns, self._plain, self._types, strict=True)):
            try:
                if plain is not None:
                    fields = [None if field is None else plain(field) for field in fields]
                parts.append(_part(fields, kind))
            except INEXACT as error:
                raise ValueError(f"{error} - at `$.{self._schema[number].name}`") from error
        return parts


_Part = Any
"""A part of a column: an array, or the bytes of numbers without nulls, which take a third of the time."""


def _part(fields: Sequence[Any], kind: pa.DataType) -> _Part:
    """Return plain values as a part of a column. Raises what ``INEXACT`` names."""
    code = _PACKED.get(kind.id)
    if code is not None:
        with suppress(struct.error):  # a null
            return struct.pack(f"={len(fields)}{code}", *fields)
    return pa.array(fields, kind)


def _join(parts: Sequence[_Part], kind: pa.DataType) -> pa.Array:
    """Return the parts of a column as one array."""
    if all(type(part) is bytes for part in parts):
        return _numbers(b"".join(parts), kind)
    return pa.concat_arrays([_numbers(part, kind) if type(part) is bytes else part for part in parts])


def _numbers(packed: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, 8 * len(packed) // kind.bit_width, [None, pa.py_buffer(packed)], 0)


_Chunk = tuple[list[Any], list[bool]]
"""Decoded values, None for one that is null or does not fit, and which do not fit."""


@lru_cache(maxsize=64)
def value_reader(schema: tuple[SchemaField, ...]) -> ValueReader:
    """Return the reader of a schema; the same one each time."""
    return ValueReader(schema)


class _Time(datetime.datetime):
    """A time in any of the texts of ``times``; a type of its own, so that msgspec asks how to read it."""


def _decoder(schema: Sequence[SchemaField], time: type[datetime.datetime]) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(_struct("Value", schema, time), dec_hook=_read_custom, float_hook=str)
    return decoder.decode


def _has_times(kind: SchemaType) -> bool:
    inner = [field.type for field in kind.fields] + ([] if kind.element is None else [kind.element])
    return kind.name == "timestamp" or any(map(_has_times, inner))


def _struct(name: str, fields: Sequence[SchemaField], time: type[datetime.datetime]) -> type[msgspec.Struct]:
    """Return a struct with a field for each of a schema's, under names that Python allows."""
    members: list[Any] = []
    for number, field in enumerate(fields):
        kind = _python(field.type, time)
        members.append((f"f{number}", kind) if field.required else (f"f{number}", Optional[kind], None))  # noqa: UP045
    names = {f"f{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=names, gc=False, kw_only=True)


def _python(kind: SchemaType, time: type[datetime.datetime]) -> Any:
    if kind.name == "timestamp":
        return time
    if kind.name == "struct":
        return _struct("Nested", kind.fields, time)
    if kind.element is not None:
        element: Any = Optional[_python(kind.element, time)]  # noqa: UP045
        return GenericAlias(list, (element,)) if kind.name == "array" else GenericAlias(dict, (str, element))
    return _decimal(kind.precision, kind.scale) if kind.name == "decimal" else _PYTHON[kind.name]


class _Decimal(decimal.Decimal):
    """A number with the digits of its type, which subclasses state; a type of its own, so that msgspec asks how to
    read it."""

    precision: ClassVar[int]
    scale: ClassVar[int]
    unit: ClassVar[decimal.Decimal]
    context: ClassVar[decimal.Context]


@lru_cache(maxsize=64)
def _decimal(precision: int, scale: int) -> type[_Decimal]:
    context = decimal.Context(prec=precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    unit = decimal.Decimal((0, (1,), -scale))
    members = {"precision": precision, "scale": scale, "unit": unit, "context": context}
    return type(f"decimal({precision},{scale})", (_Decimal,), members)


def _read_custom(kind: type[Any], value: object) -> Any:
    """Return a text as a time, or a number or a text as a decimal. Raises ValueError if it is none."""
    if kind is not _Time:
        return _read_decimal(kind, value)
    if not isinstance(value, str):
        raise ValueError(f"Expected `datetime`, got `{type(value).__name__}`")
    try:
        time = parse_time(value)
    except OverflowError as error:
        raise ValueError(f"it is outside of the years 1 to 9999: {error}") from error
    return _Time.combine(time.date(), time.timetz())


def _read_decimal(kind: type[_Decimal], value: object) -> _Decimal:
    """Return a number or a text as a decimal. Raises ValueError if it is none, or has more digits than the type."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"Expected `{kind.__name__}`")
    try:
        number = decimal.Decimal(text)
        if not number:
            return kind(0)
        # first: rounding a number of a large exponent would take its digits as memory
        if -kind.scale <= number.adjusted() < kind.precision - kind.scale:
            return kind(number.quantize(kind.unit, context=kind.context))
    except decimal.DecimalException:
        pass
    raise ValueError(f"Expected `{kind.__name__}`, got more digits")


def _largest_object(kind: SchemaType, repeated: bool) -> int:
    """Return how many bytes the largest struct inside a list or map takes as a Python object."""
    if kind.element is not None:
        return _largest_object(kind.element, True)
    own = 16 + 8 * len(kind.fields) if repeated and kind.fields else 0
    return max(own, *(_largest_object(field.type, repeated) for field in kind.fields)) if kind.fields else 0


def _in_utc(time: datetime.datetime) -> datetime.datetime:
    """Return a time in UTC. Raises OverflowError if it is outside of the years 1 to 9999 there."""
    return (
        time if time.tzinfo is None or time.tzinfo is datetime.timezone.utc else time.astimezone(datetime.timezone.utc)
    )


def _plain(kind: SchemaType) -> Plain | None:
    """Return what makes decoded values plain, None if they are."""
    if kind.name == "struct":
        members = [(f"f{number}", field.name, _plain(field.type)) for number, field in enumerate(kind.fields)]
        return lambda row: {name: apply_plain(plain, getattr(row, member)) for member, name, plain in members}
    if kind.element is None:
        return _in_utc if kind.name == "timestamp" else None
    return plain_elements(kind.name, _plain(kind.element))


def _take_field(number: int, _: SchemaField) -> Callable[[Any], Any]:
    return attrgetter(f"f{number}")
