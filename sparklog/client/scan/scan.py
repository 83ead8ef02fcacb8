"""Read a topic as Arrow, without Spark and without a consumer: a fixed range of offsets.

    table = sparklog.scan("orders", "/data/log").to_arrow()

The range is fixed when ``scan`` is called, so that reading it twice returns the same records; the next scan starts at
its ``end_offsets``. Only committed records are read: those of a transaction once it is committed.

Rules: it only reads: no group, no reader lease, nothing is stored. Files that were merged into others in the meantime
are looked up in the newest state, as in consumers. Records come partition by partition, in the order of their offsets,
about 1 MiB at a time.

Not for: following a topic (``Consumer``), distributed queries (``sparklog.spark``), and how rows are read
(``rows``).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from sparklog.client.config import cluster_of
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.representation import Facts, Shown
from sparklog.client.scan.row_filter import RowFilter, parse_filter
from sparklog.client.scan.rows import ROW_TYPES, RowReader, ScanRange
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidConfigurationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.errors.suggestions import did_you_mean, suggest_arguments
from sparklog.log.past_offsets import find_past_ends, find_past_version
from sparklog.protocol.history import history_of
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.protocol.state import State
from sparklog.schema.languages.record_schema import RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.types import whole

Limit = str | datetime | Mapping[int, "int | str | datetime"]
"""The start or end of a scan: ``earliest``, ``latest``, a time, or one of these or an offset for each partition."""

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_NO_ZONE = "the time has no time zone; add one, as in datetime(..., tzinfo=timezone.utc)"


@suggest_arguments
def scan(
    topic: str,
    root: str | os.PathLike[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    start: Limit = "earliest",
    end: Limit = "latest",
    partitions: Sequence[int] | None = None,
    filter: Any = None,
    version: int | None = None,
    as_of: datetime | int | None = None,
    storage_options: Mapping[str, object] | None = None,
    cluster: Any = None,
) -> Scan:
    """Return the committed records of a topic, by default from its beginning to now, to be read as Arrow.

    ``root`` is the folder or URL of the cluster, with ``storage_options`` for the storage's client; or give an open
    ``cluster``. ``columns`` selects from ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``,
    ``timestampType`` and ``headers`` (default: these), in the order given, and from the columns of a typed topic's
    schema and ``_unfit``; other columns are not read. ``partitions`` selects partitions.

    ``filter`` is an expression of ``pyarrow.compute``, or a list of tuples as of ``pyarrow.parquet``, on any of these
    columns: only rows that pass are returned, and what cannot have any is not read.

    ``start`` is the first record that is read and ``end`` the first that is not: ``"earliest"``, ``"latest"``, a time
    with a time zone (the first record at or after it), or a dict from partition to one of these or to an offset. A
    partition that the dict does not name is read from its beginning, or to its end.

    ``version`` is a version of the cluster, ``as_of`` a datetime with a time zone or ms since the epoch: the topic ends
    where it ended then. Records that were removed since are missing. It goes back as far as commits are kept
    (``metadata.max.retention.ms``).

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     for number in range(3):
        ...         _ = producer.send("orders", key=b"k", value=b"%d" % number)
        >>> orders = sparklog.scan("orders", root, columns=["offset", "value"])
        >>> orders.to_arrow().to_pylist()
        [{'offset': 0, 'value': b'0'}, {'offset': 1, 'value': b'1'}, {'offset': 2, 'value': b'2'}]
        >>> orders.end_offsets
        {0: 3}
        >>> sparklog.scan("orders", root, columns=["value"], filter=[("offset", ">", 1)]).to_arrow().to_pylist()
        [{'value': b'2'}]

    Raises:
        UnknownTopicOrPartitionError: no such topic or partition, or not at that version.
        OffsetOutOfRangeError: an offset outside of the log.
        InvalidConfigurationError: an invalid argument; the message names it.
        InvalidRequestError: a version that does not exist, or is too old to be known.
        ClusterNotFoundError, StorageError: as ``Consumer``.
    """
    time_ms = find_time_ms("scan", version, as_of)
    given = {"bootstrap_servers": root, "storage_options": storage_options, "cluster": cluster}
    coordinator = cluster_of("scan", given, "root")
    with ConsumerReader(coordinator) as reader:
        state = reader.refresh()
        typed = _record_schema(state, topic)
        columns_of_topic = pa.schema([*(pa.field(*each) for each in ROW_TYPES.items()), *typed_fields(typed.columns)])
        schema = _check_columns(columns, columns_of_topic)
        row_filter = _check_filter(filter, columns_of_topic)
        past = _find_past(coordinator, state, topic, version, time_ms)
        numbers = _check_partitions(reader, topic, partitions, past)
        starts, ends = _by_partition("start", start, "earliest", numbers), _by_partition("end", end, "latest", numbers)
        ranges = [_find_range(reader, topic, number, starts[number], ends[number], past) for number in numbers]
    needed = {*schema.names, *(row_filter.columns if row_filter else ())}
    if needed.isdisjoint(field.name for field in typed_fields(typed.columns)):
        typed = RecordSchema()
    else:
        ranges = [_with_history(coordinator, state, topic, span) for span in ranges]
    return Scan(coordinator, topic, schema, ranges, RowReader(state, topic, schema, typed, row_filter))


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
        self, coordinator: Coordinator, topic: str, schema: pa.Schema, ranges: Sequence[ScanRange], rows: RowReader
    ) -> None:
        self._coordinator = coordinator
        self._ranges = tuple(ranges)
        self._rows = rows
        self.topic = topic
        self.schema: pa.Schema = schema

    def _facts(self) -> Facts:
        offsets = sum(span.end - span.start for span in self._ranges)
        return {"topic": self.topic, "partitions": len(self._ranges), "offsets": offsets}

    @property
    def start_offsets(self) -> dict[int, int]:
        """The first offset to read of each partition."""
        return {span.partition: span.start for span in self._ranges}

    @property
    def end_offsets(self) -> dict[int, int]:
        """The offset after the last one to read of each partition: the ``start`` of the next scan."""
        return {span.partition: span.end for span in self._ranges}

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
        with ConsumerReader(self._coordinator) as reader:
            for span in self._ranges:
                yield from self._rows.read(reader, span)

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


# -- arguments


def _check_columns(columns: Sequence[str] | None, known: pa.Schema) -> pa.Schema:
    if isinstance(columns, str):
        raise _invalid("columns", columns, "give a list of names")
    names = list(ROW_TYPES if columns is None else columns)
    unknown = [name for name in names if name not in known.names]
    if unknown or not names or len(set(names)) < len(names):
        reason = f"unknown column {unknown[0]!r}; " if unknown else ""
        hint = did_you_mean(str(unknown[0]), known.names) if unknown else ""
        if unknown and not hint and known.names == list(ROW_TYPES):
            hint = "; the topic has no value.schema, by which it would have columns of its own"
        raise _invalid("columns", columns, f"{reason}choose from {', '.join(known.names)}, each once{hint}")
    return pa.schema([known.field(name) for name in names])


def _check_filter(given: Any, known: pa.Schema) -> RowFilter | None:
    if given is None:
        return None
    try:
        return parse_filter(given, known)
    except ValueError as error:
        raise _invalid("filter", given, str(error)) from None


def find_time_ms(function: str, version: int | None, as_of: datetime | int | None) -> int | None:
    """Return the time of ``as_of`` in ms since the epoch. Raises InvalidConfigurationError, also if both are given."""
    if version is not None and as_of is not None:
        raise _invalid("as_of", as_of, "give version or as_of, not both", function)
    if not isinstance(as_of, datetime):
        return as_of
    if as_of.tzinfo is None:
        raise _invalid("as_of", as_of, _NO_ZONE, function)
    return (as_of - EPOCH) // timedelta(milliseconds=1)


def _record_schema(state: State, topic: Any) -> RecordSchema:
    if not isinstance(topic, str):
        raise _invalid("topic", topic, "give the name of one topic")
    found = state.topics.get(topic)
    if found is None:
        return RecordSchema()
    return find_record_schema(found, TopicConfig.resolve(found.configs, state.configs))


def _find_past(
    coordinator: Coordinator, state: State, topic: str, version: int | None, time_ms: int | None
) -> Mapping[int, int] | None:
    """Return where the partitions of a topic ended at an older version, None for the newest."""
    past = find_past_version(coordinator.log, state, version, time_ms)
    if past is None:
        return None
    if topic == CONSUMER_OFFSETS_TOPIC:
        raise _invalid("version", past, f"{topic} is derived from the commit log, and is only known as it is now")
    return find_past_ends(coordinator.log, state, topic, past)


def _check_partitions(
    reader: ConsumerReader, topic: str, partitions: Sequence[int] | None, past: Mapping[int, int] | None
) -> list[int]:
    count = reader.partitions(topic) if past is None else len(past)
    if not count:
        reader.state.topic(topic)  # raises
    if partitions is None:
        return list(range(count))
    numbers = _whole_numbers(partitions)
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong[0]}", topic=topic, partition=wrong[0]
        )
    return numbers


def _whole_numbers(partitions: Any) -> list[int]:
    numbers = tuple(partitions) if isinstance(partitions, Iterable) else (None,)
    found = {number for number in map(whole, numbers) if number is not None}
    if any(whole(number) is None for number in numbers):
        raise _invalid("partitions", partitions, "give a list of numbers, such as [0, 1]")
    return sorted(found)


def _by_partition(name: str, limit: Limit, default: str, numbers: Sequence[int]) -> Mapping[int, int | str | datetime]:
    """Return the limit of each partition. Raises InvalidConfigurationError."""
    given = limit if isinstance(limit, Mapping) else dict.fromkeys(numbers, limit)
    if not set(given) <= set(numbers):
        wrong = min(set(given) - set(numbers), key=str)
        raise _invalid(name, limit, f"partition {wrong!r} is not read")
    given = {number: bound if (found := whole(bound)) is None else found for number, bound in given.items()}
    for bound in given.values():
        is_offset = isinstance(bound, int) and bound >= 0
        if is_offset and not isinstance(limit, Mapping):
            raise _invalid(name, limit, f"an offset is of one partition: give {{0: {bound}}}, or a datetime for a time")
        if isinstance(bound, datetime) and bound.tzinfo is None:
            raise _invalid(name, limit, _NO_ZONE)
        if not is_offset and not isinstance(bound, datetime) and bound not in ("earliest", "latest"):
            raise _invalid(name, limit, "give 'earliest', 'latest', a datetime, or a dict from partition to offset")
    return {number: given.get(number, default) for number in numbers}


def _invalid(name: str, value: object, advice: str, function: str = "scan") -> InvalidConfigurationError:
    return InvalidConfigurationError(f"{function}({name}={value!r}): {advice}", config=name, value=value)


def _find_range(
    reader: ConsumerReader,
    topic: str,
    partition: int,
    start: int | str | datetime,
    end: int | str | datetime,
    past: Mapping[int, int] | None,
) -> ScanRange:
    """Return the offsets of a partition, in the state read. Raises OffsetOutOfRangeError outside of the log."""
    bounds = reader.fresh_bounds(topic, partition)
    assert bounds is not None, "the partitions were counted in this state"
    if past is not None:
        bounds = bounds._replace(end=max(past[partition], bounds.start))

    def find_offset(limit: int | str | datetime) -> int:
        if isinstance(limit, int):
            return limit
        if isinstance(limit, str):
            return bounds.start if limit == "earliest" else bounds.end
        timed = reader.find_timestamp(topic, partition, (limit - EPOCH) // _MICROSECOND)
        return bounds.end if timed is None else min(timed.offset, bounds.end)

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
    return ScanRange(partition, first, last)


def _with_history(coordinator: Coordinator, state: State, topic: str, span: ScanRange) -> ScanRange:
    """Return a range with the end of its history, in this state."""
    start = state.partition(topic, span.partition).log_start_offset
    segments = coordinator.segments(topic, state).partition(span.partition)
    ends = [segment.end_offset for segment in history_of(segments, start)]
    return span._replace(history_end=ends[-1] if ends else 0)
