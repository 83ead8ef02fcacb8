"""The typed columns of a topic's table: the types of its schema in Arrow and in Delta.

    schema type     Arrow                    Delta
    string          string                   string
    tinyint … bigint int8 … int64            byte, short, integer, long
    decimal(p, s)   decimal128(p, s)         decimal(p,s)
    timestamp       timestamp[us, UTC]       timestamp
    struct<…>       struct                   struct

After those of values stands ``_unfit``: whether a record's value does not fit its schema; then its typed columns are
null. After those of keys stands ``_key_unfit`` (``languages.record_schema``). All are nullable, also required ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.schema.languages.ddl import SchemaField, SchemaType

FLOAT32_MAX = 3.4028234663852886e38
"""The largest number of the type float."""

_ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_DELTA = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def typed_fields(schema: Sequence[SchemaField]) -> tuple[pa.Field, ...]:
    """Return the typed columns of a file; none without a schema."""
    return tuple(pa.field(field.name, arrow_type(field.type)) for field in schema)


def flat_columns(schema: Sequence[SchemaField]) -> list[str]:
    """Return the names of the typed columns of a file that are neither lists, maps nor structs."""
    return [field.name for field in typed_fields(schema) if not pa.types.is_nested(field.type)]


def bytes_per_record(schema: Sequence[SchemaField]) -> int:
    """Return how many bytes the typed columns take for each record at most, besides texts and lists."""
    return sum(width(arrow_type(field.type)) for field in schema)


def width(kind: pa.DataType) -> int:
    """Return how many bytes a value of a type takes at most, besides texts and lists."""
    if pa.types.is_struct(kind):
        return sum(width(kind.field(number).type) for number in range(kind.num_fields))
    return 16 if pa.types.is_decimal(kind) else 8


def arrow_type(kind: SchemaType) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in kind.fields])
    if kind.element is not None:
        element = arrow_type(kind.element)
        return pa.list_(element) if kind.name == "array" else pa.map_(pa.string(), element)
    return _ARROW[kind.name]


def delta_fields(schema: Sequence[SchemaField]) -> list[dict[str, object]]:
    """Return the typed columns as Delta states them."""
    return [delta_field(field.name, delta_type(field.type)) for field in schema]


def delta_type(kind: SchemaType) -> object:
    """Return a type in the JSON of a Delta (and Spark) schema."""
    if kind.name == "decimal":
        return f"decimal({kind.precision},{kind.scale})"
    if kind.name == "struct":
        return {"type": "struct", "fields": [delta_field(field.name, delta_type(field.type)) for field in kind.fields]}
    if kind.element is not None:
        element = delta_type(kind.element)
        if kind.name == "array":
            return {"type": "array", "elementType": element, "containsNull": True}
        return {"type": "map", "keyType": "string", "valueType": element, "valueContainsNull": True}
    return _DELTA.get(kind.name, kind.name)


def delta_field(name: str, kind: object) -> dict[str, object]:
    """Return a column or a field in the JSON of a Delta (and Spark) schema."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
