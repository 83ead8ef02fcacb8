"""Read a topic as a table: history by Spark's own Parquet reader, the rest through ``format("sparklog")``.

    orders = sparklog.table(spark, "/data/log", "orders")

Rules: one version of the log is cut into both parts when the DataFrame is made, so each record is in it once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.errors import InvalidOptionError
from sparklog.errors.suggestions import suggest_arguments
from sparklog.log.past_offsets import find_past_ends, find_past_version
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.protocol.state import State
from sparklog.schema.languages.record_schema import RecordSchema
from sparklog.spark.api import milliseconds, path_of, prefixed
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.history.file_index import scan_files
from sparklog.spark.history.files import PartitionCut, TopicHistory, find_history
from sparklog.spark.history.partition_scan import scan_by_partition
from sparklog.spark.history.typed import add_typed_columns, read_partitions, typed_struct
from sparklog.spark.options import Options, address
from sparklog.spark.own_session import is_connect, register_source
from sparklog.spark.source.reader import SparklogReader
from sparklog.spark.source.rows import read_schema
from sparklog.spark.versions.api import arrow_schema

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a topic's table, as in its Delta table."""

ROW_SCHEMA = read_schema(True, COLUMNS)

MAX_LOCAL_BYTES = 4 * 1024 * 1024
"""Bytes up to which the records after the history are read when the DataFrame is made."""


@suggest_arguments
def table(
    spark: SparkSession,
    root: str | os.PathLike[str] | None,
    topic: str,
    *,
    version: int | None = None,
    as_of: datetime | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return all records of a topic at one version of the cluster, by default the newest, which every query of the
    DataFrame then reads.

    The columns are ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``. What is history
    (closed segments of a topic with ``history.format=delta``) is read by Spark's own Parquet reader: only the columns,
    files and row groups that a query needs. The records after it are read as by ``sparklog.read``. Call it again for
    newer records; files that leave the log are kept for ``history.delete.delay.ms``.

    ``version`` is a version of the cluster, ``as_of`` a datetime with a time zone or ms since the epoch: the topic as
    it was then, up to the offsets at which its partitions ended, without records that were removed since. It goes
    back as far as commits are kept (``metadata.max.retention.ms``).

        >>> sparklog.write(spark.createDataFrame([("k", "v")], "key string, value string"), root, topic="orders")
        >>> sparklog.table(spark, root, "orders").select("partition", "offset", "key").collect()
        [Row(partition=0, offset=0, key=b'k')]

    Raises UnknownTopicOrPartitionError, StorageError, InvalidOptionError for an invalid address, topic or time,
    InvalidRequestError for a version that is not known.
    """
    if not isinstance(topic, str):
        raise InvalidOptionError(f"invalid topic {topic!r}: give the name of one topic", option="topic")
    register_source(spark)
    path = path_of(root)
    given = {**prefixed(storage_options), **({} if path is None else {"path": path})}
    coordinator = shared_cluster(*address(Options(given)))
    state = coordinator.refresh()
    segments = coordinator.segments(topic, state)
    topic_state = state.topic(topic)
    typed = find_record_schema(topic_state, TopicConfig.resolve(topic_state.configs, state.configs))
    ends = _find_ends(coordinator, state, topic, version, milliseconds(as_of))
    history = find_history(state, topic, segments, lambda broker: coordinator.store_of(broker).root, ends)
    parts = [_history(spark, topic, history, typed)] if history.files else []
    if not history.files or any(cut.history_end < cut.end for cut in history.cuts):
        parts.append(_tail(spark, given, topic, history.cuts, typed))
    return reduce(DataFrame.union, parts)


def create_view(
    spark: SparkSession,
    root: str | os.PathLike[str] | None,
    topic: str,
    name: str | None = None,
    *,
    version: int | None = None,
    as_of: datetime | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Give a topic's table a name for SQL: a temporary view of the session, by default named as the topic.

    It shows the topic as ``sparklog.table`` does at the time of the call, in every query. Call it again to show newer
    records: it replaces the view. Other arguments, and errors, are those of ``sparklog.table``. Returns the DataFrame
    that the view shows.

        >>> sparklog.write(spark.createDataFrame([("k", "v")], "key string, value string"), root, topic="orders")
        >>> _ = sparklog.create_view(spark, root, "orders")
        >>> spark.sql("SELECT key FROM orders").collect()
        [Row(key=b'k')]

    A name with other characters than letters, digits and ``_`` is written between backticks in SQL.
    """
    if name is not None and not str(name).strip():
        raise InvalidOptionError(f"invalid name {name!r} of a view: it is empty", option="name")
    rows = table(spark, root, topic, version=version, as_of=as_of, storage_options=storage_options)
    quoted = str(topic if name is None else name).replace("`", "``")
    rows.createOrReplaceTempView(f"`{quoted}`")
    return rows


def _find_ends(
    coordinator: Coordinator, state: State, topic: str, version: int | None, time_ms: int | None
) -> Mapping[int, int] | None:
    """Return the end offsets at an older version or time; None for the newest."""
    past = find_past_version(coordinator.log, state, version, time_ms)
    return None if past is None else find_past_ends(coordinator.log, state, topic, past)


def _history(spark: SparkSession, topic: str, history: TopicHistory, typed: RecordSchema) -> DataFrame:
    schema = StructType([*ROW_SCHEMA.fields, *typed_struct(typed).fields])
    if is_connect(spark):
        rows = scan_by_partition(spark, history.files, schema)
    else:
        rows = scan_files(spark, topic, history.files, schema)
    deleted = [
        (F.col("partition") != number) | F.col("offset").between(cut.start, cut.end - 1)
        for number, cut in enumerate(history.cuts)
        if cut.is_cut
    ]
    return reduce(DataFrame.where, deleted, rows)


def _tail(
    spark: SparkSession,
    cluster: Mapping[str, str],
    topic: str,
    cuts: Sequence[PartitionCut],
    typed: RecordSchema,
) -> DataFrame:
    """Return the records after the history. Few are read now, so that a query needs no Python process for them; of many
    the segments are chosen now, and tasks read them."""
    schema = StructType([*ROW_SCHEMA.fields, *typed_struct(typed).fields])
    numbers = range(len(cuts))
    options = {
        "assign": json.dumps({topic: list(numbers)}),
        "startingOffsets": json.dumps({topic: {number: cuts[number].history_end for number in numbers}}),
        "endingOffsets": json.dumps({topic: {number: cuts[number].end for number in numbers}}),
        **cluster,
    }
    reader = SparklogDataSource(options).record_reader(ROW_SCHEMA)
    partitions = reader.partitions()
    batches = _read_few(reader, partitions) if sum(cut.tail_bytes for cut in cuts) <= MAX_LOCAL_BYTES else None
    if batches is None:
        read = partial(read_partitions, reader, partitions, typed)
        return spark.range(0, len(partitions), 1, len(partitions)).mapInArrow(read, schema)
    rows = list(add_typed_columns(typed, batches)) or [pa.RecordBatch.from_pylist([], arrow_schema(schema))]
    return spark.createDataFrame(pa.Table.from_batches(rows), schema)


def _read_few(reader: SparklogReader, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
    """Return the records, None if they take more than ``MAX_LOCAL_BYTES``."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for partition in partitions:
        for batch in reader.read(partition):
            size += batch.nbytes
            if size > MAX_LOCAL_BYTES:
                return None
            batches.append(batch.take(pa.array(range(batch.num_rows))))  # Spark cannot take a slice with null lists
    return batches
