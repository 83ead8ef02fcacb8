"""Which records a search shows: a text in the key or value, a header, or a field of the JSON or Avro in the value.

    wanted = parse_record_filter(key="k1", value="", header="trace=abc", field="order.amount > 100")
    wanted.admits_key(key) and wanted.admits_value(value) and wanted.admits_headers(headers)

Rules: pure. Bytes are compared as bytes; a text passes no comparison with a number; a value that is no JSON, or too
large or too deep, has no fields. Not for: reading Avro (``avro``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from sparklog.errors import InvalidConfigurationError

MAX_JSON_BYTES = 1024 * 1024
"""Bytes of a value that is searched, or shown, as JSON."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FIELD = re.compile(r"\s*([^=!<>\s]+)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_MAX_DIGITS = 300
"""Digits of a whole number that is compared exactly."""
NO_DOCUMENT = object()
"""Stands for what is not there: a field, or the document in a value that has none."""


class _FieldTest(NamedTuple):
    path: tuple[str, ...]
    compare: Callable[[Any, Any], bool]
    text: str
    number: int | float | None
    document: Callable[[bytes], object]

    def admits_value(self, value: bytes | None) -> bool:
        return value is not None and self.admits(self.document(value))

    def admits(self, document: object) -> bool:
        found = _find(document, self.path)
        if found is NO_DOCUMENT:
            return False
        is_number = isinstance(found, int | float | Decimal) and not isinstance(found, bool)
        if self.number is not None:
            if not is_number:
                return False  # a text or anything else is neither less nor more than a number, nor another one
            return self.compare(found, Decimal(self.text) if isinstance(found, Decimal) else self.number)
        if isinstance(found, str):
            return self.compare(found, self.text)
        # as JSON writes it; compared with a text, it has no order
        return self.compare in (operator.eq, operator.ne) and self.compare(
            msgspec.json.encode(found).decode(), self.text
        )


class RecordFilter(NamedTuple):
    """A filter of records: those that pass contain ``key`` and ``value``, have the ``header``, and pass ``field``."""

    key: bytes = b""
    value: bytes = b""
    header: tuple[str, bytes | None] | None = None
    field: _FieldTest | None = None

    @property
    def is_empty(self) -> bool:
        return self == RecordFilter()

    def admits_headers(self, headers: Sequence[tuple[str, bytes | None]]) -> bool:
        if self.header is None:
            return True
        name, text = self.header
        return any(key == name and (text is None or text in (value or b"")) for key, value in headers)

    def admits_value(self, value: bytes | None) -> bool:
        """Return whether a value passes; a value that is null contains nothing."""
        if self.value and (value is None or self.value not in value):
            return False
        return self.field is None or self.field.admits_value(value)

    def admits_key(self, key: bytes | None) -> bool:
        return not self.key or (key is not None and self.key in key)


def parse_record_filter(
    key: str, value: str, header: str, field: str, document: Callable[[bytes], object] | None = None
) -> RecordFilter:
    """Return the filter that the fields of a form state; empty ones do not matter. Raises InvalidConfigurationError.

    ``document`` returns what a value holds, ``NO_DOCUMENT`` if nothing; by default values are JSON.
    """
    name, equals, text = header.partition("=")
    return RecordFilter(
        key=key.encode("utf-8", "surrogatepass"),
        value=value.encode("utf-8", "surrogatepass"),
        header=(name.strip(), text.strip().encode() if equals else None) if header else None,
        field=_parse_field(field, document or parse_json) if field else None,
    )


def parse_json(data: bytes) -> object:
    """Return the JSON document in a value; an object that no filter finds if it is none, too large or too deep."""
    if len(data) > MAX_JSON_BYTES:
        return NO_DOCUMENT
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return NO_DOCUMENT


def _parse_field(text: str, document: Callable[[bytes], object]) -> _FieldTest:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise InvalidConfigurationError(
            "invalid field: give a path, a comparison (=, !=, <, <=, >, >=) and a value, such as order.amount > 100",
            config="field",
        )
    wanted = match[3][1:-1] if len(match[3]) > 1 and match[3][0] == match[3][-1] == '"' else match[3]
    number: int | float | None = None
    if _NUMBER.fullmatch(match[3]):
        number = int(wanted) if wanted.lstrip("+-").isdecimal() and len(wanted) < _MAX_DIGITS else float(wanted)
    return _FieldTest(tuple(match[1].removeprefix("$.").split(".")), _OPERATORS[match[2]], wanted, number, document)


def _find(document: object, path: Sequence[str]) -> object:
    for name in path:
        if isinstance(document, dict):
            document = document.get(name, NO_DOCUMENT)
        elif isinstance(document, list) and name.isdecimal() and len(name) < 10 and int(name) < len(document):
            document = document[int(name)]
        else:
            return NO_DOCUMENT
    return document
