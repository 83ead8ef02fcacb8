"""Listings of retired files: files that left the log, for a later sweep to delete.

    meta/removed/<20 digits>-<write id>.arrow      an Arrow file, one row per file and broker: path, broker, size_bytes

A listing is stored before the commit that takes the files out of the log, and named by it (``commits.RemoveFiles``); so
a crash leaves an orphaned listing and nothing else, and ``delete_unnamed`` deletes one whose commit certainly failed. A
listing decides nothing: before deleting a file, a sweep checks that it is not part of the log after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.errors import CorruptMetadataError, IndeterminateCommitError, SparklogError
from sparklog.format.arrow_file import read_arrow_file, with_columns
from sparklog.format.plain_arrays import plain_batch
from sparklog.ids import Ids
from sparklog.protocol import levels
from sparklog.protocol.commits import RemoveFiles
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState
from sparklog.store.base import Store

if TYPE_CHECKING:
    from sparklog.log.commits.commit_log import CommitLog

REMOVED = "meta/removed/"
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("broker", pa.int32(), False),
        pa.field("size_bytes", pa.int64(), False),
    ]
)
_FORMAT = b"sparklog.format"
"""In the schema's metadata: a level (see ``protocol.levels``). Columns of later versions are ignored unless it grew."""

FORMAT = 2
"""The level that introduced the present columns of a listing."""


class RemovedFile(NamedTuple):
    """A retired ``.log``, with its ``.index``, on one broker; bytes of its runs that left the log."""

    path: str
    broker: int
    size_bytes: int


def files_of(partition: PartitionState, segments: Iterable[Segment]) -> Iterator[RemovedFile]:
    """Yield the files of a partition's segments on every broker that may hold them."""
    for segment in segments:
        for broker in {*partition.replicas, segment.broker} if len(partition.replicas) == 1 else partition.replicas:
            yield RemovedFile(segment.path, broker, segment.size_bytes)


def write_removed(store: Store, ids: Ids, version: int, files: Iterable[RemovedFile], delay_ms: int) -> RemoveFiles:
    """Store a listing, durable on return, and return the action that names it. Duplicate files count once.

    ``version`` is that of a state that the files were part of. Raises StorageError.
    """
    sizes: dict[tuple[str, int], int] = {}
    for file in files:
        sizes[file.path, file.broker] = sizes.get((file.path, file.broker), 0) + file.size_bytes
    columns: list[list[object]] = [[path for path, _ in sizes], [broker for _, broker in sizes], list(sizes.values())]
    sink = pa.BufferOutputStream()
    schema = SCHEMA.with_metadata({_FORMAT: str(FORMAT)})
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(plain_batch(columns, schema))
    key = f"{REMOVED}{max(version, 0):020d}-{ids.write_id()}.arrow"
    with store.open_output(key) as output:
        output.write(sink.getvalue())
    return RemoveFiles(listing=key, files=len(sizes), size_bytes=sum(sizes.values()), delay_ms=delay_ms)


@contextmanager
def delete_unnamed(log: CommitLog, listings: Iterable[RemoveFiles]) -> Iterator[None]:
    """Delete the listings that ``log`` does not name after the block, which commits them or fails. Best effort.

    If the outcome of a commit is unknown, or the newest state cannot be read, all of them stay.
    """
    try:
        yield
    except IndeterminateCommitError:
        raise
    except SparklogError:
        _delete_unnamed(log, listings)
        raise
    _delete_unnamed(log, listings)


def _delete_unnamed(log: CommitLog, listings: Iterable[RemoveFiles]) -> None:
    with suppress(SparklogError):
        for listing in listings:
            if listing.listing not in log.state.removed_files and listing.listing not in log.refresh().removed_files:
                log.store.delete(listing.listing)


def read_removed(store: Store, key: str) -> Iterator[RemovedFile]:
    """Yield the files of a listing. Raises ObjectNotFoundError, CorruptMetadataError, UnsupportedVersionError."""
    path = f"{store.root}/{key}"
    data = store.get(key, limits.MAX_CHECKPOINT_PART_BYTES)
    try:
        schema, rows = read_arrow_file(pa.py_buffer(data), limits.MAX_LISTING_BYTES)
        stated = (schema.metadata or {}).get(_FORMAT, b"")
        if stated.isdigit() and int(stated) > levels.CURRENT:
            raise levels.newer(path, int(stated))
        rows = with_columns(rows, SCHEMA)
    except ValueError as error:
        raise CorruptMetadataError(
            f"invalid listing {path}: {error}; delete it, a vacuum will find the files", path=path
        ) from error
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield RemovedFile(*row)
