"""Makes JSON values of typed columns: what ``typed_values`` reads from them is equal to the columns.

    values = JsonWriter(parse_ddl("customer string, amount double")).values({"customer": …, "amount": …})
    # [b'{"customer":"a","amount":1.5}', b'{}']

The texts are those of ``format.json_texts``. A row is always an object, so that a row of nulls is ``{}``, and no row is
a tombstone.

Rules: pure, by column. A value that the reader would not read back is refused, with its field. Not for: which columns a
schema takes (``spark.sink.typed_rows``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError
from sparklog.format.json_texts import encode_objects
from sparklog.schema.languages.ddl import SchemaField
from sparklog.schema.values.typed_values import value_reader

CHECKED_BYTES = 16 * 1024
"""Size in bytes above which a value is read again before it is written: only a larger one can be too large, or have
too large lists, to be read."""


class JsonWriter:
    """Writes rows of one schema as JSON. Immutable, thread-safe."""

    def __init__(self, schema: Sequence[SchemaField]) -> None:
        self._schema = tuple(schema)

    def values(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return a value for each row, from columns by name, whatever its case; those that are missing are null. They
        have the types of the schema, or smaller ones.

        Raises InvalidRecordError for a null in a required field, and for what JSON or the reader cannot hold.
        """
        texts = encode_objects(self._schema, columns, rows)
        self._check_large(texts)
        return texts.cast(pa.binary())

    def _check_large(self, texts: pa.Array) -> None:
        """Read values that may be too large to be read. Raises InvalidRecordError."""
        for index in pc.indices_nonzero(pc.greater(pc.binary_length(texts), CHECKED_BYTES)).to_pylist():
            problem = value_reader(self._schema).find_misfit(texts[index].as_py().encode())
            if problem:
                raise InvalidRecordError(
                    f"row {index} of a batch cannot be read from JSON with the topic's schema: {problem}", index=index
                )
