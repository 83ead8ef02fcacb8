"""Makes JSON objects of typed columns: the one text that sparklog writes for a row.

    whole numbers, boolean    as in JSON
    float, double             the shortest number that is read back as the same one, as Python writes it: 1.0, 1e+16
    decimal                   a number with all its digits
    date, timestamp           "2026-11-01", "2026-11-01T09:30:00.000000Z"
    binary                    Base64
    array, map, struct        as in JSON; a null element or entry is null, a null field of a struct is left out

Fields are in the order of the schema, without spaces, and null ones are left out. Of a text only the quotation mark,
the backslash and the characters below U+0020 are escaped: as \\b, \\t, \\n, \\f and \\r, else as \\u00xx.

Rules: pure, by column; a row's text depends on that row alone. Files of history depend on each byte of it
(``parquet.elided_values``): it never changes. Not for: whether what is written can be read (``records.json_values``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from functools import lru_cache

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError
from sparklog.format.plain_arrays import plain_array
from sparklog.schema.languages.ddl import SchemaField, SchemaType
from sparklog.schema.typed_columns import FLOAT32_MAX, arrow_type

_LEAST_POSITIONAL, _MOST_POSITIONAL = 1e-3, 1e10
"""Between these Arrow writes the same digits as Python, without an exponent."""

_CONTROL = "[\x00-\x1f]"
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_FIRST_TIME = datetime(1, 1, 1, tzinfo=timezone.utc)
_LAST_TIME = datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc)


def encode_objects(
    fields: Sequence[SchemaField], columns: Mapping[str, pa.Array], rows: int, valid: int | None = None, path: str = ""
) -> pa.Array:
    """Return the text of an object for each row, from columns by name, whatever its case; those that are missing are
    null. ``valid`` of the rows are not null, by default all.

    Raises InvalidRecordError for a null in a required field, and for what JSON or the reader cannot hold.
    """
    valid = rows if valid is None else valid
    arrays = {name.lower(): array for name, array in columns.items()}
    texts = []
    for field in fields:
        array, name = arrays.get(field.name.lower()), f"{path}{field.name}"
        if field.required and (0 if array is None else rows - array.null_count) < valid:
            raise _refusal(name, "it is NOT NULL in the topic's schema, and null in a row")
        if array is not None:
            member = pc.binary_join_element_wise(f"{_quoted(field.name)}:", _text(field.type, array, name), ",", "")
            texts.append(member.fill_null(""))
    if not texts:
        return pa.repeat(pa.scalar("{}"), rows)
    joined = pc.ascii_rtrim(pc.binary_join_element_wise(*texts, ""), ",")
    return pc.binary_join_element_wise("{", joined, "}", "")


@lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def _text(kind: SchemaType, array: pa.Array, path: str) -> pa.Array:
    """Return the JSON of each value, null for nulls."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.string())
    if kind.name == "struct":
        return _struct(kind, array, path)
    if kind.element is not None:
        return _list(kind, kind.element, array, path)
    try:
        array = array.cast(arrow_type(kind))
        array.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _refusal(path, f"it cannot be read as {kind}: {error}") from error
    if kind.name == "string":
        return _string(array)
    if kind.name == "binary":
        return _enclose(
            pa.array([None if v is None else b64encode(v).decode() for v in array.to_pylist()], pa.string())
        )
    if kind.name in ("float", "double"):
        return _float(array, path)
    if kind.name in ("date", "timestamp"):
        return _time(kind, array, path)
    return array.cast(pa.string())


def _struct(kind: SchemaType, array: pa.Array, path: str) -> pa.Array:
    names = (array.type.field(number).name for number in range(array.type.num_fields))
    columns = dict(zip(names, array.flatten(), strict=True))
    objects = encode_objects(kind.fields, columns, len(array), len(array) - array.null_count, f"{path}.")
    return _where(array, objects)


def _list(kind: SchemaType, element: SchemaType, array: pa.Array, path: str) -> pa.Array:
    """Return the JSON of lists, or of maps, whose entries are joined to members of an object."""
    if kind.name == "map":
        entry = pa.struct([pa.field("key", array.type.key_type, False), pa.field("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    items = array.flatten()
    if kind.name == "map":
        keys, values = items.flatten()
        texts = _text(element, values, f"{path}.value").fill_null("null")
        texts = pc.binary_join_element_wise(_string(keys), texts, ":")
    else:
        texts = _text(element, items, f"{path}.element").fill_null("null")
    offsets = pa.concat_arrays([plain_array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    left, right = ("{", "}") if kind.name == "map" else ("[", "]")
    return _where(array, pc.binary_join_element_wise(left, joined, right, ""))


def _where(array: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts, null where the array is."""
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def _enclose(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _string(array: pa.Array) -> pa.Array:
    for character in ("\\", '"'):
        array = pc.replace_substring(array, character, f"\\{character}")
    if pc.any(pc.match_substring_regex(array, _CONTROL)).as_py():
        for number in range(0x20):
            array = pc.replace_substring(array, chr(number), _SHORT.get(chr(number), f"\\u{number:04x}"))
    return _enclose(array)


def _float(array: pa.Array, path: str) -> pa.Array:
    if pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise _refusal(path, "JSON has no NaN and no infinities; make them null")
    texts = array.cast(pa.string())
    if array.type == pa.float32():  # read as a double first, which rounds twice
        exact, short = array.cast(pa.float64()), texts.cast(pa.float64())
        same = pc.and_(pc.equal(short.cast(pa.float32()), array), pc.less_equal(pc.abs(short), FLOAT32_MAX))
        texts = pc.if_else(same, texts, exact.cast(pa.string()))
    sizes = pc.abs(texts.cast(pa.float64()))
    positional = pc.and_(pc.greater_equal(sizes, _LEAST_POSITIONAL), pc.less(sizes, _MOST_POSITIONAL))
    positional = pc.fill_null(pc.or_(positional, pc.equal(sizes, 0.0)), True)
    whole = pc.binary_join_element_wise(texts, ".0", "")
    short = pc.if_else(pc.match_substring(texts, "."), texts, whole)
    if pc.all(positional).as_py():
        return short
    others = [repr(float(text)) for text in texts.filter(pc.invert(positional)).to_pylist()]
    return pc.replace_with_mask(short, pc.invert(positional), pa.array(others, pa.string()))


def _time(kind: SchemaType, array: pa.Array, path: str) -> pa.Array:
    first, last = (_FIRST_TIME, _LAST_TIME) if kind.name == "timestamp" else (date.min, date.max)
    bounds = (pa.scalar(bound, array.type) for bound in (first, last))
    if pc.any(pc.or_(pc.less(array, next(bounds)), pc.greater(array, next(bounds)))).as_py():
        raise _refusal(path, f"a {kind} is outside of the years 1 to 9999")
    if kind.name == "date":
        return _enclose(array.cast(pa.string()))
    texts = array.cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, " ", "T"), 'Z"', "")


def _refusal(path: str, why: str) -> InvalidRecordError:
    return InvalidRecordError(f"field {path!r} cannot be written: {why}")
