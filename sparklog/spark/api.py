"""Read and write with typed arguments: ``sparklog.read``, ``sparklog.write`` and ``sparklog.register``.

    sparklog.register(spark)
    sparklog.write(df, "/data/log", topic="flights")
    sparklog.read(spark, "/data/log", subscribe="flights", columns=["key", "value"])

Each argument is one option of ``format("sparklog")`` (``docs/spark.md``), spelled as a Python name.

Rules: runs in the user's process; only builds options and calls Spark; options are checked where Spark uses them.
Not for: streaming queries.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from sparklog.config.environment import default_root
from sparklog.errors import InvalidOptionError
from sparklog.errors.suggestions import suggest_arguments
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.jobs.attempts import settings_of, warn_of_second_attempt
from sparklog.spark.options import STORAGE_PREFIX
from sparklog.spark.own_session import activate, register_source
from sparklog.spark.source.filters import EPOCH, NEVER_NULL
from sparklog.spark.source.rows import READ_TYPES, unknown_column
from sparklog.spark.stream.query_names import listen
from sparklog.types import as_python

Offsets = str | Mapping[str, Mapping[int, int] | str]
"""``"earliest"``, ``"latest"``, or a mapping from topic to one of these words or to offsets by partition; -2 is
earliest, -1 latest."""
Timestamp = datetime | int
"""A datetime with a time zone, or milliseconds since the epoch."""

FRESH_COLUMN = "partition"
"""Never null, so the filter ``IS NOT NULL`` drops no row. Spark plans a read again for each query only if it has a
filter to push down to the source; without one it keeps the plan of the first query for good."""


def register(spark: SparkSession) -> None:
    """Register ``format("sparklog")`` with a session, and have its named streaming queries commit the offsets they have
    read to the consumer groups of the same names (``docs/streaming.md``, "Lag"). ``df.write.format("sparklog")`` then
    works in any thread, and appends if no mode was set before. Idempotent.

    Enables ``spark.sql.python.filterPushdown.enabled`` unless the session sets it. Raises InvalidRequestError if
    Spark starts its Python processes with a Python that has no sparklog.

        >>> sparklog.register(spark)
        >>> spark.read.format("sparklog").option("subscribe", "orders").load(root).count()
        0
    """
    register_source(spark)
    listen(spark)


@suggest_arguments
def read(
    spark: SparkSession,
    root: str | os.PathLike[str] | None,
    subscribe: str | Sequence[str] | None = None,
    *,
    subscribe_pattern: str | None = None,
    assign: Mapping[str, Sequence[int]] | None = None,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    starting_offsets_by_timestamp: Mapping[str, Mapping[int, Timestamp]] | None = None,
    ending_offsets_by_timestamp: Mapping[str, Mapping[int, Timestamp]] | None = None,
    version: int | None = None,
    as_of: Timestamp | None = None,
    latest_if_no_match: bool = False,
    fail_on_data_loss: bool = True,
    min_partitions: int | None = None,
    max_partitions: int | Literal["auto"] | None = None,
    max_records_per_partition: int | None = None,
    include_headers: bool = False,
    columns: Sequence[str] | None = None,
    push_down_predicate: bool = False,
    reader_lease_ms: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the records of topics as a DataFrame. Each query of it looks them up again and reads one consistent
    snapshot. ``root`` is the folder or URL of the cluster; None is the one that ``SPARKLOG_BOOTSTRAP_SERVER`` names.

    Exactly one of ``subscribe`` (topics, or one comma-separated string), ``subscribe_pattern`` and ``assign`` selects
    the partitions. Starting offsets are inclusive, ending offsets exclusive; by default the read goes from the earliest
    to the latest record. ``columns`` limits the read to these columns and their bytes.

    ``version`` is a version of the cluster, ``as_of`` a time: the topics end where they ended then, in every query.
    Records that were removed since are missing. Raises InvalidOptionError, and the errors of ``register``; a query
    fails with InvalidRequestError for a version that is not known any more.

        >>> sparklog.read(spark, root, subscribe="orders", columns=["key", "value"]).columns
        ['key', 'value']
    """
    register_source(spark)
    chosen = {
        **prefixed(storage_options),
        "subscribe": subscribe if subscribe is None or isinstance(subscribe, str) else ",".join(subscribe),
        "subscribePattern": subscribe_pattern,
        "assign": None if assign is None else _assignment(assign),
        "startingOffsets": _offsets(starting_offsets),
        "endingOffsets": _offsets(ending_offsets),
        "startingTimestamp": milliseconds(starting_timestamp),
        "endingTimestamp": milliseconds(ending_timestamp),
        "startingOffsetsByTimestamp": _timestamps(starting_offsets_by_timestamp),
        "endingOffsetsByTimestamp": _timestamps(ending_offsets_by_timestamp),
        "versionAsOf": version,
        "timestampAsOf": milliseconds(as_of),
        "startingOffsetsByTimestampStrategy": "latest" if latest_if_no_match else None,
        "failOnDataLoss": fail_on_data_loss,
        "minPartitions": min_partitions,
        "maxPartitions": max_partitions,
        "maxRecordsPerPartition": max_records_per_partition,
        "includeHeaders": include_headers,
        "pushDownPredicate": push_down_predicate,
        "readerLeaseMs": reader_lease_ms,
    }
    reader, path = spark.read.format(SparklogDataSource.name()).options(**_without_none(chosen)), path_of(root)
    if columns is None:
        return reader.load(path).where(f"{FRESH_COLUMN} IS NOT NULL")
    fresh = next((name for name in columns if name in NEVER_NULL), FRESH_COLUMN)
    added = [] if fresh in columns else [fresh]
    rows = reader.schema(_schema([*columns, *added])).load(path).where(f"{fresh} IS NOT NULL")
    return rows.select(*columns) if added else rows


@suggest_arguments
def write(
    df: DataFrame,
    root: str | os.PathLike[str] | None,
    topic: str | None = None,
    *,
    partitioner: str | None = None,
    compression: str | None = None,
    acks: str | int | None = None,
    include_timestamp: bool = True,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    on_batch_mismatch: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Append the rows of a DataFrame to topics: one commit, all rows or none.

    Rows without a column ``value`` may have the columns of the topic's schema instead: their value is the JSON of
    these (``docs/typed-topics.md``). Without ``topic``, the column ``topic`` names the topic of each row.
    ``partitioner`` is default, integer_key or module:callable. ``acks`` is all (the default) for every replica in
    sync, 1 for the leader alone. With ``include_timestamp=False`` a column ``timestamp`` is ignored, and records
    get the time of the write. With ``txn_app_id`` and ``txn_version`` the write is idempotent: a job that is run
    again writes nothing. ``on_batch_mismatch`` (fail, skip, append) decides what happens if its rows differ from
    those of the first run; without it they are skipped unread. Raises Spark's exceptions, whose text holds the
    class and message of sparklog's error.

        >>> rows = spark.createDataFrame([("k", "v")], "key string, value string")
        >>> sparklog.write(rows, root, topic="orders", txn_app_id="nightly", txn_version=1)
        >>> sparklog.read(spark, root, subscribe="orders").count()
        1
    """
    register_source(df.sparkSession)
    activate(df.sparkSession)
    if not txn_app_id:
        warn_of_second_attempt(settings_of(df.sparkSession))
    chosen = {
        **prefixed(storage_options),
        "topic": topic,
        "partitioner": partitioner,
        "kafka.compression.type": compression,
        "acks": None if acks is None else str(acks),
        "includeTimestamp": None if include_timestamp else "false",
        "txnAppId": txn_app_id,
        "txnVersion": txn_version,
        "onBatchMismatch": on_batch_mismatch,
    }
    df.write.format(SparklogDataSource.name()).mode("append").options(**_without_none(chosen)).save(path_of(root))


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def path_of(root: str | os.PathLike[str] | None) -> str | None:
    """Return the root as Spark takes it, by default the one that the environment names, None without any."""
    return default_root() if root is None else os.fspath(root)


def prefixed(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return options of the storage's client as options of ``format("sparklog")``."""
    return {
        STORAGE_PREFIX + name: value if isinstance(value, str) else json.dumps(value)
        for name, value in (options or {}).items()
    }


def _assignment(assign: Mapping[str, Iterable[int]]) -> str:
    return json.dumps({topic: list(numbers) for topic, numbers in assign.items()}, default=operator.index)


def _offsets(offsets: Offsets | None) -> str | None:
    if offsets is None or isinstance(offsets, str):
        return offsets
    return json.dumps(
        {
            topic: word if isinstance(word, str) else {str(number): offset for number, offset in word.items()}
            for topic, word in offsets.items()
        },
        default=operator.index,
    )


def _timestamps(timestamps: Mapping[str, Mapping[int, Timestamp]] | None) -> str | None:
    if timestamps is None:
        return None
    return json.dumps(
        {
            topic: {str(number): milliseconds(time) for number, time in times.items()}
            for topic, times in timestamps.items()
        },
        default=operator.index,
    )


def milliseconds(time: Timestamp | None) -> int | None:
    """Return a time in ms since the epoch. Raises InvalidOptionError for a datetime without a time zone."""
    if not isinstance(time, datetime):
        return as_python(time)  # type: ignore[no-any-return]
    if time.tzinfo is None:
        raise InvalidOptionError(f"{time!r} has no time zone; add one, such as tzinfo=timezone.utc")
    return (time - EPOCH) // timedelta(milliseconds=1)


def _schema(columns: Sequence[str]) -> StructType:
    unknown = [name for name in columns if name not in READ_TYPES]
    if unknown:
        raise unknown_column(unknown[0])
    return StructType([StructField(name, READ_TYPES[name]) for name in columns])
