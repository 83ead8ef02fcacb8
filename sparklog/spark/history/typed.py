"""The typed columns of a topic's table in Spark: their types, and those of records that are not history yet.

Rules: values are read as by the roll (``records.typed_values``), so a record has the same columns before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.config.ddl import SchemaField
from sparklog.format.typed_columns import delta_fields
from sparklog.records.typed_values import ValueReader
from sparklog.spark.source.reader import SparklogReader


def typed_struct(schema: Sequence[SchemaField]) -> StructType:
    """Return the typed columns, none without a schema."""
    return StructType.fromJson({"type": "struct", "fields": delta_fields(schema)})


def read_partitions(
    reader: SparklogReader,
    partitions: Sequence[InputPartition],
    schema: Sequence[SchemaField],
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the partitions with these numbers in a task, with the typed columns."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from add_typed_columns(schema, reader.read(partitions[number]))


def add_typed_columns(schema: Sequence[SchemaField], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the typed columns of their values after the others."""
    reader = ValueReader(schema) if schema else None
    for batch in batches:
        typed = {} if reader is None else reader.columns(batch.column("value"))
        columns = {**{name: batch.column(name) for name in batch.schema.names}, **typed}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
