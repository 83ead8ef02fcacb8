"""Typed rows: rows that have the columns of their topic's schema in place of a value, which the sink makes of them.

    sparklog.write(orders, root, topic="orders")    # columns customer and amount, of its schema

Their value is JSON (``records.json_values``), so that what is read back with the schema is equal to the rows. A column
is found by its name, whatever its case: that of the topic's table, so the field ``timestamp`` is the column
``value_timestamp``. Those of the schema that the rows do not have are null.

Rules: columns are checked before any row is written; a column that is neither the schema's nor a record's is refused,
since its values would be lost, and so is one that could be either's. Rows with a column ``value`` are not typed. Not
for: the record's other columns (``conversion``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import InvalidRecordError
from sparklog.errors.suggestions import did_you_mean
from sparklog.format.schema import VALUE
from sparklog.records.json_values import JsonWriter
from sparklog.schema.languages.ddl import SchemaField, SchemaType, format_ddl, value_column, value_columns
from sparklog.schema.languages.record_schema import JSON
from sparklog.spark.sink.conversion import WRITTEN

MAX_ROW_BYTES = 64 * 1024 * 1024
"""Size in bytes of the rows whose values are made at a time: JSON may take several times as much."""

_TEXT = (StringType, CharType, VarcharType)
_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "string": _TEXT,
    "boolean": (BooleanType,),
    "tinyint": (ByteType,),
    "smallint": (ByteType, ShortType),
    "int": (ByteType, ShortType, IntegerType),
    "bigint": (ByteType, ShortType, IntegerType, LongType),
    "float": (FloatType,),
    "double": (FloatType, DoubleType),
    "date": (DateType,),
    "timestamp": (TimestampType,),
    "binary": (BinaryType,),
}
"""The types of Spark that each primitive type takes: its own, and those that it holds without loss."""


class TypedRows(NamedTuple):
    """How rows become rows with a value. Immutable, picklable.

    ``typed`` and ``others`` are the numbers of the columns of the topic's schema, and of the others; ``row_schema``
    are the columns of the rows with a value.
    """

    schema: tuple[SchemaField, ...]
    typed: tuple[int, ...]
    others: tuple[int, ...]
    row_schema: StructType

    def convert(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows with a value, in smaller batches if they are large. Raises InvalidRecordError."""
        if batch.nbytes > MAX_ROW_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            yield from self.convert(batch.slice(0, middle))
            yield from self.convert(batch.slice(middle))
            return
        names = {value_column(field.name).lower(): field.name for field in self.schema}
        columns = {names[batch.schema.names[number].lower()]: batch.column(number) for number in self.typed}
        values = JsonWriter(self.schema).values(columns, batch.num_rows)
        arrays = [*(batch.column(number) for number in self.others), values]
        yield pa.RecordBatch.from_arrays(arrays, self.row_schema.fieldNames())


def find_typed_rows(rows: StructType, topic: str, config: TopicConfig) -> TypedRows | None:
    """Return how these rows get a value; None if they have one, or if the topic has no schema.

    Raises InvalidRecordError for columns that do not fit the schema.
    """
    names = [name.lower() for name in rows.fieldNames()]
    schema = config.record_schema.value.fields
    if not schema or len(set(names)) < len(names):
        return None
    columns = value_columns(schema)
    by_name = {column.name.lower() for column in columns}
    others = [number for number, name in enumerate(names) if name in WRITTEN]
    typed = [number for number, name in enumerate(names) if name in by_name]
    if VALUE in names:
        is_value = not typed and isinstance(rows[names.index(VALUE)].dataType, (*_TEXT, BinaryType, NullType))
        if config.value_format == JSON and not is_value:
            _refuse_ambiguous(schema, [VALUE], names, topic)
        return None
    extra = [rows[number].name for number in range(len(names)) if number not in (*others, *typed)]
    if config.value_format != JSON:
        if not typed:
            return None
        raise InvalidRecordError(
            f"values are made of columns only as JSON, and value.format of topic {topic!r} is {config.value_format}: "
            "give the rows a column value",
            topic=topic,
        )
    _refuse_ambiguous(schema, WRITTEN, names, topic)
    if not typed:
        raise InvalidRecordError(
            f"the rows have neither a column value nor one of the schema of topic {topic!r}; their columns are "
            f"{', '.join(rows.fieldNames()) or 'none'} (schema: {format_ddl(schema)})",
            topic=topic,
        )
    problem = _find_extra(schema, extra) or _find_problem(columns, [rows[number] for number in typed])
    if problem:
        raise InvalidRecordError(
            f"the rows do not fit the schema of topic {topic!r}: {problem} (schema: {format_ddl(schema)})",
            topic=topic,
        )
    row_schema = StructType([*(rows[number] for number in others), StructField(VALUE, BinaryType())])
    return TypedRows(schema, tuple(typed), tuple(others), row_schema)


def _refuse_ambiguous(fields: Sequence[SchemaField], own: Sequence[str], names: Sequence[str], topic: str) -> None:
    """Raise InvalidRecordError if one of these columns of a record could also be meant as a field of its value: its
    name is that of the field, and the rows have no column for the field."""
    for field in fields:
        name, column = field.name.lower(), value_column(field.name)
        if name in own and name in names and column.lower() not in names:
            raise InvalidRecordError(
                f"column {field.name} of the rows is the record's own {name}, and the schema of topic {topic!r} has a "
                f"field {field.name!r}, whose column is {column}: rename the column to {column}, or add a column "
                f"{column} (null for none) if it is the record's",
                topic=topic,
            )


def _find_extra(fields: Sequence[SchemaField], extra: Sequence[str]) -> str:
    """Return why columns that are not in the schema cannot be written, empty if there are none."""
    if not extra:
        return ""
    renamed = {field.name.lower(): column.name for field, column in zip(fields, value_columns(fields), strict=True)}
    if extra[0].lower() in renamed:
        return f"the field {extra[0]} is the column {renamed[extra[0].lower()]}; rename it"
    hint = did_you_mean(extra[0], list(renamed.values())) or "; leave it out, or add it to value.schema"
    return f"column {extra[0]} is not in it{hint}"


def _find_problem(fields: Sequence[SchemaField], columns: Sequence[StructField], path: str = "") -> str:
    """Return why columns do not fit the fields, empty if they do."""
    given = {column.name.lower(): column for column in columns}
    if len(given) < len(columns):
        return f"two names in {path.rstrip('.')} differ only in case"
    known = {field.name.lower() for field in fields}
    problems = [f"field {path}{column.name} is not in it" for column in columns if column.name.lower() not in known]
    for field in fields:
        column = given.get(field.name.lower())
        if column is not None:
            problems.append(_find_type_problem(field.type, column.dataType, f"{path}{field.name}"))
        elif field.required:
            problems.append(f"{path}{field.name} is NOT NULL, and the rows do not have it")
    return next(filter(None, problems), "")


def _find_type_problem(kind: SchemaType, given: DataType, path: str) -> str:
    """Return why a column's type does not fit, empty if it does."""
    if isinstance(given, NullType):
        return ""
    if kind.name == "struct" and isinstance(given, StructType):
        return _find_problem(kind.fields, given.fields, f"{path}.")
    if kind.name == "array" and isinstance(given, ArrayType) and kind.element is not None:
        return _find_type_problem(kind.element, given.elementType, f"{path}.element")
    if kind.name == "map" and isinstance(given, MapType) and kind.element is not None:
        if isinstance(given.keyType, _TEXT):
            return _find_type_problem(kind.element, given.valueType, f"{path}.value")
    elif kind.name == "decimal" and isinstance(given, DecimalType):
        if given.scale <= kind.scale and given.precision - given.scale <= kind.precision - kind.scale:
            return ""
    elif isinstance(given, _ACCEPTED.get(kind.name, ())):
        return ""
    return f"{path} is {given.simpleString()} in the rows and {kind} in the schema; cast it"
