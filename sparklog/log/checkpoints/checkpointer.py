"""Writes the checkpoints of a log, one at a time; on request in the background, so that no commit waits for it.

Best effort: the commits that a checkpoint includes have happened, so a failure to write one is logged and harmless.
Each is built on the newest one, whichever process wrote that; one with missing files is not built on again.

Not for: what the log keeps in memory since its own base (``commit_log``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sparklog.clock import Clock
from sparklog.errors import CorruptMetadataError
from sparklog.ids import Ids
from sparklog.log.background import BackgroundTask
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.checkpoints.usable_checkpoints import (
    check_whole,
    is_of_log,
    withdraw_unless_of_log,
    withdraw_unless_whole,
)
from sparklog.log.commits import cleanup
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.settings import LogSettings
from sparklog.protocol.fold import Entry
from sparklog.protocol.segments import SegmentEvent
from sparklog.protocol.state import State
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

CHECKPOINTS_PER_CLEANUP = 10
"""intervals of checkpoints between two removals of old ones, each of which needs a listing. The version decides, and a
process's own count where segments make checkpoints due: a process that writes a single one counts nothing."""

FILES_REMOVED_AT_ONCE = 100
"""files of old checkpoints that a writer removes at once: more than ten checkpoints have, and soon done."""


class LogSnapshot(NamedTuple):
    """A state, the checkpoint to build on (None: on none), and what the commits after that changed.

    ``events`` are the changes of segments by topic id, ``touched`` the entries of the state, ``commit_bytes`` the size
    of all commits.
    """

    state: State
    base: checkpoint.Manifest | None
    events: Mapping[str, Sequence[SegmentEvent]]
    touched: Sequence[Entry]
    commit_bytes: int


class CheckpointedLog(Protocol):
    """What a checkpointer needs of its log; see ``CommitLog``. All methods are thread-safe."""

    store: Store

    @property
    def expiry_clock(self) -> cleanup.Times: ...

    @property
    def state(self) -> State: ...

    @property
    def recent_segments(self) -> int: ...

    def rebase_quietly(self) -> None: ...
    def make_durable(self) -> None: ...
    def take_snapshot(self, newest: checkpoint.Manifest | None) -> LogSnapshot: ...
    def follow_checkpoint(self, written: checkpoint.Manifest) -> None: ...
    def avoid_base(self, heads: str) -> bool: ...


class Checkpointer:
    """Writes the checkpoints of one log of one process. Thread-safe."""

    def __init__(
        self,
        log: CheckpointedLog,
        clock: Clock,
        ids: Ids,
        settings: LogSettings,
        elapsed: ElapsedTime,
        cache: ListCache,
    ) -> None:
        self._log = log
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._elapsed = elapsed
        self._list_cache = cache
        self._writing = threading.Lock()
        self._background = BackgroundTask("sparklog-checkpoint", self._write_quietly)
        self._written = 0
        self._complete_heads = ""

    def request_if_due(self, version: int) -> None:
        """Write a checkpoint soon if this commit is the last of many, or of many segments: both make opening slow."""
        most, every = self._settings.checkpoint_interval_segments, self._settings.checkpoint_interval_commits
        if self._log.recent_segments >= most:
            self._log.rebase_quietly()
        if self._log.recent_segments >= most or (version > 0 and version % every == 0):
            self.request()

    def request(self) -> None:
        """Write a checkpoint soon, best effort."""
        if self._log.store.is_private:  # requests that cost nothing need no thread
            self._write_quietly()
        else:
            self._background.request()

    def wait(self) -> None:
        """Wait until all requested checkpoints are written."""
        self._background.wait()

    def write(self) -> checkpoint.Manifest:
        """Write a checkpoint of the newest state read, and rebase the log on it. Raises StorageError,
        CorruptMetadataError, RootReplacedError."""
        with self._writing:
            while True:
                try:
                    return self._write()
                except CorruptMetadataError as error:
                    if not error.missing or not self._log.avoid_base(str(error.context.get("heads", ""))):
                        raise

    def _write(self) -> checkpoint.Manifest:
        store = self._log.store
        newest = checkpoint.read_newest(store)
        if newest is not None and not is_of_log(store, newest):
            newest = None
        state, base, events, touched, commit_bytes = self._log.take_snapshot(newest)
        self._log.make_durable()  # a checkpoint must not be ahead of the commits
        began = self._elapsed.now()
        try:
            if base is not None and base.heads.key != self._complete_heads:
                check_whole(store, base, self._list_cache)
            manifest = checkpoint.write_checkpoint(
                store, self._ids, state, base, events, commit_bytes, touched, self._list_cache
            )
        except CorruptMetadataError as error:
            if error.missing and base is not None:
                error.context["heads"] = base.heads.key
            raise
        if self._elapsed.seconds_since(began) >= self._settings.min_checkpoint_age_ms / 2000:
            withdraw_unless_whole(store, manifest, self._list_cache)
        withdraw_unless_of_log(store, self._clock, manifest, state)
        self._complete_heads = manifest.heads.key
        self._log.follow_checkpoint(manifest)
        return manifest

    def _write_quietly(self) -> None:
        began = self._elapsed.now()
        try:
            manifest = self.write()
        except Exception as error:  # of any kind: the commit has happened and is to be acknowledged
            logger.warning(
                "could not write a checkpoint at version %d: %s; opening the cluster is slower until one is written",
                self._log.state.version,
                error,
            )
        else:
            self._clean_up_quietly(manifest, began)

    def _clean_up_quietly(self, manifest: checkpoint.Manifest, began: Moment) -> None:
        """Remove a bounded part of the old commits and checkpoints, best effort; maintenance removes the rest. No
        commits if this process was suspended since it ``began``: their limits may have been changed."""
        log = self._log
        self._written += 1
        try:
            cleanup.remove_some_commits(
                log.store,
                log.expiry_clock,
                log.state.configs,
                manifest,
                self._settings,
                lambda: self._elapsed.seconds_since(began) <= self._settings.away_seconds,
            )
            interval = manifest.version // self._settings.checkpoint_interval_commits
            if interval % CHECKPOINTS_PER_CLEANUP == 0 or self._written % CHECKPOINTS_PER_CLEANUP == 0:
                cleanup.remove_checkpoints(log.store, self._settings, FILES_REMOVED_AT_ONCE)
        except Exception as error:  # as above
            logger.warning("old commits and checkpoints of %s are not cleaned up: %s", log.store.root, error)
