"""Parse a schema in Spark's DDL, such as ``customer string, amount double NOT NULL, lines array<struct<sku: string>>``.

The types are those that JSON can state: string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s),
date, timestamp, binary (as Base64), array<...>, map<string, ...> and struct<...>, with Spark's other names for them.

Rules: the standard library only. Names of columns are words of letters, digits and ``_``: other characters are refused
by Delta tables without column mapping. Not for: reading values (``schema.values.typed_values``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sparklog.errors.suggestions import did_you_mean

PRIMITIVES = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "binary": "binary",
}
"""Spark's names of a type, and the one that is kept."""

UNFIT, KEY_UNFIT = "_unfit", "_key_unfit"
"""The typed columns that say whether a record's value, or key, does not fit its schema."""

VALUE_KEPT = "_value_kept"
"""The typed column that says whether a record's value is stored, and not elided."""

RESERVED = (
    *("partition", "offset", "timestamp", "key", "value", "headers", "topic", "timestamptype"),
    *(UNFIT, KEY_UNFIT, VALUE_KEPT),
)
"""Names that the other columns of a topic have, in lower case."""

VALUE_PREFIX = "value_"
"""What stands before the name of a column whose field has one of these names, as ``key_`` before those of keys."""

MAX_DEPTH = 16
MAX_FIELDS = 1000
MAX_PRECISION = 38
DECIMAL_RANGE = f"a decimal has 1 to {MAX_PRECISION} digits, and no more than these after the point"

_TOKEN = re.compile(r"\s*(?:(`[^`]*`)|([^\W\d]\w*)|(\d+)|([<>(),:])|('(?:[^'\\]|\\.)*'))", re.UNICODE)
_NAME = re.compile(r"[^\W\d]\w*\Z")


class InvalidSchemaError(ValueError):
    """The text is not a schema; the message says why."""


def refuse_part(path: str, reason: str) -> InvalidSchemaError:
    """Return the error for a part of a schema in JSON."""
    return InvalidSchemaError(f"{reason} - at `{path}`")


@dataclass(frozen=True)
class SchemaType:
    """A type: the ``name`` of a primitive, decimal (with ``precision`` and ``scale``), array, map, or struct.

    ``element`` is the type of the elements of an array or the values of a map; ``fields`` are those of a struct.
    """

    name: str
    precision: int = 0
    scale: int = 0
    element: SchemaType | None = None
    fields: tuple[SchemaField, ...] = ()

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "array":
            return f"array<{self.element}>"
        if self.name == "map":
            return f"map<string,{self.element}>"
        if self.name == "struct":
            return f"struct<{','.join(field.text(':') for field in self.fields)}>"
        return self.name


@dataclass(frozen=True)
class SchemaField:
    """A field of a schema or a struct. ``required``: declared NOT NULL."""

    name: str
    type: SchemaType
    required: bool = False

    def __str__(self) -> str:
        return self.text(" ")

    def text(self, separator: str) -> str:
        return f"{self.name}{separator}{self.type}{' NOT NULL' if self.required else ''}"


@lru_cache(maxsize=256)
def parse_ddl(text: str) -> tuple[SchemaField, ...]:
    """Return the fields of a schema; none for an empty text. Raises InvalidSchemaError."""
    return _Parser(_tokens(text)).fields(end="", depth=0) if text.strip() else ()


def format_ddl(fields: Sequence[SchemaField]) -> str:
    """Return the canonical text of a schema."""
    return ", ".join(map(str, fields))


def check_names(names: Sequence[str]) -> None:
    """Check the names of the fields of a schema or a struct. Raises InvalidSchemaError."""
    known: set[str] = set()
    for name in names:
        if not _NAME.match(name):
            raise InvalidSchemaError(f"invalid name {name!r}: use letters, digits and _")
        if name.lower() in known:
            raise InvalidSchemaError(f"the field {name!r} occurs twice (names are compared without case)")
        known.add(name.lower())


def value_column(name: str) -> str:
    """Return the name of the typed column of a value's field: ``timestamp`` is in ``value_timestamp``."""
    return VALUE_PREFIX + name if name.lower() in RESERVED else name


def value_columns(fields: Sequence[SchemaField]) -> tuple[SchemaField, ...]:
    """Return the fields of values under the names of their columns."""
    return tuple(replace(field, name=value_column(field.name)) for field in fields)


def find_breaking_change(before: Sequence[SchemaField], after: Sequence[SchemaField]) -> str:
    """Return why readers of files with the schema ``before`` could not read those with ``after``; empty if they can.

    Fields may be added, requirements dropped or added, and types widened, also inside structs: a column is null where
    a file does not have it, and readers widen what is narrower. All of them do so where ``_WIDER`` says it, and for
    decimals that keep their scale and size in a file. Structs inside maps cannot get fields
    (docs/decisions/0023-widened-types.md).
    """
    return _find_break(before, after, "", False)


_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""The types that a type may become."""


def _find_break(before: Sequence[SchemaField], after: Sequence[SchemaField], path: str, in_map: bool) -> str:
    types = {field.name: field.type for field in after}
    for field in before:
        if field.name not in types:
            return f"it has no field {path + field.name!r} any more"
        reason = _find_type_break(field.type, types[field.name], path + field.name, in_map)
        if reason:
            return reason
    if in_map and len(after) > len(before):
        return f"a struct inside the map {path.rstrip('.')!r} would get a field more"
    return ""


def _find_type_break(before: SchemaType, after: SchemaType, path: str, in_map: bool) -> str:
    if before.name == after.name == "struct":
        return _find_break(before.fields, after.fields, f"{path}.", in_map)
    if before.name == after.name and before.element is not None and after.element is not None:
        return _find_type_break(before.element, after.element, path, in_map or before.name == "map")
    if before.name == after.name == "decimal":
        same_size = _decimal_bytes(before.precision) == _decimal_bytes(after.precision)
        widens = before.scale == after.scale and before.precision <= after.precision and same_size
    else:
        widens = before == after or after.name in _WIDER.get(before.name, ())
    return "" if widens else f"the field {path!r} is {before} and would become {after}"


def _decimal_bytes(precision: int) -> int:
    """Return how many bytes a decimal takes in a Parquet file."""
    most: int = 10**precision - 1
    return (most.bit_length() + 8) // 8


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSchemaError(f"unexpected {text[at:].strip()[:20]!r}")
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


class _Parser:
    """Takes tokens from the left. Lives for one text."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._count = 0

    def fields(self, end: str, depth: int) -> tuple[SchemaField, ...]:
        """Return comma-separated fields up to the token ``end``, which is taken."""
        fields: list[SchemaField] = []
        while True:
            fields.append(self._field(depth))
            self._count += 1
            if self._count > MAX_FIELDS:
                raise InvalidSchemaError(f"it has more than {MAX_FIELDS} fields")
            token = self._take()
            if token == end:
                break
            if token != ",":
                raise InvalidSchemaError(f"unexpected {token!r} after the field {fields[-1].name!r}")
        check_names([field.name for field in fields])
        return tuple(fields)

    def _field(self, depth: int) -> SchemaField:
        name = self._take().strip("`")
        if not name:
            raise InvalidSchemaError("a field is missing at its end")
        if not _NAME.match(name):
            raise InvalidSchemaError(f"invalid name {name!r}: use letters, digits and _")
        if self._peek() == ":":
            self._take()
        kind = self._type(depth)
        required = False
        if self._peek().lower() == "not":
            self._take()
            self._expect("null")
            required = True
        if self._peek().lower() == "comment":
            self._take()
            if not self._take().startswith("'"):
                raise InvalidSchemaError(f"the comment of {name!r} is not in single quotes")
        return SchemaField(name, kind, required)

    def _type(self, depth: int) -> SchemaType:
        word = self._take().lower()
        if depth > MAX_DEPTH:
            raise InvalidSchemaError(f"its types are nested deeper than {MAX_DEPTH}")
        if word in PRIMITIVES:
            return SchemaType(PRIMITIVES[word])
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word not in ("array", "map", "struct"):
            raise self._unknown_type(word)
        self._expect("<")
        if word == "struct":
            return SchemaType("struct", fields=self.fields(">", depth + 1))
        if word == "map":
            if self._type(depth + 1).name != "string":
                raise InvalidSchemaError("the keys of a map have to be of the type string")
            self._expect(",")
        element = self._type(depth + 1)
        self._expect(">")
        return SchemaType(word, element=element)

    def _unknown_type(self, word: str) -> InvalidSchemaError:
        if word[:1].isalpha():
            known = (*PRIMITIVES, "decimal", "array", "map", "struct")
            return InvalidSchemaError(f"unknown type {word!r}{did_you_mean(word, known)}")
        return InvalidSchemaError(f"a type is missing before {word!r}" if word else "a type is missing at its end")

    def _decimal(self) -> SchemaType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise InvalidSchemaError(f"decimal({precision},{scale}) is out of range: {DECIMAL_RANGE}")
        return SchemaType("decimal", precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal() or len(token) > 3:
            raise InvalidSchemaError(f"unexpected {token!r} in place of a number")
        return int(token)

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token.lower() != wanted:
            raise InvalidSchemaError(f"{token!r} where {wanted!r} is expected" if token else f"{wanted!r} is missing")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token
