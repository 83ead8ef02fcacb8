"""Where everything lies below a cluster's root, and cluster.json itself.

    cluster.json                                      format version and cluster id; written once
    meta/commits/<20 digits>.json                     the commit log
    meta/boundary.json                                commits at or below this number may be gone
    meta/clock                                        written to learn the storage's time; its content says nothing
    meta/checkpoints/...                              states at a version (see ``checkpoint``)
    <topic>-<partition>/<20 digits>-<write id>.log    segments, each with its .index beside it

The number in a segment's name is the base offset its writer expected; the commit log says the real one.
"""

from __future__ import annotations

import msgspec

from sparklog import limits
from sparklog.errors import (
    ClusterNotFoundError,
    CorruptMetadataError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.protocol.file_names import file_name
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

CLUSTER_KEY = "cluster.json"
MIRROR_KEY = "mirror.json"
BOUNDARY_KEY = "meta/boundary.json"
CLOCK_KEY = "meta/clock"
CHECKPOINTS = "meta/checkpoints/"
COMMITS = "meta/commits/"

FORMAT = 1
"""The layout this code writes; it opens this one and older ones."""


class ClusterFile(msgspec.Struct, frozen=True):
    """cluster.json. Fields of later versions are ignored unless ``format`` grew."""

    format: int
    cluster_id: str


class Boundary(msgspec.Struct, frozen=True):
    """boundary.json: no commit may be created at or below this number.

    ``removed_bytes``: what the commits up to there took, so that the bytes of the others need no listing. ``times`` are
    some versions that were removed with the ms since the epoch of their commits, oldest first: how old a version is.
    """

    boundary: int
    removed_bytes: int = 0
    times: tuple[tuple[int, int], ...] = ()


def encode_cluster_file(cluster_id: str) -> bytes:
    return msgspec.json.encode(ClusterFile(format=FORMAT, cluster_id=cluster_id)) + b"\n"


def read_cluster_file(store: Store) -> ClusterFile:
    """What cluster.json says. Raises ClusterNotFoundError, CorruptMetadataError or UnsupportedVersionError."""
    path = f"{store.root}/{CLUSTER_KEY}"
    try:
        data = store.get(CLUSTER_KEY, limits.MAX_CLUSTER_FILE_BYTES)
    except ObjectNotFoundError as error:
        raise ClusterNotFoundError(_what_it_is(store), path=path) from error
    try:
        found = msgspec.json.decode(data, type=ClusterFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"{path} cannot be read: {error}; restore it from a copy", path=path) from error
    if found.format > FORMAT:
        raise UnsupportedVersionError(
            f"{path} has format {found.format}, and this sparklog opens up to {FORMAT}; upgrade sparklog", path=path
        )
    return found


def has_history(store: Store) -> bool:
    """Whether commits or checkpoints of some cluster are there. Raises StorageError."""
    return any(next(iter(store.list(folder)), None) is not None for folder in (COMMITS, CHECKPOINTS))


def _what_it_is(store: Store) -> str:
    """Of a location without cluster.json: what it is instead, and what to do."""
    root = store.root
    try:
        if _exists(store, MIRROR_KEY):
            return (
                f"{root} is a mirror of a cluster's commit log, not a cluster; give the root itself, or, where that is "
                f"lost, run `sparklog cluster promote --to {root}` with the lost root as --bootstrap-server"
            )
        if has_history(store):
            return (
                f"{root} has the commits of a cluster, and its {CLUSTER_KEY} is gone; restore it from a copy, or let "
                f"`sparklog fsck --repair --bootstrap-server {root}` write it again, where a checkpoint tells the id"
            )
        if _exists(store, IDENTITY_KEY):
            return f"{root} is the location of a broker, not a sparklog cluster; give the root of its cluster"
    except StorageError:
        pass  # no more is known than that the file is not there
    return (
        f"{root} is not a sparklog cluster: it has no {CLUSTER_KEY}; create one with "
        f"`sparklog cluster create --bootstrap-server {root}`, or check the address"
    )


def _exists(store: Store, key: str) -> bool:
    try:
        store.info(key)
    except ObjectNotFoundError:
        return False
    return True


def read_boundary(store: Store) -> int:
    """The boundary, -1 where commits were never removed. Raises CorruptMetadataError."""
    return read_boundary_file(store).boundary


def read_boundary_file(store: Store) -> Boundary:
    """What boundary.json says. Raises CorruptMetadataError."""
    try:
        data = store.get(BOUNDARY_KEY, limits.MAX_CLUSTER_FILE_BYTES)
    except ObjectNotFoundError:
        return Boundary(boundary=-1)
    try:
        return msgspec.json.decode(data, type=Boundary)
    except (msgspec.MsgspecError, RecursionError) as error:
        path = f"{store.root}/{BOUNDARY_KEY}"
        raise CorruptMetadataError(f"{path} cannot be read: {error}; restore it from a copy", path=path) from error


def write_boundary(store: Store, boundary: Boundary) -> None:
    """Overwrite boundary.json, durable on return; the caller sees to it that it never goes back."""
    store.put(BOUNDARY_KEY, msgspec.json.encode(boundary) + b"\n")


def segment_key(topic: str, partition: int, expected_offset: int, version: int, write_id: str) -> str:
    """The key of a new ``.log``: ``orders-0/00000000000000170410-v42-<write id>.log``.

    ``version`` is that of the cluster as the writer knew it when it began the file (see ``protocol.file_names``).
    """
    return f"{topic}-{partition}/{file_name(expected_offset, version, write_id)}"
