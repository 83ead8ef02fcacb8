"""The commit log: one totally ordered sequence of commits on shared storage, and the state it folds to.

Reading tails it: get the next number until it is absent. Writing creates the next number with put-if-absent. The
storage arbitrates; this class only caches what it has read, so any number of them may be alive in any number of
processes.

Rules:

* A commit of this process is not read and folded again: the state after it was made before its create, from the state
  that it was decided on, and is taken over once the commit is won. See ``commit_attempt``, also for the outcomes.
* An absent next number means the end of the log only if the newest commit known here still exists: a root that was
  restored from a copy, or created again, holds another timeline, which a client of the former one must not extend. Both
  are read together, before each commit and after it; now and then the boundary is, too.
* It is not the end either if commits are stored beyond it (``beyond_end``): a log that was just opened, or whose
  process was away, looks for them once.
* Commits are read ahead, several at a time, and a reader that is far behind starts over from a newer checkpoint; so it
  reaches the end however much faster the writers are.
* Commits are removed only when they are ``LogSettings.min_commit_age_ms`` old. A process that was away for half of
  that, by either of its clocks, looks for the newest checkpoint by listing before it trusts the boundary or its own
  create (see ``cleanup``).
* Checkpoints are written every ``checkpoint_interval_commits``, by the process that commits that number, in the
  background: no commit, read or lock waits for one. A failure to write one is logged and harmless.
* The time of a commit is that of the storage's clock if the machine's own is far off (``StorageClock``).

Not for: deciding what to commit, waiting or retrying (``coordinator``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

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
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.checkpointer import Checkpointer, LogSnapshot
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.checkpoints.usable_checkpoints import is_of_log, read_newest_of_log
from sparklog.log.commits.beyond_end import (
    commits_after,
    describe_lost_end,
    newest_unused_checkpoint,
    refuse_hole,
)
from sparklog.log.commits.commit_attempt import CommitAttempt, CommitOutcome, prepare_commit
from sparklog.log.commits.commit_files import (
    complete_commit,
    read_ahead,
    read_commit,
    report_end_not_reached,
    report_lost_commits,
    report_no_commits,
    report_not_created,
)
from sparklog.log.commits.recent_commits import RecentCommits
from sparklog.log.commits.replaced_root import (
    LogEnd,
    holds_commit,
    is_withdrawn,
    read_log_end,
    read_mounted_log_end,
    read_next_and_end,
    refuse_other_timeline,
    refuse_replaced_root,
    refuse_unlinked_timeline,
)
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.log.commits.storage_clock import ExpiryClock, StorageClock
from sparklog.log.creation import create_object
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import (
    CLUSTER_KEY,
    COMMITS,
    encode_cluster_file,
    find_trace_of_commits,
    has_history,
    read_boundary,
    read_certain_boundary,
    read_cluster_file,
)
from sparklog.log.segments import TopicSegments
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commits import Action, Commit, RegisterBroker
from sparklog.protocol.fold import Draft, Folded, fold
from sparklog.protocol.state import State
from sparklog.retry import ATTEMPTS, pause_after
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

MAX_READ_AHEAD = 64
"""Maximum of commits read in parallel. Reading starts with one and doubles while there are more."""

MAX_ROUNDS = 20
"""consecutive reads that a refresh may make however long they take."""

FAR_BEHIND_COMMITS = 31
"""commits read without reaching the end after which a refresh looks for a newer checkpoint: five round trips."""

DIGESTS_KEPT = 1000
"""digests of the newest commits that a process remembers, to tell whether a file was begun in this timeline."""

BOUNDARY_SECONDS = 60.0
"""seconds between two reads of the boundary by a process whose newest known commit is unchanged."""


class CommitLog:
    """The commits of one cluster, tailed into a state. Thread-safe: one lock around tail and create.

    Readers may keep ``state``; ``refresh`` never changes a returned state.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        writer: str = "",
        moved: bool = False,
        settings: LogSettings = DEFAULTS,
    ) -> None:
        """``moved``: work although the cluster has moved to another root, for the process that moves it."""
        self._moved = moved
        self.store = store
        self.clock = clock
        self.ids = ids
        self._writer = writer
        self.settings = settings
        self._elapsed = ElapsedTime(clock, settings.away_seconds)
        self.held = threading.RLock()
        """The log's lock, around refresh, decide and commit; of the interpreter, as that of ``ProcessLock``."""
        self._incomplete: set[str] = set()
        self.storage_clock = StorageClock(store, clock)
        self.expiry_clock = ExpiryClock(clock, self.storage_clock, lambda: self._state.timestamp_ms)
        self._list_cache = ListCache(store)
        self._checkpointer = Checkpointer(self, clock, ids, settings, self._elapsed, self._list_cache)
        self._cluster_id = ""
        self._torn = self._is_leaving = False
        self._anchor: tuple[int, str] = (-1, "")
        self._durable = ""
        self._boundary_seen: Moment | None = None
        self._looked_beyond = False
        self.followers: WeakSet[RecentCommits] = WeakSet()
        """Who is given each commit that is read or made here."""
        self._digests: dict[int, str] = {}
        self._state = State(cluster_id="")
        self.unlinked_jumps = 0
        """Loads of a checkpoint that no commit read here links to the state before; it may be of another timeline. The
        number names the timeline that this process reads: read it before the state in which something is found."""
        self._linked_since = -1
        self._load(listed=True)  # hint and boundary may have been written by a process that stalled

    @classmethod
    def create(
        cls,
        store: Store,
        clock: Clock | None = None,
        ids: Ids | None = None,
        cluster_id: str | None = None,
        settings: LogSettings = DEFAULTS,
        level: int = levels.CURRENT,
    ) -> CommitLog:
        """Create a cluster of this level at the store's root, with broker 0 registered.

        Raises ClusterAlreadyExistsError; nothing is changed then. An interrupted creation may be repeated. Commits
        without a cluster.json belong to another cluster, of which this is a mirror or a damaged root:
        ClusterNotFoundError says what to do. CorruptMetadataError if the root had commits, which are gone.
        """
        clock, ids = clock or SystemClock(), ids or RandomIds()
        if has_history(store):  # checked before cluster.json, which every cluster writes first
            read_cluster_file(store)
        elif trace := find_trace_of_commits(store):
            raise report_no_commits(store, trace)
        data = encode_cluster_file(cluster_id or ids.topic_id())
        if create_object(store, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
            log = cls(store, clock, ids)
            if log.refresh().version >= 0:
                raise ClusterAlreadyExistsError(
                    f"{store.root} already holds cluster {log.state.cluster_id}; use it, or choose an empty location",
                    path=store.root,
                )
        log = cls(store, clock, ids, settings=settings)
        log.catch_up()
        log._check_none_lost()
        if log.state.version < 0 and log.attempt([RegisterBroker(broker=0)], level) is CommitOutcome.LOST:
            log.refresh()
        return log

    @classmethod
    def open(
        cls,
        store: Store,
        clock: Clock | None = None,
        ids: Ids | None = None,
        writer: str = "",
        settings: LogSettings = DEFAULTS,
    ) -> CommitLog:
        """Open an existing cluster; writes nothing.

        Raises ClusterNotFoundError, also if its creation was not completed, UnsupportedVersionError,
        CorruptMetadataError, also if there are no commits although there were some.
        """
        log = cls(store, clock or SystemClock(), ids or RandomIds(), writer, settings=settings)
        log.catch_up()
        for attempt in range(ATTEMPTS):  # one read proves nothing while a cluster is being created or restored
            if log.state.version >= 0:
                return log
            log.clock.sleep(pause_after(attempt))
            log.refresh()
        log._check_none_lost()
        if log.state.version < 0:
            raise report_not_created(store)
        return log

    def _check_none_lost(self) -> None:
        """Raise CorruptMetadataError if there are no commits, although the root shows that there were some."""
        trace = "" if self._state.version >= 0 else find_trace_of_commits(self.store)
        if trace and self.refresh().version < 0:  # else the cluster was created in the meantime
            raise report_no_commits(self.store, trace)

    def catch_up(self) -> None:
        """Read many commits, with retries: those read before a failure are kept, so only consecutive failures count,
        and a flaky storage does not make it a matter of luck. Errors as ``refresh``."""
        failures = 0
        while True:
            reached = self._state.version
            try:
                self.refresh()
            except StorageUnavailableError:
                failures = 0 if self._state.version > reached else failures + 1
                if failures >= ATTEMPTS:
                    raise
                self.clock.sleep(pause_after(failures))
            else:
                return

    def _load(
        self, listed: bool = False, is_linked: Callable[[State, State], bool] = lambda before, loaded: True
    ) -> None:
        """Start over from the newest checkpoint, or from the empty state.

        ``is_linked`` is asked whether the loaded state is a later one of the timeline that was read before; if not,
        that is counted."""
        cluster = read_cluster_file(self.store)
        if self._cluster_id not in ("", cluster.cluster_id):
            raise refuse_replaced_root(self.store, f"it holds cluster {cluster.cluster_id} now")
        self._cluster_id = cluster.cluster_id
        loaded_at = self._elapsed.now()
        manifest, state = read_newest_of_log(self.store, listed, self._incomplete)
        before, loaded = self._state, state or State(cluster_id=cluster.cluster_id)
        is_left = before.version >= 0 and loaded.digest != before.digest and not is_linked(before, loaded)
        # together, once nothing can fail any more
        self._torn = True
        self._is_leaving = self._is_leaving or is_left  # until it is counted, also after an interrupt
        self._state, self._seen = loaded, loaded_at
        self._anchor = (-1, "")  # the checkpoint's own commit was just seen in the log, or removed with those before it
        self._lists = SegmentLists(self.store, self._list_cache, manifest)
        self._commit_bytes = manifest.commit_bytes if manifest is not None else 0
        self._rebase_at = self._state.version + self.settings.rebase_after_commits
        self._remember_digest()
        if self._is_leaving:
            self._leave_timeline()
        self._torn = self._is_leaving = False

    def _is_linked(self, before: State, loaded: State) -> bool:
        """Return whether the root still holds the commit of ``before``, now that a later state was loaded from it: it
        may have been restored from a copy since the commit was read."""
        return loaded.version > before.version and holds_commit(self.store, before.version, before.digest)

    def _load_unlinked(self) -> None:
        self._load(listed=True, is_linked=lambda before, loaded: False)

    def _leave_timeline(self) -> None:
        """Count a load after which nothing links the state to what was read before."""
        self.unlinked_jumps += 1
        self._linked_since = self._state.version
        self._digests.clear()
        self._remember_digest()

    def _remember_digest(self) -> None:
        self._digests[self._state.version] = self._state.digest
        if len(self._digests) > DIGESTS_KEPT:
            del self._digests[next(iter(self._digests))]

    def find_digest(self, version: int) -> str | None:
        """Return the digest of a commit of this timeline, None if this process does not remember it."""
        return self._digests.get(version)

    def newest_commit(self, timeline: int) -> tuple[int, str] | None:
        """Return the version and digest of the newest commit read in this timeline, by ``unlinked_jumps``; None if the
        log has left it. Waits only for a thread that is about to advance the state."""
        state = self._state  # first: it is set before a jump is counted
        if self._torn:
            with self.held:
                state = self._state
                if self._torn:  # that thread was interrupted: it may have left the timeline without counting it
                    return None
        return (state.version, state.digest) if timeline == self.unlinked_jumps else None

    @property
    def state(self) -> State:
        """The newest state read so far; ``refresh`` reads newer commits."""
        return self._state

    def state_in_timeline(self) -> tuple[State, int]:
        """Return the newest state read so far and its timeline, by ``unlinked_jumps``; waits for a refresh or commit of
        another thread."""
        with self.held:
            return self._state, self.unlinked_jumps

    def timeline_of(self, state: State) -> int:
        """Return the timeline of a state that was read here at any time; of one that was left, the last such one."""
        is_left = state.version < self._linked_since or self._digests.get(state.version) not in (None, state.digest)
        return self.unlinked_jumps - is_left

    @property
    def commit_bytes(self) -> int:
        """The size of all commits up to ``state``, also of those that were removed, as far as it is known."""
        return self._commit_bytes

    # -- reading

    def refresh(self) -> State:
        """Read new commits and return the resulting state. Two small reads if there are none.

        Raises CorruptMetadataError if a commit is damaged, ClusterMovedError once the cluster has moved to another
        root, RootReplacedError if the root holds another timeline than the one read so far.
        """
        with self.held:
            self._recover_torn_state()
            self._catch_up_if_away()
            window, self._rounds, deadline = 1, 0, self.clock.monotonic() + limits.REFRESH_SECONDS
            while not self._read_to_end(window, deadline):
                window = MAX_READ_AHEAD
                self._check_in_time(deadline)
            if not self._looked_beyond:
                self._look_beyond(deadline)
            self._follow_checkpoints()
            self._check_not_moved()
            return self._state

    def _recover_torn_state(self) -> None:
        """Load again if a thread was interrupted (Ctrl-C, a signal) while it advanced the state."""
        if self._torn:
            self._load(listed=True)

    def _check_in_time(self, deadline: float) -> None:
        self._rounds += 1
        if self.clock.monotonic() > deadline and self._rounds > MAX_ROUNDS:  # else this process was stopped in between
            raise report_end_not_reached(self.store, self._state.version)

    def _read_to_end(self, window: int, deadline: float) -> bool:
        """Read all new commits; return False if a checkpoint was loaded instead, because commits were removed or many.
        ``window`` is how many to read at a time at first, after the next one."""
        seen = self._elapsed.now()
        stored, end = self._look()
        if not self._check_end(end):
            return False
        requested, behind, far_behind = 1, 0, FAR_BEHIND_COMMITS * window
        while True:
            for data in stored:
                if not self._take_read(data):
                    return False
            if len(stored) < requested:
                self._seen = seen
                return True
            self._check_in_time(deadline)
            behind += len(stored)
            if behind >= far_behind:
                far_behind *= 4
                if self._jump_to_checkpoint():
                    return False
            requested = window = min(2 * window, MAX_READ_AHEAD)
            seen = self._elapsed.now()
            stored = read_ahead(self.store, self._state.version + 1, requested)

    def _look_beyond(self, deadline: float) -> None:
        """Check that no commit is stored beyond the end that was read, except for those that others are appending.

        Raises CorruptMetadataError if there is a hole in the commits: this process would write into it.
        """
        for attempt in range(ATTEMPTS):
            checkpoint_at = newest_unused_checkpoint(self.store, self._state.version, self._incomplete)
            commits = commits_after(self.store, self._state.version, in_doubt=checkpoint_at >= 0)
            if not commits and checkpoint_at < 0:
                break
            if attempt:  # a stalled writer may be about to withdraw its commit, or a clean-up delete in another order
                self.clock.sleep(pause_after(attempt))
            self._boundary_seen = None
            while not self._read_to_end(MAX_READ_AHEAD, deadline):
                self._check_in_time(deadline)
            if self._state.version >= max([*commits, checkpoint_at]):
                break
        else:
            refuse_hole(self.store, self._state.version, commits)
            if checkpoint_at >= 0:
                logger.warning("%s", describe_lost_end(self.store, self._state.version, checkpoint_at))
        self._looked_beyond = True

    def _look(self) -> tuple[list[bytes], LogEnd]:
        """Read the next commit if there is one, and the object at the number of the newest one known here."""
        version = self._state.version
        if version < 0:
            return read_ahead(self.store, 0, 1), LogEnd(self._state.digest, read_boundary(self.store))
        last = self._boundary_seen
        with_boundary = last is None or self._elapsed.seconds_since(last) >= BOUNDARY_SECONDS
        read_at = self._elapsed.now()
        stored, end = read_next_and_end(self.store, version, with_boundary)
        if with_boundary:
            self._boundary_seen = read_at
        return stored, end

    def _check_end(self, end: LogEnd) -> bool:
        """Return whether the stored log continues this one; False if a checkpoint was loaded instead.

        Raises RootReplacedError if the newest commit known here is missing, or another one has its number.
        """
        state = self._state
        if end.digest == state.digest and end.removed_up_to <= state.version:
            return True
        for attempt, look in enumerate([read_log_end] * ATTEMPTS + [read_mounted_log_end]):
            if end.removed_up_to >= state.version:
                return self._reload_after(end.removed_up_to)
            if end.digest == state.digest:
                return True
            self.clock.sleep(pause_after(attempt))  # one read while a copy is being restored proves nothing
            end = look(self.store, state.version, True)
        if end.digest == state.digest and end.removed_up_to < state.version:
            return True
        # It may have been removed nevertheless: a late clean-up may have set the boundary back since, and the create of
        # a stalled writer have its number.
        removed = read_certain_boundary(self.store)
        if removed >= state.version:
            return self._reload_after(removed)
        newest, _ = read_newest_of_log(self.store, True, set(self._incomplete))
        is_other = end.digest is not None and (newest is None or newest.version != state.version)
        if newest is None or newest.version < state.version or is_other:
            raise refuse_other_timeline(self.store, state.version, end)
        if newest.version > state.version:
            self._load_unlinked()
            return False
        if checkpoint.read_digest(self.store, newest) != state.digest:
            raise refuse_other_timeline(self.store, state.version, end)
        return True

    def _jump_to_checkpoint(self) -> bool:
        """Load a newer checkpoint if there is one; return whether the state changed."""
        newest = checkpoint.read_newest(self.store, self._lists.base)
        if newest is None or newest.version <= self._state.version or newest.heads.key in self._incomplete:
            return False
        reached = self._state.version
        self._load(is_linked=self._is_linked)
        return self._state.version != reached

    def _check_not_moved(self) -> None:
        if self._state.moved_to and not self._moved:
            raise ClusterMovedError(
                f"cluster {self._state.cluster_id} has moved from {self.store.root} to {self._state.moved_to}; use "
                "that address from now on",
                path=self.store.root,
            )

    def _catch_up_if_away(self) -> None:
        """Load the newest checkpoint if this process was away for long: commits it has not read may be removed."""
        if not self._elapsed.is_away_since(self._seen):
            return
        self._looked_beyond = False
        newest = checkpoint.read_newest_listed(self.store)
        if newest is None or newest.version <= self._state.version:
            return
        if self._state.version >= 0:
            end = read_log_end(self.store, self._state.version, with_boundary=True)
            is_other = end.digest not in (None, self._state.digest)  # if absent, it may have been removed
            if is_other and read_certain_boundary(self.store) < self._state.version:  # else it is a stalled writer's
                raise refuse_other_timeline(self.store, self._state.version, end)
        self._load(listed=True, is_linked=self._is_linked)

    def _take_read(self, data: bytes) -> bool:
        """Advance by a stored commit; return False if it is not a commit after all.

        If it does not follow, the state may be wrong instead: it may include a stalled writer's create of a removed
        number, which is not a commit. Or the commit is about to be withdrawn: see ``CommitAttempt``.
        """
        version = self._state.version + 1
        before = (self._state.version, self._state.digest)
        try:
            stored = complete_commit(self.store, data, version)
            self._advance(stored.commit, fold(self._state, stored.commit, stored.digest), stored.size)
            self._anchor = before
        except CorruptMetadataError as error:
            from_commits = self._lists.base is None or self._state.version > self._lists.base.version
            boundary = read_certain_boundary(self.store)
            if not from_commits or boundary < max(self._state.version, 0):  # nothing was removed that it is based on
                end = read_log_end(self.store, self._state.version, with_boundary=True)
                if self._state.version >= 0 and end.digest not in (None, self._state.digest):
                    raise refuse_other_timeline(self.store, self._state.version, end) from error  # another timeline
                if is_withdrawn(self.store, self.clock, version, data):
                    return False
                raise
            self._reload_after(boundary)
            return False
        return True

    def _reload_after(self, boundary: int) -> bool:
        """Load the newest checkpoint, in place of a removed next commit; return whether it is that of the same commit.

        By listing: a process that stalled may have set back both the boundary and the hint.
        """
        before = self._state
        self._load_unlinked()
        if self._state.version < boundary:
            raise report_lost_commits(self.store, boundary, self._state.version)
        return (self._state.version, self._state.digest) == (before.version, before.digest)

    def _follow_checkpoints(self) -> None:
        if self._state.version >= self._rebase_at:
            self._rebase_at = self._state.version + self.settings.rebase_after_commits
            self.rebase_quietly()

    def rebase_quietly(self) -> None:
        """Rebase on a newer checkpoint of another process, best effort: it only saves memory."""
        try:
            newest = checkpoint.read_newest(self.store)
            if newest is None or not self._may_build_on(newest) or not is_of_log(self.store, newest):
                return
            if self._is_of_this_timeline():
                self._rebase(newest)
        except SparklogError as error:
            logger.warning("could not read the newest checkpoint of %s: %s", self.store.root, error)

    def _advance(self, commit: Commit, folded: Folded, size: int) -> None:
        """Advance to the state after one commit, which takes ``size`` bytes in storage."""
        self._torn = True
        self._lists.take(commit, folded.touched)
        self._commit_bytes += size
        self._state = folded.state
        self._remember_digest()
        self._torn = False
        for follower in self.followers:
            follower.add(commit, size)

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Yield commits ``first..last`` as stored, for tools. Raises ObjectNotFoundError if one was removed."""
        for version in range(first, last + 1):
            yield read_commit(self.store, version).commit

    def segments(self, topic: str, state: State | None = None) -> TopicSegments:
        """Return the live segments of a topic as of ``state`` (default: the newest read).

        Raises UnknownTopicOrPartitionError, also if a topic of an older state was deleted since and its segments are no
        longer listed, and UnlinkedHistoryError for one of a timeline that was left. The state must come from this log.
        """
        with self.held:
            self._recover_torn_state()
            state = state or self._state
            if self.timeline_of(state) != self.unlinked_jumps:
                raise refuse_unlinked_timeline(self.store, f"records of {topic} were planned to be read before")
            try:
                return self._lists.of(topic, state, self._state)
            except CorruptMetadataError as error:
                if not error.missing or not self._replace_incomplete_base():
                    raise
            return self._lists.of(topic, state, self._state)

    def _replace_incomplete_base(self) -> bool:
        """Rebase on another checkpoint, since files of the base are missing: newer checkpoints have replaced it.

        Or its writer stalled for so long that a clean-up took its files for orphans before the manifest named them;
        then an older checkpoint with the commits since is used. Returns False if no other one reaches as far.
        """
        assert self._lists.base is not None
        self._incomplete.add(self._lists.base.heads.key)
        for _ in range(ATTEMPTS):
            self.refresh()
            newest = checkpoint.read_newest_state(self.store, True, self._incomplete)[0]
            if newest is None or newest.version < self._lists.base.version:
                return self._start_over_from(-1 if newest is None else newest.version)
            if newest.version <= self._state.version:  # else other processes have committed and written one since
                if not self._is_of_this_timeline():
                    return self._start_over_from(newest.version)
                self._rebase(newest)
                return True
        return False

    def _start_over_from(self, version: int) -> bool:
        """Load an older checkpoint and read the commits after this version; return False if they were removed."""
        if read_certain_boundary(self.store) > version:
            return False
        before, is_linked = self._state, False
        try:
            self._load(listed=True)
            self.refresh()
            is_linked = holds_commit(self.store, before.version, before.digest)  # and is not of a restored root
        finally:  # also after an error: later reads continue from the older checkpoint
            if not is_linked:
                self._leave_timeline()
        return self._state.version >= before.version

    # -- writing

    def committing(self) -> contextlib.AbstractContextManager[None]:
        """Return the advisory lock of a local disk, around refresh, decide and commit, within ``held``.

        This only saves wasted work: put-if-absent arbitrates.
        """
        return self.store.commit_lock(self._refresh_quietly)

    def _refresh_quietly(self) -> None:
        """Read commits of other processes while waiting for their lock, so that little is left to read afterwards."""
        with contextlib.suppress(SparklogError):
            self.refresh()

    def next_timestamp_ms(self) -> int:
        """Return the time of the next commit: now, but later than the previous one, even if clocks differ or go back.

        ``now`` is the storage's time if this machine's clock is far off, so that one wrong clock does not advance the
        log's time for all processes.
        """
        return max(self.storage_clock.now_ms(), self._state.timestamp_ms + 1)

    def draft(self, actions: Sequence[Action] = ()) -> Draft:
        """Return a draft of the next commit, on the newest state read. Raises as ``Draft.apply``."""
        return Draft(self._state, self.next_timestamp_ms(), actions)

    def make_durable(self) -> None:
        """Make the commits up to ``state`` durable, before something follows from them that a power failure does not
        undo: an acknowledgement, a deletion, a copy. A commit that another process made is visible before it is
        durable, and never becomes so where the disk refuses that.

        One sync of a local disk if the newest commit is not this process's; nothing elsewhere. Raises StorageError."""
        digest = self._state.digest
        if digest != self._durable:
            self.store.sync(COMMITS)
            self._durable = digest

    def attempt(self, actions: Sequence[Action], level: int = 0) -> CommitOutcome:
        """Try to commit these actions, decided on ``state``, at least at this level; as ``commit``."""
        with self.held:
            if self._torn:
                return CommitOutcome.LOST
            draft = self.draft(actions)
            draft.raise_level(level)
            return self.commit(draft)

    def commit(self, draft: Draft) -> CommitOutcome:
        """Try to commit a draft as the next version. WON: ``state`` includes it. LOST: refresh, decide again.

        Raises RecordListTooLargeError, InvalidRequestError, FeatureLevelError or StorageError if nothing was written,
        IndeterminateCommitError if the outcome is unknown.
        """
        with self.held:
            if self._torn or draft.base is not self._state:  # decided on a state that was replaced since
                return CommitOutcome.LOST
            prepared = prepare_commit(draft, self.ids.write_id(), self._writer, self.settings)
            version = prepared.commit.version
            outcome = CommitAttempt(self.store, self.clock, self._elapsed, prepared).make(self._seen, self._anchor)
            if outcome is CommitOutcome.REMOVED:
                self._reload_after(version)
            if outcome is not CommitOutcome.WON:
                return CommitOutcome.LOST
            if self._state is not prepared.base:  # a signal handler read commits, perhaps this one
                self._refresh_quietly()
                return CommitOutcome.WON
            self._advance(prepared.commit, prepared.folded, prepared.size)
            self._anchor = (-1, "")
            self._durable = prepared.folded.state.digest
            self._checkpointer.request_if_due(version)
            return CommitOutcome.WON

    # -- checkpoints

    @property
    def recent_segments(self) -> int:
        """The number of changes of segments since the checkpoint that this log is based on."""
        return self._lists.recent_count

    def wait_for_checkpoint(self) -> None:
        """Wait for the checkpoint that is being written for a commit of this process, if any."""
        self._checkpointer.wait()

    def write_checkpoint(self) -> checkpoint.Manifest:
        """Write a checkpoint of the newest state read, and rebase on it. Commits and reads do not wait for it.

        Raises StorageError, CorruptMetadataError, RootReplacedError.
        """
        return self._checkpointer.write()

    def take_snapshot(self, newest: checkpoint.Manifest | None) -> LogSnapshot:
        """Return what a checkpoint is to hold now, built on ``newest``, the newest stored one of this log, if that is
        possible; for the checkpointer. Raises SparklogError."""
        with self.held:
            if self._torn or self._elapsed.is_away_since(self._seen):
                self.refresh()
            base = newest if newest is not None and self._may_build_on(newest) else self._lists.base
            events, touched = self._lists.changes_since(base.version if base is not None else -1)
            return LogSnapshot(self._state, base, events, touched, self._commit_bytes)

    def follow_checkpoint(self, written: checkpoint.Manifest) -> None:
        """Rebase on a checkpoint that this process wrote, unless the log has a newer base; for the checkpointer."""
        with self.held:
            if self._lists.base is None or self._lists.base.version < written.version <= self._state.version:
                self._rebase(written)

    def avoid_base(self, heads: str) -> bool:
        """Stop building on a checkpoint with missing files, return False if that was known; for the checkpointer."""
        with self.held:
            if not heads or heads in self._incomplete:
                return False
            self._incomplete.add(heads)
            is_own = self._lists.base is not None and self._lists.base.heads.key == heads
            return not is_own or self._replace_incomplete_base()

    def _is_of_this_timeline(self) -> bool:
        """Return whether a checkpoint that was just read is of the timeline of this log's state, not of a root that has
        replaced it: its commit is still stored. Raises StorageError."""
        return holds_commit(self.store, self._state.version, self._state.digest)

    def _may_build_on(self, manifest: checkpoint.Manifest) -> bool:
        if manifest.version > self._state.version or manifest.heads.key in self._incomplete:
            return False
        return self._lists.base is None or manifest.version > self._lists.base.version

    def _rebase(self, manifest: checkpoint.Manifest) -> None:
        self._torn = True
        self._lists.rebase(manifest, self._state)
        self._torn = False
