"""Chooses how the typed columns of a history segment are encoded: by encoding some of them both ways.

Random whole numbers take the least as differences; a few values that repeat take the least as a dictionary. Nobody
states which of them a column has, so the first row group is encoded both with dictionaries and without, and each column
keeps what took fewer bytes. Every Parquet reader knows these encodings; fewer know the newer ones for texts and floats.

Not for: the columns of a record, whose pages sparklog's own reader checks (``file_schema.ENCODINGS``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_DIFFERENCES = "DELTA_BINARY_PACKED"
_WHOLE_NUMBERS = ("INT32", "INT64")


class TypedEncodings(NamedTuple):
    """The leaf columns that have dictionaries, and the encodings of others, by their paths in the file."""

    dictionaries: Sequence[str] = ()
    encodings: Mapping[str, str] = {}


def choose_encodings(columns: Sequence[pa.Array], fields: Sequence[pa.Field], **options: Any) -> TypedEncodings:
    """Return how to encode columns like these, with the ``options`` of Parquet's writer that the file has."""
    if not columns or not len(columns[0]):
        return TypedEncodings()
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    with_dictionary = _encode(table, **options, use_dictionary=True)
    whole = [leaf.path_in_schema for leaf in with_dictionary if leaf.physical_type in _WHOLE_NUMBERS]
    encodings = dict.fromkeys(whole, _DIFFERENCES)
    without = _encode(table, **options, use_dictionary=False, column_encoding=encodings)
    dictionaries = [
        leaf.path_in_schema
        for leaf, other in zip(with_dictionary, without, strict=True)
        if leaf.total_compressed_size < other.total_compressed_size
    ]
    return TypedEncodings(dictionaries, {path: _DIFFERENCES for path in whole if path not in dictionaries})


def _encode(table: pa.Table, **options: Any) -> list[pq.ColumnChunkMetaData]:
    """Encode a table as one row group, and return what the footer says about its leaf columns."""
    footers: list[pq.FileMetaData] = []
    sink = pa.MockOutputStream()
    with pq.ParquetWriter(sink, table.schema, metadata_collector=footers, **options) as writer:
        writer.write_table(table, row_group_size=len(table))
    group = footers[0].row_group(0)
    return [group.column(number) for number in range(group.num_columns)]
