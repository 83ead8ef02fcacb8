"""What the commits of a cluster changed, as columns: read once, and followed from then on.

    history = CommitHistory(coordinator)
    appends = history.table("appends", state, first=state.version - 1000)

Commits are read in chunks of ``CHUNK_COMMITS``, as far back as a question needs them, and kept as Arrow tables. The
chunks that are known are always the newest ones, without a gap: those of commits that were removed are dropped, and if
commits were removed before they could be read, all earlier ones are.

Rules: it only reads. Thread-safe: one thread reads, the others wait for it.
Not for: the meaning of the rows (``commit_rows``, ``schemas``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.format.plain_arrays import plain_array, plain_scalar
from sparklog.log.commits.commit_files import StoredCommit, read_commits
from sparklog.log.layout import read_boundary, read_certain_boundary
from sparklog.monitoring.commit_rows import CommitRows, to_table
from sparklog.monitoring.schemas import TABLES
from sparklog.protocol.state import State

CHUNK_COMMITS = 1024
"""Commits that are kept together; a chunk begins at a multiple of it, or at the first commit that is kept."""

NO_ROWS: Mapping[str, Collection[str]] = {}
"""No condition on the rows of a table."""


class _Chunk:
    """The rows of the commits from ``first`` to ``last``; more may be added while it is not full. Not thread-safe."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self._end = first // CHUNK_COMMITS * CHUNK_COMMITS + CHUNK_COMMITS
        self._rows: CommitRows | None = CommitRows()
        self._tables: dict[str, pa.Table] = {}

    @property
    def is_full(self) -> bool:
        return self._rows is None

    def add(self, stored: StoredCommit) -> None:
        assert self._rows is not None
        assert stored.commit.version == self.last + 1
        self._rows.add(stored.commit, stored.size)
        self.last += 1
        self._tables.clear()
        if self.last + 1 == self._end:
            self._tables = self._rows.tables()
            self._rows = None

    def table(self, name: str) -> pa.Table:
        if name not in self._tables:
            assert self._rows is not None
            self._tables[name] = self._rows.table(name)
        return self._tables[name]


class CommitHistory:
    """The commits of a cluster as tables. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._store = coordinator.store
        self._lock = threading.Lock()
        self._chunks: deque[_Chunk] = deque()
        self._boundary: int | None = None

    def first_known(self) -> int:
        """Return the oldest version whose commit is known here, or was kept when that was looked up last.

        Raises StorageError.
        """
        with self._lock:
            return self._first_known()

    def first_read(self) -> int | None:
        """Return the oldest version whose commit is known here, None if none is. Reads nothing."""
        with self._lock:
            return self._chunks[0].first if self._chunks else None

    def table(
        self, name: str, state: State, first: int = 0, where: Mapping[str, Collection[str]] = NO_ROWS
    ) -> pa.Table:
        """Return the rows of the commits from ``first``, or the first that is known, to that of ``state``, in order.

        ``name`` is one of ``COMMIT_TABLES``. ``where`` names columns of text with the values that a row must have one
        of. Raises StorageError, CorruptMetadataError.
        """
        with self._lock:
            self._read(first, state.version)
            tables = [
                _cut(chunk.table(name), chunk, first, state.version)
                for chunk in self._chunks
                if chunk.last >= first and chunk.first <= state.version
            ]
        schema = TABLES[name].schema
        alike = (pa.concat_tables(group) for _, group in groupby(tables, key=lambda table: table.schema))
        return pa.concat_tables([to_table(name, ()), *(select_rows(table, where).cast(schema) for table in alike)])

    def _first_known(self) -> int:
        return min(self._chunks[0].first, self._first_kept()) if self._chunks else self._first_kept()

    def _first_kept(self) -> int:
        if self._boundary is None:
            self._boundary = read_certain_boundary(self._store)
        return self._boundary + 1

    def _read(self, first: int, last: int) -> None:
        """Read the commits from ``first``, or the first that is kept, to ``last``, that are not known yet."""
        while True:
            try:
                self._read_to(last)
                while self._chunks[0].first > max(first, self._first_known()):
                    self._chunks.appendleft(self._read_before(self._chunks[0].first))
                return
            except ObjectNotFoundError as error:
                boundary = read_certain_boundary(self._store)
                if boundary < self._first_kept():
                    raise CorruptMetadataError(
                        f"{error}, although it was not removed behind a checkpoint: it is lost; `sparklog fsck` says "
                        "what can be done",
                        path=error.path,
                        missing=True,
                    ) from error
                self._boundary = boundary
                if self._chunks and self._chunks[-1].last < boundary:  # the next commits were removed, too
                    self._chunks.clear()

    def _read_to(self, last: int) -> None:
        """Read the commits after those that are known; if none is, those of the newest chunk."""
        while not self._chunks or self._chunks[-1].last < last:
            if not self._chunks:
                self._chunks.append(_Chunk(max(last // CHUNK_COMMITS * CHUNK_COMMITS, self._first_kept())))
            elif not self._chunks[-1].is_full:
                self._fill(self._chunks[-1], last)
            elif self._drop_removed():
                self._chunks.append(_Chunk(self._chunks[-1].last + 1))

    def _read_before(self, version: int) -> _Chunk:
        """Return the chunk of the commits before a version, at which a chunk begins."""
        chunk = _Chunk(max((version - 1) // CHUNK_COMMITS * CHUNK_COMMITS, self._first_kept()))
        self._fill(chunk, version - 1)
        return chunk

    def _fill(self, chunk: _Chunk, last: int) -> None:
        for stored in read_commits(self._store, chunk.last + 1, last):
            chunk.add(stored)
            if chunk.is_full:
                return

    def _drop_removed(self) -> bool:
        """Forget chunks of commits that were removed, so that a process that follows the log does not grow for ever.

        Returns whether any is left.
        """
        self._boundary = max(read_boundary(self._store), self._first_kept() - 1)
        while self._chunks and self._chunks[0].last <= self._boundary:
            self._chunks.popleft()
        return bool(self._chunks)


def _cut(table: pa.Table, chunk: _Chunk, first: int, last: int) -> pa.Table:
    """Return the rows of a chunk's table that are of the commits ``first`` to ``last``."""
    if first <= chunk.first and chunk.last <= last:
        return table
    versions = table.column("version")
    limits = (plain_scalar(first, pa.int64()), plain_scalar(last, pa.int64()))
    return table.filter(pc.and_(pc.greater_equal(versions, limits[0]), pc.less_equal(versions, limits[1])))


def select_rows(table: pa.Table, where: Mapping[str, Collection[str]]) -> pa.Table:
    """Return the rows that have, in each of these columns of text, one of these values."""
    for name, values in where.items():
        table = table.filter(pc.is_in(table.column(name), value_set=plain_array(list(values), pa.string())))
    return table
