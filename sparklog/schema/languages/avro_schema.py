"""Parse an Avro schema: a record whose fields become typed columns.

    Avro                                          column
    boolean, float, double, string                the same
    int, long, bytes                              int, bigint, binary
    record, array, map                            struct<…>, array<…>, map<string, …>
    enum; fixed                                   string; binary
    a union of null and one other type            that type
    date; timestamp-millis, timestamp-micros      date; timestamp
    decimal of bytes or fixed; uuid               decimal(p, s); string

Rules: the standard library only. A schema is refused for what cannot be a column, with its path: other unions and
logical types, ``null`` alone, types that contain themselves, and types without bytes, of which a value of a few bytes
could have any number. Names are resolved as Avro's specification states. Not for: reading values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sparklog.errors.suggestions import did_you_mean
from sparklog.schema.languages.ddl import (
    DECIMAL_RANGE,
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_PRECISION,
    InvalidSchemaError,
    SchemaField,
    SchemaType,
    check_names,
    refuse_part,
)

PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}

_COMPLEX = ("record", "enum", "fixed", "array", "map")

_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("string", "uuid"): "string",
    ("fixed", "uuid"): "string",
}
"""The column of a logical type, besides decimals."""

MAX_FIXED_BYTES = 1024 * 1024


class _Absent:
    """No default."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True)
class AvroField:
    """A field of a record. ``default`` is JSON, ABSENT if there is none."""

    name: str
    type: AvroType
    default: Any = ABSENT


@dataclass(frozen=True)
class AvroType:
    """A type of which values are encoded, and the ``kind`` of its column.

    ``name`` is Avro's. ``branches`` is the number of types of its union, 0 if it is in none, and ``null_at`` the place
    of null there, -1 without null. ``symbols`` are those of an enum, ``size`` the bytes of a fixed.
    """

    name: str
    kind: SchemaType
    logical: str = ""
    branches: int = 0
    null_at: int = -1
    symbols: tuple[str, ...] = ()
    size: int = 0
    element: AvroType | None = None
    fields: tuple[AvroField, ...] = ()


def is_avro(schema: Mapping[str, Any]) -> bool:
    """Return whether an object is an Avro record, and not a JSON Schema."""
    return schema.get("type") == "record"


def parse_avro(schema: Mapping[str, Any]) -> AvroType:
    """Return the record that a schema states. Raises InvalidSchemaError."""
    return _Parser().type(schema, "$", "", 0)


def find_misreading(before: AvroType, after: AvroType, path: str = "$") -> str:
    """Return why values written with one schema could be misread with the schema that replaces it; empty if that is
    practically impossible. An encoded value does not say which schema it was written with.

    Fields may be added, symbols appended, and numbers widened. ``find_breaking_change`` finds the other changes.
    """
    wider = _WIDER.get(before.name) == after.name and not before.logical
    if (before.name, before.logical, before.size) != (after.name, after.logical, after.size) and not wider:
        return f"{_stated(before)} would be read as {_stated(after)} - at `{path}`"
    if (before.branches, before.null_at) != (after.branches, after.null_at):
        return f"null would be another branch of its union, or no longer in one - at `{path}`"
    if before.symbols != after.symbols[: len(before.symbols)]:
        return f"its symbols would have other numbers; append new ones - at `{path}`"
    if before.element is not None and after.element is not None:
        return find_misreading(before.element, after.element, f"{path}[]")
    types = {field.name: field.type for field in after.fields}
    known = [field for field in before.fields if field.name in types]
    names = [field.name for field in known]
    if names != [name for name in types if name in names]:
        return f"its fields would have another order - at `{path}`"
    reasons = (find_misreading(field.type, types[field.name], f"{path}.{field.name}") for field in known)
    return next(filter(None, reasons), "")


_WIDER = {"int": "long", "float": "double"}
"""The type whose values a type may become (``find_breaking_change``)."""


def _stated(kind: AvroType) -> str:
    return " ".join(filter(None, (kind.logical, kind.name, str(kind.size or ""))))


class _Named(NamedTuple):
    """A named type, the number of all fields in it, and of levels of types below it."""

    type: AvroType
    fields: int
    levels: int


class _Parser:
    """Lives for one schema."""

    def __init__(self) -> None:
        self._named: dict[str, _Named] = {}
        self._open: set[str] = set()
        self._count = 0
        self._deepest = 0

    def type(self, schema: Any, path: str, namespace: str, depth: int) -> AvroType:
        self._reach(depth)
        if isinstance(schema, list):
            return self._union(schema, path, namespace, depth)
        if isinstance(schema, str):
            return self._by_name(schema, path, namespace, depth)
        if not isinstance(schema, dict):
            raise refuse_part(path, "its type is missing" if schema is None else f"invalid type {_shown(schema)}")
        name = schema.get("type")
        if isinstance(name, (dict, list)):
            return self.type(name, path, namespace, depth + 1)
        if name in ("record", "enum", "fixed"):
            return self._define(schema, path, namespace, depth)
        if name in ("array", "map"):
            key = "items" if name == "array" else "values"
            element = self.type(schema.get(key), f"{path}[]", namespace, depth + 1)
            return AvroType(str(name), SchemaType(str(name), element=element.kind), element=element)
        if isinstance(name, str) and name in PRIMITIVES:
            return self._with_logical(AvroType(name, SchemaType(PRIMITIVES[name])), schema, path)
        return self.type(name, path, namespace, depth + 1)

    def _union(self, branches: list[Any], path: str, namespace: str, depth: int) -> AvroType:
        others = [branch for branch in branches if not _is_null(branch)]
        nulls = len(branches) - len(others)
        if len(others) != 1 or nulls > 1 or isinstance(others[0], list):
            raise refuse_part(path, "only a union of null and one other type can be a column")
        found = self.type(others[0], path, namespace, depth + 1)
        if found.branches:
            raise refuse_part(path, "a union is directly inside another one")
        null_at = next((number for number, branch in enumerate(branches) if _is_null(branch)), -1)
        return replace(found, branches=len(branches), null_at=null_at)

    def _by_name(self, name: str, path: str, namespace: str, depth: int) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, SchemaType(PRIMITIVES[name]))
        if name == "null":
            raise refuse_part(path, "null alone cannot be a column")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open:
            raise refuse_part(path, f"the type {name!r} contains itself")
        found = self._named.get(full)
        if found is None and name in _COMPLEX:
            raise refuse_part(path, f'the type is written as an object, {{"type": {{"type": "{name}", ...}}}}')
        if found is None:
            raise refuse_part(path, f"unknown type {_shown(name)}{did_you_mean(name, (*PRIMITIVES, *_COMPLEX))}")
        self._add_fields(found.fields)
        self._reach(depth + found.levels)
        return found.type

    def _define(self, schema: Mapping[str, Any], path: str, namespace: str, depth: int) -> AvroType:
        """Return a named type, and keep it: it is written out wherever it is used, as columns are."""
        name, space = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(space, str):
            raise refuse_part(path, f"its {schema['type']} has no name")
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named or full in self._open:
            raise refuse_part(path, f"the type {name!r} is defined twice")
        self._open.add(full)
        fields, deepest, self._deepest = self._count, self._deepest, depth
        found = self._read(schema, full.rpartition(".")[0], path, depth)
        self._named[full] = _Named(found, self._count - fields, self._deepest - depth)
        self._deepest = max(deepest, self._deepest)
        self._open.discard(full)
        return found

    def _read(self, schema: Mapping[str, Any], namespace: str, path: str, depth: int) -> AvroType:
        if schema["type"] == "enum":
            return AvroType("enum", SchemaType("string"), symbols=_symbols(schema, path))
        if schema["type"] == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_FIXED_BYTES:
                raise refuse_part(path, f"a fixed has 1 to {MAX_FIXED_BYTES:,} bytes, not {_shown(size)}")
            return self._with_logical(AvroType("fixed", SchemaType("binary"), size=size), schema, path)
        fields = self._fields(schema.get("fields"), path, namespace, depth)
        columns = tuple(SchemaField(field.name, field.type.kind, field.type.null_at < 0) for field in fields)
        return AvroType("record", SchemaType("struct", fields=columns), fields=fields)

    def _fields(self, fields: Any, path: str, namespace: str, depth: int) -> tuple[AvroField, ...]:
        if not isinstance(fields, list) or not fields:
            raise refuse_part(path, "a record without fields cannot be a column")
        self._add_fields(len(fields))
        found = []
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise refuse_part(path, "a field has no name")
            kind = self.type(field.get("type"), f"{path}.{name}", namespace, depth + 1)
            found.append(AvroField(name, kind, field.get("default", ABSENT)))
        try:
            check_names([field.name for field in found])
        except InvalidSchemaError as error:
            raise refuse_part(path, str(error)) from error
        return tuple(found)

    def _add_fields(self, count: int) -> None:
        self._count += count
        if self._count > MAX_FIELDS:
            raise InvalidSchemaError(f"it has more than {MAX_FIELDS} fields")

    def _reach(self, depth: int) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > MAX_DEPTH:
            raise InvalidSchemaError(f"its types are nested deeper than {MAX_DEPTH}")

    def _with_logical(self, found: AvroType, schema: Mapping[str, Any], path: str) -> AvroType:
        logical = schema.get("logicalType")
        if logical is None:
            return found
        if logical == "decimal" and found.name in ("bytes", "fixed"):
            return replace(found, kind=_decimal(schema, path), logical="decimal")
        column = _LOGICAL.get((found.name, logical)) if isinstance(logical, str) else None
        if column is None or (logical == "uuid" and found.size not in (0, 16)):
            raise refuse_part(path, f"the logical type {_shown(logical)} of {found.name} cannot be a column")
        return replace(found, kind=SchemaType(column), logical=str(logical))


def _is_null(branch: Any) -> bool:
    return branch == "null" or (isinstance(branch, dict) and branch.get("type") == "null")


def _symbols(schema: Mapping[str, Any], path: str) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
        raise refuse_part(path, "an enum needs a list of symbols")
    return tuple(symbols)


def _decimal(schema: Mapping[str, Any], path: str) -> SchemaType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    numbers = [number for number in (precision, scale) if isinstance(number, int) and not isinstance(number, bool)]
    if len(numbers) < 2 or not 1 <= numbers[0] <= MAX_PRECISION or not 0 <= numbers[1] <= numbers[0]:
        raise refuse_part(path, f"decimal({_shown(precision)},{_shown(scale)}) is out of range: {DECIMAL_RANGE}")
    return SchemaType("decimal", numbers[0], numbers[1])


def _shown(value: Any) -> str:
    return repr(value)[:60]
