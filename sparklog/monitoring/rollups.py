"""Rollups: what commits said by minute, for longer than the commits are kept.

    meta/rollups/<20 digits>-<20 digits>-<ms>-<digest>-<CRC32C>.arrow     of the commits with these numbers and those
                                                                          between; time and digest of the last one

A rollup has, of each partition and minute, one row with the sum of its appends, and of each group, partition and minute
the offset that was committed last. They are rows of the system tables ``appends`` and ``offsets``, with the version and
time of the last commit of the minute; so what is made of these tables (``throughput``, ``lag``) can be made of rollups,
by the minute. Topics that were created and deleted are stated as they were.

Rules: derived. A rollup may be deleted at any time, and two of the same commits do no harm: readers take each commit
from one of them. A damaged one is left out, and nothing else depends on it. The digest tells commits of another
timeline apart: those that a root had before it was restored from a copy.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.format.arrow_file import read_arrow_file, with_columns
from sparklog.format.checksum import crc32c
from sparklog.format.plain_arrays import plain_array, plain_batch
from sparklog.monitoring.commit_rows import read_rows, to_table
from sparklog.protocol import levels

ROLLUPS = "meta/rollups/"
MINUTE_MS = 60_000
MAX_ROLLUP_BYTES = 64 * 1024 * 1024
"""Size in bytes up to which a rollup is read, also when it is decompressed."""

ROLLED_TABLES = ("appends", "offsets", "topic_changes")
"""The system tables of which rollups have rows."""

_SCHEMA = pa.schema(
    [
        pa.field("table", pa.int32(), False),
        pa.field("name", pa.int32(), False),
        pa.field("versions", pa.int32(), False),
        pa.field("milliseconds", pa.int64(), False),
        pa.field("offset", pa.int64(), False),
        pa.field("records", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("appends", pa.int32(), False),
    ]
)
"""``versions`` and ``milliseconds`` are those since the row before, or since the version and time in the metadata: such
small numbers take few bytes. An ``offset`` of -1 stands for none. ``name`` is the number of a name in the metadata:
topic, its id, partition, and group."""

_FORMAT, _NAMES, _FROM = b"sparklog.format", b"sparklog.names", b"sparklog.from"


class _Name(NamedTuple):
    topic: str | None
    topic_id: str | None
    partition: int | None
    other: str
    """The group, or what happened to the topic."""


class _Row(NamedTuple):
    table: int
    name: _Name
    version: int
    time_ms: int
    offset: int | None
    sums: tuple[int, int, int] = (0, 0, 0)
    """Of appends: their records, bytes and number."""


class RolledCommits(NamedTuple):
    """The commits of a rollup: the first and the last version, and the time in ms and the digest (its first 16 digits)
    of the last."""

    first: int
    last: int
    last_ms: int
    digest: str


_KEY = re.compile(rf"{ROLLUPS}(\d{{20}})-(\d{{20}})-(\d{{1,15}})-([0-9a-f]{{16}})-[0-9a-f]{{8}}\.arrow")


def rollup_key(commits: RolledCommits, data: bytes) -> str:
    """Return the key of the rollup of these commits, with the checksum of its bytes."""
    name = f"{commits.first:020d}-{commits.last:020d}-{commits.last_ms}-{commits.digest}-{crc32c(data):08x}.arrow"
    return ROLLUPS + name


def commits_of(key: str) -> RolledCommits | None:
    """Return the commits of a rollup, None if the key is not one of a rollup."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    first, last, last_ms = map(int, match.groups()[:3])
    return RolledCommits(first, last, last_ms, match[4]) if first <= last else None


def choose_rollups(keys: Iterable[str]) -> dict[str, RolledCommits]:
    """Return rollups that have no commit in common, oldest first; of those that begin with the same one the longest."""
    rolled = {key: commits for key in keys if (commits := commits_of(key)) is not None}
    chosen: dict[str, RolledCommits] = {}
    end = -1
    for key, commits in sorted(rolled.items(), key=lambda each: (each[1].first, -each[1].last, each[0])):
        if commits.first > end:
            chosen[key] = commits
            end = commits.last
    return chosen


def encode_rollup(tables: Mapping[str, pa.Table]) -> bytes:
    """Return a rollup of these rows of ``ROLLED_TABLES``, all those of some commits."""
    rows = sorted(_rows(tables), key=lambda row: (row.table, row.version))
    names = {name: number for number, name in enumerate(dict.fromkeys(row.name for row in rows))}
    version, time_ms = (rows[0].version, rows[0].time_ms) if rows else (0, 0)
    metadata = {
        _FORMAT: str(levels.ROLLUPS.level),
        _NAMES: json.dumps(list(names), separators=(",", ":")),
        _FROM: json.dumps([version, time_ms]),
    }
    columns: list[list[Any]] = [[] for _ in _SCHEMA]
    for row in rows:
        values = (
            row.table,
            names[row.name],
            row.version - version,
            row.time_ms - time_ms,
            -1 if row.offset is None else row.offset,
            *row.sums,
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        version, time_ms = row.version, row.time_ms
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(plain_batch(columns, schema))
    return bytes(sink.getvalue())


def decode_rollup(key: str, data: bytes) -> dict[str, pa.Table]:
    """Return the rows of a rollup by table; those of ``appends`` state in the column ``appends`` how many each sums up.

    Raises ValueError for other bytes than those of this key.
    """
    if not key.endswith(f"-{crc32c(data):08x}.arrow"):
        raise ValueError("its checksum does not match")
    schema, batch = read_arrow_file(pa.py_buffer(data), MAX_ROLLUP_BYTES)
    metadata = schema.metadata or {}
    try:
        if int(metadata[_FORMAT]) > levels.CURRENT:
            raise ValueError("it was written by a newer version of sparklog")
        names = [_Name(*name) for name in json.loads(metadata[_NAMES])]
        version, time_ms = json.loads(metadata[_FROM])
        rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in ROLLED_TABLES}
        counts: list[int] = []
        for number, name, versions, milliseconds, offset, records, size, appends in zip(
            *(column.to_pylist() for column in with_columns(batch, _SCHEMA)), strict=True
        ):
            version, time_ms = version + versions, time_ms + milliseconds
            table = ROLLED_TABLES[number]
            stated = None if offset < 0 else offset
            rows[table].append(_DECODED[table](version, time_ms, names[name], stated, records, size))
            counts += [appends] if table == "appends" else []
        tables = {table: to_table(table, found) for table, found in rows.items()}
        return {**tables, "appends": tables["appends"].append_column("appends", plain_array(counts, pa.int64()))}
    except (KeyError, IndexError, TypeError, OverflowError, pa.ArrowException, RecursionError) as error:
        raise ValueError(f"it is not a rollup: {type(error).__name__}: {error}") from error


def _rows(tables: Mapping[str, pa.Table]) -> Iterator[_Row]:
    yield from _sum_appends(tables["appends"])
    yield from _last_offsets(tables["offsets"])
    for version, time_ms, topic, topic_id, change, partitions in read_rows(
        tables["topic_changes"], ("version", "timestamp", "topic", "topic_id", "change", "partitions")
    ):
        yield _Row(2, _Name(topic, topic_id, None, change), version, time_ms, partitions)


def _sum_appends(appends: pa.Table) -> Iterator[_Row]:
    """Yield a row for each minute of a partition: its first offset, and the sums of records and bytes."""
    open_rows: dict[_Name, _Row] = {}
    names = ("version", "timestamp", "topic", "topic_id", "partition", "base_offset", "records", "bytes")
    for version, time_ms, topic, topic_id, partition, offset, records, size in read_rows(appends, names):
        name, added = _Name(topic, topic_id, partition, ""), (records, size, 1)
        row = open_rows.get(name)
        if row is not None and row.time_ms // MINUTE_MS == time_ms // MINUTE_MS:
            offset, added = row.offset, tuple(map(operator.add, row.sums, added))
        elif row is not None:
            yield row
        open_rows[name] = _Row(0, name, version, time_ms, offset, added)
    yield from open_rows.values()


def _last_offsets(offsets: pa.Table) -> Iterator[_Row]:
    """Yield a row for each minute of a group and partition: the offset that was committed last."""
    open_rows: dict[_Name, _Row] = {}
    names = ("version", "timestamp", "group", "topic", "topic_id", "partition", "offset")
    for version, time_ms, group, topic, topic_id, partition, offset in read_rows(offsets, names):
        name = _Name(topic, topic_id, partition, group)
        row = open_rows.get(name)
        if row is not None and row.time_ms // MINUTE_MS != time_ms // MINUTE_MS:
            yield row
        open_rows[name] = _Row(1, name, version, time_ms, offset)
    yield from open_rows.values()


def _append(version: int, time_ms: int, name: _Name, offset: int, records: int, size: int) -> tuple[Any, ...]:
    return version, time_ms, name.topic, name.topic_id, name.partition, offset, records, size, *(None,) * 6


def _offset(version: int, time_ms: int, name: _Name, offset: int | None, *_: object) -> tuple[Any, ...]:
    return version, time_ms, name.other, name.topic, name.topic_id, name.partition, offset, None, None


def _topic_change(version: int, time_ms: int, name: _Name, partitions: int | None, *_: object) -> tuple[Any, ...]:
    return version, time_ms, name.topic, name.topic_id, name.other, partitions, None


_DECODED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "appends": _append,
    "offsets": _offset,
    "topic_changes": _topic_change,
}
