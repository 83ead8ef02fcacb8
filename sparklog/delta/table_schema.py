"""The columns of a topic's table, as Delta states them (Spark's JSON of a schema)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparklog.schema.languages.ddl import SchemaField
from sparklog.schema.typed_columns import delta_field, delta_fields

PARTITION = "partition"
"""The partition column: the number of the topic's partition."""


def schema_string(schema: Sequence[SchemaField] = ()) -> str:
    """Return the schema of a topic's table: the partition, the columns of a record, and the typed columns."""
    header = {"type": "struct", "fields": [delta_field("key", "string"), delta_field("value", "binary")]}
    headers = {"type": "array", "elementType": header, "containsNull": True}
    columns = [
        delta_field(PARTITION, "integer"),
        delta_field("offset", "long"),
        delta_field("timestamp", "timestamp"),
        delta_field("key", "binary"),
        delta_field("value", "binary"),
        delta_field("headers", headers),
        *delta_fields(schema),
    ]
    return msgspec.json.encode({"type": "struct", "fields": columns}).decode()
