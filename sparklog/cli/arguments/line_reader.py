"""Parses lines of text into records: Kafka's LineMessageReader and its properties.

    [headers DELIMITER] [key SEPARATOR] value           with parse.headers=true and parse.key=true
    k1:v1,k2:v2 TAB customer-7 TAB {"total": 12}

Bytes are preserved: a line that is not UTF-8 becomes a value with the same bytes, where Kafka's tool would replace
some. A line ends at LF or CR LF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from sparklog.cli.arguments.client_properties import known_properties
from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.arguments.process import argument_bytes
from sparklog.errors import InvalidRecordError

PROPERTIES = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
    "null.marker": "",
}

_OF_HEADERS = ("headers.delimiter", "headers.separator", "headers.key.separator")
_SEPARATORS = ("key.separator", *_OF_HEADERS)
_DIFFERENT = (*combinations(_OF_HEADERS, 2), *(("null.marker", separator) for separator in _SEPARATORS))
"""Pairs of properties that may not be equal."""


class InputLine(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class LineReader:
    """Parses lines. Stateless, hence thread-safe. Raises UsageError for properties that contradict each other."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = known_properties(properties, PROPERTIES, "line reader", "topic".__eq__)
        for first, second in _DIFFERENT:
            if settings[first] == settings[second] and settings[first]:
                raise UsageError(f"{first} and {second} may not be equal")
        for name in _SEPARATORS:
            if not settings[name]:
                raise UsageError(f"{name} may not be empty")
        self._parse_key = _is_true(settings["parse.key"])
        self._parse_headers = _is_true(settings["parse.headers"])
        self._ignore_error = _is_true(settings["ignore.error"])
        self._key_separator = argument_bytes(settings["key.separator"])
        self._delimiter = argument_bytes(settings["headers.delimiter"])
        self._headers_separator = argument_bytes(settings["headers.separator"])
        self._header_key_separator = argument_bytes(settings["headers.key.separator"])
        self._null = argument_bytes(settings["null.marker"]) if "null.marker" in properties else None

    def record(self, line: bytes, number: int) -> InputLine:
        """Parse a line without its line end. Raises InvalidRecordError, which names the line."""
        headers, rest = self._split(self._parse_headers, line, line, self._delimiter, "headers delimiter", number)
        key, value = self._split(self._parse_key, rest, line, self._key_separator, "key separator", number)
        return InputLine(
            key=self._unless_null(key),
            value=self._unless_null(value),
            headers=self._headers(headers, number) if self._unless_null(headers) is not None else (),
        )

    def _split(
        self, enabled: bool, text: bytes, line: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        """Return the text before the separator and the rest; None and all of it if not ``enabled``, or if the separator
        is missing and ignore.error is set."""
        if not enabled:
            return None, text
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignore_error:
            return None, text
        raise InvalidRecordError(f"No {what} found on line number {number}: '{line.decode('utf-8', 'replace')}'")

    def _headers(self, text: bytes | None, number: int) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for pair in (text or b"").split(self._headers_separator):
            name, found, value = pair.partition(self._header_key_separator)
            shown = pair.decode("utf-8", "replace")
            if not found and not self._ignore_error:
                raise InvalidRecordError(f"No header key separator found in pair '{shown}' on line number {number}")
            if name == self._null:
                raise InvalidRecordError(
                    f"Header keys should not be equal to the null marker '{name.decode('utf-8', 'replace')}' as they "
                    f"can't be null (line number {number})"
                )
            headers.append((name.decode("utf-8", "replace"), self._unless_null(value) if found else None))
        return headers

    def _unless_null(self, text: bytes | None) -> bytes | None:
        return None if text == self._null else text


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
