"""Reads and settles the commit log of a mirror that is about to become a root.

    closed_for(mirror)           the root that the mirrored one was closed for
    settle_boundary(mirror)      once, before it is a root
    MirrorAsRoot(mirror, id)     the mirror as a process reads it that takes it for a root

A mirror has no boundary of its own making: a pass that was suspended while the mirror was promoted would set one that
is ahead of the new root, whose commits would be gone. So the promotion finds out from which number on the commits
follow each other, and sets the boundary before them, if a checkpoint replaces those before.

Not for: copying (``mirror``).
"""

from __future__ import annotations

from msgspec import structs

from sparklog import limits
from sparklog.errors import CorruptMetadataError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.layout import (
    CLUSTER_KEY,
    COMMITS,
    commit_version,
    encode_cluster_file,
    read_boundary_file,
    write_boundary,
)
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import MoveCluster, commit_key
from sparklog.store.base import Store
from sparklog.store.wrapped import WrappedStore


def closed_for(mirror: Store) -> str:
    """Return the address that the newest commit of a mirror closes the root for; empty if it does not close it.

    Raises CorruptMetadataError, StorageError."""
    versions = _versions(mirror)
    if not versions:
        return ""
    commit, _ = decode_commit(mirror.get(commit_key(versions[-1]), limits.MAX_COMMIT_BYTES), versions[-1])
    return next((action.url for action in reversed(commit.actions) if isinstance(action, MoveCluster)), "")


def settle_boundary(mirror: Store) -> None:
    """Set the boundary before the commits that follow each other up to the newest one, or at a newer checkpoint.

    Raises CorruptMetadataError if no checkpoint replaces the commits before them, StorageError."""
    versions = _versions(mirror)
    newest = versions[-1] if versions else -1
    present, first = set(versions), newest
    while first - 1 in present:
        first -= 1
    manifest = checkpoint.read_newest_listed(mirror)
    covered = -1 if manifest is None else manifest.version
    boundary = read_boundary_file(mirror)
    needed = covered if covered > newest else first - 1
    if needed <= boundary.boundary and covered >= boundary.boundary:
        return
    needed = max(needed, boundary.boundary)  # a checkpoint at it was withdrawn since an earlier try
    if covered < needed:
        raise CorruptMetadataError(
            f"{mirror.root} lacks commits before {first}, and its newest checkpoint is of version {covered}; mirror "
            "the root again",
            path=mirror.root,
        )
    write_boundary(mirror, structs.replace(boundary, boundary=needed))


def _versions(mirror: Store) -> list[int]:
    versions = (commit_version(info.key) for info in mirror.list(COMMITS))
    return sorted(version for version in versions if version is not None)


class MirrorAsRoot(WrappedStore):
    """A mirror that is read and written as if it had its cluster.json already. Not picklable."""

    def __init__(self, mirror: Store, cluster_id: str) -> None:
        super().__init__(mirror)
        self._cluster_file = encode_cluster_file(cluster_id)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        return self._cluster_file if key == CLUSTER_KEY else super().get(key, max_bytes)
