"""One attempt to create a commit, and its outcome.

Rules:

* If the response to a conditional write is not a plain success, the object is read back and its bytes compared, since a
  writer can lose to its own retried request. If the outcome stays unknown: IndeterminateCommitError.
* A commit is folded once: its bytes and the state after it are made from one draft before the create, and that state
  holds only if exactly these bytes are stored.
* After the create the previous commit and the boundary are read again. A number at or below the boundary was removed
  before, so the create was that of a stalled writer and is not part of the log. If the previous commit is missing, the
  root was restored from a copy or created again: RootReplacedError, and this commit is withdrawn.
* Nothing is deleted while the outcome is unknown.

Not for: what to commit, and when to retry (``commit_log``, ``coordinator``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeVar

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import (
    CorruptMetadataError,
    IndeterminateCommitError,
    ObjectExistsError,
    ObjectNotFoundError,
    RootReplacedError,
    SparklogError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.usable_checkpoints import read_newest_of_log
from sparklog.log.commits.replaced_root import LogEnd, check_mounted, read_mounted_log_end, refuse_other_timeline
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import COMMITS, exists, read_boundary, read_certain_boundary
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import (
    EncodedCommit,
    actions_key,
    decode_commit,
    encode_to_store,
    stored_digest,
)
from sparklog.protocol.commits import Commit, ResetTime, commit_key
from sparklog.protocol.features import check_level
from sparklog.protocol.fold import Draft, Folded, check_follows
from sparklog.protocol.state import State
from sparklog.retry import READ_PAUSES, is_a, retry
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

Read = TypeVar("Read")


class CommitOutcome(Enum):
    """The outcome of an attempt to commit; outcome unknown is an error."""

    WON = "won"
    LOST = "lost"
    """Another commit has its number."""
    REMOVED = "removed"
    """Its number was removed long before, since this process had stalled; a log reports it as LOST."""


class PreparedCommit(NamedTuple):
    """A commit as it is to be stored, and the state after it, which follows from the state ``base`` alone."""

    base: State
    commit: Commit
    encoded: EncodedCommit
    folded: Folded

    @property
    def size(self) -> int:
        """The bytes it takes in storage."""
        return len(self.encoded.data) + len(self.encoded.spilled)


def prepare_commit(draft: Draft, write_id: str, writer: str, settings: LogSettings = DEFAULTS) -> PreparedCommit:
    """Return the commit of a draft. Its time is the draft's; if it resets the log's time, the time that it resets to.

    Pure. Raises RecordListTooLargeError, InvalidRequestError, FeatureLevelError if the level of the cluster does not
    allow it, CorruptMetadataError as ``Draft.apply``.
    """
    reset = next((action.time_ms for action in draft.actions if isinstance(action, ResetTime)), draft.timestamp_ms)
    if reset != draft.timestamp_ms:
        draft = Draft(draft.base, reset, draft.actions, draft.level)
    check_level(draft.actions, draft.level)
    commit = Commit(
        format=draft.level,
        needs=levels.needs_of(draft.level),
        version=draft.base.version + 1,
        write_id=write_id,
        timestamp=draft.timestamp_ms,
        previous=draft.base.digest,
        checksum=draft.checksum,
        writer=writer,
        actions=list(draft.actions),
    )
    check_follows(draft.base, commit)
    encoded = encode_to_store(commit, settings.max_inline_actions)
    state = draft.finish(commit.version, encoded.digest)
    return PreparedCommit(draft.base, commit, encoded, Folded(state, draft.touched))


class CommitAttempt:
    """One commit in flight. Used once, by one thread."""

    def __init__(self, store: Store, clock: Clock, elapsed: ElapsedTime, prepared: PreparedCommit) -> None:
        self._store = store
        self._clock = clock
        self._elapsed = elapsed
        self._commit = prepared.commit
        self._encoded = prepared.encoded

    def make(self, seen: Moment, anchor: tuple[int, str]) -> CommitOutcome:
        """Create the commit. WON: exactly its bytes are stored, and part of the log.

        ``seen`` is when this process last read the end of the log; ``anchor`` is version and digest of the commit
        before the newest one, if the newest was read and may itself follow a missing commit.

        Raises StorageError with nothing written, IndeterminateCommitError, RootReplacedError.
        """
        began = self._elapsed.now()
        if self._encoded.spilled:
            self._store.put(actions_key(self._commit.version, self._commit.write_id), self._encoded.spilled)
        if not self._create():
            self._delete_spilled()
            return CommitOutcome.LOST
        try:
            is_part = self._is_part_of_log(seen, began, anchor)
        except RootReplacedError as error:
            if not self._withdraw_if_ours():
                raise self._indeterminate(error) from error
            raise
        if is_part:
            return CommitOutcome.WON
        self._withdraw()
        return CommitOutcome.REMOVED

    def _withdraw(self) -> None:
        """Delete a commit that is not part of the log: only this process can have created it, and no commit follows.

        Best effort: at or below the boundary it does no harm."""
        with contextlib.suppress(SparklogError):
            self._store.delete_exactly(commit_key(self._commit.version), self._encoded.data)
        self._delete_spilled()

    def _withdraw_if_ours(self) -> bool:
        """Withdraw the commit from a replaced root, unless another timeline has a commit with its number by now.

        Returns whether this commit certainly no longer exists. The root's new timeline uses its number again, so a
        storage that cannot delete on a condition keeps it: the commit does not follow there, which is refused, and
        ``sparklog fsck`` reports it; but a client that sends its request again later would delete another's commit.
        """
        key = commit_key(self._commit.version)

        def withdraw() -> bool:
            gone = self._is_other(key) or bool(self._store.delete_exactly(key, self._encoded.data))
            check_mounted(self._store)  # after it: an unmounted root may come back with the commit
            return gone

        try:
            if not retry(withdraw, self._clock, READ_PAUSES, is_a(SparklogError)):
                return False
        except SparklogError:
            return False
        self._delete_spilled()
        return True

    def _is_other(self, key: str) -> bool:
        """Return whether there is no commit, or another one, under the key of this one."""
        try:
            return self._store.get(key, limits.MAX_COMMIT_BYTES) != self._encoded.data
        except ObjectNotFoundError:
            return True

    def _delete_spilled(self) -> None:
        commit, encoded = self._commit, self._encoded
        if encoded.spilled:
            with contextlib.suppress(SparklogError):
                self._store.delete(actions_key(commit.version, commit.write_id))

    def _is_part_of_log(self, seen: Moment, began: Moment, anchor: tuple[int, str]) -> bool:
        """Return whether the commit whose create ``began`` then is part of the log, not at a number removed before.

        Raises IndeterminateCommitError if that is unknown: this process stalled for so long that the commit may have
        been removed since, after a checkpoint that includes it. Raises RootReplacedError if the previous commit is
        missing: the root was restored from a copy in the meantime.
        """
        commit, digest = self._commit, self._encoded.digest
        end = self._read_after(self._end_before)
        boundary = end.removed_up_to
        if boundary < commit.version - 1 and end.digest != commit.previous:
            boundary = self._read_after(lambda: read_certain_boundary(self._store))
        is_over_hole = boundary < commit.version - 1 and end.digest != commit.previous
        if boundary < anchor[0]:
            at_anchor = self._read_after(lambda: read_mounted_log_end(self._store, anchor[0], with_boundary=True))
            removed = at_anchor.digest == anchor[1] or at_anchor.removed_up_to >= anchor[0]
            if not removed and self._read_after(lambda: read_certain_boundary(self._store)) < anchor[0]:
                raise refuse_other_timeline(self._store, anchor[0], at_anchor)
        stopped = self._elapsed.is_away_since(began)
        if not stopped and boundary < commit.version and not self._elapsed.is_away_since(seen):
            if is_over_hole:
                raise refuse_other_timeline(self._store, commit.version - 1, end)
            return True
        # Not one of a former timeline, such as a restored root may have: it does not say that this number was removed.
        newest, _ = self._read_after(lambda: read_newest_of_log(self._store, True, set()))
        if newest is None or newest.version < commit.version:  # nor does a boundary beyond, which is taken back
            if is_over_hole or not self._read_after(lambda: self._follows(end, anchor, newest)):
                raise refuse_other_timeline(self._store, commit.version - 1, end)
            return True
        if not stopped and boundary >= commit.version:
            return False
        covering = newest
        if covering.version == commit.version:
            return self._read_after(lambda: checkpoint.read_digest(self._store, covering)) == digest
        if not stopped and not self._read_after(lambda: exists(self._store, commit_key(commit.version + 1))):
            return False
        return self._read_after(lambda: self._is_followed(commit.version, digest, covering))

    def _follows(self, end: LogEnd, anchor: tuple[int, str], newest: checkpoint.Manifest | None) -> bool:
        """Return whether the commit follows the log, of which ``newest`` is the newest checkpoint, and before it.

        A boundary that was read after this process was stopped may be of another timeline: the commit that it knew was
        removed only if that checkpoint has it."""
        before = self._commit.version - 1
        if newest is None or newest.version not in (before, anchor[0]):
            return end.digest == self._commit.previous
        digest = checkpoint.read_digest(self._store, newest)
        if newest.version == before:
            return digest == self._commit.previous
        return end.digest == self._commit.previous and digest == anchor[1]

    def _is_followed(self, version: int, digest: str, newest: checkpoint.Manifest) -> bool:
        """Return whether the commits after this one lead to the newest checkpoint. A single following commit proves
        nothing: it may be that of another stalled writer, which took this one for a part of the log as well."""
        for number in range(version + 1, newest.version + 1):
            data = self._store.get(commit_key(number), limits.MAX_COMMIT_BYTES)
            if decode_commit(data, number)[0].previous != digest:
                return False
            digest = stored_digest(data)
        return checkpoint.read_digest(self._store, newest) == digest

    def _end_before(self) -> LogEnd:
        """Read the commit before the one just created, and the boundary."""
        commit = self._commit
        if commit.version == 0:
            return LogEnd(commit.previous, read_boundary(self._store))
        end = read_mounted_log_end(self._store, commit.version - 1, with_boundary=True)
        if end.digest != commit.previous and end.removed_up_to < commit.version - 1:
            newest = checkpoint.read_newest_listed(self._store)
            if newest is not None and newest.version == commit.version - 1:
                digest = checkpoint.read_digest(self._store, newest)
                return LogEnd(digest, end.boundary)  # it is in the checkpoint
        return end

    def _create(self) -> bool:
        """Create the object; return False if another commit has its number."""
        commit, failure = self._commit, None
        try:
            self._store.put_if_absent(commit_key(commit.version), self._encoded.data)
        except ObjectExistsError:
            pass  # perhaps created by an earlier try of this request, which the client retried
        except StorageError as error:
            if error.nothing_written:
                raise
            if error.stored:  # readable, but a power failure may lose it: not to be acknowledged
                raise self._indeterminate(error) from error
            logger.warning("commit %d: outcome unknown (%s); reading it back", commit.version, error)
            failure = error
        else:
            return True
        return self._read_back(failure)

    def _read_back(self, failure: StorageError | None) -> bool:
        """Read the object to tell won from lost. Raises IndeterminateCommitError, caused by ``failure``."""
        commit = self._commit

        def is_ours() -> bool:
            stored = self._store.get(commit_key(commit.version), limits.MAX_COMMIT_BYTES)
            if stored == self._encoded.data:
                self._store.sync(COMMITS)  # its create did not say that it was
                return True
            try:
                write_id = decode_commit(stored, commit.version)[0].write_id
            except UnsupportedVersionError:  # by a newer sparklog: the next refresh says which version is needed
                return False
            if write_id == commit.write_id:
                path = f"{self._store.root}/{commit_key(commit.version)}"
                raise CorruptMetadataError(f"{path} was changed after it was written", path=path)
            return False

        return self._read_after(is_ours, failure)

    def _read_after(self, read: Callable[[], Read], cause: StorageError | None = None) -> Read:
        """Repeat a read that is needed to determine the outcome of a commit that may be stored already.

        Raises IndeterminateCommitError if all tries fail, since no other error may follow a create; its cause is the
        error of the create, or else of the last read.
        """
        try:
            # retried even if the object is absent: a create may still be in flight
            return retry(read, self._clock, READ_PAUSES, is_a(SparklogError))
        except SparklogError as failure:
            raise self._indeterminate(failure, cause) from (cause or failure)

    def _indeterminate(self, failure: Exception, cause: Exception | None = None) -> IndeterminateCommitError:
        commit = self._commit
        reason = f"{failure}" if cause is None else f"{cause}. Reading it back: {failure}"
        return IndeterminateCommitError(
            f"it is not known whether commit {commit.version} (write id {commit.write_id}) is in {self._store.root} "
            f"for good: {reason}; read the log again, or repeat the write with a producer id or txnAppId, which "
            "writes nothing twice",
            version=commit.version,
            write_id=commit.write_id,
            path=commit_key(commit.version),
        )
