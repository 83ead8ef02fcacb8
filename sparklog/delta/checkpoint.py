"""The checkpoint of a Delta log: all that a table consists of at a version, as one Parquet file.

Source: the section "Checkpoints" of the Delta protocol; the classic kind in one file. Files that left the table are not
in it: nobody but the log's own garbage collection may delete files, and it does not go by the table.
"""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.actions import Add, Line, Metadata, Protocol, TableSnapshot, Transaction, file_key

_TEXTS = pa.map_(pa.string(), pa.string())
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_SCHEMA = pa.schema(
    [("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)]
)
_KINDS = {"txn": Transaction, "add": Add, "metaData": Metadata, "protocol": Protocol}
_MAPS = ("partitionValues", "configuration", "options")


def encode_checkpoint(snapshot: TableSnapshot) -> tuple[bytes, int]:
    """Return the bytes of a checkpoint, and its number of actions."""
    actions: list[Line] = [Line(protocol=snapshot.protocol), Line(meta_data=snapshot.metadata)]
    actions += [Line(txn=Transaction(app_id, version)) for app_id, version in sorted(snapshot.transactions.items())]
    actions += [Line(add=msgspec.structs.replace(add, data_change=False)) for add in snapshot.files.values()]
    table = pa.Table.from_pylist([msgspec.to_builtins(action) for action in actions], _SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue(), len(actions)


def decode_checkpoint(version: int, data: bytes) -> TableSnapshot:
    """Return the table in a checkpoint. Raises ValueError, TypeError, KeyError, OSError, pa.ArrowException,
    msgspec.MsgspecError if it is damaged; its pages are verified if they have checksums, as those of sparklog have."""
    present = pq.read_schema(pa.BufferReader(data)).names
    columns = [name for name in _KINDS if name in present]
    table = pq.read_table(pa.BufferReader(data), columns=columns, page_checksum_verification=True)
    protocol, metadata = Protocol(0, 0), None
    transactions: dict[str, int] = {}
    files: dict[str, Add] = {}
    for name in columns:
        column = table.column(name)
        for fields in column.filter(column.is_valid()).to_pylist():
            action = msgspec.convert(_plain(fields), _KINDS[name])
            if isinstance(action, Add):
                files[file_key(action.path)] = action
            elif isinstance(action, Transaction):
                transactions[action.app_id] = action.version
            elif isinstance(action, Metadata):
                metadata = action
            elif isinstance(action, Protocol):
                protocol = action
    return TableSnapshot(version, protocol, metadata, transactions, files)


def _plain(fields: dict[str, object]) -> dict[str, object]:
    """Return an action with its maps, which Arrow returns as lists of pairs, as dicts."""
    plain: dict[str, object] = {}
    for name, value in fields.items():
        if name in _MAPS:
            plain[name] = dict(value or ())  # type: ignore[call-overload]
        elif isinstance(value, dict):
            plain[name] = _plain(value)
        elif value is not None:
            plain[name] = value
    return plain
