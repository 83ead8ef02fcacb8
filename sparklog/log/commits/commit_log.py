"""The commit log: one totally ordered sequence of commits on shared storage, and the state it folds to.

Reading tails it: get the next number until it is absent. Writing creates the next number with put-if-absent. The
storage arbitrates; this class only caches what it has read, so any number of them may be alive in any number of
processes.

Rules:

* The answer to a conditional write is never believed when it is not a plain yes: the object is read back and its write
  id compared, since a writer can lose to its own retried request. What cannot be told is IndeterminateCommitError.
* After each create the boundary is read again. A number at or below it was removed before, so the create was a stalled
  writer's and did not happen for anybody else.
* An absent next number means the end of the log only if the newest commit known here is still there: a root that was
  restored from a copy, or made again, holds another history, and a client of the one before must not add to it. Both
  are looked at together, before each commit and after it; now and then the boundary is, too.
* Commits are read ahead, several at a time, and whoever is far behind starts over from a newer checkpoint; so a reader
  reaches the end however much faster the writers are.
* Commits are removed only when they are ``limits.MIN_COMMIT_AGE_MS`` old. A process that was away for half of that, by
  either of its clocks, looks for the newest checkpoint by listing before it believes the boundary or its own create
  (see ``cleanup``).
* Checkpoints are written every ``limits.CHECKPOINT_INTERVAL_COMMITS`` commits, by the process that commits that number,
  in the background: no commit, read or lock waits for one. A failure to write one is logged and harms nobody.
* The time of a commit is that of the storage's clock where the machine's own is far off (``StorageClock``).

Not for: deciding what to commit, waiting or retrying (``coordinator``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from enum import Enum

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    CorruptMetadataError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.background import BackgroundTask
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.guard import (
    check_whole,
    is_of_log,
    read_newest_of_log,
    withdraw_unless_of_log,
    withdraw_unless_whole,
)
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.commits import cleanup
from sparklog.log.commits.commit_attempt import READ_BACK_ATTEMPTS, CommitAttempt, Fate
from sparklog.log.commits.commit_files import (
    LogEnd,
    complete_commit,
    end_not_reached,
    holds_commit,
    is_withdrawn,
    lost_after_checkpoint,
    not_there,
    read_ahead,
    read_commit,
    read_log_end,
    read_mounted_log_end,
    read_next_and_end,
    replaced,
)
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.log.commits.storage_clock import ExpiryClock, StorageClock
from sparklog.log.creation import create_object
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import (
    CLUSTER_KEY,
    encode_cluster_file,
    has_history,
    read_boundary,
    read_certain_boundary,
    read_cluster_file,
)
from sparklog.log.segments import TopicSegments
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import FORMAT, EncodedCommit, encode_to_store
from sparklog.protocol.commits import Action, Commit, RegisterBroker, ResetTime
from sparklog.protocol.fold import Draft, fold
from sparklog.protocol.state import State
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

_REBASE_AFTER_COMMITS = 4 * limits.CHECKPOINT_INTERVAL_COMMITS
"""commits after which a process that only reads looks for a checkpoint, so that what it holds stays small."""

CHECKPOINTS_PER_CLEANUP = 10
"""checkpoints that a process writes between two removals of old ones, which take a listing."""

MAX_READ_AHEAD = 64
"""commits read side by side at most. It begins with one and doubles for as long as there are more."""

MAX_ROUNDS = 20
"""reads after one another that a refresh makes in any case, however long they take."""

FAR_BEHIND_COMMITS = 31
"""commits read without reaching the end after which a newer checkpoint is looked for: five round trips."""

BOUNDARY_SECONDS = 60.0
"""seconds between two looks at the boundary by a process that finds the newest commit it knows in its place."""


class Outcome(Enum):
    """What became of an attempt to commit; a third outcome, indeterminate, is an error."""

    WON = "won"
    LOST = "lost"


class CommitLog:
    """The commits of one cluster, tailed into a state. Thread-safe: one lock around tail and create.

    ``state`` may be kept by readers; ``refresh`` never changes a state handed out.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, writer: str = "", moved: bool = False) -> None:
        """``moved``: go on although the cluster is moving to another root, for who moves it."""
        self._moved = moved
        self.store = store
        self.clock = clock
        self.ids = ids
        self._writer = writer
        self._elapsed = ElapsedTime(clock)
        self._lock = threading.RLock()
        self._incomplete: set[str] = set()
        self._whole = ""
        self._checkpoints_written = 0
        self.storage_clock = StorageClock(store, clock)
        self.expiry_clock = ExpiryClock(clock, self.storage_clock, lambda: self._state.timestamp_ms)
        self._checkpointing = threading.Lock()
        self._list_cache = ListCache(store)
        self._background = BackgroundTask("sparklog-checkpoint", self._checkpoint_quietly)
        self._cluster_id = ""
        self._torn = False
        self._anchor: tuple[int, str] = (-1, "")
        self._boundary_seen: Moment | None = None
        self.unlinked_jumps = 0
        """loads of a checkpoint that no commit read here links to the state before: it may be of another history"""
        self._load(listed=True)  # the hint and the boundary may be those of a process that has just woken up

    @classmethod
    def create(
        cls, store: Store, clock: Clock | None = None, ids: Ids | None = None, cluster_id: str | None = None
    ) -> CommitLog:
        """A new cluster at the store's root, with broker 0 registered.

        Raises ClusterAlreadyExistsError; nothing is changed then. A creation that was interrupted may be run again.
        Commits without a cluster.json are those of another cluster, of which this is a mirror or what is left of the
        root: ClusterNotFoundError, which says what to do.
        """
        clock, ids = clock or SystemClock(), ids or RandomIds()
        if has_history(store):  # looked at before the file, which every cluster writes first
            read_cluster_file(store)
        data = encode_cluster_file(cluster_id or ids.topic_id())
        if create_object(store, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
            log = cls(store, clock, ids)
            if log.refresh().version >= 0:
                raise ClusterAlreadyExistsError(
                    f"{store.root} already holds cluster {log.state.cluster_id}; use it, or choose an empty location",
                    path=store.root,
                )
        return cls.open(store, clock, ids)

    @classmethod
    def open(cls, store: Store, clock: Clock | None = None, ids: Ids | None = None, writer: str = "") -> CommitLog:
        """An existing cluster. Raises ClusterNotFoundError, UnsupportedVersionError, CorruptMetadataError.

        Finishes a creation that was interrupted after cluster.json: broker 0 is registered by the first commit.
        """
        log = cls(store, clock or SystemClock(), ids or RandomIds(), writer)
        log._catch_up()
        if log.state.version < 0 and log.attempt([RegisterBroker(broker=0)]) is Outcome.LOST:
            log.refresh()
        return log

    def _catch_up(self) -> None:
        """Read all commits there are. A storage that fails now and then would else make opening a matter of luck: what
        has been read is kept, so only failures in a row count."""
        failures = 0
        while True:
            reached = self._state.version
            try:
                self.refresh()
            except StorageUnavailableError:
                failures = 0 if self._state.version > reached else failures + 1
                if failures >= READ_BACK_ATTEMPTS:
                    raise
                self.clock.sleep(0.05 * 2**failures)
            else:
                return

    def _load(self, listed: bool = False) -> None:
        """Start over from the newest checkpoint, or from the empty state."""
        cluster = read_cluster_file(self.store)
        if self._cluster_id not in ("", cluster.cluster_id):
            raise replaced(self.store, f"it holds cluster {cluster.cluster_id} now")
        self._cluster_id = cluster.cluster_id
        seen = self._elapsed.now()
        manifest, state = read_newest_of_log(self.store, listed, self._incomplete)
        # together, and only once nothing can fail any more
        self._torn = True
        self._state, self._seen = state or State(cluster_id=cluster.cluster_id), seen
        self._lists = SegmentLists(self.store, self._list_cache, manifest)
        self._commit_bytes = manifest.commit_bytes if manifest is not None else 0
        self._rebase_at = self._state.version + _REBASE_AFTER_COMMITS
        self._torn = False

    def _load_unlinked(self, listed: bool) -> None:
        before = self._state
        self._load(listed)
        self.unlinked_jumps += before.version >= 0 and self._state.digest != before.digest

    @property
    def _base(self) -> checkpoint.Manifest | None:
        """The checkpoint from which this log continues."""
        return self._lists.base

    @property
    def state(self) -> State:
        """The newest state read so far; ``refresh`` for what is there now."""
        return self._state

    # -- reading

    def refresh(self) -> State:
        """Read the commits that came since, and return the state they lead to. Two small reads when there are none.

        Raises CorruptMetadataError when a commit is not what was written, ClusterMovedError once the cluster goes on at
        another root, RootReplacedError where the root holds another history than the one read so far.
        """
        with self._lock:
            self._mend()
            self._catch_up_if_away()
            window, self._rounds, deadline = 1, 0, self.clock.monotonic() + limits.REFRESH_SECONDS
            while not self._read_to_end(window, deadline):
                window = MAX_READ_AHEAD
                self._check_in_time(deadline)
            self._follow_checkpoints()
            self._check_here()
            return self._state

    def _mend(self) -> None:
        """Start over where a thread was interrupted (Ctrl-C, a signal) while it advanced the state."""
        if self._torn:
            self._load(listed=True)

    def _check_in_time(self, deadline: float) -> None:
        self._rounds += 1
        if self.clock.monotonic() > deadline and self._rounds > MAX_ROUNDS:  # else this process was stopped meanwhile
            raise end_not_reached(self.store, self._state.version)

    def _read_to_end(self, window: int, deadline: float) -> bool:
        """Read the commits there are now; False where a checkpoint was loaded in place of commits that were removed, or
        that are many. ``window`` is how many to read at a time at first, after the next one."""
        seen = self._elapsed.now()
        found, end = self._look()
        if not self._check_end(end):
            return False
        asked, behind, far_behind = 1, 0, FAR_BEHIND_COMMITS * window
        while True:
            for data in found:
                if not self._take_read(data):
                    return False
            if len(found) < asked:
                self._seen = seen
                return True
            self._check_in_time(deadline)
            behind += len(found)
            if behind >= far_behind:
                far_behind *= 4
                if self._jump_to_checkpoint():
                    return False
            asked = window = min(2 * window, MAX_READ_AHEAD)
            seen = self._elapsed.now()
            found = read_ahead(self.store, self._state.version + 1, asked)

    def _look(self) -> tuple[list[bytes], LogEnd]:
        """The next commit if there is one, and what is stored at the number of the newest one known here."""
        version = self._state.version
        if version < 0:
            return read_ahead(self.store, 0, 1), LogEnd(self._state.digest, read_boundary(self.store))
        last = self._boundary_seen
        with_boundary = last is None or self._elapsed.seconds_since(last) >= BOUNDARY_SECONDS
        looked_at = self._elapsed.now()
        found, end = read_next_and_end(self.store, version, with_boundary)
        if with_boundary:
            self._boundary_seen = looked_at
        return found, end

    def _check_end(self, end: LogEnd) -> bool:
        """Whether the log goes on from what is known here; False where a checkpoint had to be loaded instead.

        Raises RootReplacedError where the newest commit known here is gone, or another one has its number.
        """
        state = self._state
        if end.digest == state.digest and end.removed_up_to <= state.version:
            return True
        for attempt, look in enumerate([read_log_end] * READ_BACK_ATTEMPTS + [read_mounted_log_end]):
            if end.removed_up_to >= state.version:
                self._reload_after(end.removed_up_to)
                return self._state.version == state.version and self._state.digest == state.digest
            if end.digest == state.digest:
                return True
            self.clock.sleep(0.05 * 2**attempt)  # a look at a moment when a copy is being put back proves nothing
            end = look(self.store, state.version, True)
        if end.digest == state.digest and end.removed_up_to < state.version:
            return True
        # It may have been removed all the same: a late clean-up may have set the boundary back since, and a stalled
        # writer's create have its number.
        removed = read_certain_boundary(self.store)
        if removed >= state.version:
            self._reload_after(removed)
            return self._state.version == state.version and self._state.digest == state.digest
        newest, _ = read_newest_of_log(self.store, True, set(self._incomplete))
        is_other = end.digest is not None and (newest is None or newest.version != state.version)
        if newest is None or newest.version < state.version or is_other:
            raise not_there(self.store, state.version, end)
        if newest.version > state.version:
            self._load_unlinked(listed=True)
            return False
        if checkpoint.read_digest(self.store, newest) != state.digest:
            raise not_there(self.store, state.version, end)
        return True

    def _jump_to_checkpoint(self) -> bool:
        """Start over from a newer checkpoint, if there is one."""
        newest = checkpoint.read_newest(self.store)
        if newest is None or newest.version <= self._state.version or newest.heads.key in self._incomplete:
            return False
        reached = self._state.version
        self._load()
        return self._state.version > reached

    def _check_here(self) -> None:
        if self._state.moved_to and not self._moved:
            raise ClusterMovedError(
                f"cluster {self._state.cluster_id} has moved from {self.store.root} to {self._state.moved_to}; use "
                "that address from now on",
                path=self.store.root,
            )

    def _catch_up_if_away(self) -> None:
        """Whoever has not looked for long starts from the newest checkpoint: commits it has not seen may be gone."""
        if not self._elapsed.is_away_since(self._seen):
            return
        newest = checkpoint.read_newest_listed(self.store)
        if newest is None or newest.version <= self._state.version:
            return
        load = self._load_unlinked
        if self._state.version >= 0:
            end = read_log_end(self.store, self._state.version, with_boundary=True)
            if end.digest == self._state.digest and end.removed_up_to < self._state.version:
                load = self._load
            is_other = end.digest not in (None, self._state.digest)  # absent, it may have been removed meanwhile
            if is_other and read_certain_boundary(self.store) < self._state.version:  # else a stalled writer's
                raise not_there(self.store, self._state.version, end)
        load(listed=True)

    def _take_read(self, data: bytes) -> bool:
        """Advance by a commit as it was read; False where it turned out to be none.

        One that does not follow may follow what this log never saw: a stalled writer's create of a number that was
        removed is no commit, and was taken for one here. Or it is about to be withdrawn: see ``CommitAttempt``.
        """
        version = self._state.version + 1
        before = (self._state.version, self._state.digest)
        try:
            self._take(*complete_commit(self.store, data, version))
            self._anchor = before
        except CorruptMetadataError as error:
            from_commits = self._base is None or self._state.version > self._base.version
            boundary = read_certain_boundary(self.store)
            if not from_commits or boundary < max(self._state.version, 0):  # nothing was removed from under it
                end = read_log_end(self.store, self._state.version, with_boundary=True)
                if self._state.version >= 0 and end.digest not in (None, self._state.digest):
                    raise not_there(self.store, self._state.version, end) from error  # another history
                if is_withdrawn(self.store, self.clock, version, data):
                    return False
                raise
            self._reload_after(boundary)
            return False
        return True

    def _reload_after(self, boundary: int) -> None:
        """The next commit is gone: a checkpoint at or after the boundary stands for it."""
        for listed in (False, True):
            self._load_unlinked(listed)
            if self._state.version >= boundary:
                return
        raise lost_after_checkpoint(self.store, boundary, self._state.version)

    def _follow_checkpoints(self) -> None:
        if self._state.version >= self._rebase_at:
            self._rebase_at = self._state.version + _REBASE_AFTER_COMMITS
            self._rebase_quietly()

    def _rebase_quietly(self) -> None:
        """Go on from another process's newer checkpoint, if there is one that can be read: it only saves memory."""
        try:
            newer = self._newer_base()
        except SparklogError as error:
            logger.warning("the newest checkpoint of %s cannot be read: %s", self.store.root, error)
        else:
            if newer is not None:
                self._rebase(newer)

    def _take(self, commit: Commit, digest: str, size: int) -> None:
        """Advance the state by one commit, whose stored bytes are so many."""
        state, touched = fold(self._state, commit, digest)
        self._torn = True
        self._lists.take(commit, touched)
        self._commit_bytes += size
        self._state = state
        self._torn = False

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Commits ``first..last`` as stored, for tools. Raises ObjectNotFoundError where one was removed."""
        for version in range(first, last + 1):
            yield read_commit(self.store, version).commit

    def segments(self, topic: str, state: State | None = None) -> TopicSegments:
        """The live segments of a topic as of ``state`` (default: the newest read).

        Raises UnknownTopicOrPartitionError, also where a topic of an older state was deleted since and its segments are
        listed no more. The state must have been handed out by this log.
        """
        with self._lock:
            self._mend()
            state = state or self._state
            try:
                return self._lists.of(topic, state, self._state)
            except CorruptMetadataError as error:
                if not error.missing or not self._leave_incomplete_base():
                    raise
            return self._lists.of(topic, state, self._state)

    def _leave_incomplete_base(self) -> bool:
        """Go on from another checkpoint, since files of this log's own one are gone: newer ones have replaced it.

        Or its writer was stopped for so long that a clean-up took for left behind what the manifest then named; an
        older one does in that case, with the commits since. False where there is no other one that reaches as far.
        """
        assert self._base is not None
        self._incomplete.add(self._base.heads.key)
        for _ in range(READ_BACK_ATTEMPTS):
            self.refresh()
            newest = checkpoint.read_newest_state(self.store, True, self._incomplete)[0]
            if newest is None or newest.version < self._base.version:
                return self._start_over_from(-1 if newest is None else newest.version)
            if newest.version <= self._state.version:  # else others have committed and written one since
                self._rebase(newest)
                return True
        return False

    def _start_over_from(self, version: int) -> bool:
        """Read again what came after an older checkpoint of this version. False where those commits were removed."""
        if read_certain_boundary(self.store) > version:
            return False
        before, is_linked = self._state, False
        try:
            self._load(listed=True)
            self.refresh()
            is_linked = holds_commit(self.store, before.version, before.digest)  # and not a restored root's
        finally:  # also where it ends half-way: what is read later goes on from the older checkpoint
            self.unlinked_jumps += not is_linked
        return self._state.version >= before.version

    # -- writing

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold this log, and on a local disk the advisory lock, around refresh, decide and attempt.

        Only spares the losers' work: put-if-absent stays the arbiter.
        """
        with self._lock, self.store.commit_lock(self._refresh_quietly):
            yield

    def _refresh_quietly(self) -> None:
        """Read what others commit while waiting for them, so that little is left to read once it is one's turn."""
        with contextlib.suppress(SparklogError):
            self.refresh()

    def next_timestamp_ms(self) -> int:
        """The time of the next commit: now, but after the one before, also when clocks differ or go back.

        ``now`` is the storage's where this machine's clock is far off, so that one wrong clock does not put the log's
        time ahead for everybody.
        """
        return max(self.storage_clock.now_ms(), self._state.timestamp_ms + 1)

    def attempt(self, actions: Sequence[Action]) -> Outcome:
        """Try to commit these actions as the next version. WON: ``state`` includes them. LOST: refresh and decide anew.

        Raises RecordListTooLargeError, InvalidRequestError or StorageError when nothing was written,
        IndeterminateCommitError when that cannot be told.
        """
        with self._lock:
            if self._torn:  # what was decided is of a state that is read again
                return Outcome.LOST
            commit, encoded = self._prepare(actions)
            version = commit.version
            fate = CommitAttempt(self.store, self.clock, self._elapsed, commit, encoded).make(self._seen, self._anchor)
            if fate is Fate.REMOVED:
                self._reload_after(version)
            if fate is not Fate.WON:
                return Outcome.LOST
            self._take(commit, encoded.digest, len(encoded.data) + len(encoded.spilled))
            self._anchor = (-1, "")
            if self._checkpoint_is_due(version):
                self._request_checkpoint()
            return Outcome.WON

    def _prepare(self, actions: Sequence[Action]) -> tuple[Commit, EncodedCommit]:
        state = self._state
        reset = next((action.time_ms for action in actions if isinstance(action, ResetTime)), None)
        timestamp = self.next_timestamp_ms() if reset is None else reset
        draft = Draft(state, timestamp)
        for action in actions:
            draft.apply(action)
        commit = Commit(
            format=FORMAT,
            needs=levels.NEEDS,
            version=state.version + 1,
            write_id=self.ids.write_id(),
            timestamp=timestamp,
            previous=state.digest,
            checksum=draft.finish(state.version + 1, "").checksum,
            writer=self._writer,
            actions=list(actions),
        )
        return commit, encode_to_store(commit)

    # -- checkpoints

    def _checkpoint_is_due(self, version: int) -> bool:
        """Every so many commits, or once so many segments came since the last one: either makes opening slow."""
        if self._lists.recent_count >= limits.CHECKPOINT_INTERVAL_SEGMENTS:
            self._rebase_quietly()
            if self._lists.recent_count >= limits.CHECKPOINT_INTERVAL_SEGMENTS:
                return True
        return version > 0 and version % limits.CHECKPOINT_INTERVAL_COMMITS == 0

    def _checkpoint_quietly(self) -> None:
        try:
            manifest = self.write_checkpoint()
        except Exception as error:  # whatever it is: the commit before it has happened and is to be acknowledged
            logger.warning(
                "no checkpoint at version %d: %s; opening costs more until one is", self._state.version, error
            )
        else:
            self._clean_up_quietly(manifest)

    def _clean_up_quietly(self, manifest: checkpoint.Manifest) -> None:
        """A bounded part of what is due; the maintenance loop does the rest."""
        self._checkpoints_written += 1
        try:
            cleanup.remove_some_commits(self.store, self.expiry_clock, self._state.configs, manifest)
            if self._checkpoints_written % CHECKPOINTS_PER_CLEANUP == 0:
                cleanup.remove_checkpoints(self.store)
        except Exception as error:  # as above
            logger.warning("commits and checkpoints of %s are not cleaned up: %s", self.store.root, error)

    def _request_checkpoint(self) -> None:
        if self.store.is_private:  # nobody waits for requests that cost nothing
            self._checkpoint_quietly()
        else:
            self._background.request()

    def wait_for_checkpoint(self) -> None:
        """Return once the checkpoint is written that a commit of this process made due, if one is under way."""
        self._background.wait()

    def write_checkpoint(self) -> checkpoint.Manifest:
        """Write a checkpoint of the newest state read, and continue from it. Commits and reads need not wait for it.

        Raises StorageError, CorruptMetadataError.
        """
        with self._checkpointing:
            while True:
                try:
                    return self._write_checkpoint()
                except CorruptMetadataError as error:
                    if not error.missing or not self._leave_base(str(error.context.get("heads", ""))):
                        raise

    def _write_checkpoint(self) -> checkpoint.Manifest:
        newest = checkpoint.read_newest(self.store)
        if newest is not None and not is_of_log(self.store, newest):  # asked before the lock is taken
            newest = None
        with self._lock:
            if self._torn or self._elapsed.is_away_since(self._seen):
                self.refresh()
            base = newest if newest is not None and self._may_build_on(newest) else self._base
            state, commit_bytes = self._state, self._commit_bytes
            changed, touched = self._lists.changes_since(base.version if base is not None else -1)
        began = self._elapsed.now()
        try:
            if base is not None and base.heads.key != self._whole:
                check_whole(self.store, base, self._list_cache)
            manifest = checkpoint.write_checkpoint(
                self.store, self.ids, state, base, changed, commit_bytes, touched, self._list_cache
            )
        except CorruptMetadataError as error:
            if error.missing and base is not None:
                error.context["heads"] = base.heads.key
            raise
        if self._elapsed.seconds_since(began) >= limits.MIN_CHECKPOINT_AGE_MS / 2000:
            withdraw_unless_whole(self.store, manifest, self._list_cache)
        withdraw_unless_of_log(self.store, self.clock, manifest, state)
        self._whole = manifest.heads.key
        with self._lock:
            if self._base is None or self._base.version < manifest.version <= self._state.version:
                self._rebase(manifest)
        return manifest

    def _leave_base(self, heads: str) -> bool:
        """Give up on a checkpoint to build on, files of which are missing. False where that was known before."""
        with self._lock:
            if not heads or heads in self._incomplete:
                return False
            self._incomplete.add(heads)
            is_own = self._base is not None and self._base.heads.key == heads
            return not is_own or self._leave_incomplete_base()

    def _newer_base(self) -> checkpoint.Manifest | None:
        """Another process's checkpoint between this log's own base and its state, if there is one."""
        newest = checkpoint.read_newest(self.store)
        is_newer = newest is not None and self._may_build_on(newest)
        return newest if newest is not None and is_newer and is_of_log(self.store, newest) else None

    def _may_build_on(self, manifest: checkpoint.Manifest) -> bool:
        if manifest.version > self._state.version or manifest.heads.key in self._incomplete:
            return False
        return self._base is None or manifest.version > self._base.version

    def _rebase(self, manifest: checkpoint.Manifest) -> None:
        self._torn = True
        self._lists.rebase(manifest, self._state)
        self._torn = False
