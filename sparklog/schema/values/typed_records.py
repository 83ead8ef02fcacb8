"""Reads the typed columns of records from their keys and values, by the schema of their topic.

    reader = record_reader(TopicConfig.resolve(configs).record_schema)
    columns = reader.columns(batch.column("key"), batch.column("value"))

The one entry for all who need them: the roll, the tail of ``sparklog.table``, and the validation of new records.

Rules: pure; keys and values are untrusted. Not for: the formats (``typed_values`` for JSON, ``avro_values``), and what
a schema means (``schema.languages.record_schema``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.schema.languages.ddl import UNFIT, VALUE_KEPT, SchemaField
from sparklog.schema.languages.record_schema import AVRO, STRING, PartSchema, RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values.avro_values import AvroReader
from sparklog.schema.values.decoded_values import field_name, too_large
from sparklog.schema.values.typed_values import value_reader
from sparklog.schema.values.wire_format import is_framed, unframe


class Misfit(NamedTuple):
    """The ``part`` of a record, ``value`` or ``key``, that does not fit its schema, and the reason."""

    part: str
    reason: str


class PartReader(Protocol):
    """Reads values of one format and schema. A null value has null everywhere and fits."""

    def find_misfit(self, value: bytes | None) -> str:
        """Return why a value does not fit the schema, empty if it does."""

    def columns(self, values: pa.Array, max_bytes: int | None = None) -> Mapping[str, pa.Array]:
        """Return the columns of these values by the name of their field, and ``_unfit``.

        Raises RecordListTooLargeError if they take more than ``max_bytes``.
        """


class TypedRecordReader:
    """Reads records of one schema. Immutable, thread-safe."""

    def __init__(self, schema: RecordSchema) -> None:
        self._columns = schema.columns
        self._value, self._key = map(_part_reader, schema)
        self._says_kept = any(column.name == VALUE_KEPT for column in self._columns)
        self._names = _names(schema.value, schema.value_columns), _names(schema.key, schema.key_columns)

    def columns(self, keys: pa.Array, values: pa.Array, max_bytes: int | None = None) -> dict[str, pa.Array]:
        """Return the typed columns of records with these keys and values, by name. All of these values are kept.

        Raises RecordListTooLargeError if they take more than ``max_bytes``; ModuleNotFoundError if a package is
        missing that the format needs.
        """
        found: dict[str, pa.Array] = {}
        for reader, names, texts in zip((self._value, self._key), self._names, (values, keys), strict=True):
            if reader is None:
                continue
            rest = None if max_bytes is None else max_bytes - sum(column.nbytes for column in found.values())
            columns = reader.columns(texts, rest)
            found.update((name, columns[field]) for field, name in names.items())
        return {**found, **self._kept(len(values))}

    def unfit_columns(self, rows: int) -> dict[str, pa.Array]:
        """Return the typed columns of records of which nothing fits."""
        flags = [names[UNFIT] for names in self._names if names]
        fields = typed_fields(self._columns)
        nulls = {field.name: pa.nulls(rows, field.type) for field in fields}
        return {**nulls, **dict.fromkeys(flags, pa.array([True] * rows, pa.bool_())), **self._kept(rows)}

    def _kept(self, rows: int) -> dict[str, pa.Array]:
        """Return the column that says that values are kept, if there is one."""
        return {VALUE_KEPT: pa.repeat(pa.scalar(True), rows)} if self._says_kept else {}

    def find_misfit(self, key: bytes | None, value: bytes | None) -> Misfit | None:
        """Return what does not fit the schema, None if all does. Raises ModuleNotFoundError as ``columns``."""
        for part, reader, text in (("value", self._value, value), ("key", self._key, key)):
            reason = "" if reader is None else reader.find_misfit(text)
            if reason:
                return Misfit(part, reason)
        return None

    def find_first_misfit(self, keys: pa.Array | None, values: pa.Array) -> int:
        """Return the number of the first record of which something does not fit, -1 if all do."""
        first = -1
        for reader, texts in ((self._value, values), (self._key, keys)):
            if reader is not None and texts is not None:
                number = pc.index(reader.columns(texts)[UNFIT], True).as_py()
                first = number if first < 0 or 0 <= number < first else first
        return first


@lru_cache(maxsize=64)
def record_reader(schema: RecordSchema) -> TypedRecordReader:
    """Return the reader of a schema; the same one each time."""
    return TypedRecordReader(schema)


def _names(part: PartSchema, columns: tuple[SchemaField, ...]) -> dict[str, str]:
    """Return the names of a part's columns by those that its reader gives them."""
    fields = [field_name(field) for field in part.fields]
    names = [column.name for column in columns if column.name != VALUE_KEPT]
    return dict(zip((*fields, UNFIT), names, strict=True)) if columns else {}


def _part_reader(part: PartSchema) -> PartReader | None:
    if not part.fields:
        return None
    if part.format == STRING:
        return TextReader()
    if part.format == AVRO:
        return AvroReader(part.schemas)
    return FramedJsonReader(part.fields)


class TextReader:
    """Reads values that are text in UTF-8. Immutable, thread-safe."""

    def find_misfit(self, value: bytes | None) -> str:
        """See PartReader."""
        try:
            (value or b"").decode()
        except UnicodeDecodeError as error:
            return f"it is not text in UTF-8: {error.reason} at byte {error.start}"
        return ""

    def columns(self, values: pa.Array, max_bytes: int | None = None) -> dict[str, pa.Array]:
        """See PartReader."""
        if max_bytes is not None and values.nbytes + len(values) > max_bytes:
            raise too_large(len(values), max_bytes)
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            fitting = [None if self.find_misfit(value) else value for value in values.to_pylist()]
            texts = pa.array(fitting, pa.binary()).cast(pa.string())
        return {"string": texts, UNFIT: pc.and_(texts.is_null(), values.is_valid())}


class FramedJsonReader:
    """Reads JSON values, also those with Confluent's prefix. Immutable, thread-safe."""

    def __init__(self, schema: tuple[SchemaField, ...]) -> None:
        self._reader = value_reader(schema)

    def find_misfit(self, value: bytes | None) -> str:
        """See PartReader."""
        return self._reader.find_misfit(unframe(value) if value is not None and is_framed(value) else value)

    def columns(self, values: pa.Array, max_bytes: int | None = None) -> dict[str, pa.Array]:
        """See PartReader."""
        if pc.any(pc.starts_with(values, pattern=b"\0")).as_py():  # JSON never begins with this byte
            # Arrow's binary_slice fails if most of the values are shorter than the prefix
            texts = [unframe(text) if text and text[0] == 0 else text for text in values.to_pylist()]
            values = pa.array(texts, values.type)
        return self._reader.columns(values, max_bytes)
