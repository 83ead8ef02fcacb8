"""Removes old commits and checkpoints, so that the metadata of a cluster stops growing.

Commits at or below the boundary (``meta/boundary.json``) are removed; a checkpoint replaces them. How many are kept is
set by ``metadata.max.retention.ms`` and ``metadata.max.retention.bytes``, Kafka's limits of its metadata log
(``KafkaMetadataLog.maybeClean``). A process that writes a checkpoint removes a bounded number of commits right after
it; the maintenance loop removes all (``clean_up``). Reads and writes do not depend on that loop.

Rules:

* The boundary moves first, then the commits are deleted; so a crash leaves orphaned commits, which ``clean_up`` finds
  by listing.
* Nothing is deleted, and the boundary not moved, unless the checkpoint that replaces it is at the root right before,
  and of its log, and no commit is deleted that the boundary there does not name: the root may have been restored from a
  copy since the decision (``removal``).
* The boundary never passes the newest checkpoint. Its files were read back when they were written, before a manifest
  named them; that all of them still exist is checked right before the boundary moves.
* Commits are kept for ``LogSettings.min_commit_age_ms`` at least, by their timestamp and by the time at which they were
  stored: a machine that slept between the two stores a commit that looks old. The newest ones are always kept. A
  process that was away for longer than half of that does not trust the boundary, which a stalled clean-up may have set
  back, but looks for the newest checkpoint by listing (``CommitLog``). The next clean-up detects and repairs a boundary
  that went back.
* A checkpoint is kept while it is one of the newest, and for ``LogSettings.min_checkpoint_age_ms`` after the next one
  was written. Ages are differences of the storage's own times. Manifests are deleted before the files they name. A file
  that no manifest names is deleted only once there is a newer checkpoint: its writer may be about to name it, however
  old it is. A process that still finds a file of its checkpoint missing continues from the newest one.

Not for: writing checkpoints (``checkpoint``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile
from typing import NamedTuple, Protocol

from msgspec import structs

from sparklog import limits
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.checkpoints.usable_checkpoints import are_commits_replaced, is_of_log, is_still_of_log
from sparklog.log.commits.removal import Holds, advance_boundary, delete_while
from sparklog.log.commits.time_search import Timed, find_newest
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
    read_boundary,
    read_boundary_file,
)
from sparklog.log.parallel import map_parallel
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import commit_key
from sparklog.store.base import ObjectInfo, Store


class CleanUp(NamedTuple):
    """The result of a clean-up: the new boundary, and how many commits and checkpoint files it removed.

    ``kept_by`` says what keeps commits that would be due otherwise, empty if nothing does.
    """

    boundary: int
    commits: int
    checkpoint_files: int
    kept_by: str = ""


class Times(Protocol):
    """A clock for the age of commits, such as ``ExpiryClock``, which does not rely on this machine's clock alone."""

    def now_ms(self) -> int: ...


def keeps_as_much(configs: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Return whether two configs of a cluster have the same limits of its commits."""
    return _limits(configs) == _limits(others)


def _limits(configs: Mapping[str, str]) -> tuple[int, int]:
    config = ClusterConfig.resolve(configs)
    return config.metadata_max_retention_ms, config.metadata_max_retention_bytes


def clean_up(
    store: Store,
    clock: Times,
    configs: Mapping[str, str],
    settings: LogSettings = DEFAULTS,
    is_current: Callable[[], bool] = lambda: True,
) -> CleanUp:
    """Remove all commits beyond the limits, leftovers of earlier clean-ups, and old checkpoints.

    Lists the commits, so its cost grows with those kept. ``configs`` are the cluster's; ``is_current`` says whether
    their limits still hold, and is asked right before the boundary moves. Raises StorageError, CorruptMetadataError; it
    may be repeated then.
    """
    current = read_boundary_file(store)  # before the checkpoint, which others may replace, and move the boundary
    newest = checkpoint.read_newest_listed(store)
    stored = _list_commits(store)
    if newest is None or not stored:
        return CleanUp(current.boundary, 0, 0)
    if current.boundary > newest.version:  # as after a restore of the root: it is not of this log
        why = f"the boundary {current.boundary} is beyond the newest checkpoint, {newest.version}; run `sparklog fsck`"
        return CleanUp(current.boundary, 0, 0, f"no commits are removed: {why}")
    if not checkpoint.is_whole(store, newest):
        why = f"no commits are removed: the checkpoint {newest.version} lacks files; `sparklog fsck` names them"
        return CleanUp(current.boundary, 0, 0, why)
    store.sync(CHECKPOINTS)  # its writer may have been killed before it did
    if not is_of_log(store, newest):  # as of a mirror's former root: it replaces none of these commits
        why = f"no commits are removed: the checkpoint {newest.version} is not of this log; the next one replaces it"
        return CleanUp(current.boundary, 0, 0, why)
    holds = partial(are_commits_replaced, store, newest)
    oldest = min(
        (commit.version for commit in stored if commit.version > current.boundary), default=current.boundary + 1
    )
    boundary = _repair_boundary(store, oldest - 1, newest.version, holds)
    kept = [commit for commit in stored if commit.version > boundary.boundary]
    config = ClusterConfig.resolve(configs)
    excess = sum(commit.size for commit in kept) - _or_unlimited(config.metadata_max_retention_bytes)
    stored_before_ms = clock.now_ms() - settings.min_commit_age_ms
    last_due = newest.version - settings.min_commits_kept
    due = [
        commit.version
        for commit in takewhile(lambda commit: commit.modified_ms < stored_before_ms, kept)
        if commit.version <= last_due
    ]
    old_enough = _count_older(store, due, stored_before_ms)
    max_age_ms = _or_unlimited(config.metadata_max_retention_ms)
    by_age = _count_older(store, due[:old_enough], clock.now_ms() - max_age_ms)
    by_size = 0
    for commit in kept[:old_enough]:
        if excess <= 0:
            break
        excess -= commit.size
        by_size += 1
    count = max(by_age, by_size)
    if count and not is_current():
        why = "no commits are removed: metadata.max.retention.ms or .bytes was changed meanwhile; the next run decides"
        return CleanUp(boundary.boundary, 0, 0, why)
    if count:
        removed_bytes = sum(commit.size for commit in kept[:count])
        last = due[count - 1]
        boundary = _advance(store, _boundary_after(boundary, last, removed_bytes, _time_of(store, last)), holds)
    passed = min(boundary.boundary, newest.version)  # another clean-up may have moved it for a newer checkpoint
    removed = [commit.version for commit in stored if commit.version <= passed]
    may_remove = partial(_are_removable, store, newest, passed)
    deleted = delete_while(store, map(commit_key, removed), may_remove)
    if deleted < len(removed):
        why = f"the root no longer has the boundary {passed}, or the checkpoint {newest.version} that replaces them"
        return CleanUp(boundary.boundary, deleted, 0, f"the removal of commits was stopped: {why}")
    _delete_actions(store, passed, may_remove)
    kept_by = _describe_rewritten(kept, len(due), last_due, stored_before_ms)
    return CleanUp(boundary.boundary, len(removed), remove_checkpoints(store, settings), kept_by)


def _describe_rewritten(kept: Sequence[_StoredCommit], due: int, last_due: int, stored_before_ms: float) -> str:
    """Return which commit keeps itself and later ones since it was stored again, after them; empty if none does."""
    if due >= len(kept) or kept[due].version > last_due:
        return ""
    later = [each for each in kept[due + 1 :] if each.version <= last_due and each.modified_ms < stored_before_ms]
    if not later:
        return ""
    return (
        f"commit {kept[due].version} and those after it are kept for now: {commit_key(kept[due].version)} was stored "
        f"again after commit {later[-1].version}, by a restore or by mistake"
    )


def remove_some_commits(
    store: Store,
    clock: Times,
    configs: Mapping[str, str],
    newest: checkpoint.Manifest,
    settings: LogSettings,
    is_current: Callable[[], bool] = lambda: True,
) -> int:
    """Remove at most ``settings.commits_removed_inline`` commits, right after this checkpoint was stored.

    ``configs`` and ``is_current`` as for ``clean_up``. Returns how many. Three small reads if none is due. Raises
    StorageError, CorruptMetadataError.
    """
    current = read_boundary_file(store)
    holds = partial(are_commits_replaced, store, newest)
    start = current.boundary + 1
    most = current.boundary + settings.commits_removed_inline
    for end in _steps(start, min(newest.version - settings.min_commits_kept, most)):
        try:
            data = store.get(commit_key(end), limits.MAX_COMMIT_BYTES)
        except ObjectNotFoundError:  # removed by another clean-up; a late one may have set the boundary back
            _repair_boundary(store, end, newest.version, holds)
            return 0
        timestamp_ms = decode_commit(data, end)[0].timestamp
        age_ms = clock.now_ms() - timestamp_ms
        config = ClusterConfig.resolve(configs)
        max_age_ms = _or_unlimited(config.metadata_max_retention_ms)
        too_many = newest.commit_bytes - current.removed_bytes > _or_unlimited(config.metadata_max_retention_bytes)
        is_due = age_ms > settings.min_commit_age_ms and (age_ms > max_age_ms or too_many)
        is_due = is_due and _is_stored_for_long(store, end, clock, settings.min_commit_age_ms)
        # a checkpoint of another timeline, which a stalled writer left there, would be taken for the log's
        if is_due and checkpoint.is_whole(store, newest) and checkpoint.read_newest_listed(store) == newest:
            keys = [commit_key(version) for version in range(start, end + 1)]
            size = sum(map_parallel(lambda key: _size(store, key), keys, store.parallel_requests))
            after = _boundary_after(current, end, size, timestamp_ms)
            if not is_current() or _advance(store, after, holds).boundary < end:
                return 0
            may_remove = partial(_are_removable, store, newest, end)
            deleted = delete_while(store, keys, may_remove)
            _delete_actions(store, end, may_remove)
            return deleted
    return 0


def _are_removable(store: Store, newest: checkpoint.Manifest, last: int) -> bool:
    """Return whether commits up to ``last`` are replaced in the log that is at the root now, and its boundary says that
    they are removed: a root that was restored from before has the checkpoint, too, and misses them."""
    return read_boundary(store) >= last and are_commits_replaced(store, newest)


class _StoredCommit(NamedTuple):
    """A commit as the storage lists it."""

    version: int
    size: int
    modified_ms: int


def _list_commits(store: Store) -> list[_StoredCommit]:
    """Return the stored commits, oldest first; other files are ignored."""
    listed = ((commit_version(info.key), info.size, info.modified_ms) for info in store.list(COMMITS))
    return sorted(
        _StoredCommit(version, size, modified_ms) for version, size, modified_ms in listed if version is not None
    )


def _is_stored_for_long(store: Store, version: int, clock: Times, age_ms: int) -> bool:
    """Whether a commit, and so all before it, was stored longer than this ago."""
    try:
        modified_ms = store.info(commit_key(version)).modified_ms
    except ObjectNotFoundError:  # another clean-up is at work
        return False
    return clock.now_ms() - modified_ms > age_ms


def _delete_actions(store: Store, boundary: int, holds: Holds) -> None:
    """Delete spilled actions of commits up to the boundary, including those of lost attempts."""
    versions = ((info.key, actions_version(info.key)) for info in store.list(ACTIONS))
    passed = [key for key, version in versions if version is not None and version <= boundary]
    delete_while(store, passed, holds)


def _steps(start: int, last: int) -> Sequence[int]:
    """Return where a bounded removal may end: at the last candidate, or half-way."""
    return [end for end in (last, (start + last) // 2) if end >= start]


def _repair_boundary(store: Store, removed: int, checkpoint_version: int, holds: Holds) -> Boundary:
    """Return the boundary, after advancing it if it is lower than ``removed``, up to where commits are missing."""
    current = read_boundary_file(store)
    if current.boundary >= min(removed, checkpoint_version):
        return current
    return _advance(store, structs.replace(current, boundary=min(removed, checkpoint_version)), holds)


def _advance(store: Store, boundary: Boundary, holds: Holds) -> Boundary:
    """Return the boundary, after advancing it unless it is at least there already, or the root was replaced."""
    current = read_boundary_file(store)
    if current.boundary >= boundary.boundary or not advance_boundary(store, boundary, holds):
        return current
    return boundary


def _boundary_after(current: Boundary, version: int, removed_bytes: int, timestamp_ms: float) -> Boundary:
    """Return the boundary after the removal of commits up to ``version``, committed at this time."""
    times = current.times  # the last one may be ahead if the log's time was reset since
    if timestamp_ms >= 0 and (not times or abs(timestamp_ms - times[-1][1]) >= limits.BOUNDARY_TIMES_EVERY_MS):
        times = (*times, (version, int(timestamp_ms)))[-limits.BOUNDARY_TIMES_KEPT :]
    return Boundary(version, current.removed_bytes + removed_bytes, times)


def newest_version_before(store: Store, version: int, before_ms: int) -> int:
    """Return the newest version up to ``version`` whose commit is known to be older than this time, -1 if none is.

    The times of only some removed commits are known, a quarter of a day apart. After a reset of the log's time an
    earlier version may be returned: what is older than it is older than this time, too.
    """
    boundary = read_boundary_file(store)
    kept = range(boundary.boundary + 1, version + 1)
    older = _count_older(store, kept, before_ms)
    return kept[older - 1] if older else _newest_removed(boundary, before_ms)


def newest_version_at(store: Store, newest: Timed, time_ms: int) -> int:
    """Return the newest version at a time before that of the ``newest`` one, also after a reset of the log's time
    (``time_search``); of removed commits as ``newest_version_before``, which reads fewer commits."""
    boundary = read_boundary_file(store)

    def read_times(versions: Sequence[int]) -> Sequence[float]:
        return map_parallel(partial(_time_of, store), versions, store.parallel_requests)

    found = find_newest(Timed(boundary.boundary, float("-inf")), newest, time_ms, read_times)
    return _newest_removed(boundary, time_ms + 1) if found in (None, boundary.boundary) else found


def _newest_removed(boundary: Boundary, before_ms: int) -> int:
    return max((removed for removed, timestamp_ms in boundary.times if timestamp_ms < before_ms), default=-1)


def _or_unlimited(limit: int) -> float:
    """Return a limit of the configs, of which -1 is none."""
    return limit if limit >= 0 else float("inf")


def _count_older(store: Store, versions: Sequence[int], before_ms: float) -> int:
    """Return how many of these commits are older than this time; by binary search, since times grow. After a reset of
    the log's time it may be fewer: it finds one that is older, and those before it were made before."""
    return bisect_left(versions, before_ms, key=partial(_time_of, store))


def _time_of(store: Store, version: int) -> float:
    try:
        data = store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
    except ObjectNotFoundError:  # removed by another clean-up, so old enough
        return float("-inf")
    return decode_commit(data, version)[0].timestamp


def _size(store: Store, key: str) -> int:
    try:
        return store.info(key).size
    except ObjectNotFoundError:
        return 0


# -- checkpoints


def remove_checkpoints(store: Store, settings: LogSettings, most: int | None = None) -> int:
    """Delete checkpoints replaced long ago, and files that no kept checkpoint names; ``most`` of them, oldest first.

    Returns how many files were deleted. Raises StorageError, CorruptMetadataError.
    """
    files = [info for info in store.list(CHECKPOINTS) if checkpoint_version(info.key) is not None]
    manifests = [info for info in files if manifest_version(info.key) is not None]
    if len(manifests) <= limits.CHECKPOINTS_KEPT:
        return 0
    old_ms = max(info.modified_ms for info in files) - settings.min_checkpoint_age_ms
    kept = _keep_newest(sorted(manifests, reverse=True), old_ms)
    lists, named = ListCache(store), {info.key for info in kept}
    try:
        newest = checkpoint.read_manifest(store, kept[0].key)
        for info in kept:
            manifest = checkpoint.read_manifest(store, info.key)
            named.update(file.key for file in checkpoint.list_files(store, manifest, lists))
    except ObjectNotFoundError:  # deleted by another clean-up since the listing
        return 0
    except CorruptMetadataError as error:
        if not error.missing:
            raise
        return 0  # the same; or its writer stalled, and the files in its lists are unknown: newer ones replace it
    if not checkpoint.is_whole(store, newest, lists):
        return 0  # it does not replace the others
    named.add(boundary_mark_key(marked_boundary(info.key for info in files)))
    unneeded = [
        info.key
        for info in files
        # not one newer than the newest manifest: its writer may have stalled, and name it later
        if info.key not in named and info.modified_ms < old_ms and (checkpoint_version(info.key) or 0) < newest.version
    ]
    is_manifest = {info.key for info in manifests}
    deleted = 0
    for files_too in (False, True):  # manifests first: one that is still there has its files
        keys = sorted(key for key in unneeded if (key not in is_manifest) == files_too)
        keys = keys if most is None else keys[: most - deleted]
        deleted += delete_while(store, keys, partial(is_still_of_log, store, newest))
    return deleted


def _keep_newest(newest_first: Sequence[ObjectInfo], old_ms: int) -> list[ObjectInfo]:
    """Return the newest manifests, and those replaced only recently."""
    kept = list(newest_first[: limits.CHECKPOINTS_KEPT])
    for newer, info in pairwise(newest_first[1:]):
        if newer.modified_ms < old_ms:
            break
        if info not in kept:
            kept.append(info)
    return kept
