"""The commit log: one totally ordered sequence of commits on shared storage, and the state it folds to.

Reading tails it: get the next number until it is absent. Writing creates the next number with put-if-absent. The
storage arbitrates; this class only caches what it has read, so any number of them may be alive in any number of
processes.

Rules:

* The answer to a conditional write is never believed when it is not a plain yes: the object is read back and its write
  id compared, since a writer can lose to its own retried request. What cannot be told is IndeterminateCommitError.
* After each create the boundary is read again. A number at or below it was removed before, so the create was a stalled
  writer's and did not happen for anybody else.
* An absent next number means the end of the log only if the boundary has not passed it.
* Commits are removed only when they are ``limits.MIN_COMMIT_AGE_MS`` old. Whoever was away for half of that looks for
  the newest checkpoint by listing before it believes the boundary or its own create (see ``cleanup``).
* Checkpoints are written here every ``limits.CHECKPOINT_INTERVAL_COMMITS`` commits, by whoever commits that number; a
  failure to write one is logged and harms nobody.

Not for: deciding what to commit, waiting or retrying (``coordinator``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    CorruptMetadataError,
    IndeterminateCommitError,
    ObjectExistsError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log import checkpoint, cleanup
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    CHECKPOINTS,
    CLUSTER_KEY,
    encode_cluster_file,
    has_history,
    read_boundary,
    read_cluster_file,
)
from sparklog.log.segments import TopicSegments, part_up_to
from sparklog.protocol.commits import (
    FORMAT,
    Action,
    Commit,
    RegisterBroker,
    commit_key,
    decode_commit,
    encode_commit,
)
from sparklog.protocol.fold import Draft, apply
from sparklog.protocol.segments import SegmentEvent, segment_events
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

_REBASE_AFTER_COMMITS = 4 * limits.CHECKPOINT_INTERVAL_COMMITS
"""commits after which a process that only reads looks for a checkpoint, so that what it holds stays small."""

AWAY_SECONDS = limits.MIN_COMMIT_AGE_MS / 2000
"""seconds without a look at the log after which its commits may have been removed meanwhile."""

CHECKPOINTS_PER_CLEANUP = 10
"""checkpoints that a process writes between two removals of old ones, which take a listing."""

READ_BACK_ATTEMPTS = 5
"""reads after an unclear answer before the outcome is indeterminate."""


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
        self._lock = threading.RLock()
        self._incomplete: set[str] = set()
        self._whole = ""
        self._checkpoints_written = 0
        self._load()

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
        seen = self.clock.monotonic()
        manifest, state = checkpoint.read_newest_state(self.store, listed, self._incomplete)
        # together, and only once nothing can fail any more
        self._base, self._state, self._seen = manifest, state or State(cluster_id=cluster.cluster_id), seen
        self._commit_bytes = manifest.commit_bytes if manifest is not None else 0
        self._rebase_at = self._state.version + _REBASE_AFTER_COMMITS
        self._recent: dict[str, list[SegmentEvent]] = {}
        self._recent_count = 0
        self._parts: dict[str, list[pa.RecordBatch]] = {}
        self._lists: dict[str, tuple[TopicState, TopicSegments]] = {}

    @property
    def state(self) -> State:
        """The newest state read so far; ``refresh`` for what is there now."""
        return self._state

    # -- reading

    def refresh(self) -> State:
        """Read the commits that came since, and return the state they lead to. Two small reads when there are none.

        Raises CorruptMetadataError when a commit is not what was written, ClusterMovedError once the cluster goes on at
        another root.
        """
        with self._lock:
            self._catch_up_if_away()
            while True:
                seen = self.clock.monotonic()
                try:
                    data = self.store.get(commit_key(self._state.version + 1), limits.MAX_COMMIT_BYTES)
                except ObjectNotFoundError:
                    boundary = read_boundary(self.store)
                    if boundary <= self._state.version:
                        self._seen = seen
                        self._follow_checkpoints()
                        self._check_here()
                        return self._state
                    self._reload_after(boundary)
                    continue
                self._take_read(data)

    def _check_here(self) -> None:
        if self._state.moved_to and not self._moved:
            raise ClusterMovedError(
                f"cluster {self._state.cluster_id} has moved from {self.store.root} to {self._state.moved_to}; use "
                "that address from now on",
                path=self.store.root,
            )

    def _catch_up_if_away(self) -> None:
        """Whoever has not looked for long starts from the newest checkpoint: commits it has not seen may be gone."""
        if self.clock.monotonic() - self._seen < AWAY_SECONDS:
            return
        newest = checkpoint.read_newest_listed(self.store)
        if newest is not None and newest.version > self._state.version:
            self._load(listed=True)

    def _take_read(self, data: bytes) -> None:
        """Advance by a commit as it was read. One that does not follow may follow what this log never saw: a stalled
        writer's create of a number that was removed is no commit, and was taken for one here."""
        version = self._state.version + 1
        try:
            self._take(*decode_commit(data, version), len(data))
        except CorruptMetadataError:
            from_commits = self._base is None or self._state.version > self._base.version
            boundary = read_boundary(self.store)
            if not from_commits or boundary < max(self._state.version, 0):
                raise  # nothing was removed from under it
            self._reload_after(boundary)

    def _reload_after(self, boundary: int) -> None:
        """The next commit is gone: a checkpoint at or after the boundary stands for it."""
        for listed in (False, True):
            self._load(listed)
            if self._state.version >= boundary:
                return
        path = f"{self.store.root}/{CHECKPOINTS}"
        raise CorruptMetadataError(
            f"commits up to {boundary} were removed from {self.store.root}, and its newest checkpoint is of version "
            f"{self._state.version}: the state between the two is lost; restore {path} from a copy of the root",
            path=path,
        )

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
        self._state = apply(self._state, commit, digest)
        self._commit_bytes += size
        for topic_id, events in segment_events(commit).items():
            self._recent.setdefault(topic_id, []).extend(events)
            self._recent_count += len(events)

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Commits ``first..last`` as stored, for tools. Raises ObjectNotFoundError where one was removed."""
        for version in range(first, last + 1):
            yield decode_commit(self.store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)[0]

    def segments(self, topic: str, state: State | None = None) -> TopicSegments:
        """The live segments of a topic as of ``state`` (default: the newest read).

        Raises UnknownTopicOrPartitionError, also where a topic of an older state was deleted since and its segments are
        listed no more. The state must have been handed out by this log.
        """
        with self._lock:
            state = state or self._state
            try:
                return self._segments(topic, state)
            except CorruptMetadataError as error:
                if not error.missing or not self._leave_incomplete_base():
                    raise
            return self._segments(topic, state)

    def _segments(self, topic: str, state: State) -> TopicSegments:
        version = state.version
        found = state.topic(topic)
        cached = self._lists.get(found.topic_id)
        if cached is not None and cached[0] is found:
            return cached[1]
        recent = [s for s in self._recent.get(found.topic_id, ()) if s.version <= version]
        parts = self._checkpointed(found.topic_id)
        if self._base is not None and self._base.version > version:
            parts = [part_up_to(part, version) for part in parts]
        newest = self._newer_list(found, version)
        listed = TopicSegments(found, parts, recent, newest, self._is_lost(newest, version))
        if self._is_live(found):
            self._lists[found.topic_id] = (found, listed)
        elif len(recent) + sum(part.num_rows for part in parts) < sum(p.segments for p in found.partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} of version {version} was deleted since (id {found.topic_id}), and its segments "
                "are not listed any more; refresh, and read what there is",
                topic=topic,
            )
        return listed

    def _newer_list(self, topic: TopicState, version: int) -> TopicSegments | None:
        """The newest list, for what cannot be listed as of ``version`` any more; None where the base is not newer."""
        if self._base is None or self._base.version <= version or not self._is_live(topic):
            return None
        newest = self._state.topics[topic.name]
        return TopicSegments(newest, self._checkpointed(topic.topic_id), self._recent.get(topic.topic_id, ()))

    def _is_lost(self, newest: TopicSegments | None, version: int) -> Callable[[int], bool]:
        """Whether segments of a partition were replaced after ``version`` and the base has what took their place."""
        base = self._base.version if self._base is not None else -1

        def is_lost(partition: int) -> bool:
            assert newest is not None
            changes = newest.topic.partitions[partition].changes
            forgotten = len(changes) == limits.SEGMENT_CHANGES_KEPT and changes[0].version > version
            return forgotten or any(version < change.version <= base for change in changes)

        return is_lost

    def _is_live(self, topic: TopicState) -> bool:
        newest = self._state.topics.get(topic.name)
        return newest is not None and newest.topic_id == topic.topic_id

    def _checkpointed(self, topic_id: str) -> list[pa.RecordBatch]:
        if self._base is None or topic_id not in self._base.segments:
            return []
        if topic_id not in self._parts:
            self._parts[topic_id] = checkpoint.read_segments(self.store, self._base.segments[topic_id])
        return self._parts[topic_id]

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
        if read_boundary(self.store) > version:
            return False
        reached = self._state.version
        self._load(listed=True)
        self.refresh()
        return self._state.version >= reached

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
        """The time of the next commit: now, but after the one before, also when clocks differ or go back."""
        return max(self.clock.now_ms(), self._state.timestamp_ms + 1)

    def attempt(self, actions: Sequence[Action]) -> Outcome:
        """Try to commit these actions as the next version. WON: ``state`` includes them. LOST: refresh and decide anew.

        Raises RecordListTooLargeError, InvalidRequestError or StorageError when nothing was written,
        IndeterminateCommitError when that cannot be told.
        """
        with self._lock:
            commit, data, digest = self._prepare(actions)
            version, began = commit.version, self.clock.monotonic()
            if not self._create(commit, data):
                return Outcome.LOST
            if not self._is_part_of_log(commit, digest, began):
                with contextlib.suppress(SparklogError):
                    self.store.delete(commit_key(version))  # nobody else's can be there
                self._reload_after(version)
                return Outcome.LOST
            self._take(commit, digest, len(data))
            if self._checkpoint_is_due(version):
                self._checkpoint_quietly()
            return Outcome.WON

    def _prepare(self, actions: Sequence[Action]) -> tuple[Commit, bytes, str]:
        state, timestamp = self._state, self.next_timestamp_ms()
        draft = Draft(state, timestamp)
        for action in actions:
            draft.apply(action)
        commit = Commit(
            format=FORMAT,
            version=state.version + 1,
            write_id=self.ids.write_id(),
            timestamp=timestamp,
            previous=state.digest,
            checksum=draft.finish(state.version + 1, "").checksum,
            writer=self._writer,
            actions=list(actions),
        )
        return (commit, *encode_commit(commit))

    def _is_part_of_log(self, commit: Commit, digest: str, began: float) -> bool:
        """Whether a commit whose create ``began`` then is one, and not at a number that was removed before.

        Raises IndeterminateCommitError where that cannot be told: this process was stopped for so long that the commit
        may have been removed since, after a checkpoint that has it.
        """
        boundary = self._read_after(commit, lambda: read_boundary(self.store))
        now = self.clock.monotonic()
        stopped = now - began >= AWAY_SECONDS
        if not stopped and (boundary >= commit.version or now - self._seen < AWAY_SECONDS):
            return boundary < commit.version
        newest = self._read_after(commit, lambda: checkpoint.read_newest_listed(self.store))
        if boundary < commit.version and (newest is None or newest.version < commit.version):
            return True
        if newest is not None and newest.version == commit.version:
            manifest = newest
            return self._read_after(commit, lambda: checkpoint.read_heads(self.store, manifest)).digest == digest
        if not stopped and not self._read_after(commit, lambda: self._exists(commit.version + 1)):
            return False

        def is_followed() -> bool:
            follower = self.store.get(commit_key(commit.version + 1), limits.MAX_COMMIT_BYTES)
            return decode_commit(follower, commit.version + 1)[0].previous == digest

        return self._read_after(commit, is_followed)

    def _exists(self, version: int) -> bool:
        try:
            self.store.info(commit_key(version))
        except ObjectNotFoundError:
            return False
        return True

    def _create(self, commit: Commit, data: bytes) -> bool:
        """Whether this commit is now in the log; False when another one has its number."""
        failure: StorageError | None = None
        try:
            self.store.put_if_absent(commit_key(commit.version), data)
        except ObjectExistsError:
            pass  # maybe by an earlier try of this very request, which the storage's client repeated
        except StorageError as error:
            if error.nothing_written:
                raise
            if error.stored:  # it can be read, but a power cut may take it away: not to be acknowledged
                raise self._indeterminate(commit, error) from error
            logger.warning("outcome of commit %d unknown, reading it back: %s", commit.version, error)
            failure = error
        else:
            return True
        return self._read_back(commit, failure)

    def _read_back(self, commit: Commit, failure: StorageError | None) -> bool:
        """Tell won from lost by reading the object. Raises IndeterminateCommitError, by cause of ``failure``."""

        def is_ours() -> bool:
            stored = self.store.get(commit_key(commit.version), limits.MAX_COMMIT_BYTES)
            return decode_commit(stored, commit.version)[0].write_id == commit.write_id

        return self._read_after(commit, is_ours, failure)

    def _read_after(self, commit: Commit, read: Callable[[], Read], cause: StorageError | None = None) -> Read:
        """What has to be read to know what became of a commit that may be stored already.

        Raises IndeterminateCommitError where that fails again and again, since no other error may follow a create. Its
        cause is what the create failed with, or else the last read.
        """
        failure: SparklogError | None = None
        for attempt in range(READ_BACK_ATTEMPTS):
            try:
                return read()
            except SparklogError as error:  # also absent: the request may still be under way
                failure = error
                self.clock.sleep(0.05 * 2**attempt)
        raise self._indeterminate(commit, failure) from (cause or failure)

    def _indeterminate(self, commit: Commit, failure: Exception | None) -> IndeterminateCommitError:
        return IndeterminateCommitError(
            f"it is not known whether commit {commit.version} (write id {commit.write_id}) is in {self.store.root} for "
            f"good: {failure}; read the log again, or repeat the write with a producer id or txnAppId, which writes "
            "nothing twice",
            version=commit.version,
            write_id=commit.write_id,
            path=commit_key(commit.version),
        )

    # -- checkpoints

    def _checkpoint_is_due(self, version: int) -> bool:
        """Every so many commits, or once so many segments came since the last one: either makes opening slow."""
        if self._recent_count >= limits.CHECKPOINT_INTERVAL_SEGMENTS:
            self._rebase_quietly()
        by_segments = self._recent_count >= limits.CHECKPOINT_INTERVAL_SEGMENTS
        return by_segments or (version > 0 and version % limits.CHECKPOINT_INTERVAL_COMMITS == 0)

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
            cleanup.remove_some_commits(self.store, self.clock, self._state.configs, manifest)
            if self._checkpoints_written % CHECKPOINTS_PER_CLEANUP == 0:
                cleanup.remove_checkpoints(self.store)
        except Exception as error:  # as above
            logger.warning("commits and checkpoints of %s are not cleaned up: %s", self.store.root, error)

    def write_checkpoint(self) -> checkpoint.Manifest:
        """Write a checkpoint of the newest state read, and go on from it."""
        with self._lock:
            if self.clock.monotonic() - self._seen >= AWAY_SECONDS:
                self.refresh()
            base = self._newer_base() or self._base
            since = base.version if base is not None else -1
            recent = {
                topic_id: [event for event in events if event.version > since]
                for topic_id, events in self._recent.items()
            }
            changed = {topic_id: events for topic_id, events in recent.items() if events}
            began = self.clock.monotonic()
            try:
                self._check_whole(base)
                manifest = checkpoint.write_checkpoint(
                    self.store, self.ids, self._state, base, changed, self._commit_bytes
                )
            except CorruptMetadataError as error:
                if not error.missing or base is None or base.heads.key in self._incomplete:
                    raise
                self._incomplete.add(base.heads.key)
                if base is self._base and not self._leave_incomplete_base():
                    raise
                return self.write_checkpoint()
            if self.clock.monotonic() - began >= limits.MIN_CHECKPOINT_AGE_MS / 2000:
                self._withdraw_unless_whole(manifest)
            self._whole = manifest.heads.key
            self._rebase(manifest)
            return manifest

    def _check_whole(self, base: checkpoint.Manifest | None) -> None:
        """A checkpoint repeats files of the one it goes on from, unread; so these must be there.

        Raises CorruptMetadataError with ``missing`` set.
        """
        if base is None or base.heads.key == self._whole:
            return
        if not checkpoint.is_whole(self.store, base):
            path = f"{self.store.root}/{base.heads.key}"
            raise CorruptMetadataError(f"files of the checkpoint {path} are missing", path=path, missing=True)
        self._whole = base.heads.key

    def _withdraw_unless_whole(self, manifest: checkpoint.Manifest) -> None:
        """This process was stopped while it wrote: what it had written by then may have been taken for left behind."""
        if not checkpoint.is_whole(self.store, manifest):
            checkpoint.withdraw(self.store, manifest)
            path = f"{self.store.root}/{manifest.heads.key}"
            raise CorruptMetadataError(
                f"files of the checkpoint {path} were removed while it was written; it was withdrawn", path=path
            )

    def _newer_base(self) -> checkpoint.Manifest | None:
        """Another process's checkpoint between this log's own base and its state, if there is one."""
        found = checkpoint.read_newest(self.store)
        if found is None or found.version > self._state.version or found.heads.key in self._incomplete:
            return None
        if self._base is not None and found.version <= self._base.version:
            return None
        return found

    def _rebase(self, manifest: checkpoint.Manifest) -> None:
        """Let go of what the checkpoint holds. Lists handed out before keep what they need."""
        self._base = manifest
        self._parts = {}
        self._lists = {topic_id: kept for topic_id, kept in self._lists.items() if self._is_live(kept[0])}
        self._recent = {
            topic_id: kept
            for topic_id, events in self._recent.items()
            if (kept := [event for event in events if event.version > manifest.version])
        }
        self._recent_count = sum(len(events) for events in self._recent.values())
