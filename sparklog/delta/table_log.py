"""Reads and writes the Delta log of a topic's table, through a store.

    <root>/tables/<topic>/_delta_log/00000000000000000042.json                 a commit
    <root>/tables/<topic>/_delta_log/00000000000000000040.checkpoint.parquet   the whole table at version 40
    <root>/tables/<topic>/_delta_log/_last_checkpoint                          a hint for readers

Other writers may have left checkpoints in parts, ``….checkpoint.<part>.<parts>.parquet``: read if all are there.

Rules: a commit is created with ``put_if_absent``, so of several writers one wins; its outcome is read back. Numbers are
never used twice: no commit is ever deleted, not even with its topic, so a suspended writer cannot win an old one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from sparklog.delta import actions
from sparklog.delta.actions import Line, TableSnapshot
from sparklog.delta.checkpoint import decode_checkpoint, encode_checkpoint
from sparklog.errors import CorruptMetadataError, RecordListTooLargeError
from sparklog.log.creation import create_object
from sparklog.log.parallel import map_parallel
from sparklog.protocol.file_names import table_folder
from sparklog.store.base import ObjectInfo, Store

CHECKPOINT_INTERVAL = 10
"""Commits between two checkpoints, as in Delta."""

MAX_TABLE_FILE_BYTES = 1024**3
"""Size in bytes up to which a commit or a checkpoint of a table is read."""

_NAME = re.compile(r"/_delta_log/(\d{20})\.(?:json|checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet)\Z")


def log_folder(topic: str) -> str:
    """Return the folder of a table's log, with a slash."""
    return f"{table_folder(topic)}/_delta_log/"


class TableLog:
    """The log of one table. Keeps the last snapshot, so that the next one costs a listing and the new commits. Not
    thread-safe."""

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._folder = log_folder(topic)
        self._snapshot = TableSnapshot()
        self._newest: ObjectInfo | None = None
        self._own = b""
        self._checkpoint = -1

    def read(self) -> TableSnapshot:
        """Return the table now; version -1 if there is none. Raises CorruptMetadataError, StorageError."""
        commits, missing = self._find_commits()
        if missing is not None:  # a folder that others write to may be listed without its newest files but one
            commits, missing = self._find_commits()
        if missing is not None:
            raise CorruptMetadataError(
                f"{self._store.root}/{self._folder} lacks the commit of version {missing}; delete the folder, and the "
                "table is published again",
                path=f"{self._store.root}/{self._folder}",
            )
        versions = range(self._snapshot.version + 1, max(commits, default=-1) + 1)
        read = map_parallel(self._read_commit, versions, self._store.parallel_requests)
        for version, lines in zip(versions, read, strict=True):
            self._snapshot = actions.apply(self._snapshot, version, lines)
        self._newest, self._own = commits.get(self._snapshot.version), b""
        return self._snapshot

    def commits(self, since_ms: int | None, until_ms: int | None) -> Iterator[tuple[int, int, list[Line]]]:
        """Yield version, time in ms and actions of the commits that were stored at or after ``since_ms`` and before
        ``until_ms``, in order. Raises CorruptMetadataError, StorageError."""
        first, end = (-math.inf if since_ms is None else since_ms), (math.inf if until_ms is None else until_ms)
        stored = {
            version: info.modified_ms
            for version, info in sorted(self._list()[0].items())
            if first <= info.modified_ms < end
        }
        read = map_parallel(self._read_commit, stored, self._store.parallel_requests)
        yield from ((version, stored[version], lines) for version, lines in zip(stored, read, strict=True))

    def _find_commits(self) -> tuple[dict[int, ObjectInfo], int | None]:
        """List the folder, and begin with its newest checkpoint if that is newer than the last snapshot. Return the
        commits, and the first after it that is missing."""
        commits, checkpoints = self._list()
        if not self._has_last(commits):
            self._snapshot = TableSnapshot()  # the root was restored, or the folder deleted
        self._checkpoint = max(checkpoints, default=-1)
        if self._checkpoint > self._snapshot.version:
            self._snapshot = self._read_checkpoint(self._checkpoint, checkpoints[self._checkpoint])
            self._newest, self._own = commits.get(self._checkpoint), b""
        expected = range(self._snapshot.version + 1, max(commits, default=-1) + 1)
        return commits, next((version for version in expected if version not in commits), None)

    def _has_last(self, commits: Mapping[int, ObjectInfo]) -> bool:
        """Return whether the last commit that was read or created is still there. One that was created has not been
        listed, so its bytes are compared."""
        present = commits.get(self._snapshot.version)
        if present is None or not self._own:
            return present is not None and present == self._newest
        return self._store.get(present.key, MAX_TABLE_FILE_BYTES) == self._own

    def commit(self, lines: Sequence[Line]) -> bool:
        """Create the next version; return whether this writer won it. Its bytes have to be unique.

        Raises StorageError if the outcome is unknown, RecordListTooLargeError.
        """
        data = actions.encode_commit(lines)
        version = self._snapshot.version + 1
        if len(data) > MAX_TABLE_FILE_BYTES:
            raise self._too_large(len(data))
        try:
            if create_object(self._store, self._key(version), data, MAX_TABLE_FILE_BYTES) != data:
                return False
        except RecordListTooLargeError as error:
            raise self._too_large(len(data)) from error
        self._snapshot = actions.apply(self._snapshot, version, lines)
        self._newest, self._own = None, data
        return True

    def write_checkpoint(self) -> bool:
        """Write a checkpoint of the last snapshot if one is due; return whether it was. Raises StorageError."""
        version = self._snapshot.version
        if version - self._checkpoint < CHECKPOINT_INTERVAL:
            return False
        data, count = encode_checkpoint(self._snapshot)
        self._store.put(f"{self._folder}{version:020d}.checkpoint.parquet", data)
        self._checkpoint = version
        hint = {"version": version, "size": count, "sizeInBytes": len(data), "numOfAddFiles": len(self._snapshot.files)}
        if max(self._list()[0], default=-1) <= version:  # else a later writer may have written a later hint
            self._store.put(f"{self._folder}_last_checkpoint", msgspec.json.encode(hint))
        return True

    def _list(self) -> tuple[dict[int, ObjectInfo], dict[int, list[str]]]:
        """Return the commits, and the keys of the complete checkpoints, by version."""
        commits: dict[int, ObjectInfo] = {}
        found: dict[tuple[int, int], list[str]] = {}
        for info in self._store.list(self._folder):
            match = _NAME.search(info.key)
            if match and info.key.endswith(".json"):
                commits[int(match.group(1))] = info
            elif match:
                found.setdefault((int(match.group(1)), int(match.group(3) or 1)), []).append(info.key)
        complete = {version: sorted(keys) for (version, parts), keys in sorted(found.items()) if len(keys) >= parts}
        return commits, complete

    def _key(self, version: int) -> str:
        return f"{self._folder}{version:020d}.json"

    def _read_commit(self, version: int) -> list[Line]:
        key = self._key(version)
        data = self._store.get(key, MAX_TABLE_FILE_BYTES)
        try:
            return actions.decode_commit(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._damaged(key, error) from error

    def _read_checkpoint(self, version: int, keys: Sequence[str]) -> TableSnapshot:
        snapshot = TableSnapshot(version)
        for key in keys:
            data = self._store.get(key, MAX_TABLE_FILE_BYTES)
            try:
                snapshot = actions.join(snapshot, decode_checkpoint(version, data))
            except TimeoutError:  # a time limit, of a signal's handler: Arrow raises none
                raise
            except (ValueError, TypeError, KeyError, OSError, pa.ArrowException, msgspec.MsgspecError) as error:
                raise self._damaged(key, error) from error
        return snapshot

    def _too_large(self, size: int) -> RecordListTooLargeError:
        path = f"{self._store.root}/{self._folder}"
        return RecordListTooLargeError(
            f"a commit of {path} would have {size:,} bytes, more than this storage creates in one request: it changes "
            "too many files of a partition together, as after an OPTIMIZE by others; delete the folder, and the table "
            "is published again, in several commits",
            path=path,
        )

    def _damaged(self, key: str, error: Exception) -> CorruptMetadataError:
        path = f"{self._store.root}/{key}"
        return CorruptMetadataError(
            f"{path} of a table's log cannot be read: {error}; delete the folder {self._store.root}/{self._folder}, "
            "and the table is published again",
            path=path,
        )
