"""Java's .properties files: the form of Kafka's and sparklog's configuration files.

Lines are ``name = value``, ``name: value`` or ``name value``; ``#`` and ``!`` start a comment line; a backslash at the end
of a line joins it to the next one, and escapes a character elsewhere (``\\t``, ``\\n``, ``\\u00e9``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sparklog.errors import InvalidConfigurationError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a file; the last of a repeated name counts, as in Java.

    Raises InvalidConfigurationError with file and line for an escape that is none, OSError where it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        return parse_properties(file, str(path))


def parse_properties(lines: Iterable[str], where: str) -> dict[str, str]:
    """The settings of these lines; ``where`` names them in errors."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(lines):
        name, value = _split(line)
        found[_unescape(name, where, number)] = _unescape(value, where, number)
    return found


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, each with the number of its first, without comments and blanks."""
    start, gathered = 0, ""
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n").lstrip(_SPACE)
        if not gathered and (not line or line[0] in "#!"):
            continue
        start = start if gathered else number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            gathered += line[:-1]
            continue
        yield start, gathered + line
        gathered = ""
    if gathered:
        yield start, gathered


def _split(line: str) -> tuple[str, str]:
    """Name and value, still escaped: the name ends at the first unescaped ``=``, ``:`` or white space."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return line[:end], rest


def _unescape(text: str, where: str, number: int) -> str:
    found, at = [], 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\":
            found.append(character)
        elif text[at : at + 1] == "u":
            digits = text[at + 1 : at + 5]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise InvalidConfigurationError(
                    f"{where}, line {number}: \\u must be followed by four hexadecimal digits", path=where
                )
            found.append(chr(int(digits, 16)))
            at += 5
        else:
            found.append(_ESCAPES.get(text[at : at + 1], text[at : at + 1]))
            at += 1
    return "".join(found)
