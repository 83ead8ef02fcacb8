"""Commits as objects: reads a commit of any size, reads ahead, and compares the stored end of a log with a known one.

    meta/commits/<20 digits>.json                 one commit
    meta/actions/<20 digits>-<write id>.json      the actions of a commit that has too many of them to hold them itself

A commit whose actions take more than ``limits.MAX_INLINE_ACTIONS_BYTES`` names an object that holds them, with its
length and SHA-256. That object is written before the commit, under a name of its own, so a lost race or a crash leaves
an orphan and nothing else.

Not for: what a commit means (``protocol.fold``), or whether one has been won (``commit_log``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import (
    ClusterNotFoundError,
    CorruptMetadataError,
    ObjectNotFoundError,
    RootReplacedError,
    StorageUnavailableError,
)
from sparklog.log.layout import CHECKPOINTS, read_boundary, read_cluster_file
from sparklog.log.parallel import each
from sparklog.protocol.commit_bytes import decode_actions, decode_commit, stored_digest, with_actions
from sparklog.protocol.commits import Commit, SpilledActions, commit_key
from sparklog.store.base import Store


class StoredCommit(NamedTuple):
    """A commit with all its actions, its digest, and the bytes it takes in storage."""

    commit: Commit
    digest: str
    size: int


def read_commit(store: Store, version: int) -> StoredCommit:
    """Raises ObjectNotFoundError where there is no such commit, CorruptMetadataError, UnsupportedVersionError."""
    return complete_commit(store, store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)


def complete_commit(store: Store, data: bytes, version: int) -> StoredCommit:
    """The commit stored as ``data``, with the actions that lie beside it. Errors as ``read_commit``, except that it
    raises CorruptMetadataError where the object with the actions is missing."""
    commit, digest = decode_commit(data, version)
    if commit.spilled is None:
        return StoredCommit(commit, digest, len(data))
    actions = decode_actions(_read_spilled(store, commit.spilled, version), commit.spilled, version)
    return StoredCommit(with_actions(commit, actions), digest, len(data) + commit.spilled.size)


def _read_spilled(store: Store, spilled: SpilledActions, version: int) -> bytes:
    try:
        return store.get(spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES)
    except ObjectNotFoundError as error:
        path = f"{store.root}/{spilled.path}"
        raise CorruptMetadataError(
            f"{path}, which holds the actions of commit {version}, is missing; restore it from a copy of the root",
            path=path,
            missing=True,
        ) from error


def read_ahead(store: Store, first: int, count: int) -> list[bytes]:
    """The stored bytes of the commits from ``first`` on, ``count`` at most, up to the first that is absent.

    Fewer than ``count`` means that the log ended there at some moment after the call. Raises StorageError.
    """

    def get(version: int) -> bytes | None:
        try:
            return store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        except ObjectNotFoundError:
            return None

    if store.parallel_requests > 1:
        answers: Iterable[bytes | None] = each(get, range(first, first + count), count)
    else:
        answers = map(get, range(first, first + count))
    return list(takewhile(lambda data: data is not None, answers))  # type: ignore[arg-type]


class LogEnd(NamedTuple):
    """What the storage has at the number of the newest commit that a process knows, and the boundary.

    ``digest`` is that of the stored commit, None where there is none. ``boundary`` is None where it was not read.
    """

    digest: str | None
    boundary: int | None

    @property
    def removed_up_to(self) -> int:
        """The boundary, -1 where it was not read."""
        return -1 if self.boundary is None else self.boundary


def read_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """Look at commit ``version``, and at the boundary if asked or if that commit is absent. Raises StorageError."""

    def look_at_commit() -> LogEnd:
        try:
            return LogEnd(stored_digest(store.get(commit_key(version), limits.MAX_COMMIT_BYTES)), None)
        except ObjectNotFoundError:
            return LogEnd(None, None)

    def look_at_boundary() -> LogEnd:
        return LogEnd(None, read_boundary(store))

    looks = [look_at_commit, look_at_boundary] if with_boundary else [look_at_commit]
    answers = each(lambda look: look(), looks, store.parallel_requests)
    if len(answers) == 1 and answers[0].digest is None:
        answers.append(look_at_boundary())
    return LogEnd(answers[0].digest, answers[-1].boundary)


def holds_commit(store: Store, version: int, digest: str) -> bool:
    """Whether the commit of this number is there, is no removed one, and has this digest. Raises StorageError."""
    end = read_log_end(store, version, with_boundary=True)
    return end.digest == digest and end.removed_up_to < version


def read_next_and_end(store: Store, version: int, with_boundary: bool) -> tuple[list[bytes], LogEnd]:
    """The commit after ``version`` if there is one, and what is stored at that number; both are looked at together."""
    looks: list[Callable[[], list[bytes] | LogEnd]] = [
        lambda: read_ahead(store, version + 1, 1),
        lambda: read_log_end(store, version, with_boundary),
    ]
    found, end = each(lambda look: look(), looks, store.parallel_requests)
    assert isinstance(found, list)
    assert isinstance(end, LogEnd)
    return found, end


def is_withdrawn(store: Store, clock: Clock, version: int, data: bytes) -> bool:
    """Whether a commit over a hole, which a client made of a root that was restored meanwhile, goes in a while."""
    for attempt in range(3):
        if read_ahead(store, version, 1) != [data]:
            return True
        clock.sleep(0.05 * 2**attempt)
    return False


def check_mounted(store: Store) -> None:
    """Raises StorageUnavailableError where the root is empty: what is mounted there is away, and may come back."""
    try:
        read_cluster_file(store)
    except ClusterNotFoundError as error:
        raise StorageUnavailableError(
            f"there is no cluster at {store.root} any more; if it is mounted there, mount it again", path=store.root
        ) from error


def read_mounted_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """As ``read_log_end``; where no commit is found, by a look before and after which the root is there.

    Raises StorageUnavailableError where the root is away: that is no sign of another history.
    """
    end = read_log_end(store, version, with_boundary)
    if end.digest is None:
        check_mounted(store)
        end = read_log_end(store, version, with_boundary)
        check_mounted(store)
    return end


def lost_after_checkpoint(store: Store, boundary: int, version: int) -> CorruptMetadataError:
    """The error where no checkpoint reaches the commits that were removed."""
    path = f"{store.root}/{CHECKPOINTS}"
    return CorruptMetadataError(
        f"commits up to {boundary} were removed from {store.root}, and its newest checkpoint is of version {version}: "
        f"the state between the two is lost; restore {path} from a copy of the root",
        path=path,
    )


def end_not_reached(store: Store, version: int) -> StorageUnavailableError:
    """The error where a log grows faster than it can be read."""
    return StorageUnavailableError(
        f"the end of the log in {store.root} was not reached within {limits.REFRESH_SECONDS:.0f} s, at version "
        f"{version}: the storage answers too slowly; try again",
        path=store.root,
    )


def not_there(store: Store, version: int, end: LogEnd) -> RootReplacedError:
    """The error where the newest commit that a client has read is not in its place any more."""
    what = "is not there any more" if end.digest is None else "is another one now"
    return replaced(store, f"commit {version}, the newest one that this client has read, {what}")


def replaced(store: Store, why: str) -> RootReplacedError:
    """The error where a root holds another history than before."""
    return RootReplacedError(
        f"{store.root} holds another history than the one that this client has read: {why}. It was restored from a "
        "copy or made again; nothing was written. Close this client and open the cluster again; `sparklog fsck` shows "
        "what the root holds",
        path=store.root,
    )
