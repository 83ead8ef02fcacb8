"""The columns of a history segment: a ``.parquet`` file that holds the records of one partition.

    column      Parquet type                                            null means
    (typed)     those of the topic's schema, if it has one              the value does not fit the schema
    key         BYTE_ARRAY                                              no key (an empty key is different)
    value       BYTE_ARRAY                                              tombstone (an empty value is different)
    timestamp   INT64, TIMESTAMP(MICROS, UTC)                           never null
    headers     LIST of (key: STRING, value: BYTE_ARRAY)                no headers (an empty list is kept as such)
    offset      INT64                                                   never null

Unlike in a ``.log``, the columns are always all there, and offsets are absolute: the files are also those of a Delta
table, whose readers know neither the index nor the commit log.

Not for: the bytes of a row group (``writer``), and the schema of a topic's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format import schema
from sparklog.format.parquet.pages import DELTA_BINARY_PACKED, PLAIN

OFFSET_TYPE = pa.int64()

ENCODINGS = {
    schema.KEY: PLAIN,
    schema.VALUE: PLAIN,
    schema.TIMESTAMP: DELTA_BINARY_PACKED,
    schema.HEADERS: PLAIN,
    schema.OFFSET: DELTA_BINARY_PACKED,
}
"""The encoding of each column's pages. No dictionaries: a page must not state less than its values take in memory."""

HEADER_LEAVES = tuple((schema.HEADERS, "list", "element", name) for name in ("key", "value"))
"""The paths of the two leaf columns of ``headers``."""


def parquet_schema(typed: Sequence[pa.Field] = (), names: Sequence[str] = schema.STORED_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of a file: the typed columns, then those of a record (only ``names``), and the offset."""
    records = [schema.record_schema().field(name) for name in schema.COLUMNS]
    columns = [*records, pa.field(schema.OFFSET, OFFSET_TYPE, nullable=False)]
    return pa.schema([*typed, *(column for column in columns if column.name in names)])


def columns_with_statistics(typed: Sequence[pa.Field]) -> list[str]:
    """Return the names of the typed columns whose row groups state bounds.

    Not those of floating-point numbers: Arrow's writer leaves NaN out of them, and a reader that takes NaN for larger
    than any number, as Spark does, would skip row groups that have it.
    """
    return [field.name for field in typed if not pa.types.is_floating(field.type)]


def section_lengths(leaves: Iterable[tuple[str, int, int]], position: int) -> list[int]:
    """Return the bytes that a row group has in the file: of its typed columns, then of each column of a record.

    ``leaves``: root, position and length of each leaf column. Raises ValueError unless they follow one another from
    ``position``, in this order.
    """
    lengths = dict.fromkeys(("", *schema.STORED_COLUMNS), 0)
    order, at, end = list(lengths), 0, position
    for root, start, length in leaves:
        name = root if root in schema.STORED_COLUMNS else ""
        if start != end or length < 0 or order.index(name) < at:
            raise ValueError(f"column {root} is at {start}, not at {end}, or out of order")
        at, end = order.index(name), end + length
        lengths[name] += length
    return list(lengths.values())


def decoded_length(batch: pa.RecordBatch) -> int:
    """Return the bytes of records once decoded: their content, 24 for the numbers of each record, 8 for each header.

    It depends on the records alone, not on how Arrow holds them.
    """
    headers = batch.column(schema.HEADERS).flatten()
    texts = (batch.column(schema.KEY), batch.column(schema.VALUE), headers.field("key"), headers.field("value"))
    content = sum(pc.sum(pc.binary_length(text)).as_py() or 0 for text in texts)
    return int(content + 24 * batch.num_rows + 8 * len(headers))
