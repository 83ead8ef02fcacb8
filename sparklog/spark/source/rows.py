"""Define the columns of the data source: those of a read, those of a write, and their Arrow types.

Rules: names and types are those of Spark's Kafka source; names are case-insensitive, as in Spark.
Not for: how records are stored (``format.schema``).
"""

from __future__ import annotations

from collections.abc import Sequence

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
from sparklog.errors.suggestions import did_you_mean

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
"""Columns that files hold; the others follow from a record's partition and offset."""
BY_LOWER_NAME = {name.lower(): name for name in READ_TYPES}
NO_TOPIC = "name with option topic a topic that has value.format=json and these columns in its value.schema"
_TEXT_OR_BYTES = (StringType, BinaryType, CharType, VarcharType, NullType)


def read_schema(include_headers: bool, columns: Sequence[str] = ()) -> StructType:
    """Return the schema of a read if the user gives none; only these columns if any are named.

    Raises InvalidOptionError for an unknown column.
    """
    names = [name for name in READ_TYPES if include_headers or name != "headers"]
    if columns:
        unknown = [name for name in columns if name.lower() not in BY_LOWER_NAME]
        if unknown:
            raise unknown_column(unknown[0])
        names = [BY_LOWER_NAME[name.lower()] for name in columns]
    return StructType([StructField(name, READ_TYPES[name]) for name in names])


def unknown_column(name: str) -> InvalidOptionError:
    """Return the error of a read of a column that records do not have."""
    hint = did_you_mean(name, READ_TYPES) or "; sparklog.table has the columns of a typed topic"
    return InvalidOptionError(f"unknown column {name!r}; choose from {', '.join(READ_TYPES)}{hint}")


def read_columns(schema: StructType, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the columns of a schema, in its order. Raises InvalidOptionError for unknown columns and wrong types.

    ``names`` are their names in the log if they differ, empty for those that are not in the log.
    """
    columns = []
    for field, given in zip(schema.fields, names or schema.fieldNames(), strict=True):
        name = BY_LOWER_NAME.get(given.lower())
        if name is None and names is not None:
            columns.append("")
            continue
        if name is None:
            raise InvalidOptionError(
                f"unknown column {given!r}; the schema of a read may choose from {', '.join(READ_TYPES)}"
            )
        if field.dataType.simpleString() != READ_TYPES[name].simpleString():
            raise InvalidOptionError(
                f"column {field.name} is {READ_TYPES[name].simpleString()}, but the schema says "
                f"{field.dataType.simpleString()}; read it as it is and cast it in the query"
            )
        columns.append(name)
    return tuple(columns)


def check_write_schema(
    schema: StructType, has_topic_option: bool, include_timestamp: bool = True, advice: str = NO_TOPIC
) -> None:
    """Check that rows of this schema can become records. Raises InvalidRecordError, which names the wrong column;
    ``advice`` says what else than a column value to give."""
    ignored = ["topic"] * has_topic_option + ["timestamp"] * (not include_timestamp)
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if len(columns) != len(schema.fields):
        raise InvalidRecordError(f"two column names differ only in case: {', '.join(schema.fieldNames())}")
    if "value" not in columns:
        raise InvalidRecordError(
            f"the rows have no column value; their columns are {', '.join(schema.fieldNames()) or 'none'}. Give them "
            f"one, or {advice}"
        )
    for name in ("value", "key"):
        if name in columns and not isinstance(columns[name], _TEXT_OR_BYTES):
            raise _wrong_type(name, columns[name], "string or binary")
    if not has_topic_option and "topic" not in columns:
        raise InvalidRecordError("no topic given: set the option topic, or give the rows a column topic")
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
    return InvalidRecordError(f"column {name} must be {wanted}, but is {kind.simpleString()}; cast it before writing")
