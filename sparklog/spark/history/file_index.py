"""A list of Parquet files that Spark's own reader scans, chosen for each query by its filters.

Spark asks a ``FileIndex`` (a Scala trait) for the files of a query while it plans it. Here that trait is implemented in
this process, which Spark calls back as it does for ``foreachBatch``; so a query of a hundred offsets opens one file,
however many there are.

Rules: nothing here is sent to executors. Not for: which files there are (``files``), and the JVM's classes (``java``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from sparklog.spark.history.expressions import items, read_filter
from sparklog.spark.history.files import HistoryFile, select_files
from sparklog.spark.history.java import Java, java_of
from sparklog.spark.history.typed_filters import TypedFilters
from sparklog.spark.source.filters import Filter, IsNotNull, prune

PARTITION_SCHEMA = StructType([StructField("partition", IntegerType())])


def scan_files(spark: SparkSession, topic: str, files: Sequence[HistoryFile], schema: StructType) -> DataFrame:
    """Return the rows of the files in the columns of ``schema``: those that they have, and ``partition``."""
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    java = java_of(gateway)
    session = spark._jsparkSession
    types = {field.name: field.dataType for field in schema if field.name not in PARTITION_SCHEMA.names}
    relation = java.relation(_FileIndex(java, topic, files, types), PARTITION_SCHEMA, schema, session)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


class _FileIndex:
    """Spark's trait ``FileIndex``. Its methods are called by the JVM, and so have Spark's names."""

    def __init__(self, java: Java, topic: str, files: Sequence[HistoryFile], types: dict[str, DataType]) -> None:
        self._java = java
        self._topic = topic
        self._files = files
        self._types = types
        self._bytes = sum(file.size for file in files)
        self._all: Any = None

    def rootPaths(self) -> Any:
        return self._java.no_items

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the files of the partitions that pass: Spark does not evaluate filters on partitions again."""
        on_partitions, on_data = items(partition_filters), items(data_filters)
        if on_partitions or on_data:
            return self._list(on_partitions, on_data)
        if self._all is None:
            self._all = self._java.directories(_by_partition(self._files))
        return self._all

    def _list(self, on_partitions: Sequence[Any], on_data: Sequence[Any]) -> Any:
        partition_filters = [(each, read_filter(each)) for each in on_partitions]
        data_filters = [found for found in map(read_filter, on_data) if found is not None]
        filters = [*(found for _, found in partition_filters if found is not None), *data_filters]
        typed = TypedFilters(data_filters, self._types)
        found = _by_partition(select_files(self._files, self._topic, prune(filters), typed))
        passes = self._java.partition_test([each for each, read in partition_filters if not _is_exact(read)])
        return self._java.directories({number: files for number, files in found.items() if passes(number)})

    def inputFiles(self) -> Any:
        return self._java.strings([file.address for file in self._files])

    def refresh(self) -> None:
        """Nothing to do: the files are those of one version of the log."""

    def sizeInBytes(self) -> int:
        return self._bytes

    def partitionSchema(self) -> Any:
        return self._java.schema(PARTITION_SCHEMA)

    def metadataOpsTimeNs(self) -> Any:
        return self._java.none

    def hashCode(self) -> int:
        return id(self) % 2**31

    def equals(self, other: object) -> bool:
        return other is self

    def toString(self) -> str:
        return f"sparklog history of {self._topic}"

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)


def _by_partition(files: Iterable[HistoryFile]) -> dict[int, list[HistoryFile]]:
    found: dict[int, list[HistoryFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found


def _is_exact(predicate: Filter | None) -> bool:
    """Return whether ``prune`` admits exactly the partitions that pass a filter on the column ``partition``."""
    if predicate is None or isinstance(predicate, IsNotNull):
        return predicate is not None
    value = getattr(predicate, "value", None)
    return all(type(each) is int for each in (value if isinstance(value, tuple) else (value,)))
