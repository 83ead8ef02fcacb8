"""The layout of a cluster's root, with cluster.json and the boundary.

    cluster.json                                      format version and cluster id; written once
    meta/commits/<20 digits>.json                     the commit log
    meta/actions/<20 digits>-<write id>.json          actions of commits that have too many to store inline
    meta/removed-commits/...                          commits that a repair took out of the log (``sparklog fsck``)
    meta/boundary.json                                commits at or below this number may be removed
    meta/checkpoints/<20 digits>-boundary.mark        the boundary was set to this number once
    meta/rollups/...                                  what old commits said, by the minute (``monitoring.rollups``)
    meta/clock                                        written to learn the storage's time; without content
    meta/fsck.json                                    the last report that was kept (``maintenance.fsck.kept_report``)
    meta/reserve, meta/reserve-1, …                   space for freeing a full disk (``log.reserve``)
    meta/checkpoints/...                              states at a version (see ``checkpoint``)
    <topic>-<partition>/<20 digits>-<write id>.log    segments, each with its .index beside it
    tables/<topic>/_segments/partition=<n>/...        history segments (.parquet), each with its .parquet.index
    tables/<topic>/_delta_log/...                     the topic's Delta table (see ``delta.table_log``)

The number in a segment's name is the base offset its writer expected; the commit log has the real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from sparklog import limits
from sparklog.errors import (
    ClusterNotFoundError,
    ObjectNotFoundError,
    StorageError,
)
from sparklog.log.stored_json import read_json
from sparklog.protocol.file_names import file_name, is_data_file, segment_folder
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

CLUSTER_KEY = "cluster.json"
MIRROR_KEY = "mirror.json"
BOUNDARY_KEY = "meta/boundary.json"
CLOCK_KEY = "meta/clock"
FSCK_KEY = "meta/fsck.json"
RESERVE_KEY = "meta/reserve"
META = "meta/"
CHECKPOINTS = "meta/checkpoints/"
COMMITS = "meta/commits/"
ACTIONS = "meta/actions/"
REMOVED_COMMITS = "meta/removed-commits/"

FORMAT = 1
"""The format of cluster.json that this version writes; it reads every level that it knows (``protocol.levels``)."""

BOUNDARY_FORMAT = 2
"""The level that introduced the present fields of boundary.json."""


class ClusterFile(msgspec.Struct, frozen=True):
    """cluster.json. Fields of later versions are ignored unless ``format`` grew."""

    format: int
    cluster_id: str


class Boundary(msgspec.Struct, frozen=True):
    """boundary.json: no commit may be created at or below this number.

    ``removed_bytes``: size of the commits up to there, so that the size of the others needs no listing. ``times``: some
    removed versions with the times of their commits in ms since the epoch, oldest first, to tell the age of a version.
    ``format`` is a level (see ``protocol.levels``); fields of later versions are ignored unless it grew.
    """

    boundary: int
    removed_bytes: int = 0
    times: tuple[tuple[int, int], ...] = ()
    format: int = BOUNDARY_FORMAT


def encode_cluster_file(cluster_id: str) -> bytes:
    return msgspec.json.encode(ClusterFile(format=FORMAT, cluster_id=cluster_id)) + b"\n"


def read_cluster_file(store: Store) -> ClusterFile:
    """Read cluster.json. Raises ClusterNotFoundError, CorruptMetadataError or UnsupportedVersionError."""
    cluster = read_json(store, CLUSTER_KEY, ClusterFile, "restore it from a copy")
    if cluster is None:
        raise ClusterNotFoundError(_describe_location(store), path=f"{store.root}/{CLUSTER_KEY}")
    return cluster


_MARK = "-boundary.mark"
_COMMIT = re.compile(re.escape(COMMITS) + r"([0-9]{20})\.json")
_ACTIONS = re.compile(re.escape(ACTIONS) + r"([0-9]{20})-[A-Za-z0-9_-]{1,64}\.json")
_CHECKPOINT_FILE = re.compile(re.escape(CHECKPOINTS) + r"([0-9]{20})-[A-Za-z0-9_-]{1,80}\.([a-z]{1,16})")


def commit_version(key: str) -> int | None:
    """Return the number of the commit stored under a key; None if the key is not that of a commit.

    Every listing of commits must use this: file systems, editors and copy tools leave other files beside them
    (``.nfs…``, ``.DS_Store``, ``….json~``), which are to be ignored.
    """
    return _version(_COMMIT.fullmatch(key))


def actions_version(key: str) -> int | None:
    """Return the number of the commit whose actions are stored under a key; None for any other key."""
    return _version(_ACTIONS.fullmatch(key))


def manifest_version(key: str) -> int | None:
    """Return the version of the checkpoint whose manifest is stored under a key; None for any other key."""
    match = _CHECKPOINT_FILE.fullmatch(key)
    return _version(match) if match and match.group(2) == "json" else None


def checkpoint_version(key: str) -> int | None:
    """Return the version of the checkpoint that a key belongs to, as manifest or other file; else None."""
    return _version(_CHECKPOINT_FILE.fullmatch(key))


def _version(match: re.Match[str] | None) -> int | None:
    version = int(match.group(1)) if match else -1
    return version if 0 <= version <= limits.MAX_VERSION else None


def has_history(store: Store) -> bool:
    """Return whether the root holds commits or checkpoints. Raises StorageError."""
    if any(commit_version(info.key) is not None for info in store.list(COMMITS)):
        return True
    return any(checkpoint_version(info.key) is not None for info in store.list(CHECKPOINTS))


_TRACES = (ACTIONS, CHECKPOINTS, REMOVED_COMMITS, "meta/removed/", "meta/rollups/", "meta/epochs/", "leases/")


def find_trace_of_commits(store: Store) -> str:
    """Return the key of an object that is stored only where there were commits, empty if there is none.

    Reads a listing of the root up to that object. Raises StorageError.
    """
    return next((info.key for info in store.list() if _is_trace(info.key)), "")


def _is_trace(key: str) -> bool:
    is_stray = key.rpartition("/")[2].startswith(".")
    return key == BOUNDARY_KEY or is_data_file(key) or (key.startswith(_TRACES) and not is_stray)


def _describe_location(store: Store) -> str:
    """Describe a location without cluster.json: what it is instead, and what to do."""
    root = store.root
    try:
        if exists(store, MIRROR_KEY):
            return (
                f"{root} is a mirror of a cluster's commit log, not a cluster; give the root itself, or, if that is "
                f"lost, run `sparklog cluster promote --to {root}` with the lost root as --bootstrap-server"
            )
        if has_history(store):
            return (
                f"{root} has the commits of a cluster, but its {CLUSTER_KEY} is missing; restore it from a copy, or "
                f"let `sparklog fsck --repair --bootstrap-server {root}` rewrite it, if a checkpoint has the cluster id"
            )
        if exists(store, IDENTITY_KEY):
            return f"{root} is the location of a broker, not a sparklog cluster; give the root of its cluster"
    except StorageError:
        pass  # all that is known is that cluster.json is missing
    return (
        f"{root} is not a sparklog cluster: it has no {CLUSTER_KEY}; create one with "
        f"`sparklog cluster create --bootstrap-server {root}`, or check the address"
    )


def exists(store: Store, key: str) -> bool:
    """Return whether there is an object under a key. Raises StorageError."""
    try:
        store.info(key)
    except ObjectNotFoundError:
        return False
    return True


def read_boundary(store: Store) -> int:
    """Return the boundary, -1 if no commit was ever removed. Raises CorruptMetadataError, UnsupportedVersionError."""
    return read_boundary_file(store).boundary


def read_boundary_file(store: Store) -> Boundary:
    """Read boundary.json. Raises CorruptMetadataError, UnsupportedVersionError."""
    boundary = read_json(store, BOUNDARY_KEY, Boundary, "restore it from a copy")
    return Boundary(boundary=-1) if boundary is None else boundary


def read_certain_boundary(store: Store) -> int:
    """Return the highest boundary that was ever set. Lists the checkpoints, so only where that is needed.

    boundary.json alone may go back if a clean-up stalled right before writing it; the marks do not.
    """
    return max(read_boundary(store), marked_boundary(info.key for info in store.list(CHECKPOINTS)))


def marked_boundary(keys: Iterable[str]) -> int:
    """Return the highest boundary mark among these keys, -1 if there is none."""
    return max((checkpoint_version(key) or 0 for key in keys if is_boundary_mark(key)), default=-1)


def is_boundary_mark(key: str) -> bool:
    """Return whether a key is that of a boundary mark."""
    return key.endswith(_MARK) and checkpoint_version(key) is not None


def boundary_mark_key(version: int) -> str:
    """Return the key of the mark that the boundary was set to a number."""
    return f"{CHECKPOINTS}{version:020d}{_MARK}"


def write_boundary(store: Store, boundary: Boundary) -> None:
    """Write a mark and boundary.json, durable on return; the caller ensures that the boundary never goes back."""
    if boundary.boundary >= 0:
        store.put(boundary_mark_key(boundary.boundary), b"")
    store.put(BOUNDARY_KEY, msgspec.json.encode(boundary) + b"\n")


def segment_key(
    topic: str, partition: int, expected_offset: int, version: int, write_id: str, history: bool = False
) -> str:
    """Return the key of a new ``.log``, ``orders-0/00000000000000170410-v42-<write id>.log``, or ``.parquet``.

    ``version`` is the cluster's version known to the writer when it began the file (see ``protocol.file_names``).
    """
    name = file_name(expected_offset, version, write_id, ".parquet" if history else ".log")
    return f"{segment_folder(topic, partition, history)}/{name}"
