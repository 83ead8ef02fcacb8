"""A copy of the commit log at another location, for when the root itself is lost.

    mirror(store_of_root, store_of_mirror)          again and again: copies what is new
    promote("s3://other/log", "/data/log")          the mirror becomes the root

    mirror.json            {"format":1,"cluster_id":"…","source":"/data/log","version":1234,"time_ms":…}
    meta/...               commits and what lies beside them, the newest checkpoint, listings of files that wait to be
                           deleted, the boundary

The mirror has no ``cluster.json``, so nobody writes to it by mistake; the promotion writes that. Records are not part
of it: they lie at the brokers, and those of the root, broker 0, are where they were, which is why broker 0 is the old
root from then on.

Rules:

* At every moment the mirror can be promoted: files of a checkpoint come before its manifest, the boundary before the
  commits after a gap, commits one after another, and ``mirror.json`` last; each is checked as it is read.
* A commit at the mirror is never overwritten. A root that lacks the mirror's commits, as one restored from a backup, is
  not mirrored.
* Where the old root answers, the cluster is closed there by a last commit (``move_cluster``), which the mirror gets as
  well, and nothing is lost. All who read or write at the old root are told the new address.
* Where it does not, what was committed after the mirror's version is lost, and that has to be asked for (``force``).
  Once the old root is back, ``close_old_root`` closes it; the controller does so as soon as it can reach it.

Not for: copying records (``replication``); a second cluster to write to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    MIRROR_KEY,
    encode_cluster_file,
    read_boundary_file,
    read_cluster_file,
    write_boundary,
)
from sparklog.protocol import levels
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
    """mirror.json: of what it is a mirror, and up to which commit it is complete; ``time_ms`` is that commit's."""

    format: int
    cluster_id: str
    source: str
    version: int
    time_ms: int


class Mirrored(NamedTuple):
    """What a run copied: the version that the mirror has now, commits and bytes."""

    version: int
    commits: int
    size_bytes: int


def read_mirror_file(store: Store) -> MirrorFile | None:
    """What mirror.json says, None where there is none. Raises CorruptMetadataError, UnsupportedVersionError."""
    path = f"{store.root}/{MIRROR_KEY}"
    try:
        data = store.get(MIRROR_KEY, limits.MAX_CLUSTER_FILE_BYTES)
        levels.check_format(path, data)
        return msgspec.json.decode(data, type=MirrorFile)
    except ObjectNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(
            f"{path} cannot be read: {error}; delete it to start the mirror over", path=path
        ) from error


def mirror(
    root: Store, target: Store, clock: Clock | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> Mirrored:
    """Bring a mirror up to date with a root, or begin one at an empty location.

    ``progress`` is told the version copied last and the newest one. Raises ClusterAlreadyExistsError where the target
    is a cluster, InvalidRequestError where it is another cluster's mirror, DuplicateBrokerRegistrationError where it
    overlaps a broker's location, CorruptMetadataError where the root is damaged or lacks what the mirror has,
    StorageError.
    """
    log = CommitLog(root, clock or SystemClock(), RandomIds(), moved=True)
    state = log.refresh()
    present = _present(root, target, state.cluster_id)
    check_apart(state, target.root, root.root)
    _check_goes_on(root, target, present, state.version)
    copier = _Copier(root, target)
    first = present + 1
    newest = checkpoint.read_newest_listed(root)
    if newest is not None and newest.version > present:
        copier.checkpoint(newest)
        if read_boundary_file(root).boundary >= first:  # commits in between are gone; the checkpoint stands for them
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
        _thin_out(target, log.expiry_clock, state.configs)
    return Mirrored(state.version, max(0, state.version + 1 - first), copier.size_bytes)


def _present(root: Store, target: Store, cluster_id: str) -> int:
    """The version that a mirror has, -1 for an empty location."""
    if _is_cluster(target):
        raise ClusterAlreadyExistsError(
            f"{target.root} is the root of a cluster, not a mirror; give an empty location", path=target.root
        )
    known = read_mirror_file(target)
    if known is None:
        return -1
    if known.cluster_id != cluster_id:
        raise InvalidRequestError(
            f"{target.root} is a mirror of cluster {known.cluster_id}, and {root.root} is {cluster_id}; give an empty "
            "location",
            path=target.root,
        )
    return known.version


def _check_goes_on(root: Store, target: Store, present: int, version: int) -> None:
    """Whether the root, at ``version``, has the commits that the mirror has, of which ``present`` is the last one.

    A root that was restored from a backup has not: then the mirror is the only place that has them.
    """
    key = commit_key(present)
    went_back = version < present
    if present >= 0 and not went_back:
        with suppress(ObjectNotFoundError):  # removed at one of them, long after it was written
            went_back = root.get(key, limits.MAX_COMMIT_BYTES) != target.get(key, limits.MAX_COMMIT_BYTES)
    if went_back:
        path = f"{root.root}/{key}"
        raise CorruptMetadataError(
            f"{path} is not the commit {present} that the mirror {target.root} has: an older copy of the root was put "
            "in its place, and the mirror has what came after. Promote the mirror, or mirror to an empty location",
            path=path,
        )


def _copy_allowed(root: Store, target: Store) -> None:
    """What the root's owner allowed, best effort: a promotion says what it could not take over."""
    try:
        allowed = read_allowed(root)
        if allowed != read_allowed(target):
            write_allowed(target, allowed, RandomIds())
    except SparklogError as error:
        logger.warning("the allowed locations of %s are not mirrored: %s", root.root, error)


def _allow_locations(target: Store, old: Store, brokers: Iterable[BrokerState], ids: Ids) -> None:
    """Let clients of the new root contact the old one, and the locations that they could contact from there.

    Raises StoragePermissionError where the new root's owner has to do so, StorageError."""
    allow_location(target, old.root, ids)
    for broker in brokers:
        if broker.url and may_contact(broker.url, old.root, ()):
            allow_location(target, broker.url, ids)


def _allow_before_closing(target: Store, old: Store, clock: Clock, ids: Ids) -> None:
    """Find out before the old root is closed whether this process may. Raises StorageError, as ``_allow_locations``."""
    brokers: Iterable[BrokerState] = ()
    with suppress(SparklogError):  # one that cannot be read is not closed either
        brokers = CommitLog(old, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)


def _arrive(target: Store, old: Store, clock: Clock, ids: Ids) -> int:
    """Commit at the new root that the cluster is there, whose locations are allowed there."""
    brokers = CommitLog(target, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)
    return open_root(target, old.root, clock, ids)


class _Copier:
    """Copies objects of the metadata, each checked. Not thread-safe; lives for one run."""

    def __init__(self, root: Store, target: Store) -> None:
        self.size_bytes = 0
        self._root = root
        self._target = target

    def _put(self, key: str, data: bytes) -> None:
        self._target.put(key, data)
        self.size_bytes += len(data)

    def object(self, key: str) -> None:
        """An immutable object, unless the mirror has it; one that is gone meanwhile is not needed."""
        try:
            if self._size_at_target(key) == self._root.info(key).size:
                return
            data = self._root.get(key)
        except ObjectNotFoundError:
            return
        self._put(key, data)  # its own errors say nothing about the root

    def _size_at_target(self, key: str) -> int:
        try:
            return self._target.info(key).size
        except ObjectNotFoundError:
            return -1

    def checkpoint(self, manifest: checkpoint.Manifest) -> None:
        """A checkpoint and all its files, the manifest after them and the hint last."""
        checkpoint.read_heads(self._root, manifest)  # not to stand for commits that are gone unless it can be read
        lists = checkpoint.read_lists(self._root, manifest)
        for topic_id in lists.topic_ids():
            read_list(self._root, lists.of(topic_id))
        for file in checkpoint.files_of(self._root, manifest):
            self.object(file.key)
        self.object(manifest.heads.key.removesuffix(".heads") + ".json")
        try:
            hint = self._root.get(checkpoint.LATEST_KEY)
        except ObjectNotFoundError:
            return
        self._put(checkpoint.LATEST_KEY, hint)

    def skip_to(self, version: int) -> None:
        """Commits up to here are not copied; who opens the mirror is not to look for them."""
        if read_boundary_file(self._target).boundary < version:
            write_boundary(self._target, structs.replace(read_boundary_file(self._root), boundary=version))

    def commit(self, version: int, previous: str) -> str:
        """One commit; returns its digest, which has to be the next one's predecessor."""
        data = self._root.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        commit, digest = decode_commit(data, version)
        if previous and commit.previous != previous:
            path = f"{self._root.root}/{commit_key(version)}"
            raise CorruptMetadataError(
                f"commit {path} does not follow from the one before it; the mirror ends with version {version - 1}",
                path=path,
            )
        if commit.spilled is not None:
            complete_commit(self._root, data, version)  # they are what the commit says
            if self._size_at_target(commit.spilled.path) != commit.spilled.size:
                self._put(commit.spilled.path, self._root.get(commit.spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES))
        self._put_commit(commit_key(version), data)
        return digest

    def _put_commit(self, key: str, data: bytes) -> None:
        """Never over another one: the mirror may have been promoted while this process was stopped."""
        if create_object(self._target, key, data, limits.MAX_COMMIT_BYTES) != data:
            path = f"{self._target.root}/{key}"
            raise CorruptMetadataError(
                f"{path} is another commit than that of {self._root.root}, and stays as it is", path=path
            )
        self.size_bytes += len(data)

    def mark(self, file: MirrorFile) -> None:
        self._put(MIRROR_KEY, msgspec.json.encode(file) + b"\n")


def _thin_out(target: Store, clock: Times, configs: Mapping[str, str]) -> None:
    """Remove from the mirror what the cluster's settings let go."""
    try:
        clean_up(target, clock, configs)
    except SparklogError as error:
        logger.warning("old commits stay in the mirror %s for now: %s", target.root, error)


class Promoted(NamedTuple):
    """What a promotion came to: the version at which the cluster goes on, and whether later ones may be lost."""

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
) -> Promoted:
    """Make a mirror the root of its cluster. Interrupted, it is run again.

    Broker 0 is the old root from then on. Raises InvalidRequestError where the target is no mirror or the old root does
    not answer or cannot be read, and ``force`` was not given: the message says from which version on commits are lost.
    """
    target, old = open_store(target_url, storage_options), open_store(old_root_url, storage_options)
    clock, ids = clock or SystemClock(), ids or RandomIds()
    known = read_mirror_file(target)
    if known is not None and not _is_source(old, target, known):
        raise InvalidRequestError(
            f"{old.root} is not the root that {target.root} mirrors, which is {known.source}; give that address",
            path=old.root,
        )
    if known is None or _is_cluster(target):
        return _promoted_before(target, old, known, clock, ids)
    _allow_before_closing(target, old, clock, ids)
    may_have_lost = False
    try:
        mirror(old, target, clock)
        close_root(old, known.cluster_id, target.root, clock, ids)
        mirror(old, target, clock)
    except SparklogError as error:
        with suppress(SparklogError):  # it may be closed all the same: whether it is, what it has by now tells
            mirror(old, target, clock)
        may_have_lost = not _is_complete(target)
        if may_have_lost and not force:
            now = read_mirror_file(target) or known
            raise InvalidRequestError(
                f"the old root {old.root} cannot be read to its end ({_why(error)}), and the mirror {target.root} "
                f"has commits up to {now.version}: what was committed from {now.version + 1} on is lost if it is "
                "promoted. Bring the old root back, or give --force (force=True)",
                version=now.version,
                path=target.root,
            ) from error
    data = encode_cluster_file(known.cluster_id)
    if create_object(target, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
        _check_same_cluster(target, known.cluster_id)
    version = _arrive(target, old, clock, ids)
    target.delete(MIRROR_KEY)
    _settle(old, known.cluster_id, target.root, clock, ids)
    return Promoted(version, old.root, may_have_lost)


def _check_same_cluster(target: Store, cluster_id: str) -> None:
    found = read_cluster_file(target).cluster_id
    if found != cluster_id:
        raise ClusterAlreadyExistsError(
            f"{target.root} has become the root of cluster {found} meanwhile, and is a mirror of {cluster_id}: nothing "
            "was promoted; use another mirror",
            path=target.root,
        )


def _is_source(old: Store, target: Store, known: MirrorFile) -> bool:
    """Whether this is the root that was mirrored; elsewhere than it was then, it has to say so itself."""
    if old.root == known.source:
        return True
    try:
        return old.root != target.root and read_cluster_file(old).cluster_id == known.cluster_id
    except SparklogError:
        return False


def _promoted_before(target: Store, old: Store, known: MirrorFile | None, clock: Clock, ids: Ids) -> Promoted:
    """A promotion that was interrupted at its very end."""
    try:
        cluster = read_cluster_file(target)
    except ClusterNotFoundError as error:
        raise InvalidRequestError(
            f"{target.root} is not a mirror: it has no {MIRROR_KEY}; give the location that `mirror` copied to",
            path=target.root,
        ) from error
    if known is None and CommitLog(target, clock, ids, moved=True).refresh().brokers[ROOT_BROKER].url != old.root:
        raise InvalidRequestError(
            f"{target.root} is not a mirror of {old.root}: it is the root of a cluster; were the addresses swapped?",
            path=target.root,
        )
    version = _arrive(target, old, clock, ids)
    target.delete(MIRROR_KEY)
    _settle(old, cluster.cluster_id, target.root, clock, ids)
    return Promoted(version, old.root, False)


def _is_cluster(store: Store) -> bool:
    try:
        read_cluster_file(store)
    except ClusterNotFoundError:
        return False
    return True


def _is_complete(target: Store) -> bool:
    """Whether the mirror has the commit that closed the old root."""
    versions = sorted(_mirrored_commits(target))
    if not versions:
        return False
    commit, _ = decode_commit(target.get(commit_key(versions[-1]), limits.MAX_COMMIT_BYTES), versions[-1])
    return is_closed(commit)


def _mirrored_commits(target: Store) -> Iterator[int]:
    for info in target.list("meta/commits/"):
        yield int(info.key.removeprefix("meta/commits/").removesuffix(".json"))


def _settle(old: Store, cluster_id: str, new_root: str, clock: Clock, ids: Ids) -> None:
    """The old root is a location like others now, and closed."""
    try:
        close_root(old, cluster_id, new_root, clock, ids)
    except SparklogError as error:
        logger.warning(
            "the old root %s could not be closed: %s; nobody may write to it. The controller closes it once it can be "
            "reached",
            old.root,
            _why(error),
        )


def _why(error: SparklogError) -> str:
    """Why the old root does not serve; that it is no cluster any more is no reason to create one there."""
    return f"it has no {CLUSTER_KEY}" if isinstance(error, ClusterNotFoundError) else error.message


def mirror_of(coordinator: Coordinator, target_url: str) -> Mirrored:
    """``mirror`` for a cluster that is open, with its storage options."""
    return mirror(coordinator.store, coordinator.brokers.open(target_url), coordinator.log.clock)
