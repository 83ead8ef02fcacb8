"""What removed commits changed, by the minute: reads rollups.

    rolled = RolledHistory(store).before(first_kept, state.version)
    appends = rolled.table("appends")

Rules: it only reads. In place of a rollup that is damaged or cannot be read those count that have its commits, too. If
none has, it ends what is known: the commits before it are left out, so that what is stated is complete from some commit
on.
Not for: making rollups (``maintenance.rollups``), and their bytes (``rollups``).
"""

from __future__ import annotations

import logging
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.format.plain_arrays import plain_scalar
from sparklog.monitoring.commit_rows import read_rows
from sparklog.monitoring.rollups import (
    MAX_ROLLUP_BYTES,
    ROLLED_TABLES,
    ROLLUPS,
    RolledCommits,
    choose_rollups,
    commits_of,
    decode_rollup,
)
from sparklog.monitoring.schemas import TABLES
from sparklog.store.base import Store

logger = logging.getLogger(__name__)


class RolledRows(NamedTuple):
    """The rows of the commits ``first`` to ``last``, by the minute; ``tables`` are those of each rollup."""

    first: int
    last: int
    tables: list[dict[str, pa.Table]]

    @property
    def first_ms(self) -> int | None:
        """The time of the first row, None if there is none."""
        stamps = [self.tables[0][name].column("timestamp") for name in ROLLED_TABLES]
        times = [pc.min(stamp).cast(pa.int64()).as_py() for stamp in stamps if len(stamp)]
        return min(times, default=None)

    def table(self, name: str) -> pa.Table:
        """Return the rows of one of ``ROLLED_TABLES``, in the order of the commits."""
        return pa.concat_tables([tables[name] for tables in self.tables])

    def before(self, name: str, version: int) -> pa.Table:
        """Return the rows of a system table of commits before this version; one of a minute that it is in is left out,
        since its last commit comes later."""
        table = self.table(name).select(TABLES[name].schema.names)
        return table.filter(pc.less(table.column("version"), plain_scalar(version, pa.int64())))

    def versions_at(self, times_ms: Sequence[int]) -> list[int | None]:
        """Return the newest version at each of these times of which a row is; None if all are later."""
        versions, times = self._times(None)
        numbers = [bisect_right(times, time_ms) - 1 for time_ms in times_ms]
        return [versions[number] if number >= 0 else None for number in numbers]

    def between(self, name: str, since_ms: int | None, until_ms: int | None, next_ms: int | None) -> pa.Table:
        """Return the rows of commits that were made at or after ``since_ms`` and before ``until_ms``.

        ``next_ms`` is the time of the next commit that was not rolled up: none of these was made after it.
        """
        versions, times = self._times(next_ms)
        first = 0 if since_ms is None else bisect_left(times, since_ms)
        end = len(times) if until_ms is None else bisect_left(times, until_ms)
        start, stop = (plain_scalar([*versions, sys.maxsize][number], pa.int64()) for number in (first, end))
        table = self.table(name)
        column = table.column("version")
        return table.filter(pc.and_(pc.greater_equal(column, start), pc.less(column, stop)))

    def _times(self, next_ms: int | None) -> tuple[list[int], list[int]]:
        """Return the versions of which a row is, in order, and when they were made.

        As in ``CommitTimes``, those before a reset of the log's time count as made at the reset.
        """
        stamps: set[tuple[int, int]] = set()
        for name in ROLLED_TABLES:
            stamps.update(read_rows(self.table(name), ("version", "timestamp")))
        ordered = sorted(stamps, reverse=True)
        latest_ms = sys.maxsize if next_ms is None else next_ms
        times = list(accumulate((min(time_ms, latest_ms) for _, time_ms in ordered), min))
        return [version for version, _ in reversed(ordered)], times[::-1]


class RolledHistory:
    """The rollups of a cluster. Thread-safe; keeps what it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, pa.Table] | None] = {}

    def before(self, first_kept: int, version: int) -> RolledRows | None:
        """Return what is known of the commits that lead up to ``first_kept``, the oldest that is kept, without a gap.

        Rollups of commits after ``version``, the newest, are of another history. None if nothing is known. Raises
        StorageError.
        """
        with self._lock:
            listed = {info.key for info in self._store.list(ROLLUPS)}
            usable = {key for key in listed if (commits := commits_of(key)) and commits.last <= version}
            self._known = {key: tables for key, tables in self._known.items() if key in usable}
            while True:
                chosen = choose_rollups(usable)
                rolled, unusable = self._join(chosen, first_kept)
                if unusable is None:
                    return rolled
                usable.remove(unusable)

    def _join(self, chosen: Mapping[str, RolledCommits], first_kept: int) -> tuple[RolledRows | None, str | None]:
        """Return what these rollups, oldest first, say of the commits before ``first_kept``, and the newest one that
        is damaged or gone."""
        rolled: RolledRows | None = None
        for key, commits in reversed(list(chosen.items())):
            if commits.first >= first_kept:
                continue  # its commits are kept, or do not exist
            if commits.last + 1 < (first_kept if rolled is None else rolled.first):
                break
            tables = self._read(key)
            if tables is None:
                return rolled, key
            later = [] if rolled is None else rolled.tables
            rolled = RolledRows(commits.first, commits.last if rolled is None else rolled.last, [tables, *later])
        return rolled, None

    def _read(self, key: str) -> dict[str, pa.Table] | None:
        """Return the rows of a rollup, None if it is damaged or gone."""
        if key not in self._known:
            try:
                self._known[key] = decode_rollup(key, self._store.get(key, MAX_ROLLUP_BYTES))
            except ObjectNotFoundError:
                return None
            except (ValueError, CorruptMetadataError) as error:  # too large is corrupt
                logger.warning("%s/%s is left out: %s", self._store.root, key, error)
                self._known[key] = None
        return self._known[key]
