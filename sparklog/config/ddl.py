"""Parse a schema in Spark's DDL, such as ``customer string, amount double NOT NULL, lines array<struct<sku: string>>``.

The types are those that JSON can state: string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s),
date, timestamp, binary (as Base64), array<...>, map<string, ...> and struct<...>, with Spark's other names for them.

Rules: the standard library only. Names of columns are words of letters, digits and ``_``: other characters are refused
by Delta tables without column mapping. Not for: reading values (``records.typed_values``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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

RESERVED = ("partition", "offset", "timestamp", "key", "value", "headers", "topic", "timestamptype", "_unfit")
"""Names that the other columns of a topic have, in lower case."""

MAX_DEPTH = 16
MAX_FIELDS = 1000
MAX_PRECISION = 38

_TOKEN = re.compile(r"\s*(?:(`[^`]*`)|([^\W\d]\w*)|(\d+)|([<>(),:])|('(?:[^'\\]|\\.)*'))", re.UNICODE)
_NAME = re.compile(r"[^\W\d]\w*\Z")


class InvalidSchemaError(ValueError):
    """The text is not a schema; the message says why."""


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
    if not text.strip():
        return ()
    parser = _Parser(_tokens(text))
    fields = parser.fields(end="", depth=0)
    taken = [field.name for field in fields if field.name.lower() in RESERVED]
    if taken:
        raise InvalidSchemaError(f"{taken[0]!r} is the name of another column of the topic")
    return fields


def format_ddl(fields: Sequence[SchemaField]) -> str:
    """Return the canonical text of a schema."""
    return ", ".join(map(str, fields))


def find_breaking_change(before: Sequence[SchemaField], after: Sequence[SchemaField]) -> str:
    """Return why readers of files with the schema ``before`` could not read those with ``after``; empty if they can.

    Fields may be added, and requirements dropped or added, also inside structs: a column is null where a file does not
    have it. A field can neither be removed nor change its type, since a table has one type for all files of a column.
    """
    types = {field.name: field.type for field in after}
    for field in before:
        if field.name not in types:
            return f"it has no field {field.name!r} any more"
        if _without_requirements(types[field.name]) != _without_requirements(field.type):
            return f"the field {field.name!r} is {field.type} and would become {types[field.name]}"
    return ""


def _without_requirements(kind: SchemaType) -> SchemaType:
    """Return the type that values have in files, in which every field may be null."""
    element = None if kind.element is None else _without_requirements(kind.element)
    fields = tuple(SchemaField(field.name, _without_requirements(field.type)) for field in kind.fields)
    return replace(kind, element=element, fields=fields)


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
        names = [field.name.lower() for field in fields]
        doubles = [field.name for number, field in enumerate(fields) if names[number] in names[:number]]
        if doubles:
            raise InvalidSchemaError(f"the field {doubles[0]!r} occurs twice (names are compared without case)")
        return tuple(fields)

    def _field(self, depth: int) -> SchemaField:
        name = self._take().strip("`")
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
            raise InvalidSchemaError(f"unknown type {word!r}" if word else "a type is missing at its end")
        self._expect("<")
        if word == "struct":
            return SchemaType("struct", fields=self.fields(">", depth + 1))
        if word == "map":
            if self._type(depth + 1).name != "string":
                raise InvalidSchemaError("the keys of a map have to be strings")
            self._expect(",")
        element = self._type(depth + 1)
        self._expect(">")
        return SchemaType(word, element=element)

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
            raise InvalidSchemaError(f"decimal({precision},{scale}) is out of range")
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
