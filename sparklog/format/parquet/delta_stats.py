"""Statistics of a history segment, as the Delta protocol states them of a file (its section "Per-file Statistics").

    {"numRecords":3,"minValues":{"offset":0,"timestamp":"2026-11-01T09:30:00.000Z"},"maxValues":{…},
     "nullCount":{"offset":0,"timestamp":0,"key":1,"value":0}}

Bounds are exact, except those of texts of more than ``MAX_TEXT`` characters, and of NaN and infinity: engines answer a
query for the smallest offset from them, without reading the file.

Every typed column that can have bounds has them, unless all its values are null: delta-rs takes a bound that is missing
for one that no value fits, and skips the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from math import isnan
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format.column_bounds import ALL_NULL, ColumnBounds
from sparklog.limits import STATED_COLUMNS
from sparklog.schema.typed_columns import FLOAT32_MAX

MAX_TEXT = 32
"""Characters up to which a text is kept as a bound, as by Delta; a longer one is cut."""

LARGEST = {32: FLOAT32_MAX, 64: sys.float_info.max}
"""The largest numbers of 32 and of 64 bits: the bound that is stated for infinity, and for NaN, which Spark takes for
larger than any number."""

_LAST = "\U0010ffff"
"""The last character: a text that is cut, with this appended, is larger than the text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class TypedStats(NamedTuple):
    """Statistics of the typed columns: smallest and largest values, and numbers of nulls, by column."""

    smallest: Mapping[str, object] = {}
    largest: Mapping[str, object] = {}
    null_counts: Mapping[str, int] = {}


def encode_stats(
    records: int,
    offsets: tuple[int, int],
    timestamps_us: tuple[int, int],
    null_counts: Mapping[str, int],
    typed: TypedStats = TypedStats(),  # noqa: B008
) -> str:
    """Return the statistics as JSON. ``offsets`` and ``timestamps_us`` are the smallest and the largest value."""
    bounds = [{"offset": offset, **_time(time_us)} for offset, time_us in zip(offsets, timestamps_us, strict=True)]
    if any(len(bound) < 2 for bound in bounds):  # a bound alone could be misread
        bounds = [{"offset": offset} for offset in offsets]
    stats = {
        "numRecords": records,
        "minValues": {**bounds[0], **typed.smallest},
        "maxValues": {**bounds[1], **typed.largest},
        "nullCount": {"offset": 0, "timestamp": 0, **null_counts, **typed.null_counts},
    }
    return msgspec.json.encode(stats).decode()


class FileStats(msgspec.Struct, frozen=True, rename="camel"):
    """The statistics of a file. Immutable."""

    num_records: int
    null_count: dict[str, int]
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}

    def nulls(self, column: str) -> int | None:
        """Return the number of nulls in a typed column that is not nested; None if unknown. A column that the file does
        not have is null in all its records."""
        if column in self.null_count or self.may_have_more:
            return self.null_count.get(column)
        return self.num_records

    def bounds(self, column: str, kind: type) -> tuple[Any, Any] | None:
        """Return values of this type of which none in the file is smaller, or larger; None if they are not known."""
        try:
            bounds: list[Any] = [
                msgspec.json.decode(each[column], type=kind) for each in (self.min_values, self.max_values)
            ]
        except (KeyError, msgspec.MsgspecError):
            return None
        if (kind is float and any(map(_may_be_infinite, bounds))) or (kind is str and _may_be_exceeded(bounds[1])):
            return None
        return bounds[0], bounds[1]

    @property
    def may_have_more(self) -> bool:
        """Whether the file may have typed columns without statistics."""
        return len(self.null_count.keys() - {"offset", "timestamp", "key", "value"}) >= STATED_COLUMNS


def decode_stats(stats: str) -> FileStats | None:
    """Return the statistics of a file; None if they cannot be read."""
    try:
        return msgspec.json.decode(stats, type=FileStats)
    except (msgspec.MsgspecError, RecursionError):
        return None


def complete_stats(stats: str, columns: Sequence[str]) -> str:
    """Return the statistics of a file for a table that has these typed columns, without lists, maps and structs.

    Those that the file does not have are null in all its records. If that is not stated, delta-rs skips the file when
    it is asked for nulls. A file with statistics of ``STATED_COLUMNS`` may have more columns, and stays as it is.
    """
    stated = decode_stats(stats)
    absent = [] if stated is None else [name for name in columns[:STATED_COLUMNS] if name not in stated.null_count]
    if stated is None or not absent or stated.may_have_more:
        return stats
    parts = msgspec.json.decode(stats, type=dict[str, msgspec.Raw])
    counts = {**stated.null_count, **dict.fromkeys(absent, stated.num_records)}
    return msgspec.json.encode({**parts, "nullCount": counts}).decode()


class TypedBounds:
    """Gathers the statistics of the typed columns of a file, batch by batch. Not thread-safe."""

    def __init__(self) -> None:
        self._bounds: dict[str, tuple[object, object]] = {}
        self._null_counts: dict[str, int] = {}
        self._unstated: set[str] = set()

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Take the columns of a batch, in the order of the file."""
        flat = [name for name, column in columns.items() if not pa.types.is_nested(column.type)]
        for name in flat[:STATED_COLUMNS]:
            column = columns[name]
            self._null_counts[name] = self._null_counts.get(name, 0) + column.null_count
            if column.null_count == len(column):
                continue
            bounds = _bounds(column)
            if bounds is None:
                self._unstated.add(name)
                continue
            known = self._bounds.get(name, bounds)
            self._bounds[name] = min(known[0], bounds[0]), max(known[1], bounds[1])  # type: ignore[call-overload]

    @property
    def stats(self) -> TypedStats:
        """The statistics of all batches."""
        found = {
            name: (_stated(bounds[0]), _stated(bounds[1]))
            for name, bounds in self._bounds.items()
            if name not in self._unstated
        }
        found = {name: bounds for name, bounds in found.items() if None not in bounds}
        smallest, largest = ({name: bounds[at] for name, bounds in found.items()} for at in (0, 1))
        return TypedStats(smallest, largest, dict(self._null_counts))


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, str),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_date, date),
)
"""The types of bounds, by those of columns."""


def decode_bounds(stats: str, columns: Sequence[pa.Field]) -> dict[str, ColumnBounds]:
    """Return what the statistics of a file state of these typed columns, by name, as far as they do."""
    stated = decode_stats(stats)
    if stated is None:
        return {}
    found = {column.name: _decode_column(stated, column) for column in columns if not pa.types.is_nested(column.type)}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _decode_column(stated: FileStats, column: pa.Field) -> ColumnBounds | None:
    nulls = stated.nulls(column.name)
    if nulls == stated.num_records:
        return ALL_NULL
    kind = next((kind for is_of, kind in _TYPES if is_of(column.type)), None)
    bounds = None if kind is None else stated.bounds(column.name, kind)
    if bounds is None:
        return None
    try:
        smallest, largest = (pa.scalar(bound, column.type) for bound in bounds)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return ColumnBounds(smallest, largest, nulls != 0)


def _may_be_infinite(bound: float) -> bool:
    """Return whether a bound may stand for infinity or NaN, also one of a ``float`` that has become a ``double``."""
    return abs(bound) in LARGEST.values()


def _bounds(column: pa.Array) -> tuple[object, object] | None:
    """Return bounds of a column's values, None if they cannot be stated. Never raises: they are not worth a file."""
    try:
        least, most = (bound.as_py() for bound in pc.min_max(column).values())
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if isinstance(least, str):
        bound = _cut_above(most)
        return None if _may_be_exceeded(bound) else (least[:MAX_TEXT], bound)
    return _number_bounds(column, least, most) if isinstance(least, float) else (least, most)


def _number_bounds(column: pa.Array, least: float, most: float) -> tuple[float, float]:
    """Return bounds as JSON can state them (``LARGEST``)."""
    limit = LARGEST[column.type.bit_width]
    if pc.any(pc.is_nan(column)).as_py():  # Arrow leaves NaN out
        least, most = (limit if isnan(least) else least), limit
    return max(-limit, min(least, limit)) or -0.0, max(-limit, min(most, limit)) or 0.0


def _cut_above(text: str) -> str:
    """Return a short text that is not smaller than a text, unless ``_may_be_exceeded``."""
    if len(text) <= MAX_TEXT:
        return text
    end = MAX_TEXT
    while text[end : end + 1] == _LAST and end < 2 * MAX_TEXT:
        end += 1
    return text[:end] + _LAST


def _may_be_exceeded(bound: str) -> bool:
    """Return whether a text that ``_cut_above`` returned may be smaller than the one that it was made of, since that
    has more of the last character than are kept."""
    return len(bound) > 2 * MAX_TEXT


def _stated(value: object) -> object:
    """Return a bound as Delta states it; None for a type that it does not state."""
    if isinstance(value, datetime):
        return _time((value - _EPOCH) // timedelta(microseconds=1)).get("timestamp")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())
    return value if isinstance(value, (str, float, int)) else None


def _time(time_us: int) -> dict[str, object]:
    """Return the time as ISO 8601 in UTC; nothing outside of the years that it can state."""
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return {}
    digits = "microseconds" if time_us % 1000 else "milliseconds"
    return {"timestamp": time.replace(tzinfo=None).isoformat(timespec=digits) + "Z"}
