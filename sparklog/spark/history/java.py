"""The classes of Spark's JVM by which ``sparklog.table`` describes files to Spark, looked up once for each JVM.

A class that is named by its package (``jvm.org.apache…``) costs py4j a request to the JVM for each part of the name,
some two ms in all, and a call a tenth of one. So classes and constants are kept, and calls are few.

Rules: names are those of Spark 4.0 to 4.3. Not for: what Spark asks while it plans (``file_index``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyspark.sql.types import StructType

from sparklog.spark.history.files import READ_OPTIONS, HistoryFile

_BLOCK_BYTES = 128 * 1024 * 1024


@lru_cache(maxsize=1)
def java_of(gateway: Any) -> Java:
    """Return the classes of a gateway's JVM."""
    return Java(gateway)


class Java:
    """What is used of one JVM. Thread-safe."""

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        datasources = jvm.org.apache.spark.sql.execution.datasources
        catalyst = jvm.org.apache.spark.sql.catalyst
        utils = jvm.org.apache.spark.api.python.PythonUtils
        self._gateway = gateway
        self._array_list = jvm.java.util.ArrayList
        self._to_sequence = utils.toSeq
        self._parse_type = jvm.org.apache.spark.sql.types.DataType.fromJson
        self._types: dict[str, Any] = {}
        self._string = jvm.java.lang.String
        self._to_row = catalyst.InternalRow.fromSeq
        self._rows: dict[int, Any] = {}
        self._attributes = getattr(catalyst.expressions, "package$AttributeSeq")
        self._bind = getattr(catalyst.expressions, "BindReferences$").__getattr__("MODULE$").bindReference
        self._compile = getattr(catalyst.expressions, "Predicate$").__getattr__("MODULE$").createInterpreted
        self._file_status = jvm.org.apache.hadoop.fs.FileStatus
        self._file_status_class = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileStatus")
        self._writables = jvm.org.apache.hadoop.io.ArrayWritable
        self._bytes_stream = jvm.java.io.ByteArrayInputStream
        self._data_stream = jvm.java.io.DataInputStream
        self._copy_array = jvm.java.lang.System.arraycopy
        self._directory = datasources.PartitionDirectory.apply
        self._relation = datasources.HadoopFsRelation
        self._parquet = datasources.parquet.ParquetFileFormat()
        self._options = utils.toScalaMap(READ_OPTIONS)
        self.none = jvm.scala.Option.apply(None)
        self.no_items = self.sequence([])

    def relation(self, index: Any, partition_schema: StructType, schema: StructType, session: Any) -> Any:
        """Return the Parquet files of an index as Spark's relation."""
        partitions, columns = self.schema(partition_schema), self.schema(schema)
        return self._relation(index, partitions, columns, self.none, self._parquet, self._options, session)

    def schema(self, schema: StructType) -> Any:
        """Return a schema as the JVM has it."""
        text = schema.json()
        if text not in self._types:
            self._types[text] = self._parse_type(text)
        return self._types[text]

    def sequence(self, items: Iterable[Any]) -> Any:
        """Return a Scala sequence."""
        values = self._array_list()
        for item in items:
            values.append(item)
        return self._to_sequence(values)

    def strings(self, texts: Sequence[str]) -> Any:
        """Return an array of texts."""
        array = self._gateway.new_array(self._string, len(texts))
        for number, text in enumerate(texts):
            array[number] = text
        return array

    def partition_test(self, expressions: Sequence[Any]) -> Callable[[int], bool]:
        """Return whether a partition passes all of these expressions on the column ``partition``."""
        tests = [
            self._compile(self._bind(each, self._attributes(each.references().toSeq()), False)) for each in expressions
        ]
        return lambda partition: all(test.eval(self._row(partition)) for test in tests)

    def directories(self, files: Mapping[int, Sequence[HistoryFile]]) -> Any:
        """Return Spark's ``PartitionDirectory`` of each partition with its files."""
        statuses = self._file_statuses([file for each in files.values() for file in each])
        directories = []
        first = 0
        for partition, each in files.items():
            its_statuses = self._gateway.new_array(self._file_status, len(each))
            self._copy_array(statuses, first, its_statuses, 0, len(each))
            directories.append(self._directory(self._row(partition), its_statuses))
            first += len(each)
        return self.sequence(directories)

    def _row(self, partition: int) -> Any:
        """Return the values of the partition columns."""
        if partition not in self._rows:
            self._rows[partition] = self._to_row(self.sequence([partition]))
        return self._rows[partition]

    def _file_statuses(self, files: Sequence[HistoryFile]) -> Any:
        """Return an array with the ``FileStatus`` of each file, made by one call however many there are."""
        read = self._writables(self._file_status_class)
        stored = struct.pack(">i", len(files)) + b"".join(map(encode_status, files))
        read.readFields(self._data_stream(self._bytes_stream(stored)))
        return read.toArray()


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


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))
