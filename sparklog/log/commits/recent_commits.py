"""The commits that a log has read or made, for a process that needs each of them: so that none is read twice.

    recent = RecentCommits()
    log.followers.add(recent)
    log.refresh()
    for commit in recent.take(first, last): ...

Rules: best effort. Commits that a checkpoint stood for are missing, and the oldest ones are if they are too many; they
can be read from the storage. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from sparklog.log.commits.commit_files import read_commits
from sparklog.protocol.commits import Commit
from sparklog.store.base import Store

MAX_BYTES = 8 * 1024 * 1024
"""bytes of commits, as stored, that are kept until they are taken."""


class RecentCommits:
    """Keeps commits until they are taken. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: deque[tuple[Commit, int]] = deque()
        self._bytes = 0

    def add(self, commit: Commit, size: int) -> None:
        """Keep a commit that takes ``size`` bytes; called by the log, under its lock."""
        with self._lock:
            self._kept.append((commit, size))
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._kept.popleft()[1]

    def take(self, store: Store, first: int, last: int) -> Iterator[Commit]:
        """Yield the commits ``first`` to ``last``, those that are not kept from the storage, and keep none of them.

        Raises ObjectNotFoundError if one was removed, otherwise as ``read_commits``.
        """
        with self._lock:
            kept = {commit.version: commit for commit, _ in self._kept}
            self._kept.clear()
            self._bytes = 0
        version = first
        while version <= last:
            if version in kept:
                yield kept[version]
                version += 1
                continue
            end = version
            while end < last and end + 1 not in kept:
                end += 1
            for stored in read_commits(store, version, end):
                yield stored.commit
            version = end + 1
