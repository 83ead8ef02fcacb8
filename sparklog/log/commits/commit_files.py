"""Commits as objects: reads commits of any size, reads ahead, and reads the stored end of a log.

    meta/commits/<20 digits>.json                 one commit
    meta/actions/<20 digits>-<write id>.json      the actions of a commit with too many to store inline

A commit whose actions take more than ``limits.MAX_INLINE_ACTIONS_BYTES`` names an object that holds them, with its
length and SHA-256. That object is written before the commit, under a unique name, so a lost race or a crash leaves an
orphan and nothing else.

Not for: the meaning of a commit (``protocol.fold``), or the outcome of an attempt (``commit_attempt``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

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
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commit_bytes import decode_actions, decode_commit, stored_digest
from sparklog.protocol.commits import Commit, SpilledActions, commit_key
from sparklog.store.base import Store


class StoredCommit(NamedTuple):
    """A commit with all its actions, its digest, and the bytes it takes in storage."""

    commit: Commit
    digest: str
    size: int


def read_commit(store: Store, version: int) -> StoredCommit:
    """Read a commit. Raises ObjectNotFoundError if it is absent, CorruptMetadataError, UnsupportedVersionError."""
    return complete_commit(store, store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)


def complete_commit(store: Store, data: bytes, version: int) -> StoredCommit:
    """Return the commit stored as ``data``, with spilled actions. Raises as ``read_commit``, but CorruptMetadataError
    if the object with the actions is missing."""
    commit, digest = decode_commit(data, version)
    if commit.spilled is None:
        return StoredCommit(commit, digest, len(data))
    actions = decode_actions(_read_spilled(store, commit.spilled, version), commit.spilled, version)
    complete = replace(commit, actions=actions, spilled=None)
    return StoredCommit(complete, digest, len(data) + commit.spilled.size)


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
    """Return the stored bytes of up to ``count`` commits from ``first`` on, up to the first that is absent.

    Fewer than ``count`` means that the log ended there at some moment after the call. Raises StorageError.
    """

    def get(version: int) -> bytes | None:
        try:
            return store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        except ObjectNotFoundError:
            return None

    if store.parallel_requests > 1:
        answers: Iterable[bytes | None] = map_parallel(get, range(first, first + count), count)
    else:
        answers = map(get, range(first, first + count))
    return list(takewhile(lambda data: data is not None, answers))  # type: ignore[arg-type]


class LogEnd(NamedTuple):
    """The stored commit at the number of the newest one that a process knows, and the boundary.

    ``digest`` is that of the stored commit, None if there is none. ``boundary`` is None if it was not read.
    """

    digest: str | None
    boundary: int | None

    @property
    def removed_up_to(self) -> int:
        """The boundary, -1 if it was not read."""
        return -1 if self.boundary is None else self.boundary


def read_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """Read commit ``version``, and the boundary if requested or if that commit is absent. Raises StorageError."""

    def read_stored() -> LogEnd:
        try:
            return LogEnd(stored_digest(store.get(commit_key(version), limits.MAX_COMMIT_BYTES)), None)
        except ObjectNotFoundError:
            return LogEnd(None, None)

    def read_stored_boundary() -> LogEnd:
        return LogEnd(None, read_boundary(store))

    reads = [read_stored, read_stored_boundary] if with_boundary else [read_stored]
    answers = map_parallel(lambda read: read(), reads, store.parallel_requests)
    if len(answers) == 1 and answers[0].digest is None:
        answers.append(read_stored_boundary())
    return LogEnd(answers[0].digest, answers[-1].boundary)


def holds_commit(store: Store, version: int, digest: str) -> bool:
    """Return whether this commit exists, was not removed, and has this digest. Raises StorageError."""
    end = read_log_end(store, version, with_boundary=True)
    return end.digest == digest and end.removed_up_to < version


def read_next_and_end(store: Store, version: int, with_boundary: bool) -> tuple[list[bytes], LogEnd]:
    """Read the commit after ``version`` if there is one, and the log end at ``version``, in parallel."""
    reads: list[Callable[[], list[bytes] | LogEnd]] = [
        lambda: read_ahead(store, version + 1, 1),
        lambda: read_log_end(store, version, with_boundary),
    ]
    stored, end = map_parallel(lambda read: read(), reads, store.parallel_requests)
    assert isinstance(stored, list)
    assert isinstance(end, LogEnd)
    return stored, end


def is_withdrawn(store: Store, clock: Clock, version: int, data: bytes) -> bool:
    """Return whether a commit after a missing one is soon withdrawn, as after a restore of the root."""
    for attempt in range(3):
        if read_ahead(store, version, 1) != [data]:
            return True
        clock.sleep(0.05 * 2**attempt)
    return False


def check_mounted(store: Store) -> None:
    """Raise StorageUnavailableError if the root is empty: its disk is not mounted, and may come back."""
    try:
        read_cluster_file(store)
    except ClusterNotFoundError as error:
        raise StorageUnavailableError(
            f"the cluster at {store.root} is missing; if the root is on a mounted disk, mount it again", path=store.root
        ) from error


def read_mounted_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """Read the log end; if the commit is absent, read again and check that the root exists before and after that.

    Raises StorageUnavailableError if the root is missing, which is not a sign of another history.
    """
    end = read_log_end(store, version, with_boundary)
    if end.digest is None:
        check_mounted(store)
        end = read_log_end(store, version, with_boundary)
        check_mounted(store)
    return end


def report_lost_commits(store: Store, boundary: int, version: int) -> CorruptMetadataError:
    """Return the error if no checkpoint includes all removed commits."""
    path = f"{store.root}/{CHECKPOINTS}"
    return CorruptMetadataError(
        f"commits up to {boundary} were removed from {store.root}, and its newest checkpoint is of version {version}: "
        f"the state between the two is lost; restore {path} from a copy of the root",
        path=path,
    )


def report_end_not_reached(store: Store, version: int) -> StorageUnavailableError:
    """Return the error if a log grows faster than it can be read."""
    return StorageUnavailableError(
        f"the end of the log in {store.root} was not reached within {limits.REFRESH_SECONDS:.0f} s, at version "
        f"{version}: the storage answers too slowly; try again",
        path=store.root,
    )


def refuse_other_history(store: Store, version: int, end: LogEnd) -> RootReplacedError:
    """Return the error if the newest commit that a client has read is missing or another one."""
    what = "is missing" if end.digest is None else "is another one now"
    return refuse_replaced_root(store, f"commit {version}, the newest one that this client has read, {what}")


def refuse_replaced_root(store: Store, why: str) -> RootReplacedError:
    """Return the error if a root holds another history than before."""
    return RootReplacedError(
        f"{store.root} holds another history than the one that this client has read: {why}. It was restored from a "
        "copy or created again; nothing was written. Close this client and open the cluster again; `sparklog fsck` "
        "shows what the root holds",
        path=store.root,
    )
