"""Keys and values in Avro as people read them: the fields that the typed columns of their topic have, as JSON.

    part = AvroPart("value", PartSchema("avro", (schema,)), clock.monotonic)
    part.text(b"\\x02\\x02x", 3, 600, 2)      # '{\\n  "a": 1,\\n  "b": "x"\\n}'

A value is read as ``schema.values.avro_values`` does: by any version of the topic's schema, with a prefix or without.

Rules: pure but for the time. Values and schemas are hostile: a text ends at its number of
characters, since one byte of a value may stand for a field with a long name. Not for: what is shown of a value that
does not fit (``records``).
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sparklog.schema.languages.ddl import SchemaType
from sparklog.schema.languages.record_schema import AVRO, PartSchema
from sparklog.schema.values.avro_values import AvroReader
from sparklog.ui.views.record_filter import NO_DOCUMENT
from sparklog.ui.views.text import size

MAX_AVRO_BYTES = 256 * 1024
"""Bytes of a key or value that is read as Avro: as Python objects it takes up to some 300 times as much memory."""
MAX_FILTERED_BYTES = 64 * 1024
"""Bytes of a value that a filter reads as Avro."""
PAGE_SECONDS = 1.0
"""Seconds after which a page reads no more keys, or values, as Avro: small elements take some µs for each byte."""
MAX_VERSIONS = 16
"""Versions of a schema, the newest ones, by which values are read."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class UnreadableError(ValueError):
    """Why a key or value is not shown as Avro."""


class AvroPart:
    """The keys, or the values, of a topic, for one page, which has ``PAGE_SECONDS`` of ``monotonic`` from now on.

    ``problem`` says why none of them are read as Avro, empty if they are.
    """

    def __init__(self, name: str, schema: PartSchema, monotonic: Callable[[], float]) -> None:
        self.problem = ""
        self._monotonic = monotonic
        self._deadline = monotonic() + PAGE_SECONDS
        self._schemas = schema.schemas[:MAX_VERSIONS]
        self._reader: AvroReader | None = None
        if schema.format != AVRO or not self._schemas:
            self.problem = f"the topic has no Avro schema for its {name}s"
            return
        try:
            self._reader = _reader(self._schemas)
        except ModuleNotFoundError as error:
            self.problem = str(error)

    def text(self, data: bytes, whole: int, characters: int, indent: int) -> str:
        """Return the beginning of a key or value of ``whole`` bytes as JSON: one character more than asked for if
        there is more. Raises UnreadableError."""
        if self._reader is None:
            raise UnreadableError(self.problem)
        if whole > len(data) or whole > MAX_AVRO_BYTES:
            most = size(min(len(data), MAX_AVRO_BYTES))
            raise UnreadableError(f"it has {size(whole)}, and here at most {most} are read as Avro")
        if self._monotonic() > self._deadline:
            raise UnreadableError(f"reading those before it took {PAGE_SECONDS:g} s; look at the record alone")
        return _beginning(_write(_document(self._reader, data), "\n" if indent else "", indent), characters + 1)

    @property
    def documents(self) -> AvroDocuments | None:
        """What a filter reads values with, None if they are not read as Avro."""
        return None if self._reader is None else AvroDocuments(self._schemas)


@dataclass(frozen=True)
class AvroDocuments:
    """Reads values as JSON documents with decimals, by the versions of a schema. Equal if those are."""

    schemas: tuple[str, ...]

    def __call__(self, data: bytes) -> object:
        """Return the document in a value, ``NO_DOCUMENT`` if it does not fit, or is too large."""
        try:
            return NO_DOCUMENT if len(data) > MAX_FILTERED_BYTES else _document(_reader(self.schemas), data)
        except UnreadableError:
            return NO_DOCUMENT


@lru_cache(maxsize=64)
def _reader(schemas: tuple[str, ...]) -> AvroReader:
    return AvroReader(schemas)


def _document(reader: AvroReader, data: bytes) -> dict[str, Any]:
    try:
        row = reader.read(data)
    except ValueError as error:
        raise UnreadableError(f"it does not fit the schema: {error}") from error
    return {field.name: _plain(field.type, row[field.name]) for field in reader.fields}


def _plain(kind: SchemaType, value: Any) -> object:
    """Return a decoded value as JSON has it, bytes in Base64, but for decimals and NaN."""
    if value is None:
        return None
    if kind.name == "struct":
        return {field.name: _plain(field.type, value[field.name]) for field in kind.fields}
    if kind.element is not None:
        if kind.name == "map":
            return {key: _plain(kind.element, entry) for key, entry in value}
        return [_plain(kind.element, item) for item in value]
    if kind.name == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if kind.name == "timestamp":
        return (_EPOCH + timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _beginning(chunks: Iterable[str], characters: int) -> str:
    taken, count = [], 0
    for chunk in chunks:
        taken.append(chunk)
        count += len(chunk)
        if count >= characters:
            break
    return "".join(taken)[:characters]


def _write(value: object, line: str, indent: int) -> Iterator[str]:
    """Yield the JSON of a document in pieces; ``line`` begins a line at its level, empty for all on one."""
    if isinstance(value, dict):
        members = ((f"{_quoted(name)}: ", member) for name, member in value.items())
        yield from _write_all("{", members, "}", line, indent)
    elif isinstance(value, list):
        yield from _write_all("[", (("", item) for item in value), "]", line, indent)
    elif isinstance(value, Decimal):
        yield format(value, "f")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f'"{value}"'
    else:
        yield _quoted(value)


def _write_all(
    opening: str, members: Iterable[tuple[str, object]], closing: str, line: str, indent: int
) -> Iterator[str]:
    inner, separator = line and line + " " * indent, ""
    yield opening
    for name, member in members:
        yield separator + inner + name
        yield from _write(member, inner, indent)
        separator = "," if line else ", "
    yield line + closing if separator else closing


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
