"""Reads the typed columns of records from values in Avro's binary encoding.

    columns = AvroReader([schema]).columns(batch.column("value"))

A value is a record as it is, a single object (``C3 01`` and the fingerprint of its schema), or has Confluent's prefix
(``wire_format``). A single object is read by the schema of its fingerprint; others by the topic's schemas, the newest
first. A value fits if a schema reads it to its last byte: after the prefix, if it begins with one, else from its first
byte. Fields that the schema of a value does not have take their default, or null.

fastavro decodes. What it is given is no more than an encoding: columns of logical types, enums and decimals are made
here. A value is refused before it is decoded if its lists could take more than ``MAX_OBJECT_BYTES`` as Python objects,
by the least that their elements take in the encoding.

Rules: pure; values are untrusted. Not for: schemas (``schema.languages.avro_schema``), and JSON (``typed_values``).
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.schema.languages.avro_schema import ABSENT, AvroField, AvroType
from sparklog.schema.languages.ddl import UNFIT, SchemaField, find_breaking_change
from sparklog.schema.languages.record_schema import parse_schema
from sparklog.schema.languages.schema_json import parse_json
from sparklog.schema.typed_columns import arrow_type, bytes_per_record
from sparklog.schema.values.decoded_values import (
    INEXACT,
    MAX_ELEMENT_BYTES,
    MAX_VALUE_BYTES,
    Plain,
    apply_plain,
    check_element_bytes,
    field_name,
    make_columns,
    make_measure,
    plain_elements,
    too_large,
)
from sparklog.schema.values.wire_format import FINGERPRINT_END, fingerprint_of, has_likely_id, is_framed, unframe

MAX_OBJECT_BYTES = 256 * 1024 * 1024
"""Size in bytes that decoded values can have as Python objects at a time."""

READ_BYTES = 256 * 1024
"""Bytes of values that are held as Python objects at a time, about: of many, Python's garbage collection takes longer
than reading them."""

_UNREADABLE = (EOFError, LookupError, ValueError, ArithmeticError, TypeError, struct.error, RecursionError)

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days 0001-01-01 and 9999-12-31 since 1970."""

_DAY_US = 86_400_000_000
_FIRST_US, _LAST_US = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1

_EXACT = decimal.Context(prec=38, traps=[decimal.Inexact, decimal.InvalidOperation])


class AvroReader:
    """Reads values of a topic with these schemas, the newest first. Immutable, thread-safe."""

    def __init__(self, schemas: Sequence[str]) -> None:
        newest = _parse(schemas[0])
        self._fields = newest.kind.fields
        self._types = [arrow_type(field.type) for field in self._fields]
        rows = MAX_ELEMENT_BYTES // bytes_per_record(self._fields), MAX_OBJECT_BYTES // _least(newest)[0]
        self._most_rows = max(1, min(rows))
        self._measure = make_measure(newest.kind, _take_field, _take_values)
        earlier = [parsed for parsed in map(parse_schema, schemas) if parsed.avro is not None]  # others had no values
        readable = [parsed.text for parsed in earlier if not find_breaking_change(parsed.fields, self._fields)]
        self._writers = [_Writer(text, newest) for text in dict.fromkeys(readable)]
        self._by_fingerprint = {writer.fingerprint: writer for writer in reversed(self._writers) if writer.fingerprint}
        self._read_bytes = min(READ_BYTES, *(writer.most_bytes for writer in self._writers))

    def find_misfit(self, value: bytes | None) -> str:
        """Return why a value does not fit the schema, empty if it does."""
        if value is None:
            return ""
        try:
            self.read(value)
        except ValueError as error:
            return str(error)
        return ""

    def read(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value as Arrow takes them, maps as lists of their entries; it may have more fields
        than the newest schema. Raises ValueError with the reason if it does not fit."""
        try:
            row: dict[str, Any] = self._read(value)
            self._arrays([row])
        except _UNREADABLE as error:
            raise ValueError(str(error) or type(error).__name__) from error
        return row

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """The fields of the newest schema."""
        return self._fields

    def columns(self, values: pa.Array, max_bytes: int | None = None) -> dict[str, pa.Array]:
        """Return the typed columns of records with these values, by name.

        Raises RecordListTooLargeError if they take more than ``max_bytes``.
        """
        arrays: list[list[pa.Array]] = []
        unfit: list[bool] = []
        size = len(values)
        for rows, is_unfit in self._chunks(values):
            arrays.append(make_columns(self._arrays, rows, is_unfit))
            unfit += is_unfit
            size += sum(array.nbytes for array in arrays[-1])
            if max_bytes is not None and size > max_bytes:
                raise too_large(len(values), max_bytes)
        joined = [pa.concat_arrays(column) for column in zip(*arrays, strict=True)]
        columns = {field_name(field): array for field, array in zip(self._fields, joined, strict=True)}
        return {**columns, UNFIT: pa.array(unfit, pa.bool_())}

    def _chunks(self, values: pa.Array) -> Iterator[tuple[list[Any], list[bool]]]:
        """Yield decoded values, None for one that is null or does not fit, and which do not fit; as many at a time as
        may be held."""
        rows: list[Any] = []
        unfit: list[bool] = []
        read = size = 0
        for scalar in values:
            value = scalar.as_py()
            row = self._read_or_none(value)
            rows.append(row)
            unfit.append(row is None and value is not None)
            read += len(value or b"")
            size += 0 if row is None or self._measure is None else self._measure(row)
            if read > self._read_bytes or size > MAX_ELEMENT_BYTES or len(rows) >= self._most_rows:
                yield rows, unfit
                rows, unfit, read, size = [], [], 0, 0
        yield rows, unfit

    def _read_or_none(self, value: bytes | None) -> Any:
        try:
            return None if value is None else self._read(value)
        except _UNREADABLE:
            return None

    def _read(self, value: bytes) -> Any:
        """Return a value decoded by the first schema that it fits. Raises ValueError with the reason of the newest."""
        if len(value) > MAX_VALUE_BYTES:
            raise ValueError(f"it has {len(value):,} bytes, and typed values at most {MAX_VALUE_BYTES:,}")
        failure: Exception | None = None
        for writer, encoded in self._candidates(value):
            try:
                row = writer.read(encoded)
                check_element_bytes(0 if self._measure is None else self._measure(row))
                return row
            except _UNREADABLE as error:
                failure = failure or error
        raise failure or ValueError("it is empty")

    def _candidates(self, value: bytes) -> Iterator[tuple[_Writer, bytes]]:
        """Yield the ways in which a value may be read."""
        own = self._by_fingerprint.get(fingerprint_of(value))
        if own is not None:
            yield own, value[FINGERPRINT_END:]
        ways = [value]
        if is_framed(value):
            ways = [unframe(value), value] if has_likely_id(value) else [value, unframe(value)]
        yield from ((writer, encoded) for encoded in ways for writer in self._writers)

    def _arrays(self, rows: Sequence[Any]) -> list[pa.Array]:
        arrays = []
        for field, kind in zip(self._fields, self._types, strict=True):
            try:
                arrays.append(pa.array([None if row is None else row[field.name] for row in rows], kind))
            except INEXACT as error:
                raise ValueError(f"{error} - at `$.{field.name}`") from error
        return arrays


class _UndecodableError(ValueError):
    """A value that a schema does not read; the message says where, and takes its time."""

    def __init__(self, writer: _Writer, encoded: bytes) -> None:
        super().__init__(writer, encoded)

    def __str__(self) -> str:
        writer, encoded = self.args
        return str(writer.explain(encoded))


class _Writer:
    """Reads values that were written by one schema into the fields of the ``newest``. Immutable, thread-safe."""

    def __init__(self, schema: str, newest: AvroType) -> None:
        try:
            from fastavro import parse_schema as parse_encoding  # an optional package
            from fastavro import schemaless_reader
        except ImportError as error:
            raise ModuleNotFoundError(
                f"reading values in Avro needs fastavro, and this Python has none ({error}): "
                "pip install 'sparklog[avro]'",
                name="fastavro",
            ) from error
        record = _parse(schema)
        self.fingerprint = _fingerprint(schema)
        names = iter(range(10**9))
        fields = [(field.name, parse_encoding(_encoding(field.type, names))) for field in record.fields]
        self._schemas = fields
        self._schema = parse_encoding(_encoding(record, names))
        self._decode = schemaless_reader
        self._plain = _plain(record, newest)
        self.most_bytes = MAX_OBJECT_BYTES // _object_bytes(newest, record.kind == newest.kind)

    def read(self, encoded: bytes) -> Any:
        """Return the fields of a value. Raises ValueError; the message has the field."""
        if len(encoded) > self.most_bytes:
            raise ValueError(
                f"it has {len(encoded):,} bytes, and values of this schema at most {self.most_bytes:,}: its lists "
                "could take too much memory"
            )
        source = BytesIO(encoded)
        try:
            row = self._decode(source, self._schema)
        except _UNREADABLE as error:
            raise _UndecodableError(self, encoded) from error
        if source.tell() != len(encoded):
            raise ValueError(f"{len(encoded) - source.tell()} bytes follow its last field")
        return row if self._plain is None else self._plain(row)

    def explain(self, encoded: bytes) -> str:
        """Return which field of a value cannot be read, and why."""
        source = BytesIO(encoded)
        for name, schema in self._schemas:
            at = source.tell()
            try:
                self._decode(source, schema)
            except _UNREADABLE as error:
                reason = str(error) or ("the bytes end" if isinstance(error, EOFError) else type(error).__name__)
                return f"no value of its type at byte {at} ({reason}) - at `$.{name}`"
        return "it cannot be decoded"


def _fingerprint(schema: str) -> bytes:
    """Return the CRC-64-AVRO of a schema, little endian; empty for one that fastavro does not take."""
    from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form

    try:
        return bytes.fromhex(fingerprint(to_parsing_canonical_form(parse_json(schema)), "CRC-64-AVRO"))
    except (SchemaParseException, UnknownType, LookupError, TypeError, ValueError):
        return b""


def _parse(schema: str) -> AvroType:
    record = parse_schema(schema).avro
    assert record is not None, "the configs of a topic are checked together"
    return record


def _encoding(kind: AvroType, names: Iterator[int]) -> Any:
    """Return the schema of an encoding in Avro: types written out, under names of their own, and no logical types."""
    if kind.name == "record":
        fields = [{"name": field.name, "type": _encoding(field.type, names)} for field in kind.fields]
        found: Any = {"type": "record", "name": f"r{next(names)}", "fields": fields}
    elif kind.element is not None:
        key = "items" if kind.name == "array" else "values"
        found = {"type": kind.name, key: _encoding(kind.element, names)}
    elif kind.name == "fixed":
        found = {"type": "fixed", "name": f"f{next(names)}", "size": kind.size}
    else:
        found = "int" if kind.name == "enum" else kind.name
    if not kind.branches:
        return found
    return [found] if kind.null_at < 0 else [found, "null"] if kind.null_at else ["null", found]


# -- decoded values


class _Member(NamedTuple):
    """A field of a record in which something has to be done: made plain, or filled in."""

    name: str
    plain: Plain | None
    is_written: bool
    default: Any


def _plain(written: AvroType, wanted: AvroType) -> Plain | None:
    """Return what makes values of a type those of another, as Arrow takes them; None if they are."""
    if wanted.name == "record" and written.name == "record":
        return _plain_record(written, wanted)
    if wanted.element is not None and written.element is not None:
        return plain_elements(written.name, _plain(written.element, wanted.element))
    return _plain_primitive(written)


def _plain_record(written: AvroType, wanted: AvroType) -> Plain | None:
    types = {field.name: field.type for field in written.fields}
    members = []
    for field in wanted.fields:
        plain = _plain(types[field.name], field.type) if field.name in types else None
        if plain is not None or field.name not in types:
            default = ABSENT if field.name in types else _default(field)
            members.append(_Member(field.name, plain, field.name in types, default))
    if not members:
        return None

    def plain_record(row: dict[str, Any]) -> dict[str, Any]:
        for name, plain, is_written, default in members:
            if is_written:
                row[name] = apply_plain(plain, row[name])
            elif default is ABSENT:
                raise ValueError(f"its schema does not have the field, which has no default - at `$.{name}`")
            else:
                row[name] = default
        return row

    return plain_record


def _plain_primitive(kind: AvroType) -> Plain | None:
    if kind.name == "enum":
        return lambda number: kind.symbols[_within(number, 0, len(kind.symbols) - 1)]
    if kind.logical == "date":
        return lambda days: _within(days, _FIRST_DAY, _LAST_DAY)
    if kind.logical.startswith("timestamp"):
        unit = 1000 if kind.logical == "timestamp-millis" else 1
        return lambda time: _within(time * unit, _FIRST_US, _LAST_US)
    if kind.logical == "decimal":
        most = 10**kind.kind.precision - 1
        scale = kind.kind.scale

        def plain_decimal(stored: bytes) -> decimal.Decimal:
            unscaled = _within(int.from_bytes(stored, "big", signed=True), -most, most)
            return _EXACT.scaleb(decimal.Decimal(unscaled), -scale)

        return plain_decimal
    return _format_uuid if kind.logical == "uuid" and kind.name == "fixed" else None


def _within(number: int, least: int, most: int) -> int:
    """Return the number. Raises ValueError if it is out of range."""
    if not least <= number <= most:
        raise ValueError(f"a number is out of the range of its type, {least} to {most}")
    return number


def _format_uuid(stored: bytes) -> str:
    digits = stored.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _default(field: AvroField) -> Any:
    """Return the default of a field as Arrow takes it; null without one where that is allowed, else ABSENT."""
    if field.default is ABSENT:
        return None if field.type.null_at >= 0 else ABSENT
    return _plain_default(field.type, field.default)


def _plain_default(kind: AvroType, default: Any) -> Any:
    """Return a default, which is JSON; ABSENT if it is not of its type."""
    if default is None:
        return None if kind.null_at >= 0 else ABSENT
    try:
        if kind.name == "record":
            values = {field.name: default.get(field.name, field.default) for field in kind.fields}
            members = {field.name: _plain_default(field.type, values[field.name]) for field in kind.fields}
            return ABSENT if ABSENT in members.values() else members
        if kind.element is not None:
            items = default.values() if kind.name == "map" else default
            plain_items = [_plain_default(kind.element, item) for item in items]
            if ABSENT in plain_items:
                return ABSENT
            return list(zip(default, plain_items, strict=True)) if kind.name == "map" else plain_items
        if kind.name == "enum":
            return default if default in kind.symbols else ABSENT
        stored = default.encode("latin-1") if kind.name in ("bytes", "fixed") else default
        plain = apply_plain(_plain_primitive(kind), stored)
        pa.array([plain], arrow_type(kind.kind))
    except (AttributeError, *INEXACT):
        return ABSENT
    return plain


# -- memory


def _take_field(_: int, field: SchemaField) -> Callable[[Any], Any]:
    return itemgetter(field.name)


def _take_values(entries: Sequence[tuple[str, Any]]) -> Iterator[Any]:
    """Return the values of a plain map."""
    return (value for _, value in entries)


_TEXT_BYTES, _LEAF_BYTES, _DECIMAL_BYTES, _LIST_BYTES, _MAP_BYTES, _ENTRY_BYTES = 4, 40, 144, 80, 136, 160
"""Bytes that a byte of a text takes as a Python object, a number or a short text, a decimal with its encoding, a list,
a map with its list of entries, and an entry of it."""


def _object_bytes(kind: AvroType, is_same: bool, repeated: bool = False) -> int:
    """Return how many bytes a value takes as Python objects at most, for each byte of its encoding, besides its record.

    ``is_same``: the encoding is of this type; else it may have fewer fields. ``repeated``: it is inside a list.
    """
    own = _TEXT_BYTES
    if repeated and kind.null_at >= 0:  # besides its branch of the union, which null has too
        objects, encoded = _least(replace(kind, branches=0, null_at=-1))
        own = -(-objects // (encoded if is_same else 1))
    if kind.element is None:
        return max((own, *(_object_bytes(field.type, is_same, repeated) for field in kind.fields)))
    objects, encoded = _least(kind.element)
    if kind.name == "array":
        objects += 8
    else:  # a key has two bytes: one without is there only once
        objects, encoded = objects + _ENTRY_BYTES, encoded + 2
    own = max(own, -(-objects // (encoded if is_same else 1)))
    return max(_LEAF_BYTES, own, _object_bytes(kind.element, is_same, True))


def _least(kind: AvroType) -> tuple[int, int]:
    """Return how many bytes the shortest value of a type takes as Python objects, and encoded."""
    if kind.null_at >= 0:
        return 0, 1
    union = 1 if kind.branches else 0
    if kind.name == "record":
        parts = [_least(field.type) for field in kind.fields]
        objects = 240 + 40 * len(parts) + sum(part[0] for part in parts)
        return objects, union + sum(part[1] for part in parts)
    encoded = {"float": 4, "double": 8, "fixed": kind.size}.get(kind.name, 1)
    objects = {"array": _LIST_BYTES, "map": _MAP_BYTES}.get(kind.name, _LEAF_BYTES)
    return _DECIMAL_BYTES if kind.logical == "decimal" else objects, union + encoded
