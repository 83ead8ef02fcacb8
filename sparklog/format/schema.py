"""The columns of a record, and the Arrow schemas of a ``.log`` file.

    column      Arrow type                                     in a file     null means
    key         binary                                         optional      no key (an empty key is different)
    value       binary                                         always        tombstone (an empty value is different)
    timestamp   timestamp[us, UTC]                             always        never null
    headers     list<struct<key: string, value: binary>>       optional      no headers (an empty list is kept as such)
    offset      int32                                          optional      never null

An optional column that a file lacks is null in every record of it. Headers keep their order and their duplicates; a
header's key is never null, its value may be.

Rules: columns are always in the order above, in files, in batches and in the index. ``offset`` is only in files from
which compaction removed records: it rises strictly, and counts from the base offset that the commit log assigns to the
run. In all other files offsets are consecutive, so the base offset is sufficient.
Not for: topics and partitions, which the commit log assigns to records.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from sparklog.format import codecs

FORMAT_VERSION = 1
"""Version of ``.log`` and ``.index``, like ``magic`` in Kafka's record batches."""

KEY = "key"
VALUE = "value"
TIMESTAMP = "timestamp"
HEADERS = "headers"
OFFSET = "offset"
COLUMNS = (KEY, VALUE, TIMESTAMP, HEADERS)
"""The columns of a record."""
STORED_COLUMNS = (*COLUMNS, OFFSET)
"""All columns that a file may have."""
ENVELOPE = "envelope"
"""The only column of a file whose codec Arrow itself does not support."""

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", "UTC")

_FIELDS = {
    KEY: pa.field(KEY, pa.binary()),
    VALUE: pa.field(VALUE, pa.binary()),
    TIMESTAMP: pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
    HEADERS: pa.field(HEADERS, HEADERS_TYPE),
    OFFSET: pa.field(OFFSET, pa.int32(), nullable=False),
}


def columns_present(has_key: bool, has_headers: bool, has_offsets: bool = False) -> tuple[str, ...]:
    """Return the columns of a file, in order."""
    optional = {KEY: has_key, HEADERS: has_headers, OFFSET: has_offsets}
    return tuple(name for name in STORED_COLUMNS if optional.get(name, True))


@lru_cache(maxsize=64)
def _make_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([_FIELDS[name] for name in columns])


def record_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of record batches with these columns, in this order. Raises KeyError for an unknown column."""
    return _make_schema(tuple(columns))


def file_schema(codec: str, has_key: bool, has_headers: bool, has_offsets: bool = False) -> pa.Schema:
    """Return the schema as stored in a ``.log`` file, metadata included.

    An envelope file has one binary column; the schema of the records is then in the metadata, as the base64 of an Arrow
    schema message, so that a reader in any language needs only the file.
    """
    records = record_schema(columns_present(has_key, has_headers, has_offsets))
    metadata = {"sparklog.format": str(FORMAT_VERSION), "sparklog.codec": codec}
    if not codecs.is_envelope(codec):
        return records.with_metadata(metadata)
    metadata["sparklog.schema"] = base64.b64encode(records.serialize()).decode("ascii")
    return pa.schema([pa.field(ENVELOPE, pa.binary(), nullable=False)], metadata=metadata)
