"""The columns of the data source: what a read gives, what a write takes, and their Arrow types.

Rules: names and types are those of Spark's Kafka source; names compare without case, as Spark's do.
Not for: how records are stored (``format.schema``).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from sparklog.errors import InvalidOptionError, InvalidRecordError

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
READ_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
STORED = ("key", "value", "timestamp", "headers")
"""Columns that stand in the files; the others follow from where a record is."""
_BY_LOWER_NAME = {name.lower(): name for name in READ_TYPES}
_TEXT_OR_BYTES = (StringType, BinaryType, CharType, VarcharType, NullType)


def read_schema(include_headers: bool, columns: Sequence[str] = ()) -> StructType:
    """The schema of a read without a schema of the user's; only these columns if some are named.

    Raises InvalidOptionError for a column that a log does not have.
    """
    if columns:
        unknown = [name for name in columns if name.lower() not in _BY_LOWER_NAME]
        if unknown:
            raise InvalidOptionError(f"a log has no column {unknown[0]!r}; choose from {', '.join(READ_TYPES)}")
        chosen = [_BY_LOWER_NAME[name.lower()] for name in columns]
        return StructType([StructField(name, READ_TYPES[name]) for name in chosen])
    fields = [StructField(name, kind) for name, kind in READ_TYPES.items() if include_headers or name != "headers"]
    return StructType(fields)


def read_columns(schema: StructType, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The columns a schema asks for, in its order. Raises InvalidOptionError for others and other types.

    ``names`` are what they are called in the log where that differs, empty for those that are not in it.
    """
    found = []
    for field, given in zip(schema.fields, names or schema.fieldNames(), strict=True):
        name = _BY_LOWER_NAME.get(given.lower())
        if name is None and names is not None:
            found.append("")
            continue
        if name is None:
            raise InvalidOptionError(
                f"a log has no column {given!r}; the schema of a read may choose from {', '.join(READ_TYPES)}"
            )
        if not _same_type(field.dataType, READ_TYPES[name]):
            raise InvalidOptionError(
                f"column {field.name} is {READ_TYPES[name].simpleString()}, and the schema says "
                f"{field.dataType.simpleString()}; read it as it is and cast it in the query"
            )
        found.append(name)
    return tuple(found)


def _same_type(given: DataType, expected: DataType) -> bool:
    return given.simpleString() == expected.simpleString()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants to see for this schema, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def check_write_schema(schema: StructType, has_topic_option: bool, include_timestamp: bool = True) -> None:
    """Whether records can be made of rows like these. Raises InvalidRecordError, saying which column is wrong."""
    ignored = ["topic"] * has_topic_option + ["timestamp"] * (not include_timestamp)
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if len(columns) != len(schema.fields):
        raise InvalidRecordError(f"two columns have the same name but for case: {', '.join(schema.fieldNames())}")
    if "value" not in columns:
        raise InvalidRecordError(f"the rows have no column value; they have {', '.join(schema.fieldNames()) or 'none'}")
    for name in ("value", "key"):
        if name in columns and not isinstance(columns[name], _TEXT_OR_BYTES):
            raise _wrong_type(name, columns[name], "string or binary")
    if not has_topic_option and "topic" not in columns:
        raise InvalidRecordError("which topic? Set the option topic, or give the rows a column topic")
    for name, kinds, wanted in (
        ("topic", (StringType, CharType, VarcharType), "string"),
        ("partition", (IntegerType, NullType), "int"),
        ("timestamp", (TimestampType, NullType), "timestamp"),
    ):
        if name in columns and not isinstance(columns[name], kinds) and name not in ignored:
            raise _wrong_type(name, columns[name], wanted)
    if "headers" in columns and not _is_headers(columns["headers"]):
        raise _wrong_type("headers", columns["headers"], HEADERS_TYPE.simpleString())


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, NullType):
        return True
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(field.name.lower(), field.dataType.simpleString()) for field in kind.elementType.fields] == [
        ("key", "string"),
        ("value", "binary"),
    ]


def _wrong_type(name: str, kind: DataType, wanted: str) -> InvalidRecordError:
    return InvalidRecordError(f"column {name} must be {wanted} and is {kind.simpleString()}; cast it before writing")
