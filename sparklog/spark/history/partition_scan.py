"""The files of a topic's history as DataFrames of Spark's Parquet reader, one for each partition: for sessions of Spark
Connect, in which a program cannot choose the files of a query while it is planned (``file_index``).

Rules: a filter on ``partition`` leaves out the files of the others, since it is a constant of each part. Of the rest,
filters leave out row groups by the statistics in the files, which Spark opens all. Not for: classic sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparklog.spark.history.files import READ_OPTIONS, HistoryFile

PARTITION = "partition"
"""The column that the files do not have."""


def scan_by_partition(spark: SparkSession, files: Sequence[HistoryFile], schema: StructType) -> DataFrame:
    """Return the rows of at least one file in the columns of ``schema``. The server reads the files by the addresses
    that they have for this process."""
    stored = StructType([field for field in schema.fields if field.name != PARTITION])
    addresses: dict[int, list[str]] = {}
    for file in files:
        addresses.setdefault(file.partition, []).append(file.address)
    parts = []
    for number, paths in addresses.items():
        rows = spark.read.schema(stored).options(**READ_OPTIONS).parquet(*paths)
        parts.append(rows.withColumn(PARTITION, F.lit(number).cast("int")).select(*schema.fieldNames()))
    return reduce(DataFrame.union, parts)
