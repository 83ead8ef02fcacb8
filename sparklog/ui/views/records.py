"""Records as people read them: keys, values and headers as text, JSON, Avro or hex.

    describe_bytes(b'{"a":1}', 7, "auto")     # Content(kind="JSON", text='{"a": 1}', ...)

Null, empty and tombstones (a null value with a key) are told apart.

Rules: pure. Bytes are hostile: what is shown is cut and escaped (``text.block``); JSON that is too deep is text.
Not for: decoding Avro (``avro``), files (``downloads``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sparklog.ui.views.avro import AvroPart, UnreadableError
from sparklog.ui.views.query import address
from sparklog.ui.views.record_filter import MAX_JSON_BYTES
from sparklog.ui.views.text import block, duration, number, shown, size, time

FORMATS = ("auto", "text", "json", "avro", "hex")
LIST_CHARACTERS = 600
"""Characters of a value in a list of records."""
_HEX_BYTES = 4096
_UTF8_TAIL = 3


class FoundRecord(NamedTuple):
    """A record: ``key`` and ``value`` are its first bytes, of ``key_size`` and ``value_size`` in all; null is None."""

    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    key_size: int
    value: bytes | None
    value_size: int
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int


class Content(NamedTuple):
    """A key or value: its ``kind`` (null, tombstone, empty, text, JSON, Avro, hex), its text, and what to know of it.

    ``cut`` says that only the beginning is shown, ``problem`` why it is not shown as Avro.
    """

    kind: str
    text: str
    size: str
    cut: str = ""
    problem: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether there is no text, but a word for it."""
        return self.kind in ("null", "tombstone", "empty")

    @property
    def is_long(self) -> bool:
        """Whether the text may be higher than its box, which then scrolls."""
        return len(self.text) > 400 or self.text.count("\n") > 8


class Header(NamedTuple):
    name: str
    content: Content


class AvroParts(NamedTuple):
    """How the keys and the values of a topic are read as Avro."""

    key: AvroPart
    value: AvroPart


class ShownRecord(NamedTuple):
    """A record in a list, or alone."""

    partition: int
    offset: str
    href: str
    time: str
    age: str
    time_kind: str
    key: Content
    value: Content
    headers: list[Header]
    leader_epoch: int


def show_record(
    record: FoundRecord,
    cluster: str,
    topic: str,
    form: str,
    now_ms: int,
    characters: int = LIST_CHARACTERS,
    avro: AvroParts | None = None,
) -> ShownRecord:
    """Return a record as a page shows it, its texts cut at so many characters."""
    timestamp_ms = record.timestamp_us // 1000
    indent = 0 if characters == LIST_CHARACTERS else 2
    return ShownRecord(
        partition=record.partition,
        offset=number(record.offset),
        href=address(cluster, "topics", topic, "records", record.partition, record.offset, format=form),
        time=time(timestamp_ms, exact=True),
        age=f"{duration((now_ms - timestamp_ms) // 1000)} ago" if timestamp_ms <= now_ms else "in the future",
        time_kind="time of the append" if record.timestamp_type else "time of the record",
        key=describe_bytes(record.key, record.key_size, form, characters, indent, avro and avro.key),
        value=_value(record, form, characters, indent, avro and avro.value),
        headers=[
            Header(shown(name, 200), describe_bytes(value, len(value or b""), form, 200))
            for name, value in record.headers
        ],
        leader_epoch=record.leader_epoch,
    )


def _value(record: FoundRecord, form: str, characters: int, indent: int, avro: AvroPart | None) -> Content:
    if record.value is None and record.key is not None:
        return Content("tombstone", "tombstone: a null value, which deletes its key from a compacted topic", "")
    return describe_bytes(record.value, record.value_size, form, characters, indent, avro)


def describe_bytes(
    data: bytes | None,
    whole: int,
    form: str,
    characters: int = LIST_CHARACTERS,
    indent: int = 0,
    avro: AvroPart | None = None,
) -> Content:
    """Return the beginning of a key or value of ``whole`` bytes in one of ``FORMATS``, of which ``auto`` chooses.

    ``auto`` is Avro for what has an Avro schema (``avro``); what does not fit it is hex, with the reason. JSON is on
    one line if ``indent`` is 0.
    """
    if data is None:
        return Content("null", "null", "")
    if not data:
        return Content("empty", "empty: 0 bytes", "0 B")
    if avro is not None and (form == "avro" or (form == "auto" and not avro.problem)):
        return _describe_avro(data, whole, characters, indent, avro)
    total, form = size(whole), "auto" if form == "avro" else form
    if form in ("auto", "json"):
        pretty = _pretty(data, indent) if len(data) == whole else None
        if pretty is not None:
            return _cut("JSON", pretty, total, characters)
    if form != "hex":
        text = _decode(data, is_whole=len(data) == whole, strictly=form == "auto")
        if text is not None:
            return _cut("text", text, total, characters, was_cut=len(data) < whole)
    rows = _hex_rows(data[: min(_HEX_BYTES, characters)])
    return _cut("hex", "\n".join(rows), total, 16 * characters, was_cut=min(_HEX_BYTES, characters) < whole)


def _describe_avro(data: bytes, whole: int, characters: int, indent: int, avro: AvroPart) -> Content:
    try:
        return _cut("Avro", avro.text(data, whole, characters, indent), size(whole), characters)
    except UnreadableError as error:
        other = describe_bytes(data, whole, "auto" if avro.problem else "hex", characters, indent)
        return other._replace(problem=f"not shown as Avro: {shown(error)}")


def _cut(kind: str, text: str, total: str, characters: int, was_cut: bool = False) -> Content:
    if len(text) > characters:
        text, was_cut = text[:characters], True
    escaped = block(text) if kind in ("text", "hex") else _escape_json(text)
    return Content(kind, escaped, total, f"the beginning of {total}" if was_cut else "")


def _escape_json(text: str) -> str:
    """Return JSON with what does not print, which is only in its strings, escaped as JSON does."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _pretty(data: bytes, indent: int) -> str | None:
    """Return a JSON object or array with this indent, None if it is none, or too large or too deep."""
    if len(data) > MAX_JSON_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return msgspec.json.format(data, indent=indent).decode()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _decode(data: bytes, is_whole: bool, strictly: bool) -> str | None:
    """Return bytes as UTF-8; ``strictly`` None if they are none, or mostly control characters."""
    try:
        return _mostly_readable(data.decode()) if strictly else data.decode()
    except UnicodeDecodeError as error:
        if not is_whole and error.start >= len(data) - _UTF8_TAIL:  # cut within a character
            return data[: error.start].decode()
        return None if strictly else data.decode("utf-8", "backslashreplace")


def _mostly_readable(text: str) -> str | None:
    sample = text[:1000]
    odd = sum(not character.isprintable() and character not in "\n\t\r" for character in sample)
    return text if odd * 4 <= len(sample) else None


def _hex_rows(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {letters}"
