"""Reads the typed columns of records from their values.

    columns = ValueReader(parse_ddl("customer string, amount double")).columns(batch.column("value"))

A JSON value fits a schema if it is an object whose fields have the schema's types; absent fields are null, unless they
are required, and other fields are ignored. Numbers are not read from strings, nor integers from numbers with a point;
decimals, dates (``2026-11-01``), timestamps (RFC 3339; UTC without a zone) and binary (Base64) are. A value that does
not fit has null in all typed columns, and ``_unfit``; so has one of over ``MAX_VALUE_BYTES``, which is not read. A null
value (a tombstone) has null everywhere and fits.

Rules: pure; values are untrusted. Not for: the raw bytes, which are kept beside the columns.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Annotated, Any, Optional

import msgspec
import pyarrow as pa
from msgspec import Meta

from sparklog.config.ddl import SchemaField, SchemaType
from sparklog.format.typed_columns import UNFIT, arrow_type

_FLOAT32_MAX = 3.4028234663852886e38
_PYTHON: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "tinyint": Annotated[int, Meta(ge=-(2**7), lt=2**7)],
    "smallint": Annotated[int, Meta(ge=-(2**15), lt=2**15)],
    "int": Annotated[int, Meta(ge=-(2**31), lt=2**31)],
    "bigint": int,  # Arrow refuses larger ones
    "float": Annotated[float, Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)],
    "double": float,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "binary": bytes,
    "decimal": decimal.Decimal,
}

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)
_INEXACT = (pa.ArrowException, UnicodeEncodeError, ValueError, OverflowError, TypeError)

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Size in bytes up to which a value is read: as Python objects it takes up to some twenty times as much memory."""

READ_BYTES = 4 * 1024 * 1024
"""Bytes of values that are held as Python objects at a time, about."""

Plain = Callable[[Any], Any]
"""Returns a decoded value as Arrow takes it."""


class ValueReader:
    """Reads values of one schema. Immutable, thread-safe."""

    def __init__(self, schema: Sequence[SchemaField]) -> None:
        self._schema = tuple(schema)
        self._types = [arrow_type(field.type) for field in schema]
        self._plain = [_plain(field.type) for field in schema]
        self._names = [f"f{number}" for number in range(len(schema))]
        self._decode = msgspec.json.Decoder(_struct("Value", schema)).decode

    def find_misfit(self, value: bytes | None) -> str:
        """Return why a value does not fit the schema, empty if it does."""
        if value is None:
            return ""
        if len(value) > MAX_VALUE_BYTES:
            return f"it has {len(value):,} bytes, and typed values at most {MAX_VALUE_BYTES:,}"
        try:
            self._arrays([self._decode(value)])
        except (*_UNREADABLE, *_INEXACT) as error:
            return str(error) or type(error).__name__
        return ""

    def columns(self, values: pa.Array) -> dict[str, pa.Array]:
        """Return the typed columns of records with these values, by name."""
        rows = max(1, len(values) * READ_BYTES // max(values.nbytes, READ_BYTES))
        slices = [values.slice(first, rows) for first in range(0, len(values), rows)] or [values]
        parts = [self._columns(part.to_pylist()) for part in slices]
        arrays = [pa.concat_arrays(column) for column in zip(*(arrays for arrays, _ in parts), strict=True)]
        unfit = pa.array([is_unfit for _, part in parts for is_unfit in part], pa.bool_())
        return {**{field.name: array for field, array in zip(self._schema, arrays, strict=True)}, UNFIT: unfit}

    def _columns(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], list[bool]]:
        rows = self._read(values)
        unfit = [row is None and value is not None for row, value in zip(rows, values, strict=True)]
        try:
            return self._arrays(rows), unfit
        except _INEXACT:
            for number, row in enumerate(rows):
                if row is not None and not self._is_exact(row):
                    rows[number], unfit[number] = None, True
            return self._arrays(rows), unfit

    def _read(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return each value decoded, None for one that is null or does not fit."""
        decode = self._decode
        values = [value if value is None or len(value) <= MAX_VALUE_BYTES else b"" for value in values]
        try:
            return [None if value is None else decode(value) for value in values]
        except _UNREADABLE:
            return [self._read_one(value) for value in values]

    def _read_one(self, value: bytes | None) -> Any:
        try:
            return None if value is None else self._decode(value)
        except _UNREADABLE:
            return None

    def _is_exact(self, row: Any) -> bool:
        """Return whether Arrow can hold all fields of a row, such as a decimal with its digits."""
        try:
            self._arrays([row])
        except _INEXACT:
            return False
        return True

    def _arrays(self, rows: Iterable[Any]) -> list[pa.Array]:
        arrays = []
        for name, plain, kind in zip(self._names, self._plain, self._types, strict=True):
            fields = [None if row is None else getattr(row, name) for row in rows]
            if plain is not None:
                fields = [None if field is None else plain(field) for field in fields]
            arrays.append(pa.array(fields, kind))
        return arrays


@lru_cache(maxsize=64)
def value_reader(schema: tuple[SchemaField, ...]) -> ValueReader:
    """Return the reader of a schema; the same one each time."""
    return ValueReader(schema)


def _struct(name: str, fields: Sequence[SchemaField]) -> type[msgspec.Struct]:
    """Return a struct with a field for each of a schema's, under names that Python allows."""
    members: list[Any] = []
    for number, field in enumerate(fields):
        kind = _python(field.type)
        members.append((f"f{number}", kind) if field.required else (f"f{number}", Optional[kind], None))  # noqa: UP045
    names = {f"f{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=names, gc=False, kw_only=True)


def _python(kind: SchemaType) -> Any:
    if kind.name == "struct":
        return _struct("Nested", kind.fields)
    if kind.element is not None:
        element: Any = Optional[_python(kind.element)]  # noqa: UP045
        return GenericAlias(list, (element,)) if kind.name == "array" else GenericAlias(dict, (str, element))
    return _PYTHON[kind.name]


def _plain(kind: SchemaType) -> Plain | None:
    """Return what makes decoded values plain, None if they are."""
    if kind.name == "struct":
        members = [(f"f{number}", field.name, _plain(field.type)) for number, field in enumerate(kind.fields)]
        return lambda row: {name: _apply(plain, getattr(row, member)) for member, name, plain in members}
    if kind.element is None:
        return None
    plain = _plain(kind.element)
    if kind.name == "map":
        return lambda entries: [(key, _apply(plain, value)) for key, value in entries.items()]
    return None if plain is None else lambda items: [_apply(plain, item) for item in items]


def _apply(plain: Plain | None, value: Any) -> Any:
    return value if plain is None or value is None else plain(value)
