"""Reads Java's ``.properties`` files, as ``java.util.Properties.load`` does, except that they are UTF-8.

    # a comment, as is a line that begins with !
    num.partitions = 8              '=', ':' or a blank ends the name
    cleanup.policy: compact,\\
                    delete          a backslash at the end continues on the next line, whose leading blanks are ignored
    greeting = caf\\u00e9\\tfor two   \\t \\n \\r \\f \\uXXXX; a backslash before any other character is ignored

A name without a value has the empty text; if a name occurs twice, the last value wins.

Rules: an error names file and line. Not for: whether the settings exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from sparklog.errors import InvalidConfigurationError

_BLANKS = " \t\f"
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A name ends at the first '=', ':' or blank without a backslash before it; blanks around one '=' or ':' are ignored.
_NAME = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings in a file, in its order. Raises OSError, and InvalidConfigurationError with file and line if
    it is not UTF-8 or has a malformed line."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfigurationError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file in that encoding.",
            path=str(path),
            line=line,
        ) from error
    return parse_properties(text, str(path))


def trim(text: str) -> str:
    """Return a setting's text as Kafka's ``ConfigDef.parseType`` takes it: without blanks around it, which for Java's
    ``trim`` are all characters up to U+0020."""
    return text.strip(_JAVA_BLANKS)


def parse_properties(text: str, path: str = "<text>") -> dict[str, str]:
    """Return the settings in a file's text; ``path`` is for messages. Raises InvalidConfigurationError for a line
    without a name, or with a \\u that is not followed by four hexadecimal digits."""
    settings: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None, line  # the pattern also matches the empty text
        name = _unescape(match.group(1), path, number)
        if not name:
            message = f"{path}, line {number}: no name before {line[:1]!r}; write name=value."
            raise InvalidConfigurationError(message, path=path, line=number)
        settings[name] = _unescape(line[match.end() :], path, number)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined with their continuations and the number of the first, without comments and blank lines."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        if _is_continued(line):
            parts.append(line[:-1])
            continue
        joined = "".join([*parts, line])
        parts = []
        if joined:
            yield first, joined
    if "".join(parts):  # the file ends in a backslash
        yield first, "".join(parts)


def _is_continued(line: str) -> bool:
    """Return whether the line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, path: str, number: int) -> str:
    def character(match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise InvalidConfigurationError(
                f"{path}, line {number}: \\u is not followed by four hexadecimal digits (a backslash itself is written "
                "\\\\).",
                path=path,
                line=number,
            )
        return _ESCAPES.get(code, code)

    plain = _ESCAPE.sub(character, text)
    # Java writes a character beyond 16 bits as two escapes, a surrogate pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if "\\u" in text else plain
