"""The typed columns of a topic's table in Spark: their types, and those of records that are not history yet.

Rules: records are read as by the roll (``schema.values.typed_records``): the same columns before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.schema.languages.record_schema import RecordSchema
from sparklog.schema.typed_columns import delta_fields
from sparklog.schema.values.typed_records import record_reader
from sparklog.spark.source.reader import SparklogReader


def typed_struct(schema: RecordSchema) -> StructType:
    """Return the typed columns, none without a schema."""
    return StructType.fromJson({"type": "struct", "fields": delta_fields(schema.columns)})


def read_partitions(
    reader: SparklogReader,
    partitions: Sequence[InputPartition],
    schema: RecordSchema,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the partitions with these numbers in a task, with the typed columns."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from add_typed_columns(schema, reader.read(partitions[number]))


def add_typed_columns(schema: RecordSchema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the typed columns of their keys and values after the others."""
    reader = record_reader(schema)
    for batch in batches:
        typed = reader.columns(batch.column("key"), batch.column("value"))
        columns = {**{name: batch.column(name) for name in batch.schema.names}, **typed}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
