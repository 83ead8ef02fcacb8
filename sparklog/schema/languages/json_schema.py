"""Parse a JSON Schema: an object whose properties become typed columns.

    JSON Schema                                           column
    boolean, integer, number, string                      boolean, bigint, double, string
    string with format date, date-time                    date, timestamp
    string with contentEncoding base64                    binary
    object with properties                                struct<…>
    object without, and additionalProperties              map<string, …>
    array with items                                      array<…>
    type [T, "null"]; anyOf or oneOf of T and null        T
    enum or const of texts without a type                 string
    $ref to a part of the schema (#/$defs/…)              that part's

Rules: the standard library only. What cannot be a column is refused with its path: other unions, allOf, tuples, values
of any type, references to other documents, and types that contain themselves. Keywords that restrict values (minimum,
pattern, enum, additionalProperties beside properties, …) are kept and not checked. A property is required if it is in
``required`` and cannot be null. Not for: reading values (``schema.values.typed_values``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from sparklog.schema.languages.ddl import (
    MAX_DEPTH,
    MAX_FIELDS,
    InvalidSchemaError,
    SchemaField,
    SchemaType,
    check_names,
    refuse_part,
)

MAX_STEPS = 20 * MAX_FIELDS
"""Parts of a schema that are read, each as often as it is referred to."""

MAX_REFERENCES = 100
"""References through which a part is reached."""

_PRIMITIVES = {"boolean": "boolean", "integer": "bigint", "number": "double", "string": "string"}
_TYPES = ", ".join((*_PRIMITIVES, "array", "object"))
_FORMATS = {"date": "date", "date-time": "timestamp"}

_UNSUPPORTED = ("allOf", "not", "if", "$dynamicRef")
"""Keywords that may state a type, and are not read."""

_NO_TYPE = "a value of any type cannot be a column; give it a type"


def parse_json_schema(schema: Mapping[str, Any]) -> tuple[SchemaField, ...]:
    """Return the fields that a schema states. Raises InvalidSchemaError."""
    found, _ = _Parser(schema).type(schema, "$", 0)
    if found.name != "struct":
        raise InvalidSchemaError("a JSON Schema has to be of an object with properties, an Avro schema of a record")
    return found.fields


class _Parser:
    """Lives for one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._open: list[str] = []
        self._steps = self._count = 0

    def type(self, schema: Any, path: str, depth: int) -> tuple[SchemaType, bool]:
        """Return a part's type, and whether it may be null."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidSchemaError(f"it has more than {MAX_STEPS} parts, counted wherever they are referred to")
        if depth > MAX_DEPTH:
            raise InvalidSchemaError(f"its types are nested deeper than {MAX_DEPTH}")
        if not isinstance(schema, dict):
            raise refuse_part(path, _NO_TYPE)
        if "$ref" in schema:
            return self._reference(schema["$ref"], path, depth)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and "type" not in schema:
                return self._either(schema[keyword], keyword, path, depth)
        name, nullable = _type_name(schema, path)
        if isinstance(name, str) and name in _PRIMITIVES:
            return _primitive(name, schema), nullable
        if name == "array":
            items = schema.get("items")
            if "prefixItems" in schema or not isinstance(items, dict):
                raise refuse_part(path, "an array needs one schema of its items")
            return SchemaType("array", element=self.type(items, f"{path}[]", depth + 1)[0]), nullable
        if name == "object":
            return self._object(schema, path, depth), nullable
        raise refuse_part(path, f"the type {name!r:.60} cannot be a column; choose from {_TYPES}")

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> SchemaType:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties is None and isinstance(others, dict):
            return SchemaType("map", element=self.type(others, f"{path}{{}}", depth + 1)[0])
        if not isinstance(properties, dict) or not properties:
            raise refuse_part(path, "an object without properties cannot be a column")
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise refuse_part(path, "required is not a list")
        self._count += len(properties)
        if self._count > MAX_FIELDS:
            raise InvalidSchemaError(f"it has more than {MAX_FIELDS} fields")
        try:
            check_names(list(properties))
        except InvalidSchemaError as error:
            raise refuse_part(path, str(error)) from error
        fields = []
        for name, part in properties.items():
            kind, nullable = self.type(part, f"{path}.{name}", depth + 1)
            fields.append(SchemaField(name, kind, name in required and not nullable))
        return SchemaType("struct", fields=tuple(fields))

    def _either(self, parts: Any, keyword: str, path: str, depth: int) -> tuple[SchemaType, bool]:
        others = [part for part in parts if not _is_null(part)] if isinstance(parts, list) else []
        if len(others) != 1:
            raise refuse_part(path, f"only {keyword} of null and one other type can be a column")
        kind, nullable = self.type(others[0], path, depth + 1)
        return kind, nullable or len(parts) > 1

    def _reference(self, reference: Any, path: str, depth: int) -> tuple[SchemaType, bool]:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise refuse_part(path, f"$ref {reference!r:.60} is not to a part of this schema, such as #/$defs/name")
        if reference in self._open or reference == "#":
            raise refuse_part(path, f"the part {reference} contains itself")
        if len(self._open) >= MAX_REFERENCES:
            raise refuse_part(path, f"more than {MAX_REFERENCES} references lead to it")
        part: Any = self._root
        for step in reference.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if not isinstance(part, dict) or step not in part:
                raise refuse_part(path, f"there is no {reference[:60]} in the schema")
            part = part[step]
        self._open.append(reference)
        found = self.type(part, path, depth)
        self._open.pop()
        return found


def _type_name(schema: Mapping[str, Any], path: str) -> tuple[Any, bool]:
    name = schema.get("type")
    if isinstance(name, list):
        others = [other for other in name if other != "null"]
        if len(others) != 1:
            raise refuse_part(path, "only one type, or null and one other, can be a column")
        return others[0], len(others) < len(name)
    if name is not None:
        return name, False
    if "properties" in schema:
        return "object", False
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and any(isinstance(value, str) for value in values):
        if all(value is None or isinstance(value, str) for value in values):
            return "string", None in values
        raise refuse_part(path, "values of several types cannot be a column")
    if values is not None:
        raise refuse_part(path, "an enum or const that is not of texts needs a type")
    unsupported = [keyword for keyword in _UNSUPPORTED if keyword in schema]
    raise refuse_part(path, f"{unsupported[0]} is not supported; give it one type" if unsupported else _NO_TYPE)


def _primitive(name: str, schema: Mapping[str, Any]) -> SchemaType:
    if name == "string" and schema.get("contentEncoding") == "base64":
        return SchemaType("binary")
    chosen = schema.get("format")
    if name == "string" and isinstance(chosen, str) and chosen in _FORMATS:
        return SchemaType(_FORMATS[chosen])
    return SchemaType(_PRIMITIVES[name])


def _is_null(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "null"
