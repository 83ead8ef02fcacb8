"""Commits as objects: reads commits of any size, and reads ahead.

    meta/commits/<20 digits>.json                 one commit
    meta/actions/<20 digits>-<write id>.json      the actions of a commit with too many to store inline

A commit whose actions take more than ``limits.MAX_INLINE_ACTIONS_BYTES`` names an object that holds them, with its
length and SHA-256. That object is written before the commit, under a unique name, so a lost race or a crash leaves an
orphan and nothing else.

Not for: the meaning of a commit (``protocol.fold``), or the outcome of an attempt (``commit_attempt``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import (
    ClusterNotFoundError,
    CorruptMetadataError,
    ObjectNotFoundError,
    StorageUnavailableError,
)
from sparklog.log.layout import CHECKPOINTS, CLUSTER_KEY, COMMITS, exists
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commit_bytes import decode_actions, decode_commit
from sparklog.protocol.commits import Commit, SpilledActions, commit_key
from sparklog.store.base import Store

READ_AHEAD = 64
"""Commits that are read together."""


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


def read_commits(store: Store, first: int, last: int) -> Iterator[StoredCommit]:
    """Yield the commits ``first`` to ``last``, reading ahead.

    Raises ObjectNotFoundError if one is absent, or was removed with its spilled actions while it was read; otherwise as
    ``read_commit``.
    """
    while first <= last:
        found = read_ahead(store, first, min(READ_AHEAD, last + 1 - first))
        if not found:
            raise _absent(store, first)
        for data in found:
            try:
                stored = complete_commit(store, data, first)
            except CorruptMetadataError as error:
                if error.missing and not exists(store, commit_key(first)):
                    raise _absent(store, first) from error
                raise
            yield stored
            first += 1


def _absent(store: Store, version: int) -> ObjectNotFoundError:
    return ObjectNotFoundError(f"commit {version} is absent", path=f"{store.root}/{commit_key(version)}")


def report_lost_commits(store: Store, boundary: int, version: int) -> CorruptMetadataError:
    """Return the error if no checkpoint includes all removed commits."""
    path = f"{store.root}/{CHECKPOINTS}"
    return CorruptMetadataError(
        f"commits up to {boundary} were removed from {store.root}, and its newest checkpoint is of version {version}: "
        f"the state between the two is lost; restore {path} from a copy of the root. If the commits are there, the "
        "boundary is wrong, as after a restore of the root: `sparklog fsck --repair` corrects it",
        path=path,
    )


def report_no_commits(store: Store, trace: str) -> CorruptMetadataError:
    """Return the error if a root has no commits, although ``trace``, an object there, shows that it had some."""
    path = f"{store.root}/{COMMITS}"
    return CorruptMetadataError(
        f"{path} has no commits, but {trace} shows that there were some: nothing is read or written, since what was "
        f"written now would be lost when they are put back. Mount or restore all of {store.root}/meta, or promote a "
        "mirror of its commit log; for a new cluster choose an empty location",
        path=path,
    )


def report_not_created(store: Store) -> ClusterNotFoundError:
    """Return the error if a root has a cluster.json, and nothing else."""
    return ClusterNotFoundError(
        f"{store.root} has a {CLUSTER_KEY}, but no commit yet: it is being created or restored; try again. If its "
        f"creation was interrupted, run `sparklog cluster create --bootstrap-server {store.root}` again",
        path=f"{store.root}/{CLUSTER_KEY}",
    )


def report_end_not_reached(store: Store, version: int) -> StorageUnavailableError:
    """Return the error if a log grows faster than it can be read."""
    return StorageUnavailableError(
        f"the end of the log in {store.root} was not reached within {limits.REFRESH_SECONDS:.0f} s, at version "
        f"{version}: the storage answers too slowly; try again",
        path=store.root,
    )
