"""Mirrors the commit log to another location, and promotes the mirror if the root itself is lost.

    mirror(store_of_root, store_of_mirror)          repeatedly: copies new commits
    promote("s3://other/log", "/data/log")          the mirror becomes the root

    mirror.json            {"format":1,"cluster_id":"…","source":"/data/log","version":1234,"time_ms":…}
    meta/...               commits with their spilled actions, the newest checkpoint, listings of retired files, the
                           boundary

The mirror has no ``cluster.json``, so no client writes to it by mistake; the promotion writes it. Records are not part
of it: they are at the brokers, and those of broker 0 stay at the old root, so that after a promotion the old root is
the location of broker 0.

Rules:

* The mirror can be promoted at any time: files of a checkpoint are written before its manifest, the boundary before the
  commits after a gap, commits in order, and ``mirror.json`` last; each is checked as it is read.
* A commit at the mirror is never overwritten. A root that lacks commits of the mirror, such as one restored from a
  backup, is not mirrored.
* If the old root answers, a last commit closes the cluster there (``move_cluster``), the mirror gets that commit too,
  and nothing is lost. Clients of the old root are told the new address.
* If it does not answer, what was committed after the mirror's version is lost, which requires ``force``. Once the old
  root is back, ``coordinator.root_migration.close_root`` closes it; the controller does so as soon as it can reach it.

Not for: copying records (``replication``); a second cluster to write to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import structs

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.root_migration import ROOT_BROKER, close_root, is_closed, open_root
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterNotFoundError,
    CorruptMetadataError,
    InvalidRequestError,
    ObjectNotFoundError,
    SparklogError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.broker_files import allow_location, read_allowed, write_allowed
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import read_list
from sparklog.log.commits.cleanup import Times, clean_up
from sparklog.log.commits.commit_files import complete_commit
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    CLUSTER_KEY,
    COMMITS,
    MIRROR_KEY,
    commit_version,
    encode_cluster_file,
    read_boundary_file,
    read_cluster_file,
    write_boundary,
)
from sparklog.log.stored_json import read_json
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.brokers import check_apart
from sparklog.protocol.state import BrokerState
from sparklog.store.base import Store
from sparklog.store.location import may_contact
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

FORMAT = 1


class MirrorFile(msgspec.Struct, frozen=True):
    """mirror.json: the cluster and root that are mirrored, and the last commit that the mirror has with its time."""

    format: int
    cluster_id: str
    source: str
    version: int
    time_ms: int


class MirrorResult(NamedTuple):
    """What a run copied: the version of the mirror afterwards, commits and bytes."""

    version: int
    commits: int
    size_bytes: int


def read_mirror_file(store: Store) -> MirrorFile | None:
    """Read mirror.json; None if it does not exist. Raises CorruptMetadataError, UnsupportedVersionError."""
    return read_json(store, MIRROR_KEY, MirrorFile, "delete it to start the mirror from scratch")


def mirror(
    root: Store, target: Store, clock: Clock | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> MirrorResult:
    """Bring a mirror up to date with a root, or start one at an empty location.

    ``progress`` is called with the version copied last and the newest one. Raises ClusterAlreadyExistsError if the
    target is a cluster, InvalidRequestError if it is another cluster's mirror, DuplicateBrokerRegistrationError if it
    overlaps a broker's location, CorruptMetadataError if the root is damaged or lacks commits of the mirror,
    StorageError.
    """
    log = CommitLog(root, clock or SystemClock(), RandomIds(), moved=True)
    state = log.refresh()
    present = _mirrored_version(root, target, state.cluster_id)
    check_apart(state, target.root, root.root)
    _check_same_history(root, target, present, state.version)
    copier = Copier(root, target)
    first = present + 1
    newest = checkpoint.read_newest_listed(root)
    if newest is not None and newest.version > present:
        copier.checkpoint(newest)
        if read_boundary_file(root).boundary >= first:  # commits in between were removed; the checkpoint covers them
            copier.skip_to(newest.version)
            first = newest.version + 1
    for listing in sorted(state.removed_files):
        copier.object(listing)
    _copy_allowed(root, target)
    digest = ""
    for version in range(first, state.version + 1):
        digest = copier.commit(version, digest)
        progress(version, state.version)
    if state.version != present:
        copier.mark(MirrorFile(FORMAT, state.cluster_id, root.root, state.version, state.timestamp_ms))
        _remove_old_commits(target, log.expiry_clock, state.configs)
    return MirrorResult(state.version, max(0, state.version + 1 - first), copier.size_bytes)


def _mirrored_version(root: Store, target: Store, cluster_id: str) -> int:
    """Return the version of a mirror, -1 for an empty location. Raises as ``mirror`` for another cluster."""
    if _is_cluster(target):
        raise ClusterAlreadyExistsError(
            f"{target.root} is the root of a cluster, not a mirror; give an empty location", path=target.root
        )
    mirror_file = read_mirror_file(target)
    if mirror_file is None:
        return -1
    if mirror_file.cluster_id != cluster_id:
        raise InvalidRequestError(
            f"{target.root} is a mirror of cluster {mirror_file.cluster_id}, but {root.root} is cluster {cluster_id}; "
            "give an empty location",
            path=target.root,
        )
    return mirror_file.version


def _check_same_history(root: Store, target: Store, present: int, version: int) -> None:
    """Check that the root, at ``version``, has the commits of the mirror, of which ``present`` is the last one.

    A root that was restored from a backup lacks some: then only the mirror has them. Raises CorruptMetadataError.
    """
    key = commit_key(present)
    diverged = version < present
    if present >= 0 and not diverged:
        with suppress(ObjectNotFoundError):  # removed as an old commit at one of them
            diverged = root.get(key, limits.MAX_COMMIT_BYTES) != target.get(key, limits.MAX_COMMIT_BYTES)
    if diverged:
        path = f"{root.root}/{key}"
        raise CorruptMetadataError(
            f"{path} is not the commit {present} of the mirror {target.root}: the root was replaced by an older copy, "
            "and the mirror has later commits. Promote the mirror, or mirror to an empty location",
            path=path,
        )


def _copy_allowed(root: Store, target: Store) -> None:
    """Copy the allowed locations of the root. Best effort: a promotion reports what it could not take over."""
    try:
        allowed = read_allowed(root)
        if allowed != read_allowed(target):
            write_allowed(target, allowed, RandomIds())
    except SparklogError as error:
        logger.warning("could not mirror the allowed locations of %s: %s", root.root, error)


def _allow_locations(target: Store, old: Store, brokers: Iterable[BrokerState], ids: Ids) -> None:
    """Allow clients of the new root to contact the old one, and the locations that they could contact from there.

    Raises StoragePermissionError if only the owner of the new root may do so, StorageError."""
    allow_location(target, old.root, ids)
    for broker in brokers:
        if broker.url and may_contact(broker.url, old.root, ()):
            allow_location(target, broker.url, ids)


def _allow_before_closing(target: Store, old: Store, clock: Clock, ids: Ids) -> None:
    """Allow the locations before the old root is closed, to fail early. Errors as ``_allow_locations``."""
    brokers: Iterable[BrokerState] = ()
    with suppress(SparklogError):  # a root that cannot be read is not closed either
        brokers = CommitLog(old, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)


def _move_to_new_root(target: Store, old: Store, cluster_id: str, clock: Clock, ids: Ids) -> int:
    """Commit at the new root that the cluster is there now, after its locations are allowed; return the version.

    Closing the old root, which is only a broker's location from now on, is best effort."""
    brokers = CommitLog(target, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)
    version = open_root(target, old.root, clock, ids)
    target.delete(MIRROR_KEY)
    try:
        close_root(old, cluster_id, target.root, clock, ids)
    except SparklogError as error:
        logger.warning(
            "could not close the old root %s: %s; do not write to it. The controller closes it as soon as it can reach "
            "it",
            old.root,
            _describe(error),
        )
    return version


class Copier:
    """Copies metadata objects and checks each. Not thread-safe; lives for one run."""

    def __init__(self, root: Store, target: Store) -> None:
        self.size_bytes = 0
        self._root = root
        self._target = target

    def _put(self, key: str, data: bytes) -> None:
        self._target.put(key, data)
        self.size_bytes += len(data)

    def object(self, key: str) -> None:
        """Copy an immutable object unless the mirror has it; one that was deleted in the meantime is not needed."""
        try:
            if self._size_at_target(key) == self._root.info(key).size:
                return
            data = self._root.get(key)
        except ObjectNotFoundError:
            return
        self._put(key, data)  # outside the try: its errors are the mirror's

    def _size_at_target(self, key: str) -> int:
        try:
            return self._target.info(key).size
        except ObjectNotFoundError:
            return -1

    def checkpoint(self, manifest: checkpoint.Manifest) -> None:
        """Copy a checkpoint: all its files, then the manifest, and the hint last."""
        checkpoint.read_heads(self._root, manifest)  # check it first, since it may cover commits that were removed
        lists = checkpoint.read_lists(self._root, manifest)
        for topic_id in lists.topic_ids():
            read_list(self._root, lists.of(topic_id))
        for file in checkpoint.list_files(self._root, manifest):
            self.object(file.key)
        self.object(manifest.heads.key.removesuffix(".heads") + ".json")
        try:
            hint = self._root.get(checkpoint.LATEST_KEY)
        except ObjectNotFoundError:
            return
        self._put(checkpoint.LATEST_KEY, hint)

    def skip_to(self, version: int) -> None:
        """Set the boundary of the mirror, so that commits up to ``version``, which are not copied, are not expected."""
        if read_boundary_file(self._target).boundary < version:
            write_boundary(self._target, structs.replace(read_boundary_file(self._root), boundary=version))

    def commit(self, version: int, previous: str) -> str:
        """Copy one commit; return its digest, which the next commit has to name. Raises CorruptMetadataError."""
        data = self._root.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        commit, digest = decode_commit(data, version)
        if previous and commit.previous != previous:
            path = f"{self._root.root}/{commit_key(version)}"
            raise CorruptMetadataError(
                f"commit {path} does not follow from the one before it; the mirror ends with version {version - 1}",
                path=path,
            )
        if commit.spilled is not None:
            complete_commit(self._root, data, version)  # checks the spilled actions against the commit
            if self._size_at_target(commit.spilled.path) != commit.spilled.size:
                self._put(commit.spilled.path, self._root.get(commit.spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES))
        self._put_commit(commit_key(version), data)
        return digest

    def _put_commit(self, key: str, data: bytes) -> None:
        """Store a commit, but never overwrite another: the mirror may have been promoted while this process was
        paused."""
        if create_object(self._target, key, data, limits.MAX_COMMIT_BYTES) != data:
            path = f"{self._target.root}/{key}"
            raise CorruptMetadataError(
                f"{path} is not the same commit as at {self._root.root}; it was not overwritten", path=path
            )
        self.size_bytes += len(data)

    def mark(self, file: MirrorFile) -> None:
        self._put(MIRROR_KEY, msgspec.json.encode(file) + b"\n")


def _remove_old_commits(target: Store, clock: Times, configs: Mapping[str, str]) -> None:
    """Remove old commits and checkpoints from the mirror, by the cluster's settings. Best effort."""
    try:
        clean_up(target, clock, configs)
    except SparklogError as error:
        logger.warning("could not remove old commits from mirror %s, the next run retries it: %s", target.root, error)


class PromotionResult(NamedTuple):
    """The result of a promotion: the version at which the cluster continues, and whether later commits may be lost."""

    version: int
    old_root: str
    may_have_lost: bool


def promote(
    target_url: str,
    old_root_url: str,
    storage_options: Mapping[str, object] | None = None,
    force: bool = False,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> PromotionResult:
    """Make a mirror the root of its cluster. If interrupted, run it again.

    The old root becomes the location of broker 0. Raises InvalidRequestError if the target is not a mirror, or if the
    old root does not answer or cannot be read and ``force`` was not given: the message says from which version on
    commits are lost.
    """
    target, old = open_store(target_url, storage_options), open_store(old_root_url, storage_options)
    clock, ids = clock or SystemClock(), ids or RandomIds()
    mirror_file = read_mirror_file(target)
    if mirror_file is not None and not _is_source(old, target, mirror_file):
        raise InvalidRequestError(
            f"{old.root} is not the root that {target.root} mirrors, which is {mirror_file.source}; give that root",
            path=old.root,
        )
    if mirror_file is None or _is_cluster(target):
        return _finish_promotion(target, old, mirror_file, clock, ids)
    _allow_before_closing(target, old, clock, ids)
    may_have_lost = False
    try:
        mirror(old, target, clock)
        close_root(old, mirror_file.cluster_id, target.root, clock, ids)
        mirror(old, target, clock)
    except SparklogError as error:
        with suppress(SparklogError):  # the root may be closed in spite of the error: the mirror tells, once up to date
            mirror(old, target, clock)
        may_have_lost = not _is_complete(target)
        if may_have_lost and not force:
            newest = read_mirror_file(target) or mirror_file
            raise InvalidRequestError(
                f"the old root {old.root} cannot be read to its end ({_describe(error)}), and the mirror "
                f"{target.root} has commits up to {newest.version}: what was committed from {newest.version + 1} on is "
                "lost if it is promoted. Bring the old root back, or give --force (force=True)",
                version=newest.version,
                path=target.root,
            ) from error
    data = encode_cluster_file(mirror_file.cluster_id)
    if create_object(target, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
        _check_same_cluster(target, mirror_file.cluster_id)
    version = _move_to_new_root(target, old, mirror_file.cluster_id, clock, ids)
    return PromotionResult(version, old.root, may_have_lost)


def _check_same_cluster(target: Store, cluster_id: str) -> None:
    target_id = read_cluster_file(target).cluster_id
    if target_id != cluster_id:
        raise ClusterAlreadyExistsError(
            f"nothing was promoted: {target.root}, a mirror of cluster {cluster_id}, became the root of cluster "
            f"{target_id} in the meantime; use another mirror",
            path=target.root,
        )


def _is_source(old: Store, target: Store, mirror_file: MirrorFile) -> bool:
    """Whether a root is the one that was mirrored. If it has moved since, its ``cluster.json`` decides."""
    if old.root == mirror_file.source:
        return True
    try:
        return old.root != target.root and read_cluster_file(old).cluster_id == mirror_file.cluster_id
    except SparklogError:
        return False


def _finish_promotion(
    target: Store, old: Store, mirror_file: MirrorFile | None, clock: Clock, ids: Ids
) -> PromotionResult:
    """Finish a promotion that was interrupted after ``cluster.json`` was written."""
    try:
        cluster = read_cluster_file(target)
    except ClusterNotFoundError as error:
        raise InvalidRequestError(
            f"{target.root} is not a mirror: it has no {MIRROR_KEY}; give the location that `mirror` copied to",
            path=target.root,
        ) from error
    if mirror_file is None and CommitLog(target, clock, ids, moved=True).refresh().brokers[ROOT_BROKER].url != old.root:
        raise InvalidRequestError(
            f"{target.root} is not a mirror of {old.root}: it is the root of a cluster; were the addresses swapped?",
            path=target.root,
        )
    version = _move_to_new_root(target, old, cluster.cluster_id, clock, ids)
    return PromotionResult(version, old.root, False)


def _is_cluster(store: Store) -> bool:
    try:
        read_cluster_file(store)
    except ClusterNotFoundError:
        return False
    return True


def _is_complete(target: Store) -> bool:
    """Whether the mirror has the commit that closed the old root."""
    versions = (commit_version(info.key) for info in target.list(COMMITS))
    newest = max((version for version in versions if version is not None), default=-1)
    if newest < 0:
        return False
    return is_closed(decode_commit(target.get(commit_key(newest), limits.MAX_COMMIT_BYTES), newest)[0])


def _describe(error: SparklogError) -> str:
    """Return why the old root failed, without the usual advice to create a cluster if there is none."""
    return f"it has no {CLUSTER_KEY}" if isinstance(error, ClusterNotFoundError) else error.message


def mirror_cluster(coordinator: Coordinator, target_url: str) -> MirrorResult:
    """Mirror a cluster that is open, with its storage options. As ``mirror``."""
    return mirror(coordinator.store, coordinator.brokers.open(target_url), coordinator.log.clock)
