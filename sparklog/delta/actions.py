"""The actions of a Delta log that tables of topics use, and the JSON of a commit: one action a line.

    {"commitInfo":{"timestamp":…,"operation":"PUBLISH","operationParameters":{"version":"42"},"txnId":"…",…}}
    {"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
    {"metaData":{"id":"…","schemaString":"…","partitionColumns":["partition"],…}}
    {"txn":{"appId":"sparklog:…:orders","version":42}}
    {"add":{"path":"_segments/partition=0/….parquet","partitionValues":{"partition":"0"},"stats":"{…}",…}}

Source: the Delta transaction log protocol (PROTOCOL.md of delta-io/delta), reader version 1 and writer version 2. Logs
are also written by others, by mistake: unknown actions and fields are ignored, except those that change which records
a table has (a deletion vector).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import msgspec

READER_VERSION = 1
WRITER_VERSION = 2


class Protocol(msgspec.Struct, frozen=True, rename="camel"):
    """Table features are those of versions 3 and 7, which others may have switched on."""

    min_reader_version: int = READER_VERSION
    min_writer_version: int = WRITER_VERSION
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(msgspec.Struct, frozen=True):
    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """``created_time`` is in ms since the epoch."""

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    partition_columns: list[str] = []
    configuration: dict[str, str] = {}
    created_time: int | None = None


class Transaction(msgspec.Struct, frozen=True, rename="camel"):
    """The last version that an application has written, by which it recognises what it did before."""

    app_id: str
    version: int
    last_updated: int | None = None


class Add(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the table. ``path`` is a URI, relative to the table's folder or absolute; ``modification_time`` is
    in ms since the epoch."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    deletion_vector: dict[str, object] | None = None


class Remove(msgspec.Struct, frozen=True, rename="camel"):
    """A file that left the table. ``deletion_timestamp`` is in ms since the epoch."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    deletion_vector: dict[str, object] | None = None


class Line(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One line of a commit, with one action; none of them if it is of another kind."""

    commit_info: dict[str, object] | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Transaction | None = None
    add: Add | None = None
    remove: Remove | None = None


class TableSnapshot(msgspec.Struct, frozen=True):
    """A table at a version, -1 if it has none yet. ``files`` by ``file_key``; ``transactions`` by application id."""

    version: int = -1
    protocol: Protocol = Protocol(0, 0)
    metadata: Metadata | None = None
    transactions: Mapping[str, int] = {}
    files: Mapping[str, Add] = {}


def file_key(path: str) -> str:
    """Return what identifies the file of an action: writers escape different characters of a path."""
    return unquote(path)


_LINE = msgspec.json.Decoder(Line)


def decode_commit(data: bytes) -> list[Line]:
    """Return the actions of a commit. Raises msgspec.MsgspecError, RecursionError."""
    return [_LINE.decode(line) for line in data.splitlines() if line.strip()]


def encode_commit(lines: Iterable[Line]) -> bytes:
    """Return the bytes of a commit. Fields without a value are left out."""
    return b"".join(msgspec.json.encode(_without_nulls(msgspec.to_builtins(line))) + b"\n" for line in lines)


def _without_nulls(fields: Mapping[str, object]) -> dict[str, object]:
    """Return an action without its absent fields."""
    return {
        kind: {name: value for name, value in action.items() if value is not None}
        for kind, action in fields.items()
        if isinstance(action, dict)
    }


def apply(snapshot: TableSnapshot, version: int, lines: Iterable[Line]) -> TableSnapshot:
    """Return the table after a commit."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    transactions, files = dict(snapshot.transactions), dict(snapshot.files)
    for line in lines:
        if line.remove is not None:
            files.pop(file_key(line.remove.path), None)
    for line in lines:
        if line.add is not None:
            files[file_key(line.add.path)] = line.add
        protocol = line.protocol or protocol
        metadata = line.meta_data or metadata
        if line.txn is not None:
            transactions[line.txn.app_id] = line.txn.version
    return TableSnapshot(version, protocol, metadata, transactions, files)


def join(snapshot: TableSnapshot, part: TableSnapshot) -> TableSnapshot:
    """Return a table of two parts of a checkpoint."""
    return TableSnapshot(
        snapshot.version,
        part.protocol if part.protocol.min_writer_version else snapshot.protocol,
        part.metadata or snapshot.metadata,
        {**snapshot.transactions, **part.transactions},
        {**snapshot.files, **part.files},
    )
