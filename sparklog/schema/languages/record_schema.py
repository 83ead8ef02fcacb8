"""How a topic's keys and values are read into typed columns: their format and the versions of their schema.

    RecordSchema(PartSchema("json", ("customer string, amount double",)), PartSchema("string")).columns
    # customer, amount, _unfit, key_string, _key_unfit

The columns are those of the value, ``_unfit``, ``_value_kept`` if values are elided from history, those of the key,
with ``key_`` before their names, and ``_key_unfit``. A topic without a format for one of them has no columns of it. A
text of the format ``string`` is in ``value_string`` or ``key_string``. A field of the value with the name of another
column, such as ``timestamp``, is in ``value_timestamp``.

Rules: the standard library only; picklable. Not for: reading records (``schema.values.typed_records``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sparklog.schema.languages.avro_schema import AvroType, find_misreading, is_avro, parse_avro
from sparklog.schema.languages.ddl import (
    KEY_UNFIT,
    UNFIT,
    VALUE_KEPT,
    VALUE_PREFIX,
    InvalidSchemaError,
    SchemaField,
    SchemaType,
    format_ddl,
    parse_ddl,
    value_columns,
)
from sparklog.schema.languages.json_schema import parse_json_schema
from sparklog.schema.languages.schema_json import MAX_SCHEMA_CHARACTERS, format_json, is_json, parse_json

UNTYPED, STRING, JSON, AVRO = "none", "string", "json", "avro"
FORMATS = (UNTYPED, STRING, JSON, AVRO)

DDL, JSON_SCHEMA, AVRO_SCHEMA = "DDL", "a JSON Schema", "an Avro schema"
LANGUAGES = {JSON: (DDL, JSON_SCHEMA), AVRO: (AVRO_SCHEMA,)}
"""The languages in which the schema of a format can be stated."""

KEY_PREFIX = "key_"


class ParsedSchema(NamedTuple):
    """A schema: its canonical ``text``, the language that it is in, and its fields. ``avro`` is the record."""

    text: str
    language: str
    fields: tuple[SchemaField, ...]
    avro: AvroType | None = None


@lru_cache(maxsize=256)
def parse_schema(text: str) -> ParsedSchema:
    """Return what a schema in any of the languages states. Raises InvalidSchemaError."""
    text = text.removeprefix("\ufeff")  # the mark of a file that an editor wrote
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise InvalidSchemaError(f"it has {len(text):,} characters, and may have {MAX_SCHEMA_CHARACTERS:,}")
    if not is_json(text):
        fields = parse_ddl(text)
        return ParsedSchema(format_ddl(fields), DDL, fields)
    schema = parse_json(text)
    canonical = format_json(schema)
    if is_avro(schema):
        avro = parse_avro(schema)
        return ParsedSchema(canonical, AVRO_SCHEMA, avro.kind.fields, avro)
    return ParsedSchema(canonical, JSON_SCHEMA, parse_json_schema(schema))


class PartSchema(NamedTuple):
    """How the values, or the keys, of a topic are read. ``schemas`` are the texts of their schema, the newest first:
    values in Avro can only be read with the one by which they were written. ``kept``: history has the bytes of each
    value, also of those that its typed columns state."""

    format: str = UNTYPED
    schemas: tuple[str, ...] = ()
    kept: bool = True

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """The fields that are read, none if there are no typed columns."""
        if self.format == STRING:
            return (SchemaField("string", SchemaType("string")),)
        return parse_schema(self.schemas[0]).fields if self.schemas and self.format != UNTYPED else ()


class RecordSchema(NamedTuple):
    """How the records of a topic are read."""

    value: PartSchema = PartSchema()
    key: PartSchema = PartSchema()

    def with_earlier(self, value: Sequence[str] = (), key: Sequence[str] = ()) -> RecordSchema:
        """Return the same with the earlier versions of its schemas, the newest first, for formats that need them: a
        record in Avro is written by the schema that its producer knew."""
        return RecordSchema(_with_earlier(self.value, value), _with_earlier(self.key, key))

    @property
    def columns(self) -> tuple[SchemaField, ...]:
        """The typed columns, in the order of a file."""
        return (*self.value_columns, *self.key_columns)

    @property
    def value_columns(self) -> tuple[SchemaField, ...]:
        """The typed columns of values, then ``_unfit``, and ``_value_kept`` if values are elided."""
        fields = self.value.fields
        fields = _prefixed(VALUE_PREFIX, fields) if self.value.format == STRING else value_columns(fields)
        columns = _flagged(fields, UNFIT)
        return columns if self.value.kept else _flagged(columns, VALUE_KEPT)

    @property
    def key_columns(self) -> tuple[SchemaField, ...]:
        """The typed columns of keys, ``_key_unfit`` the last."""
        return _flagged(_prefixed(KEY_PREFIX, self.key.fields), KEY_UNFIT)


def _with_earlier(part: PartSchema, texts: Sequence[str]) -> PartSchema:
    if part.format != AVRO or not part.schemas:
        return part
    of_avro = (text for text in texts if parse_schema(text).language == AVRO_SCHEMA)
    return part._replace(schemas=tuple(dict.fromkeys((part.schemas[0], *of_avro))))


def _prefixed(prefix: str, fields: tuple[SchemaField, ...]) -> tuple[SchemaField, ...]:
    return tuple(SchemaField(prefix + field.name, field.type, field.required) for field in fields)


def _flagged(fields: tuple[SchemaField, ...], flag: str) -> tuple[SchemaField, ...]:
    return (*fields, SchemaField(flag, SchemaType("boolean"))) if fields else ()


def find_contradiction(part: str, chosen: PartSchema) -> str:
    """Return why a format and a schema of the ``value`` or ``key`` do not go together, empty if they do."""
    schema = chosen.schemas[0] if chosen.schemas else ""
    if not schema:
        return ""
    if chosen.format == UNTYPED:
        return f"{part}.schema is set and {part}.format is none: set {part}.format=json, so that {part}s are read."
    if chosen.format == STRING:
        return f"{part}.schema is set and {part}.format is string: texts have no schema; delete {part}.schema."
    language, taken = parse_schema(schema).language, LANGUAGES[chosen.format]
    if language not in taken:
        return f"{part}.schema is {language}, but {part}.format={chosen.format} takes {' or '.join(taken)}."
    return ""


def find_part_misreading(before: PartSchema, after: PartSchema) -> str:
    """Return why values that are written could be read as other values after a change of their schema, empty if not."""
    if not before.fields or not after.fields or {before.format, after.format} != {AVRO}:
        return ""
    old, new = (parse_schema(part.schemas[0]).avro for part in (before, after))
    return "" if old is None or new is None else find_misreading(old, new)


class Clash(NamedTuple):
    """A column of the ``value`` or ``key`` that cannot have its name, and why."""

    part: str
    reason: str


def find_clash(schema: RecordSchema) -> Clash | None:
    """Return the first column of a topic's table that cannot have its name, None if all can."""
    taken: dict[str, str] = {}
    for field, column in zip(schema.value.fields, schema.value_columns, strict=False):
        name = column.name.lower()
        if name in taken:
            return Clash("value", f"the field {field.name!r} of the value and {taken[name]} are both {column.name!r}")
        taken[name] = f"the field {field.name!r} of the value"
    for field in schema.key_columns[:-1]:
        if field.name.lower() in taken:
            return Clash("key", f"the column {field.name!r} of the key has the name of {taken[field.name.lower()]}")
    return None
