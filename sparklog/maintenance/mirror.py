"""Mirrors the commit log to another location, which can become the root if the root itself is lost.

    mirror(store_of_root, store_of_mirror)          repeatedly: copies new commits

    mirror.json            {"format":1,"cluster_id":"…","source":"/data/log","version":1234,"time_ms":…}
    meta/...               commits with their spilled actions, the newest checkpoint, listings of retired files

The mirror has no ``cluster.json``, so no client writes to it by mistake; the promotion writes it. Records are not part
of it: they are at the brokers.

Rules:

* The mirror can be promoted at any time: files of a checkpoint are written before its manifest, that before the commits
  after a gap, commits in order, and ``mirror.json`` last; each is checked as it is read.
* A pass that is suspended while the mirror is promoted does no harm when it resumes: it sets no boundary (the promotion
  does), a checkpoint counts only in a log that has its commit, and a commit only if it follows.
* A commit at the mirror is never overwritten. A root that lacks commits of the mirror, such as one restored from a
  backup, is not mirrored: the first commit that is copied has to follow the mirror's last one, or a checkpoint. Where
  the root has removed that commit since, its note of the mirror tells (``leases/mirrors/``; not part of a backup).
* A copy of the root does not continue the mirror of the original.

Not for: copying records (``replication``), the promotion (``promotion``); a second cluster to write to.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.coordinator.brokers import find_real
from sparklog.coordinator.closed_root import is_promotion
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterNotFoundError,
    CorruptMetadataError,
    InvalidRequestError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from sparklog.ids import RandomIds
from sparklog.log.broker_files import check_contact, read_allowed, write_allowed
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import read_list
from sparklog.log.checkpoints.usable_checkpoints import is_of_log
from sparklog.log.commits.cleanup import clean_up, keeps_as_much
from sparklog.log.commits.commit_files import complete_commit
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import holds_commit, read_log_end
from sparklog.log.creation import read_created
from sparklog.log.layout import (
    COMMITS,
    MIRROR_KEY,
    commit_version,
    exists,
    read_boundary_file,
    read_certain_boundary,
    read_cluster_file,
)
from sparklog.log.owner_files import is_same_root, mirror_epoch, read_root, read_source_epoch
from sparklog.log.stored_json import read_json
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import GENESIS_DIGEST, commit_key
from sparklog.protocol.decide.brokers import check_apart
from sparklog.protocol.features import check_written
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.enclosing import check_no_location, check_outside_locations
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

FORMAT = 1
NOTES = "leases/mirrors/"
NOTES_KEPT = 10
"""Notes of a mirror that a root keeps: a pass that was suspended may set ``mirror.json`` back.

    leases/mirrors/<hash of the mirror's address>/<20 digits>     the digest of that commit
"""

NOTE_RENEWED_MS = 86_400_000
"""ms after which a pass that finds nothing new stores its note again."""


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
    root: Store,
    target: Store,
    clock: Clock | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    open_source: Callable[[str], Store] = open_store,
) -> MirrorResult:
    """Bring a mirror up to date with a root, or start one at an empty location.

    ``progress`` is called with the version copied last and the newest one. ``open_source`` opens the address that the
    mirror has recorded of its root, to see whether that is another root in use. Raises ClusterAlreadyExistsError if the
    target is a cluster, InvalidRequestError if it is another cluster's mirror, or that of another root of this cluster
    that is in use or has replaced this one, DuplicateBrokerRegistrationError if it is or overlaps a broker's location,
    CorruptMetadataError if the root is damaged or lacks commits of the mirror, FeatureLevelError for a cluster that is
    only read by this version, StorageError.
    """
    log = CommitLog(root, clock or SystemClock(), RandomIds(), moved=True)
    state = log.refresh()
    check_written(state.level)  # else its mirror could not be promoted
    present = _mirrored_version(root, target, state.cluster_id, open_source)
    check_apart(state, target.root, root.root, real=find_real(state, root.root, target.root))
    check_no_location(target)  # of another cluster: a mirror may become a root
    check_outside_locations(target)
    previous = _check_same_timeline(root, target, present, state)
    if present >= 0 and not exists(target, commit_key(present)):  # a pass with a gap ended at its checkpoint
        _check_no_promotion(target, present)
    mirror_epoch(root, target)
    copier = Copier(root, target)
    first = present + 1
    newest = checkpoint.read_newest_listed(root)
    if newest is not None and newest.version > state.version:  # written since: the mirror must not end before it
        state = log.refresh()
    log.make_durable()  # the mirror must not be ahead of the root
    if newest is not None and present < newest.version <= state.version:
        copier.checkpoint(newest, lambda: _check_same_timeline(root, target, present, state))
        if read_boundary_file(root).boundary >= first:  # commits in between were removed; the checkpoint covers them
            copier.gap = range(first, newest.version + 1)
            first, previous = newest.version + 1, newest.digest
    for listing in sorted(state.removed_files):
        copier.object(listing)
    for version in range(first, state.version + 1):
        previous = copier.commit(version, previous)
        progress(version, state.version)
    _copy_allowed(root, target)
    copier.check_not_promoted()
    _note_mirrored(root, target, state, log.expiry_clock.now_ms())
    if state.version != present:
        copier.mark(MirrorFile(FORMAT, state.cluster_id, root.root, state.version, state.timestamp_ms))
        copier.check_not_promoted()
        _remove_old_commits(target, log, state.configs)
    return MirrorResult(state.version, max(0, state.version + 1 - first), copier.size_bytes)


def _mirrored_version(root: Store, target: Store, cluster_id: str, open_source: Callable[[str], Store]) -> int:
    """Return the version of a mirror, -1 for an empty location. Raises as ``mirror`` for another cluster, or root."""
    if is_cluster_root(target):
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
    _check_source(root, target, mirror_file, open_source)
    return mirror_file.version


def _check_source(root: Store, target: Store, mirror_file: MirrorFile, open_source: Callable[[str], Store]) -> None:
    """Check that a root may continue a mirror: not if it is a copy of the mirror's source, or was replaced by it.

    A root that was promoted or took over since the mirror's last pass has a higher epoch. Raises InvalidRequestError.
    """
    epoch, mirrored_epoch = read_root(root).epoch, read_source_epoch(target)
    if epoch > mirrored_epoch:
        return
    if epoch == mirrored_epoch and not _is_other_in_use(root, mirror_file, open_source):
        return
    raise InvalidRequestError(
        f"{target.root} is the mirror of {mirror_file.source} (root epoch {mirrored_epoch}), and {root.root} (root "
        f"epoch {epoch}) is a copy of that root, the same under another address, or was replaced by it; nothing was "
        "mirrored. Use the recorded address, or another location for this mirror. If this is the cluster's root from "
        f"now on, run `sparklog brokers take-over --bootstrap-server {shlex.quote(root.root)}` first",
        path=target.root,
    )


def _is_other_in_use(root: Store, mirror_file: MirrorFile, open_source: Callable[[str], Store]) -> bool:
    """Return whether the recorded source is another root of this cluster, which answers. It is contacted only where the
    root's owner allows that."""
    if mirror_file.source == root.root:
        return False
    try:
        check_contact(root, 0, mirror_file.source)
        source = open_source(mirror_file.source)
        return not is_same_root(source, root) and read_cluster_file(source).cluster_id == mirror_file.cluster_id
    except SparklogError:
        return False


def _check_same_timeline(root: Store, target: Store, present: int, state: State) -> str:
    """Check that the root, at ``state``, has the commits of the mirror, of which ``present`` is the last one, and the
    mirror's newest checkpoint; return the digest of ``present``, empty if it is not known.

    A root that was restored from a backup lacks some: then only the mirror has them. Raises CorruptMetadataError.
    """
    if present < 0:
        return GENESIS_DIGEST
    manifest = checkpoint.read_newest_listed(target)
    digest = read_log_end(target, present, with_boundary=False).digest or ""
    if not digest and manifest is not None and manifest.version == present:
        digest = manifest.digest
    if not digest:  # a pass with a gap ended at its checkpoint, and one was interrupted that brought a newer checkpoint
        digest = _read_note(root, target, present) or ""
    has_all = _has_mirrored(root, target, present, digest, state)
    if has_all and manifest is not None and manifest.version > present:  # its pass did not end
        has_all = _has_checkpoint(root, manifest)
    if has_all:
        return digest
    path = f"{root.root}/{commit_key(present)}"
    raise CorruptMetadataError(
        f"{path} is not, or cannot be shown to be, the commit {present} of the mirror {target.root}: the root was "
        "replaced by an older copy, a copy of it was mirrored there, or the mirror was not continued for long. If the "
        "mirror has commits that you need, promote it; else mirror to an empty location",
        path=path,
    )


def _has_mirrored(root: Store, target: Store, present: int, digest: str, state: State) -> bool:
    """Return whether the root's log has commit ``present`` of the mirror, or had it, as an earlier pass has noted."""
    if state.version < present:
        return False
    stored = read_log_end(root, present, with_boundary=True)
    if stored.digest is not None and stored.digest == digest:
        return True
    if max(stored.removed_up_to, read_certain_boundary(root)) < present:
        return False
    noted = _read_note(root, target, present)
    return noted is not None and digest in ("", noted)


def _has_checkpoint(root: Store, manifest: checkpoint.Manifest) -> bool:
    """Return whether a checkpoint that the mirror has is of the root's log, or older than the one to be copied."""
    newest = checkpoint.read_newest_listed(root)
    if newest is not None and newest.version > manifest.version:
        return True
    return is_of_log(root, manifest)


def _note_key(target: Store, version: int) -> str:
    """Return the key below the root of the digest of a commit up to which it was mirrored to an address."""
    return f"{_notes_of(target)}{version:020d}"


def _notes_of(target: Store) -> str:
    return f"{NOTES}{hashlib.sha256(target.root.encode()).hexdigest()[:32]}/"


def read_mirrored_versions(root: Store, since_ms: float) -> list[int]:
    """Return up to which version each mirror has the commits of a root, of the mirrors that have noted that since then.
    Raises StorageError."""
    newest: dict[str, int] = {}
    active: set[str] = set()
    for info in root.list(NOTES):
        mirror_name, _, version = info.key.removeprefix(NOTES).partition("/")
        if version.isdecimal():
            newest[mirror_name] = max(newest.get(mirror_name, -1), int(version))
            if info.modified_ms >= since_ms:
                active.add(mirror_name)
    return [newest[name] for name in sorted(active)]


def _read_note(root: Store, target: Store, version: int) -> str | None:
    try:
        return root.get(_note_key(target, version), limits.MAX_CLUSTER_FILE_BYTES).decode(errors="replace")
    except (ObjectNotFoundError, CorruptMetadataError):
        return None


def _note_mirrored(root: Store, target: Store, state: State, now_ms: float) -> None:
    """Note at the root that it is mirrored up to here, before ``mirror.json`` says so. Without it, a mirror is not
    continued once its newest commit was removed from the root.

    Raises CorruptMetadataError if the root does not have that commit any more: this process was suspended."""
    key = _note_key(target, state.version)
    try:
        if _read_note(root, target, state.version) == state.digest:
            if root.info(key).modified_ms < now_ms - NOTE_RENEWED_MS:  # the mirror is still in use
                root.put(key, state.digest.encode())
            return
        root.put(key, state.digest.encode())
        if not _still_has(root, state):
            root.delete(key)
            raise CorruptMetadataError(
                f"{root.root} was restored, or has removed commit {state.version}, while {target.root} was written; "
                "mirror it again",
                path=root.root,
            )
        for old in sorted(info.key for info in root.list(_notes_of(target)))[:-NOTES_KEPT]:
            root.delete(old)
    except (StoragePermissionError, StorageFullError) as error:  # it may only read the root, or that is full
        logger.info("could not note at %s that it was mirrored to %s: %s", root.root, target.root, error)


def _still_has(root: Store, state: State) -> bool:
    """Return whether the root certainly has the log of a state: its commit, or a checkpoint in its place."""
    if holds_commit(root, state.version, state.digest):
        return True
    manifest = checkpoint.read_newest_listed(root)
    return manifest is not None and (manifest.version, manifest.digest) == (state.version, state.digest)


def _copy_allowed(root: Store, target: Store) -> None:
    """Copy the allowed locations of the root, unless the mirror is a root by now, which has its own. Best effort: a
    promotion reports what it could not take over."""
    try:
        allowed, before = read_allowed(root), read_allowed(target)
        if allowed == before or is_cluster_root(target):
            return
        write_allowed(target, allowed, RandomIds())
        if is_cluster_root(target):  # this process was suspended while the mirror was promoted
            write_allowed(target, {*allowed, *before}, RandomIds())
            logger.warning(
                "%s was promoted while it was mirrored: if it does not contact a location that was allowed since, run "
                "`sparklog brokers allow` for it again",
                target.root,
            )
    except SparklogError as error:
        logger.warning("could not mirror the allowed locations of %s: %s", root.root, error)


def _withdraw(target: Store, manifest: checkpoint.Manifest) -> None:
    """Delete a manifest from a mirror, unless a promotion needs it, which has taken it for the newest one meanwhile."""

    def is_needed() -> bool:
        return read_boundary_file(target).boundary >= manifest.version

    key = checkpoint.manifest_key(manifest)
    data = target.get(key)
    if not is_needed():
        checkpoint.withdraw(target, manifest)
        if is_needed():
            target.put(key, data)


class Copier:
    """Copies metadata objects and checks each. Not thread-safe; lives for one run."""

    def __init__(self, root: Store, target: Store) -> None:
        self.size_bytes = 0
        self.gap = range(0)
        """Commits that the root removed before they were mirrored: a checkpoint covers them."""
        self._checked = 0
        """Commits at the beginning of the gap that the mirror has, and that are not of a promotion."""
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

    def checkpoint(self, manifest: checkpoint.Manifest, check: Callable[[], str]) -> None:
        """Copy a checkpoint: all its files, then the manifest, and the hint last. ``check`` may raise if the root does
        not have the log any more to which it belongs: restored while this process was suspended."""
        checkpoint.read_heads(self._root, manifest)  # check it first, since it may cover commits that were removed
        lists = checkpoint.read_lists(self._root, manifest)
        for topic_id in lists.topic_ids():
            read_list(self._root, lists.of(topic_id))
        for file in checkpoint.list_files(self._root, manifest):
            self.object(file.key)
        self.object(manifest.heads.key.removesuffix(".heads") + ".json")
        try:
            check()
        except CorruptMetadataError:
            _withdraw(self._target, manifest)
            raise
        try:
            hint = self._root.get(checkpoint.LATEST_KEY)
        except ObjectNotFoundError:
            return
        self._put(checkpoint.LATEST_KEY, hint)

    def commit(self, version: int, previous: str) -> str:
        """Copy one commit; return its digest, which the next commit has to name. Raises CorruptMetadataError."""
        data = self._root.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        commit, digest = decode_commit(data, version)
        if previous and commit.previous != previous:
            path = f"{self._root.root}/{commit_key(version)}"
            raise CorruptMetadataError(
                f"commit {path} does not follow from the one before it; the mirror {self._target.root} ends with "
                f"version {version - 1}. The root may have been restored meanwhile",
                path=path,
            )
        if commit.spilled is not None:
            complete_commit(self._root, data, version)  # checks the spilled actions against the commit
            if self._size_at_target(commit.spilled.path) != commit.spilled.size:
                self._put(commit.spilled.path, self._root.get(commit.spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES))
        self._put_commit(version, data)
        return digest

    def _put_commit(self, version: int, data: bytes) -> None:
        """Store a commit, but never overwrite another: the mirror may have been promoted while this process was
        paused."""
        key = commit_key(version)
        self.check_not_promoted()
        is_new = True
        try:
            self._target.put_if_absent(key, data)
        except StorageError as error:
            is_new = False  # or that is not certain
            if read_created(self._target, key, error, limits.MAX_COMMIT_BYTES) != data:
                path = f"{self._target.root}/{key}"
                raise CorruptMetadataError(
                    f"{path} is not the same commit as at {self._root.root}; it was not overwritten", path=path
                ) from error
        try:
            self.check_not_promoted()
        except ClusterAlreadyExistsError:  # this process was suspended: no number of the new root may be taken
            if is_new and self._is_beyond_end(version):
                self._target.delete_exactly(key, data)
            raise
        self.size_bytes += len(data)

    def _is_beyond_end(self, version: int) -> bool:
        """Return whether the log of a mirror that was promoted does not reach a commit. It may have it: the mirror was
        not mounted when this process stored it, or began."""
        stored = {commit_version(info.key) for info in self._target.list(COMMITS)}
        return version + 1 not in stored and len(stored) > 1  # a promoted mirror has a later commit of its own

    def check_not_promoted(self) -> None:
        """Refuse a commit after a gap, which the mirror's log does not lead up to, if the mirror was promoted, or its
        promotion was begun.

        Without a gap, the commit is the next one of the new root, or its number is taken."""
        if self.gap and (is_cluster_root(self._target) or self._is_promotion_begun()):
            raise _refuse_promoted(self._target)

    def _is_promotion_begun(self) -> bool:
        """Return whether the mirror has the commit of its promotion in the gap; others are of an interrupted pass."""
        for version in self.gap[self._checked :]:
            try:
                data = self._target.get(commit_key(version), limits.MAX_COMMIT_BYTES)
            except ObjectNotFoundError:
                return False
            if any(is_promotion(action) for action in decode_commit(data, version)[0].actions):
                return True
            self._checked += 1
        return False

    def mark(self, file: MirrorFile) -> None:
        self._put(MIRROR_KEY, msgspec.json.encode(file) + b"\n")


def _check_no_promotion(target: Store, before: int) -> None:
    """Refuse to go on where a promotion was begun, which has stored an epoch, from the commits before a gap: its commit
    is the last one there. Raises ClusterAlreadyExistsError."""
    if not read_root(target).epoch:
        return
    stored = [version for info in target.list(COMMITS) if (version := commit_version(info.key)) is not None]
    last = max((version for version in stored if version < before), default=-1)
    if last >= 0:
        data = target.get(commit_key(last), limits.MAX_COMMIT_BYTES)
        if any(is_promotion(action) for action in decode_commit(data, last)[0].actions):
            raise _refuse_promoted(target)


def _refuse_promoted(target: Store) -> ClusterAlreadyExistsError:
    return ClusterAlreadyExistsError(
        f"{target.root} was promoted in the meantime, or its promotion was begun; mirror to another location",
        path=target.root,
    )


def _remove_old_commits(target: Store, log: CommitLog, configs: Mapping[str, str]) -> None:
    """Remove old commits and checkpoints from the mirror, by the cluster's settings. Best effort."""
    try:
        clean_up(target, log.expiry_clock, configs, is_current=lambda: keeps_as_much(log.refresh().configs, configs))
    except SparklogError as error:
        logger.warning("could not remove old commits from mirror %s, the next run retries it: %s", target.root, error)


def is_cluster_root(store: Store) -> bool:
    """Return whether a cluster is there, and not only a mirror of one."""
    try:
        read_cluster_file(store)
    except ClusterNotFoundError:
        return False
    return True


def mirror_cluster(coordinator: Coordinator, target_url: str) -> MirrorResult:
    """Mirror a cluster that is open, with its storage options. As ``mirror``."""
    target = coordinator.brokers.open(target_url)
    return mirror(coordinator.store, target, coordinator.log.clock, open_source=coordinator.brokers.open)
