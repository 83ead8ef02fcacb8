"""What the commits of a cluster changed, as columns: read once, and followed from then on.

    history = CommitHistory(coordinator)
    appends = history.table("appends", first=state.version - 1000)

Commits are read in chunks of ``CHUNK_COMMITS``, as far back as a question needs them, and kept as Arrow tables, which take
a small part of their bytes. The last chunk grows with the log.

Rules: it only reads. Thread-safe: one thread reads, the others wait for it.
Not for: the meaning of the rows (``commit_rows``, ``schemas``).
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.coordinator import Coordinator
from sparklog.log.commits.commit_files import read_commits
from sparklog.log.layout import read_certain_boundary
from sparklog.monitoring.commit_rows import CommitRows
from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES
from sparklog.protocol.state import State

CHUNK_COMMITS = 1024
"""Commits that are read together; a chunk begins at a multiple of it."""


class _Chunk(NamedTuple):
    """The rows of the commits ``first`` to ``last``."""

    first: int
    last: int
    tables: dict[str, pa.Table]


class CommitHistory:
    """The commits of a cluster as tables, from version ``oldest`` on. Thread-safe."""

    def __init__(self, coordinator: Coordinator, oldest: int = 0) -> None:
        self._coordinator = coordinator
        self._oldest = oldest
        self._lock = threading.Lock()
        self._chunks: dict[int, _Chunk] = {}
        self._boundary: int | None = None

    def first_known(self) -> int:
        """Return the oldest version whose commit is known here, or was kept when this was asked first.

        Raises StorageError.
        """
        with self._lock:
            return self._first_known()

    def table(self, name: str, state: State, first: int = 0) -> pa.Table:
        """Return the rows of the commits from ``first``, or the first that is known, to that of ``state``, in order.

        ``name`` is one of ``COMMIT_TABLES``. Raises StorageError, CorruptMetadataError; ObjectNotFoundError if commits
        are removed while they are read.
        """
        with self._lock:
            first = max(first, self._first_known())
            numbers = range(first // CHUNK_COMMITS, state.version // CHUNK_COMMITS + 1)
            chunks = [self._chunk(number, state.version) for number in numbers]
        tables = [_cut(chunk, name, first, state.version) for chunk in chunks]
        return pa.concat_tables([TABLES[name].schema.empty_table(), *tables])

    def forget_before(self, version: int) -> None:
        """Keep no commits before a version: for who follows the log and needs each commit once."""
        with self._lock:
            self._oldest = max(self._oldest, version)
            self._chunks = {number: chunk for number, chunk in self._chunks.items() if chunk.last >= version}

    def _first_known(self) -> int:
        if self._boundary is None:
            self._boundary = read_certain_boundary(self._coordinator.store)
        return max(self._boundary + 1, self._oldest)

    def _chunk(self, number: int, last: int) -> _Chunk:
        """Return a chunk, read up to ``last`` at least."""
        start = max(number * CHUNK_COMMITS, self._first_known())
        end = min((number + 1) * CHUNK_COMMITS - 1, last)
        known = self._chunks.get(number)
        if known is None:
            known = self._read(start, end)
        elif known.last < end:
            more = self._read(known.last + 1, end)
            tables = {name: pa.concat_tables([table, more.tables[name]]) for name, table in known.tables.items()}
            known = _Chunk(known.first, end, tables)
        self._chunks[number] = known
        return known

    def _read(self, first: int, last: int) -> _Chunk:
        rows = CommitRows()
        for stored in read_commits(self._coordinator.store, first, last):
            rows.add(stored.commit, stored.size)
        return _Chunk(first, last, {name: rows.table(name) for name in COMMIT_TABLES})


def _cut(chunk: _Chunk, name: str, first: int, last: int) -> pa.Table:
    """Return the rows of a chunk from commits ``first`` to ``last``."""
    table = chunk.tables[name]
    if first <= chunk.first and chunk.last <= last:
        return table
    versions = table.column("version")
    return table.filter(pc.and_(pc.greater_equal(versions, first), pc.less_equal(versions, last)))
