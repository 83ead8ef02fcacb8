"""Removes commits and checkpoints that nobody needs any more, so that the metadata of a cluster stops growing.

Commits at or below the boundary (``meta/boundary.json``) are gone; a checkpoint stands for them. How many are kept is
for ``metadata.max.retention.ms`` and ``metadata.max.retention.bytes`` to say, Kafka's limits of its metadata log (its
``KafkaMetadataLog.maybeClean``). Whoever writes a checkpoint removes a bounded number of commits right after it; the
maintenance loop does the whole of it (``clean_up``). No cluster needs that loop for reads and writes to go on.

Rules:

* The boundary moves first, the commits go afterwards; so a crash leaves commits that may go, which ``clean_up`` finds
  by listing.
* The boundary never passes the newest checkpoint. Its files were read back when they were written, before a manifest
  named them; that all of them are still there is looked up right before the boundary moves.
* Commits stay for ``limits.MIN_COMMIT_AGE_MS`` at least, by their timestamp and by the time at which they were stored:
  a machine that slept between the two stores a commit that looks old. The newest ones stay anyhow. A process that was
  away for longer than half of that does not rely on the boundary, which a stalled clean-up may have set back, but looks
  for the newest checkpoint by listing (``CommitLog``). The next clean-up notices a boundary that went back.
* A checkpoint is kept while it is one of the newest, and for ``limits.MIN_CHECKPOINT_AGE_MS`` after a newer one came.
  Ages are differences of the storage's own times. Manifests go before the files they name. What no manifest names goes
  only once there is a newer checkpoint: its writer may be about to name it, however old it is. A process that still
  finds a file of its checkpoint gone goes on from the newest one.

Not for: writing checkpoints (``checkpoint``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple, Protocol

from msgspec import structs

from sparklog import limits
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.layout import (
    ACTIONS,
    CHECKPOINTS,
    COMMITS,
    Boundary,
    actions_version,
    boundary_mark_key,
    checkpoint_version,
    commit_version,
    manifest_version,
    marked_boundary,
    read_boundary_file,
    write_boundary,
)
from sparklog.log.parallel import each
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import commit_key
from sparklog.store.base import ObjectInfo, Store


class CleanUp(NamedTuple):
    """What a clean-up did: the boundary it leaves, how many commits and files of checkpoints it removed."""

    boundary: int
    commits: int
    checkpoint_files: int


class Times(Protocol):
    """What says how old a commit is; ``ExpiryClock`` does so whatever the clock of this machine."""

    def now_ms(self) -> int: ...


def clean_up(store: Store, clock: Times, configs: Mapping[str, str]) -> CleanUp:
    """Remove every commit that the limits let go, what earlier clean-ups left, and old checkpoints.

    Lists the commits, so its cost is that of those kept. ``configs`` are the cluster's. Raises StorageError,
    CorruptMetadataError; run it again then.
    """
    newest = checkpoint.read_newest_listed(store)
    present = read_boundary_file(store)
    stored = _stored(store)
    if newest is None or not stored or not checkpoint.is_whole(store, newest):
        return CleanUp(present.boundary, 0, 0)
    oldest = min(
        (commit.version for commit in stored if commit.version > present.boundary), default=present.boundary + 1
    )
    boundary = _mended(store, oldest - 1, newest.version)
    kept = [commit for commit in stored if commit.version > boundary.boundary]
    excess = sum(commit.size for commit in kept) - _bytes_limit(configs)
    stored_before_ms = clock.now_ms() - limits.MIN_COMMIT_AGE_MS
    last_due = newest.version - limits.MIN_COMMITS_KEPT
    due = [
        commit.version
        for commit in takewhile(lambda commit: commit.modified_ms < stored_before_ms, kept)
        if commit.version <= last_due
    ]
    old_enough = _older(store, due, stored_before_ms)
    by_age = _older(store, due[:old_enough], clock.now_ms() - _age_limit_ms(configs))
    by_size = 0
    for commit in kept[:old_enough]:
        if excess <= 0:
            break
        excess -= commit.size
        by_size += 1
    count = max(by_age, by_size)
    if count:
        gone_bytes = sum(commit.size for commit in kept[:count])
        last = due[count - 1]
        boundary = _advance(store, _after(boundary, last, gone_bytes, _time_of(store, last)))
    gone = [commit.version for commit in stored if commit.version <= boundary.boundary]
    _delete(store, map(commit_key, gone))
    _delete_actions(store, boundary.boundary)
    return CleanUp(boundary.boundary, len(gone), remove_checkpoints(store))


def remove_some_commits(store: Store, clock: Times, configs: Mapping[str, str], newest: checkpoint.Manifest) -> int:
    """Remove at most ``limits.COMMITS_REMOVED_INLINE`` commits, right after this checkpoint was stored.

    Returns how many went. Three small reads where none is due. Raises StorageError, CorruptMetadataError.
    """
    present = read_boundary_file(store)
    start = present.boundary + 1
    most = present.boundary + limits.COMMITS_REMOVED_INLINE
    for end in _steps(start, min(newest.version - limits.MIN_COMMITS_KEPT, most)):
        try:
            data = store.get(commit_key(end), limits.MAX_COMMIT_BYTES)
        except ObjectNotFoundError:  # another clean-up is at it, or was, and a late one set the boundary back
            _mended(store, end, newest.version)
            return 0
        timestamp_ms = decode_commit(data, end)[0].timestamp
        age_ms = clock.now_ms() - timestamp_ms
        too_many = newest.commit_bytes - present.removed_bytes > _bytes_limit(configs)
        is_due = age_ms > limits.MIN_COMMIT_AGE_MS and (age_ms > _age_limit_ms(configs) or too_many)
        if is_due and _is_stored_for_long(store, end, clock) and checkpoint.is_whole(store, newest):
            keys = [commit_key(version) for version in range(start, end + 1)]
            size = sum(each(lambda key: _size(store, key), keys))
            _advance(store, _after(present, end, size, timestamp_ms))
            _delete(store, keys)
            _delete_actions(store, end)
            return len(keys)
    return 0


class _Stored(NamedTuple):
    """A commit as the storage lists it."""

    version: int
    size: int
    modified_ms: int


def _stored(store: Store) -> list[_Stored]:
    """The commits that are there, oldest first; files of other names are ignored."""
    listed = ((commit_version(info.key), info.size, info.modified_ms) for info in store.list(COMMITS))
    return sorted(_Stored(version, size, modified_ms) for version, size, modified_ms in listed if version is not None)


def _is_stored_for_long(store: Store, version: int, clock: Times) -> bool:
    """Whether a commit, and so all before it, was stored longer ago than commits are kept at least."""
    try:
        modified_ms = store.info(commit_key(version)).modified_ms
    except ObjectNotFoundError:  # another clean-up is at it
        return False
    return clock.now_ms() - modified_ms > limits.MIN_COMMIT_AGE_MS


def _delete_actions(store: Store, boundary: int) -> None:
    """Remove what lay beside commits up to the boundary, and what writers that lost left there."""
    versions = ((info.key, actions_version(info.key)) for info in store.list(ACTIONS))
    _delete(store, [key for key, version in versions if version is not None and version <= boundary])


def _steps(start: int, last: int) -> Sequence[int]:
    """Where a bounded removal may end: at the last candidate, or half way."""
    return [end for end in (last, (start + last) // 2) if end >= start]


def _mended(store: Store, removed: int, checkpoint_version: int) -> Boundary:
    """The boundary, set forward where commits up to ``removed`` are gone and it does not say so."""
    present = read_boundary_file(store)
    if present.boundary >= min(removed, checkpoint_version):
        return present
    return _advance(store, structs.replace(present, boundary=min(removed, checkpoint_version)))


def _advance(store: Store, boundary: Boundary) -> Boundary:
    """Move the boundary forward, unless it is there already."""
    present = read_boundary_file(store)
    if present.boundary >= boundary.boundary:
        return present
    write_boundary(store, boundary)
    return boundary


def _after(present: Boundary, version: int, removed_bytes: int, timestamp_ms: float) -> Boundary:
    """The boundary once commits up to ``version``, which is of this time, are removed."""
    times = present.times  # the last one may be ahead, where the log's time was reset since
    if timestamp_ms >= 0 and (not times or abs(timestamp_ms - times[-1][1]) >= limits.BOUNDARY_TIMES_EVERY_MS):
        times = (*times, (version, int(timestamp_ms)))[-limits.BOUNDARY_TIMES_KEPT :]
    return Boundary(version, present.removed_bytes + removed_bytes, times)


def newest_version_before(store: Store, version: int, before_ms: int) -> int:
    """The newest version up to ``version`` whose commit is known to be from before this time, -1 where none is.

    Of commits that were removed only some are known, a quarter of a day apart.
    """
    boundary = read_boundary_file(store)
    kept = range(boundary.boundary + 1, version + 1)
    older = _older(store, kept, before_ms)
    if older:
        return kept[older - 1]
    return max((known for known, timestamp_ms in boundary.times if timestamp_ms < before_ms), default=-1)


def _age_limit_ms(configs: Mapping[str, str]) -> float:
    limit = ClusterConfig.resolve(configs).metadata_max_retention_ms
    return limit if limit >= 0 else float("inf")


def _bytes_limit(configs: Mapping[str, str]) -> float:
    limit = ClusterConfig.resolve(configs).metadata_max_retention_bytes
    return limit if limit >= 0 else float("inf")


def _older(store: Store, versions: Sequence[int], before_ms: float) -> int:
    """How many of these commits are from before this time; times of commits grow, so some twenty reads tell."""
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        if _time_of(store, versions[middle]) < before_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _time_of(store: Store, version: int) -> float:
    try:
        data = store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
    except ObjectNotFoundError:  # removed meanwhile: old enough for somebody else
        return float("-inf")
    return decode_commit(data, version)[0].timestamp


def _size(store: Store, key: str) -> int:
    try:
        return store.info(key).size
    except ObjectNotFoundError:
        return 0


def _delete(store: Store, keys: Iterable[str]) -> None:
    each(store.delete, keys)


# -- checkpoints


def remove_checkpoints(store: Store) -> int:
    """Remove checkpoints that newer ones have replaced for long, and files that none of those kept names.

    Returns how many files went. Raises StorageError, CorruptMetadataError.
    """
    found = [info for info in store.list(CHECKPOINTS) if checkpoint_version(info.key) is not None]
    manifests = [info for info in found if manifest_version(info.key) is not None]
    if len(manifests) <= limits.CHECKPOINTS_KEPT:
        return 0
    old_ms = max(info.modified_ms for info in found) - limits.MIN_CHECKPOINT_AGE_MS
    kept = _kept(sorted(manifests, reverse=True), old_ms)
    named = {info.key for info in kept}
    named.add(boundary_mark_key(marked_boundary(info.key for info in found)))
    lists = ListCache(store)
    for info in kept:
        try:
            manifest = checkpoint.read_manifest(store, info.key)
            named.update(file.key for file in checkpoint.files_of(store, manifest, lists))
        except ObjectNotFoundError:  # this process was stopped since the listing, and another clean-up went on
            return 0
        except CorruptMetadataError as error:
            if not error.missing:
                raise
            return 0  # the same; or its writer was stopped, and what its lists name is not known: newer ones replace it
    newest = checkpoint_version(kept[0].key) or 0
    gone = [
        info.key
        for info in found
        # of a newer version than the newest manifest: its writer may have been stopped, and name it once it goes on
        if info.key not in named and info.modified_ms < old_ms and (checkpoint_version(info.key) or 0) < newest
    ]
    is_manifest = {info.key for info in manifests}
    _delete(store, (key for key in gone if key in is_manifest))
    _delete(store, (key for key in gone if key not in is_manifest))
    return len(gone)


def _kept(newest_first: Sequence[ObjectInfo], old_ms: int) -> list[ObjectInfo]:
    """The newest manifests, and each that was the newest one until not long ago."""
    kept = list(newest_first[: limits.CHECKPOINTS_KEPT])
    for newer, info in pairwise(newest_first[1:]):
        if newer.modified_ms < old_ms:
            break
        if info not in kept:
            kept.append(info)
    return kept
