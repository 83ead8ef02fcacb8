"""The states before and after an older commit.

    past = PastStates(log).around(version)
    past.before.partition("orders", 0).log_end_offset

The state of a version is folded from the nearest one below it that is known: the empty cluster, if its first commit is
kept, a checkpoint, or one that was folded before. So it costs the reading of the commits between them.

Rules: it only reads. Not for: the ends of partitions, which are found without a state (``past_offsets``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Set
from typing import NamedTuple

from sparklog.errors import CorruptMetadataError, InvalidRequestError, ObjectNotFoundError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits.commit_files import read_commits
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.fold import Entry, fold
from sparklog.protocol.state import State

MAX_FOLDED_COMMITS = 20_000
"""Commits that are folded at most, to get to a version: some seconds on a local disk."""
KEPT_STATES = 16
"""States that are kept; they share what did not change between them."""
_KEPT_EVERY = 1000


class Around(NamedTuple):
    """The states before and after a commit, and the entries that it may have changed, added or removed."""

    before: State
    after: State
    touched: Set[Entry]


class PastStates:
    """The states of a log at older versions. Thread-safe: one thread reads, the others wait for it."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._kept: OrderedDict[int, State] = OrderedDict()
        self._lock = threading.Lock()

    def around(self, version: int) -> Around:
        """Return the states before and after a commit.

        Raises InvalidRequestError if it does not exist, or its state cannot be told: commits before it were removed and
        no checkpoint of that time is left, or more than ``MAX_FOLDED_COMMITS`` would have to be folded. Raises
        CorruptMetadataError for a commit that is missing, or does not follow from those before it, StorageError.
        """
        newest = self._log.state.version
        if not 0 <= version <= newest:
            raise InvalidRequestError(f"version {version} does not exist: the newest is {newest}")
        with self._lock:
            state = self._base(version - 1)
            if state is None:
                raise InvalidRequestError(
                    f"the state before commit {version:,} is not known: the commits up to "
                    f"{read_certain_boundary(self._log.store):,} were removed behind a checkpoint, and no checkpoint "
                    "from before this commit is left"
                )
            if version - state.version > MAX_FOLDED_COMMITS:
                raise InvalidRequestError(
                    f"the state before commit {version:,} is not known: the nearest known one is that of version "
                    f"{state.version:,}, and at most {MAX_FOLDED_COMMITS:,} commits are read to find out"
                )
            return self._fold(state, version)

    def _base(self, version: int) -> State | None:
        """Return the newest known state at or below a version, None if there is none."""
        kept = max((each for each in self._kept if each <= version), default=None)
        if kept is not None and version - kept <= _KEPT_EVERY:
            self._kept.move_to_end(kept)
            return self._kept[kept]
        stored = checkpoint.read_state_up_to(self._log.store, version)
        if kept is not None and (stored is None or stored.version <= kept):
            return self._kept[kept]
        if stored is None and read_certain_boundary(self._log.store) < 0:
            return State(cluster_id=self._log.state.cluster_id)
        return stored

    def _fold(self, state: State, version: int) -> Around:
        try:
            for stored in read_commits(self._log.store, state.version + 1, version):
                before = state
                state, touched = fold(before, stored.commit, stored.digest)
                if state.version % _KEPT_EVERY == 0 or state.version >= version - 1:
                    self._keep(state)
        except ObjectNotFoundError as error:
            why = f"the state before commit {version:,} is not known: {error}"
            if read_certain_boundary(self._log.store) > state.version:
                raise InvalidRequestError(f"{why}; it was removed behind a checkpoint") from error
            raise CorruptMetadataError(
                f"{why}; `sparklog fsck` says what can be done", path=error.path, missing=True
            ) from error
        return Around(before, state, touched)

    def _keep(self, state: State) -> None:
        self._kept[state.version] = state
        while len(self._kept) > KEPT_STATES:
            self._kept.popitem(last=False)
