"""Read a topic as Arrow, without Spark and without a consumer: a fixed range of offsets.

    table = sparklog.scan("orders", "/data/log").to_arrow()

The range is fixed when ``scan`` is called, so that reading it twice returns the same records; the next scan starts at
its ``end_offsets``. Only committed records are read: those of a transaction once it is committed.

Rules: it only reads: no group, no reader lease, nothing is stored. Files that were merged into others in the meantime
are looked up in the newest state, as in consumers. Records come partition by partition, in the order of their offsets,
about 1 MiB at a time.

Not for: following a topic (``Consumer``), distributed queries (``sparklog.spark``).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.client.config import cluster_of
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.representation import Facts, Shown
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidConfigurationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.format.schema import COLUMNS, HEADERS, HEADERS_TYPE, TIMESTAMP_TYPE
from sparklog.log.records.batches import RowBuilder, join_small
from sparklog.log.records.records import Records
from sparklog.protocol.state import State

ROW_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP_TYPE,
        "timestampType": pa.int32(),
        "headers": HEADERS_TYPE,
    }
)
"""The columns of a scan: names, types and order are those of Spark's Kafka source with headers."""

Limit = str | datetime | Mapping[int, "int | str | datetime"]
"""The start or end of a scan: ``earliest``, ``latest``, a time, or one of these or an offset for each partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class _Range(NamedTuple):
    """Offsets ``[start, end)`` of a partition."""

    partition: int
    start: int
    end: int


def scan(
    topic: str,
    root: str | os.PathLike[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    start: Limit = "earliest",
    end: Limit = "latest",
    partitions: Sequence[int] | None = None,
    storage_options: Mapping[str, object] | None = None,
    cluster: Any = None,
) -> Scan:
    """Return the committed records of a topic, by default from its beginning to now, to be read as Arrow.

    ``root`` is the folder or URL of the cluster, with ``storage_options`` for the storage's client; or give an open
    ``cluster``. ``columns`` selects from ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``,
    ``timestampType`` and ``headers`` (default: all), in the order given; other columns are not read. ``partitions``
    selects partitions.

    ``start`` is the first record that is read and ``end`` the first that is not: ``"earliest"``, ``"latest"``, a time
    with a time zone (the first record at or after it), or a dict from partition to one of these or to an offset. A
    partition that the dict does not name is read from its beginning, or to its end.

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     for number in range(3):
        ...         _ = producer.send("orders", key=b"k", value=b"%d" % number)
        >>> orders = sparklog.scan("orders", root, columns=["offset", "value"])
        >>> orders.to_arrow().to_pylist()
        [{'offset': 0, 'value': b'0'}, {'offset': 1, 'value': b'1'}, {'offset': 2, 'value': b'2'}]
        >>> orders.end_offsets
        {0: 3}

    Raises:
        UnknownTopicOrPartitionError: no such topic or partition.
        OffsetOutOfRangeError: an offset outside of the log.
        InvalidConfigurationError: an invalid argument; the message names it.
        ClusterNotFoundError, StorageError: as ``Consumer``.
    """
    names = _check_columns(columns)
    given = {"bootstrap_servers": root, "storage_options": storage_options, "cluster": cluster}
    coordinator = cluster_of("scan", given, "root")
    with ConsumerReader(coordinator) as reader:
        state = reader.refresh()
        numbers = _check_partitions(reader, topic, partitions)
        starts, ends = _by_partition("start", start, "earliest", numbers), _by_partition("end", end, "latest", numbers)
        ranges = [_find_range(reader, topic, number, starts[number], ends[number]) for number in numbers]
    return Scan(coordinator, state, topic, names, ranges)


class Scan(Shown):
    """Records of a topic in a fixed range, which can be read repeatedly. Returned by ``sparklog.scan``.

    Libraries that accept Arrow streams accept it directly: ``polars.DataFrame(scan)``,
    ``deltalake.write_deltalake(path, scan)``, or its name in a DuckDB query. Thread-safe; each iterator is for one
    thread at a time.

        >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
        >>> orders = sparklog.scan("orders", root)
        >>> orders
        <Scan topic=orders partitions=1 offsets=1>
        >>> orders.to_arrow()["value"].to_pylist()
        [b'a']
    """

    def __init__(
        self, coordinator: Coordinator, state: State, topic: str, columns: Sequence[str], ranges: Sequence[_Range]
    ) -> None:
        self._coordinator = coordinator
        self._state = state
        self._ranges = tuple(ranges)
        self.topic = topic
        self.schema: pa.Schema = pa.schema([pa.field(name, ROW_TYPES[name]) for name in columns])

    def _facts(self) -> Facts:
        offsets = sum(offset_range.end - offset_range.start for offset_range in self._ranges)
        return {"topic": self.topic, "partitions": len(self._ranges), "offsets": offsets}

    @property
    def start_offsets(self) -> dict[int, int]:
        """The first offset to read of each partition."""
        return {offset_range.partition: offset_range.start for offset_range in self._ranges}

    @property
    def end_offsets(self) -> dict[int, int]:
        """The offset after the last one to read of each partition: the ``start`` of the next scan."""
        return {offset_range.partition: offset_range.end for offset_range in self._ranges}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records in batches of about 1 MiB, however large the topic is.

            >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
            >>> sum(batch.num_rows for batch in sparklog.scan("orders", root).batches())
            1

        Raises:
            OffsetOutOfRangeError: records of the range were deleted before they were read.
            DataLossError, CorruptRecordError, CorruptIndexError: records are lost or damaged.
            StorageError: the storage failed.
        """
        names = self.schema.names
        with ConsumerReader(self._coordinator) as reader:
            for offset_range in self._ranges:
                builder = RowBuilder(self.schema, names, self.topic, offset_range.partition)
                built = (builder.build(records) for records in self._records(reader, offset_range))
                yield from join_small((batch, batch.nbytes) for batch in built)

    def _records(self, reader: ConsumerReader, offset_range: _Range) -> Iterator[Records]:
        partition, start, end = offset_range
        names = self.schema.names
        stored = [name for name in COLUMNS if name in names]
        if start == end:
            return
        if self.topic not in self._state.topics:  # derived from commits
            for fetched in reader.fetch(self.topic, partition, start, end):
                yield _with_headers(fetched.records)
        elif stored:
            for fetched in reader.fetch(self.topic, partition, start, end, stored, self._state):
                yield fetched.records
        else:
            yield from reader.positions(self.topic, partition, start, end, "offset" in names, self._state)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the records as an Arrow stream of batches. Reading it raises as ``batches``.

        >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
        >>> sparklog.scan("orders", root, columns=["value"]).to_reader().read_all().num_rows
        1
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """Return all records as a table, in memory. Errors as ``batches``.

        >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
        >>> sparklog.scan("orders", root, columns=["value"]).to_arrow().to_pylist()
        [{'value': b'a'}]
        """
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Return all records as a DataFrame, in memory; ``options`` are those of ``pyarrow.Table.to_pandas``.

            sparklog.scan("orders", "/data/log").to_pandas()

        Errors as ``batches``; ModuleNotFoundError, before anything is read, if pandas is not installed.
        """
        _import("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Return all records as a ``polars.DataFrame``, in memory.

            sparklog.scan("orders", "/data/log").to_polars().lazy()

        Errors as ``batches``; ModuleNotFoundError, before anything is read, if polars is not installed.
        """
        return _import("polars").DataFrame(self)

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the records as a relation of DuckDB, by default of its own connection. They are read as a stream when
        the relation is used, which is possible once.

            sparklog.scan("orders", "/data/log").to_duckdb().aggregate("partition, count(*)").fetchall()

        Errors as ``batches``; ModuleNotFoundError, before anything is read, if duckdb is not installed.
        """
        return (connection or _import("duckdb")).from_arrow(self.to_reader())

    def __arrow_c_schema__(self) -> object:
        """Return the schema, by Arrow's PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a stream of the records, by Arrow's PyCapsule interface; they are read on demand."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"to_{package}() needs {package}: pip install {package}", name=package) from error


def _with_headers(records: Records) -> Records:
    """Add the column headers to records that have none: records derived from commits lack it."""
    batch = records.batch
    if HEADERS in batch.schema.names:
        return records
    return records._replace(batch=batch.append_column(HEADERS, pa.nulls(batch.num_rows, HEADERS_TYPE)))


# -- arguments


def _check_columns(columns: Sequence[str] | None) -> list[str]:
    if isinstance(columns, str):
        raise _invalid("columns", columns, "give a list of names")
    names = list(ROW_TYPES if columns is None else columns)
    unknown = [name for name in names if name not in ROW_TYPES]
    if unknown or not names or len(set(names)) < len(names):
        raise _invalid("columns", columns, f"choose from {', '.join(ROW_TYPES)}, each once")
    return names


def _check_partitions(reader: ConsumerReader, topic: str, partitions: Sequence[int] | None) -> list[int]:
    count = reader.partitions(topic)
    if not count:
        reader.state.topic(topic)  # raises, with the nearest name
    if partitions is None:
        return list(range(count))
    numbers = sorted(set(partitions))
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong[0]}", topic=topic, partition=wrong[0]
        )
    return numbers


def _by_partition(name: str, limit: Limit, default: str, numbers: Sequence[int]) -> Mapping[int, int | str | datetime]:
    """Return the limit of each partition. Raises InvalidConfigurationError."""
    given = limit if isinstance(limit, Mapping) else dict.fromkeys(numbers, limit)
    if not set(given) <= set(numbers):
        wrong = min(set(given) - set(numbers), key=str)
        raise _invalid(name, limit, f"partition {wrong!r} is not read")
    for bound in given.values():
        is_offset = isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0
        if is_offset and not isinstance(limit, Mapping):
            raise _invalid(name, limit, f"an offset is of one partition: give {{0: {bound}}}, or a datetime for a time")
        if isinstance(bound, datetime) and bound.tzinfo is None:
            raise _invalid(name, limit, "the time has no time zone; add one, as in datetime(..., tzinfo=timezone.utc)")
        if not is_offset and not isinstance(bound, datetime) and bound not in ("earliest", "latest"):
            raise _invalid(name, limit, "give 'earliest', 'latest', a datetime, or a dict from partition to offset")
    return {number: given.get(number, default) for number in numbers}


def _invalid(name: str, value: object, advice: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"scan({name}={value!r}): {advice}", config=name, value=value)


def _find_range(
    reader: ConsumerReader, topic: str, partition: int, start: int | str | datetime, end: int | str | datetime
) -> _Range:
    """Return the offsets of a partition, in the state read. Raises OffsetOutOfRangeError outside of the log."""
    bounds = reader.fresh_bounds(topic, partition)
    assert bounds is not None, "the partitions were counted in this state"

    def find_offset(limit: int | str | datetime) -> int:
        if isinstance(limit, int):
            return limit
        if isinstance(limit, str):
            return bounds.start if limit == "earliest" else bounds.end
        timed = reader.find_timestamp(topic, partition, (limit - _EPOCH) // _MICROSECOND)
        return bounds.end if timed is None else timed.offset

    first = find_offset(start)
    last = max(find_offset(end), first)
    for offset in (first, last):
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {topic}-{partition} is out of range: the log has offsets from {bounds.start} and "
                f"ends before {bounds.end}",
                topic=topic,
                partition=partition,
                offset=offset,
            )
    return _Range(partition, first, last)
