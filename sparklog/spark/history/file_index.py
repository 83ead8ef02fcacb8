"""A list of Parquet files that Spark's own reader scans, chosen for each query by its filters.

Spark asks a ``FileIndex`` (a Scala trait) for the files of a query while it plans it. Here that trait is implemented in
this process, which Spark calls back as it does for ``foreachBatch``; so a query of a hundred offsets opens one file,
however many there are.

Rules: the classes of the JVM are used by name, with Spark 4.2; nothing here is sent to executors.
Not for: which files there are (``files``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import IntegerType, StructField, StructType

from sparklog.spark.history.files import HistoryFile, select_files
from sparklog.spark.source.filters import EPOCH, prune

PARTITION_SCHEMA = StructType([StructField("partition", IntegerType())])

OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
"""Settings of the read, whatever those of the session are: the checksums of pages are verified, damage and loss are
errors, and dates are those that were written."""

_COMPARISONS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    kind.__name__: kind for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
}
_MIRRORED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}


def scan_files(spark: SparkSession, topic: str, files: Sequence[HistoryFile], schema: StructType) -> DataFrame:
    """Return the rows of the files, with the column ``partition`` after those of ``schema``, which the files have."""
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    java = _Java(gateway)
    session = spark._jsparkSession
    partition_schema = session.parseDataType(PARTITION_SCHEMA.json())
    relation = java.datasources.HadoopFsRelation(
        _FileIndex(java, topic, files, partition_schema),
        partition_schema,
        session.parseDataType(schema.json()),
        java.jvm.scala.Option.apply(None),
        java.datasources.parquet.ParquetFileFormat(),
        java.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(OPTIONS),
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


class _Java:
    """The parts of the JVM that are used here."""

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self.jvm = gateway.jvm
        self.datasources = self.jvm.org.apache.spark.sql.execution.datasources

    def sequence(self, items: Iterable[Any]) -> Any:
        """Return a Scala sequence."""
        values = self.jvm.java.util.ArrayList()
        for item in items:
            values.append(item)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)

    def row(self, partition: int) -> Any:
        """Return the values of the partition columns."""
        return self.jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq(self.sequence([partition]))

    def partition_test(self, filters: Any) -> Callable[[int], bool]:
        """Return whether a partition passes all of these expressions on the column ``partition``."""
        expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        attributes = getattr(expressions, "package$AttributeSeq")
        bind = getattr(expressions, "BindReferences$").__getattr__("MODULE$").bindReference
        interpret = getattr(expressions, "Predicate$").__getattr__("MODULE$").createInterpreted
        found = _items(filters)
        tests = [interpret(bind(each, attributes(each.references().toSeq()), False)) for each in found]
        return lambda partition: all(test.eval(self.row(partition)) for test in tests)

    def file_statuses(self, files: Sequence[HistoryFile]) -> Any:
        """Return an array of Hadoop's ``FileStatus``, made by one call however many files there are."""
        file_status = self.jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileStatus")
        read = self.jvm.org.apache.hadoop.io.ArrayWritable(file_status)
        stored = struct.pack(">i", len(files)) + b"".join(map(encode_status, files))
        stream = self.jvm.java.io.ByteArrayInputStream(stored)
        read.readFields(self.jvm.java.io.DataInputStream(stream))
        statuses = self.gateway.new_array(self.jvm.org.apache.hadoop.fs.FileStatus, len(files))
        self.jvm.java.lang.System.arraycopy(read.toArray(), 0, statuses, 0, len(files))
        return statuses


class _FileIndex:
    """Spark's trait ``FileIndex``. Its methods are called by the JVM, and so have Spark's names."""

    def __init__(self, java: _Java, topic: str, files: Sequence[HistoryFile], partition_schema: Any) -> None:
        self._java = java
        self._topic = topic
        self._files = files
        self._partition_schema = partition_schema
        self._bytes = sum(file.size for file in files)
        self._no_roots = java.sequence([])
        self._no_time = java.jvm.scala.Option.apply(None)

    def rootPaths(self) -> Any:
        return self._no_roots

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the files of the partitions that pass: Spark does not evaluate filters on partitions again."""
        filters = [*_filters(partition_filters), *_filters(data_filters)]
        by_partition: dict[int, list[HistoryFile]] = {}
        for file in select_files(self._files, self._topic, prune(filters)):
            by_partition.setdefault(file.partition, []).append(file)
        passes = self._java.partition_test(partition_filters)
        return self._java.sequence(
            self._directory(number, files) for number, files in by_partition.items() if passes(number)
        )

    def _directory(self, partition: int, files: Sequence[HistoryFile]) -> Any:
        values = self._java.row(partition)
        return self._java.datasources.PartitionDirectory.apply(values, self._java.file_statuses(files))

    def inputFiles(self) -> Any:
        names = self._java.gateway.new_array(self._java.jvm.java.lang.String, len(self._files))
        for number, file in enumerate(self._files):
            names[number] = file.address
        return names

    def refresh(self) -> None:
        """Nothing to do: the files are those of one version of the log."""

    def sizeInBytes(self) -> int:
        return self._bytes

    def partitionSchema(self) -> Any:
        return self._partition_schema

    def metadataOpsTimeNs(self) -> Any:
        return self._no_time

    def hashCode(self) -> int:
        return id(self) % 2**31

    def equals(self, other: object) -> bool:
        return other is self

    def toString(self) -> str:
        return f"sparklog history of {self._topic}"

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)


# -- filters


class _Literal(NamedTuple):
    value: Any


def _filters(expressions: Any) -> list[Filter]:
    """Return the filters of a query that are comparisons of one column with values; the others do not prune."""
    return [found for found in map(_filter, _items(expressions)) if found is not None]


def _filter(expression: Any) -> Filter | None:
    kind = str(expression.getClass().getSimpleName())
    if kind == "In":
        column, items = _operand(expression.value()), [_operand(item) for item in _items(expression.list())]
        values = [item.value for item in items if isinstance(item, _Literal)]
        return In((column,), tuple(values)) if isinstance(column, str) and len(values) == len(items) else None
    if kind not in _COMPARISONS:
        return None
    left, right = _operand(expression.left()), _operand(expression.right())
    if isinstance(left, _Literal):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if isinstance(left, str) and isinstance(right, _Literal):
        return _COMPARISONS[kind]((left,), right.value)
    return None


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _operand(expression: Any) -> str | _Literal | None:
    """Return the name of a column, a value, or None for other expressions."""
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference":
        return str(expression.name())
    if kind != "Literal":
        return None
    value = expression.value()
    if value is not None and expression.dataType().simpleString() == "timestamp":
        try:
            return _Literal(EPOCH + timedelta(microseconds=value))
        except OverflowError:  # outside of the years that Python knows
            return None
    return _Literal(value)


# -- Hadoop's FileStatus


def encode_status(file: HistoryFile) -> bytes:
    """Return a file as Hadoop's ``FileStatus`` reads itself: a length, and a ``FileStatusProto`` (Hadoop's
    FSProtos.proto) with type, path, length, permission, block replication and block size."""
    path = file.address.encode()
    message = b"".join(
        (
            b"\x08\x02",
            b"\x12" + _varint(len(path)) + path,
            b"\x18" + _varint(file.size),
            b"\x22\x03\x08" + _varint(0o644),
            b"\x50\x01",
            b"\x58" + _varint(_BLOCK_BYTES),
        )
    )
    return struct.pack(">i", len(message)) + message


_BLOCK_BYTES = 128 * 1024 * 1024


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))
