"""One attempt to create a commit, and what became of it.

Rules:

* The answer to a conditional write is never believed when it is not a plain yes: the object is read back and its write
  id compared, since a writer can lose to its own repeated request. What cannot be told is IndeterminateCommitError.
* After the create the commit before it and the boundary are looked at again. A number at or below the boundary was
  removed before, so the create was a stalled writer's and did not happen for anybody else. Where the commit before is
  gone, the root was restored from a copy or made again: RootReplacedError, and this commit is taken back.
* Nothing is deleted on an outcome that is not certain.

Not for: what to commit, and when to try again (``commit_log``, ``coordinator``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import (
    IndeterminateCommitError,
    ObjectExistsError,
    ObjectNotFoundError,
    RootReplacedError,
    SparklogError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits.commit_files import LogEnd, check_mounted, not_there, read_mounted_log_end
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import read_boundary, read_certain_boundary
from sparklog.protocol.commit_bytes import EncodedCommit, actions_key, decode_commit, stored_digest
from sparklog.protocol.commits import Commit, commit_key
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

READ_BACK_ATTEMPTS = 5
"""reads after an unclear answer before the outcome is indeterminate."""


class Fate(Enum):
    """What became of an attempt; a fourth fate, indeterminate, is an error."""

    WON = "won"
    LOST = "lost"
    """Another commit has its number."""
    REMOVED = "removed"
    """Its number was removed long before: this process had been stopped."""


class CommitAttempt:
    """One commit on its way into the log. Used once, by one thread."""

    def __init__(
        self, store: Store, clock: Clock, elapsed: ElapsedTime, commit: Commit, encoded: EncodedCommit
    ) -> None:
        self._store = store
        self._clock = clock
        self._elapsed = elapsed
        self._commit = commit
        self._encoded = encoded

    def make(self, seen: Moment, anchor: tuple[int, str]) -> Fate:
        """Create the commit. ``seen`` is when this process saw the end of the log last; ``anchor`` are the version and
        the digest of the commit before the newest one, where that one was read and may lie over a hole itself.

        Raises StorageError with nothing written, IndeterminateCommitError, RootReplacedError.
        """
        began = self._elapsed.now()
        if self._encoded.spilled:
            self._store.put(actions_key(self._commit.version, self._commit.write_id), self._encoded.spilled)
        if not self._create():
            self._delete_spilled()
            return Fate.LOST
        try:
            is_part = self._is_part_of_log(seen, began, anchor)
        except RootReplacedError as error:
            if not self._withdraw_if_ours():
                raise self._indeterminate(error) from error
            raise
        if is_part:
            return Fate.WON
        self._withdraw()
        return Fate.REMOVED

    def _withdraw(self) -> None:
        """Delete a commit that is not part of the log: only this process can have created it, and nobody follows it."""
        with contextlib.suppress(SparklogError):
            self._store.delete(commit_key(self._commit.version))
        self._delete_spilled()

    def _withdraw_if_ours(self) -> bool:
        """The same where the root was replaced: by now the number may be that of a commit of the other history.

        Returns whether this commit is certain not to be there any more.
        """
        key = commit_key(self._commit.version)
        for attempt in range(READ_BACK_ATTEMPTS):
            try:
                if self._store.get(key, limits.MAX_COMMIT_BYTES) == self._encoded.data:
                    self._store.delete(key)
            except ObjectNotFoundError:
                pass  # looked for before the root itself: one that is not mounted now may come back, with this commit
            except SparklogError:
                self._clock.sleep(0.05 * 2**attempt)
                continue
            try:
                check_mounted(self._store)
            except SparklogError:
                self._clock.sleep(0.05 * 2**attempt)
                continue
            self._delete_spilled()
            return True
        return False

    def _delete_spilled(self) -> None:
        commit, encoded = self._commit, self._encoded
        if encoded.spilled:
            with contextlib.suppress(SparklogError):
                self._store.delete(actions_key(commit.version, commit.write_id))

    def _is_part_of_log(self, seen: Moment, began: Moment, anchor: tuple[int, str]) -> bool:
        """Whether a commit whose create ``began`` then is one, and not at a number that was removed before.

        Raises IndeterminateCommitError where that cannot be told: this process was stopped for so long that the commit
        may have been removed since, after a checkpoint that has it. Raises RootReplacedError where the commit before it
        is gone: the root was restored from a copy meanwhile.
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
                raise not_there(self._store, anchor[0], at_anchor)
        stopped = self._elapsed.is_away_since(began)
        if not stopped and (boundary >= commit.version or not self._elapsed.is_away_since(seen)):
            if is_over_hole:
                raise not_there(self._store, commit.version - 1, end)
            return boundary < commit.version
        newest = self._read_after(lambda: checkpoint.read_newest_listed(self._store))
        if boundary < commit.version and (newest is None or newest.version < commit.version):
            if is_over_hole:
                raise not_there(self._store, commit.version - 1, end)
            return True
        if newest is not None and newest.version == commit.version:
            manifest = newest
            return self._read_after(lambda: checkpoint.read_digest(self._store, manifest)) == digest
        if not stopped and not self._read_after(lambda: self._exists(commit.version + 1)):
            return False
        return self._read_after(lambda: self._is_followed(commit.version, digest, newest))

    def _is_followed(self, version: int, digest: str, newest: checkpoint.Manifest | None) -> bool:
        """Whether the commits after this one lead to the newest checkpoint. That one of them follows proves nothing: it
        may be another stalled writer's, which took this one for a part of the log as well."""
        last = version + 1 if newest is None else max(newest.version, version + 1)
        for number in range(version + 1, last + 1):
            data = self._store.get(commit_key(number), limits.MAX_COMMIT_BYTES)
            if decode_commit(data, number)[0].previous != digest:
                return False
            digest = stored_digest(data)
        if newest is None or newest.version != last:
            return True
        return checkpoint.read_digest(self._store, newest) == digest

    def _end_before(self) -> LogEnd:
        """What is stored before the commit that was just created, and the boundary."""
        commit = self._commit
        if commit.version == 0:
            return LogEnd(commit.previous, read_boundary(self._store))
        end = read_mounted_log_end(self._store, commit.version - 1, with_boundary=True)
        if end.digest != commit.previous and end.removed_up_to < commit.version - 1:
            newest = checkpoint.read_newest_listed(self._store)
            if newest is not None and newest.version == commit.version - 1:
                digest = checkpoint.read_digest(self._store, newest)
                return LogEnd(digest, end.boundary)  # a checkpoint stands for it
        return end

    def _exists(self, version: int) -> bool:
        try:
            self._store.info(commit_key(version))
        except ObjectNotFoundError:
            return False
        return True

    def _create(self) -> bool:
        """Whether this commit is now in the log; False when another one has its number."""
        commit, failure = self._commit, None
        try:
            self._store.put_if_absent(commit_key(commit.version), self._encoded.data)
        except ObjectExistsError:
            pass  # maybe by an earlier try of this very request, which the storage's client repeated
        except StorageError as error:
            if error.nothing_written:
                raise
            if error.stored:  # it can be read, but a power cut may take it away: not to be acknowledged
                raise self._indeterminate(error) from error
            logger.warning("outcome of commit %d unknown, reading it back: %s", commit.version, error)
            failure = error
        else:
            return True
        return self._read_back(failure)

    def _read_back(self, failure: StorageError | None) -> bool:
        """Tell won from lost by reading the object. Raises IndeterminateCommitError, by cause of ``failure``."""
        commit = self._commit

        def is_ours() -> bool:
            stored = self._store.get(commit_key(commit.version), limits.MAX_COMMIT_BYTES)
            try:
                return decode_commit(stored, commit.version)[0].write_id == commit.write_id
            except UnsupportedVersionError:  # a newer program's: the next refresh says what is needed
                return False

        return self._read_after(is_ours, failure)

    def _read_after(self, read: Callable[[], Read], cause: StorageError | None = None) -> Read:
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
                self._clock.sleep(0.05 * 2**attempt)
        raise self._indeterminate(failure) from (cause or failure)

    def _indeterminate(self, failure: Exception | None) -> IndeterminateCommitError:
        commit = self._commit
        return IndeterminateCommitError(
            f"it is not known whether commit {commit.version} (write id {commit.write_id}) is in {self._store.root} "
            f"for good: {failure}; read the log again, or repeat the write with a producer id or txnAppId, which "
            "writes nothing twice",
            version=commit.version,
            write_id=commit.write_id,
            path=commit_key(commit.version),
        )
