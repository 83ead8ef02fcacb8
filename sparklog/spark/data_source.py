"""Implement ``format("sparklog")``: the class that Spark registers, and that creates readers and writers.

For every DataFrame Spark creates a new instance in a planner process, from the options alone, and pickles it.

Rules: thin; options are checked when a DataFrame is created, as far as possible without opening the cluster.
Not for: the meaning of a query's options (``spark.options``, ``stream.options``).
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from sparklog.errors import InvalidOptionError, InvalidRequestError
from sparklog.spark.options import SYSTEM, TIME_TRAVEL, Options, address, checked_names, sink_options, source_options
from sparklog.spark.picklable import Picklable
from sparklog.spark.sink.writer import SparklogWriter
from sparklog.spark.source.reader import SparklogReader
from sparklog.spark.source.rows import read_schema
from sparklog.spark.source.system_reader import SystemTableReader, system_options, system_schema
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import RefusedStreamReader, SparklogStreamReader
from sparklog.spark.stream.worker_processes import freeze_loaded_objects
from sparklog.spark.stream.writer import SparklogStreamWriter
from sparklog.spark.table_options import effective_options, table_columns, with_table_options


class SparklogDataSource(Picklable, DataSource):
    """Topics of a cluster as rows. ``options`` are those of ``docs/spark.md``; names are case-insensitive."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        freeze_loaded_objects()  # the process that Spark creates it in is sent only the class
        self._given = Options(options)

    def schema(self) -> StructType:
        """Return the columns of a read; those of a catalog table carry its options. Raises InvalidOptionError."""
        if SYSTEM in self._given:
            return system_schema(system_options(self._given).table)
        if not self._given.is_table:
            return read_schema(_includes_headers(self._given))
        options = checked_names(self._given)
        address(options)
        columns = [name.strip() for name in options.text("columns").split(",") if name.strip()]
        return with_table_options(read_schema(options.boolean("includeHeaders", False), columns), options)

    def reader(self, schema: StructType) -> SparklogReader | SystemTableReader:
        """Return a batch reader of the columns in ``schema``. Raises InvalidOptionError."""
        if SYSTEM in self._given:
            return SystemTableReader(system_options(self._given), schema)
        return self.record_reader(schema)

    def record_reader(self, schema: StructType) -> SparklogReader:
        """Return a batch reader of records, not of a system table. Raises InvalidOptionError."""
        options = source_options(effective_options(self._given, schema))
        return SparklogReader(options, schema, table_columns(self._given, schema))

    def writer(self, schema: StructType, overwrite: bool) -> SparklogWriter:
        """Return a batch writer for rows of ``schema``. Raises InvalidRequestError for an overwrite, and the writer's
        errors."""
        if overwrite:
            raise InvalidRequestError(
                "a log cannot be overwritten: use mode('append') to add records; to start over, delete the topic and "
                "create it again (`sparklog topics`)"
            )
        options = sink_options(effective_options(self._given, schema))
        return SparklogWriter(options, schema, names=table_columns(self._given, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a streaming reader of the columns in ``schema``; it raises InvalidOptionError if that is refused."""
        if SYSTEM in self._given:
            return RefusedStreamReader(
                InvalidOptionError(
                    "option system does not apply to a streaming query, since a system table is of one moment: read it "
                    "in a batch query",
                    option=SYSTEM,
                )
            )
        try:
            options = stream_options(effective_options(self._given, schema))
            return SparklogStreamReader(options, schema, names=table_columns(self._given, schema))
        except InvalidOptionError as error:
            return RefusedStreamReader(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparklogStreamWriter:
        """Return a streaming writer; the rows of output mode complete are appended too, as by Spark's Kafka sink.
        Errors as ``writer``."""
        options = sink_options(effective_options(self._given, schema))
        return SparklogStreamWriter(options, schema, names=table_columns(self._given, schema))


def _includes_headers(options: Options) -> bool:
    """Return option ``includeHeaders``. Spark asks for the schema without saying whether it plans a batch or a stream,
    so the options need to be valid for one of them. Raises InvalidOptionError."""
    try:
        return stream_options(options).source.include_headers
    except InvalidOptionError as error:
        of_stream = error
    try:
        return source_options(options).include_headers
    except InvalidOptionError as of_batch:
        if of_batch.message == of_stream.message or any(name in options for name in TIME_TRAVEL):
            raise
        raise InvalidOptionError(
            f"in a streaming query {of_stream.message}; in a batch query {of_batch.message}", **of_batch.context
        ) from None
