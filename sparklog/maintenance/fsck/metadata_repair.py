"""Repairs the metadata, only with what can be derived from sound objects.

    cluster.json        written again with the id from the checkpoints
    boundary.json       written again, below the first commit that exists, if a checkpoint covers the rest
    commits             put back from a mirror, if the neighbouring commits name their digests; if no mirror has the
                        missing ones, the commits beyond the hole are moved away or, if a checkpoint covers the hole,
                        the boundary is set to it
    checkpoints         a damaged one is removed, after a new one was written from the commits
    latest.json         removed if it names no sound checkpoint

Rules: after each step the cluster opens no worse than before, so a repair may be killed and run again. A checkpoint is
removed only while the state of the newest commit is known without it.
Not for: data files (``file_repair``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec import structs

from sparklog import limits
from sparklog.errors import CorruptionError, CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError
from sparklog.ids import Ids
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.checkpoints.usable_checkpoints import is_still_there
from sparklog.log.commits import commit_files
from sparklog.log.commits.removal import advance_boundary, correct_boundary, delete_while
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    CLUSTER_KEY,
    COMMITS,
    commit_version,
    encode_cluster_file,
    exists,
    read_boundary,
    read_boundary_file,
)
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.checkpoint_checks import Checkpoints, KeptCheckpoint
from sparklog.maintenance.fsck.kinds import ERROR, Finding, Repair
from sparklog.maintenance.fsck.log_end import CHANGED_LOG, LogUntil, find_beyond, keep_copies, keep_replaced, take_out
from sparklog.maintenance.fsck.metadata_checks import FoundMetadata, check_metadata, read_commit
from sparklog.protocol.commit_bytes import decode_actions, decode_commit
from sparklog.protocol.commits import GENESIS_DIGEST, Commit, commit_key
from sparklog.protocol.segments import SegmentEvent
from sparklog.store.base import Store

_DAMAGE = {
    kinds.DAMAGED_COMMIT,
    kinds.MISSING_COMMIT,
    kinds.BROKEN_CHAIN,
    kinds.LOST_HISTORY,
    kinds.COMMITS_BEYOND_THE_END,
}
"""Findings about the commits themselves: at each of them the log can be ended."""
_CHANGED = "another process changed this commit in the meantime"
_NO_STATE = "the state of the newest commit is not known without it"


def repair_metadata(
    store: Store,
    metadata: FoundMetadata,
    ids: Ids,
    mirrors: Sequence[Store] = (),
    dry_run: bool = False,
    files_are_there: bool = False,
) -> Iterator[Repair]:
    """Repair what the check found. Raises StorageError; repairs made by then remain, and do no harm.

    ``files_are_there``: all data files that the newest state names exist.
    """
    if metadata.newer:
        newer = [finding for finding in metadata.findings if finding.kind == kinds.NEWER_VERSION]
        yield from (_repair("not repaired", finding.path, dry_run, finding.message) for finding in newer)
        return
    for finding in metadata.findings:
        if finding.kind == kinds.CLUSTER_FILE and finding.repairable:
            yield _write_cluster_file(store, metadata, dry_run)
        elif finding.kind == kinds.DAMAGED_BOUNDARY:
            yield _repair_boundary(store, metadata, dry_run)
        elif finding.kind in (kinds.DAMAGED_COMMIT, kinds.BROKEN_CHAIN, kinds.MISSING_COMMIT):
            repairs = list(_restore_commits(store, finding, metadata, mirrors, dry_run))
            yield from repairs
            if finding.kind == kinds.MISSING_COMMIT and any(repair.why_not for repair in repairs):
                yield from _continue_without(store, finding, metadata, files_are_there, dry_run)
    yield from _repair_checkpoints(store, metadata, ids, dry_run)


def _repair(what: str, path: str, dry_run: bool, why_not: str = "") -> Repair:
    return Repair(what=what, path=path, done=not dry_run and not why_not, why_not=why_not)


def _write_cluster_file(store: Store, metadata: FoundMetadata, dry_run: bool) -> Repair:
    if not dry_run and not _put_cluster_file(store, metadata):
        return _repair("not written", CLUSTER_KEY, dry_run, CHANGED_LOG)
    return _repair(f"written for cluster {metadata.state.cluster_id}", CLUSTER_KEY, dry_run)


def _put_cluster_file(store: Store, metadata: FoundMetadata) -> bool:
    """Store cluster.json, unless the root has another log since; return whether it is there."""
    data = encode_cluster_file(metadata.state.cluster_id)
    present = _get(store, CLUSTER_KEY)
    if present == data or not _still_holds(store, metadata):
        return present == data
    if present is not None and not store.delete_exactly(CLUSTER_KEY, present):
        store.put(CLUSTER_KEY, data)
        return True
    return create_object(store, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) == data


def _get(store: Store, key: str) -> bytes | None:
    """Return an object, which may be damaged; None if there is none."""
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None


def _repair_boundary(store: Store, metadata: FoundMetadata, dry_run: bool) -> Repair:
    """Write the boundary below the first commit that exists.

    All commits before it were removed, or are lost: either way a checkpoint has to cover them. If the boundary was
    higher, some commits that exist were due for removal; keeping them does no harm.
    """
    why = "" if metadata.is_whole else "no checkpoint covers the commits that are missing"
    if not why and not _still_holds(store, metadata):
        why = CHANGED_LOG
    if why:
        return _repair("not repaired", BOUNDARY_KEY, dry_run, why)
    sound = [kept for kept in metadata.checkpoints if kept.is_sound]
    newest = max(sound, key=lambda kept: kept.version).manifest if sound else None
    boundary = correct_boundary(store, newest, dry_run)
    if boundary is None:
        return _repair("not repaired", BOUNDARY_KEY, dry_run, "no checkpoint covers the commits that are missing")
    if boundary < 0:
        return _repair("removed: no commit was ever removed", BOUNDARY_KEY, dry_run)
    return _repair(f"written as {boundary}", BOUNDARY_KEY, dry_run)


def _still_holds(store: Store, metadata: FoundMetadata) -> bool:
    """Whether the log still has the newest state that was checked: another repair may have ended it, or a restore.

    By its commit; or, where that was removed, by the checkpoint of its version.
    """
    state = metadata.state
    stored = read_commit(store, state.version)
    if stored is not None:
        return stored[1] == state.digest
    of_version = [kept for kept in metadata.checkpoints if kept.is_sound and kept.version == state.version]
    return state.version < 0 or any(exists(store, kept.key) for kept in of_version)


# -- commits


def _restore_commits(
    store: Store, finding: Finding, metadata: FoundMetadata, mirrors: Sequence[Store], dry_run: bool
) -> Iterator[Repair]:
    """Put back the commits of a finding, the last one first: the commit after it, which exists or was just put back,
    vouches for each."""
    first = finding.version
    last = _last_missing(store, metadata, first) if finding.kind == kinds.MISSING_COMMIT else first
    if finding.kind == kinds.BROKEN_CHAIN:
        stored = read_commit(store, first)
        if stored is not None and any(read_commit(mirror, first) == stored for mirror in mirrors):
            first = last = first - 1  # of the two commits that do not fit, the other one was edited
    for version in range(last, first - 1, -1):
        repair = _restore_commit(store, version, metadata, mirrors, dry_run)
        yield repair
        if repair.why_not:
            return


def _last_missing(store: Store, metadata: FoundMetadata, first: int) -> int:
    """Return the last of the consecutive missing commits from ``first`` on."""
    present = (commit_version(info.key) for info in store.list(COMMITS))
    return min((version - 1 for version in present if version is not None and version > first), default=metadata.last)


def _continue_without(
    store: Store, finding: Finding, metadata: FoundMetadata, files_are_there: bool, dry_run: bool
) -> Iterator[Repair]:
    """Let the log continue without commits that are lost: from before them, or from a checkpoint that covers them."""
    end = metadata.state.version
    beyond = [other.version for other in metadata.findings if other.kind == kinds.COMMITS_BEYOND_THE_END]
    if finding.version == end + 1 and beyond:
        found = find_beyond(store, beyond[0])
        after = read_commit(store, beyond[0])

        def holds(_: int) -> bool:  # and the hole was not filled since, up to the commit after it
            before = read_commit(store, beyond[0] - 1)
            is_filled = before is not None and (after is None or after[0].previous == before[1])
            return _ends_there(store, metadata) and not is_filled

        if holds(beyond[0]):
            yield from take_out(store, end, beyond[0], found, holds, dry_run)
    elif metadata.is_whole and finding.version <= end:
        yield from _move_boundary(store, finding, metadata, files_are_there, dry_run)


def _ends_there(store: Store, metadata: FoundMetadata) -> bool:
    """Whether the log still has the newest state that was checked, and none of a later boundary."""
    return _still_holds(store, metadata) and read_boundary(store) <= metadata.state.version


def _move_boundary(
    store: Store, finding: Finding, metadata: FoundMetadata, files_are_there: bool, dry_run: bool
) -> Iterator[Repair]:
    """Set the boundary to the last missing commit, so that no process takes the commit before the hole for the end.

    The commits between the last checkpoint before the hole and the hole are copied first: clean-ups remove commits up
    to the boundary, and it is unknown whether they are of the same timeline as the later checkpoint.
    """
    first, last = finding.version, _last_missing(store, metadata, finding.version)
    if not files_are_there:
        why = "data files that the checkpoint names are missing or were not checked, so it may be of another timeline"
        yield _repair("not written", BOUNDARY_KEY, dry_run, why)
        return
    older = max((kept.version for kept in metadata.checkpoints if kept.is_sound and kept.version < first), default=-1)
    present = {version for info in store.list(COMMITS) if (version := commit_version(info.key)) is not None}
    yield from keep_copies(store, sorted(version for version in present if older < version < first), dry_run)
    stored = read_boundary_file(store)
    covering = [kept for kept in metadata.checkpoints if kept.is_sound and kept.version >= last]

    def holds() -> bool:
        return any(kept.manifest is not None and is_still_there(store, kept.manifest) for kept in covering)

    if not dry_run and stored.boundary < last:
        if not advance_boundary(store, structs.replace(stored, boundary=last), holds):
            why = "the checkpoint that covers what is missing was removed in the meantime: check it again"
            yield _repair("not written", BOUNDARY_KEY, dry_run, why)
            return
        since = [version for info in store.list(COMMITS) if (version := commit_version(info.key)) is not None]
        written_since = [version for version in sorted(since) if older < version <= last and version not in present]
        yield from keep_copies(store, written_since)
    yield _repair(f"written as {last}: the checkpoint after it covers what is missing", BOUNDARY_KEY, dry_run)


def end_log_at(store: Store, end: int, dry_run: bool = False) -> Iterator[Repair]:
    """Remove everything after version ``end`` from the log, if the state of that version is known without it, and the
    log is damaged after it.

    For a root that was restored to an older state, and has commits of two timelines. Raises StorageError.
    """
    metadata = check_metadata(cast(Store, LogUntil(store, end)))
    found = find_beyond(store, end + 1)
    reached = _find_reach(store, metadata)
    whole = check_metadata(store)
    ends = _ends_before_damage(whole)

    def holds(version: int) -> bool:  # and the damage was not mended since, so that the log goes on to this version
        now = _find_reach(store, metadata)
        return _ends_there(store, metadata) and (now <= reached or now < version)

    errors = [finding.message for finding in metadata.findings if finding.severity == ERROR]
    if read_boundary(store) > end:
        why = f"commits up to {read_boundary(store)} were removed, so it cannot end at {end}"
    elif metadata.newer or errors or metadata.state.version != end:
        why = f"the state of version {end} is not known: {(errors or ['it does not exist'])[0]}"
    elif end not in ends:
        last = f"; the log can end at {', '.join(map(str, sorted(ends)))}" if ends else ""
        why = f"commit {end + 1} is sound, and so an acknowledged write{last}"
        if end < whole.continued:
            why = f"the checkpoint of version {whole.continued} covers what is damaged; the log goes on after it{last}"
    else:
        yield from take_out(store, end, end + 1, found, holds, dry_run)
        return
    yield _repair("not ended", COMMITS, dry_run, why)


def _find_reach(store: Store, metadata: FoundMetadata) -> int:
    """Return the last version to which whole commits lead on from the newest state that was checked."""
    version, digest = metadata.state.version, metadata.state.digest
    while True:
        try:
            stored = commit_files.read_commit(store, version + 1)
        except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
            return version
        if stored.commit.previous != digest:
            return version
        version, digest = version + 1, stored.digest


def _ends_before_damage(metadata: FoundMetadata) -> set[int]:
    """Return the versions after which the log is damaged. Of two commits that do not fit, either may be wrong.

    Commits that follow a checkpoint which covers damaged ones before it are acknowledged writes of a log that goes on.
    """
    goes_on = metadata.last > metadata.continued
    damage = [each for each in metadata.findings if each.kind in _DAMAGE and (each.severity == ERROR or not goes_on)]
    forks = [finding.version for finding in damage if finding.kind == kinds.BROKEN_CHAIN]
    return {finding.version - 1 for finding in damage}.union(forks)


def _restore_commit(
    store: Store, version: int, metadata: FoundMetadata, mirrors: Sequence[Store], dry_run: bool
) -> Repair:
    key = commit_key(version)
    present = _get(store, key)
    why = "no mirror of the commit log was given"
    for mirror in mirrors:
        try:
            data = mirror.get(key, limits.MAX_COMMIT_BYTES)
            commit, digest = decode_commit(data, version)
            spilled = _read_spilled(mirror, commit)
        except (CorruptionError, ObjectNotFoundError, UnsupportedVersionError) as error:
            why = str(error)
            continue
        why = _contradiction(store, mirror, commit, digest, metadata, assumed=dry_run and version < metadata.last)
        if not why and not dry_run:
            if commit.spilled is not None:  # before the commit that names it
                store.put(commit.spilled.path, spilled)
            why = _put_commit(store, key, data, present)
        if not why:
            return _repair(f"put back from {mirror.root}", key, dry_run)
    return _repair("not repaired", key, dry_run, why)


def _read_spilled(mirror: Store, commit: Commit) -> bytes:
    """Return the bytes of a commit's spilled actions; empty if it has none. Raises ObjectNotFoundError,
    CorruptionError."""
    if commit.spilled is None:
        return b""
    data = mirror.get(commit.spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES)
    decode_actions(data, commit.spilled, commit.version)
    return data


def _put_commit(store: Store, key: str, data: bytes, present: bytes | None) -> str:
    """Store a commit, unless it has changed in the meantime; return why it was not stored, or an empty text."""
    if present is None:
        if create_object(store, key, data, limits.MAX_COMMIT_BYTES) != data:
            return "another process created this commit in the meantime"
    elif store.get(key) != present:
        return _CHANGED
    else:
        keep_replaced(store, key, present)
        if store.get(key) != present:  # a repair that was suspended: others may have taken the number
            return _CHANGED
        store.put(key, data)  # at once: a repair that was killed between a deletion and a create would free the number
    return ""


def _contradiction(
    store: Store, mirror: Store, commit: Commit, digest: str, metadata: FoundMetadata, assumed: bool
) -> str:
    """Return why a mirror's commit cannot be the one of this log, by its neighbours and checkpoints; else an empty
    text.

    ``assumed``: a dry run, in which the commit after it would have been put back by now.
    """
    version = commit.version
    before, after = read_commit(store, version - 1), read_commit(store, version + 1)
    earlier = before or read_commit(mirror, version - 1)
    if commit.previous != (GENESIS_DIGEST if version == 0 else earlier[1] if earlier else commit.previous):
        return f"the mirror's commit {version} does not follow commit {version - 1}"
    if after is not None and after[0].previous != digest:
        return f"commit {version + 1} does not follow the mirror's commit {version}"
    stated = {kept.state.digest for kept in metadata.checkpoints if kept.version == version and kept.state}
    if stated and digest not in stated:
        return f"the checkpoint of version {version} is not that of the mirror's commit"
    if after is None and not stated and before is None and not assumed:
        return f"nothing vouches for the mirror's commit {version}"
    return ""


# -- checkpoints


def _repair_checkpoints(store: Store, metadata: FoundMetadata, ids: Ids, dry_run: bool) -> Iterator[Repair]:
    bad = [kept for kept in metadata.checkpoints if not kept.is_sound]
    if bad and not metadata.is_whole:
        for kept in bad:
            yield _repair("not removed", kept.key, dry_run, _NO_STATE)
        return
    sound = [kept for kept in metadata.checkpoints if kept.is_sound]
    if bad and max(kept.version for kept in bad) > max((kept.version for kept in sound), default=-1):
        yield _write_new(store, metadata, ids, dry_run)
    for kept in bad:
        yield from _remove(store, kept, sound, metadata, dry_run)
    if any(finding.kind == kinds.STALE_HINT for finding in metadata.findings):
        yield from _remove_hint(store, dry_run)


def _write_new(store: Store, metadata: FoundMetadata, ids: Ids, dry_run: bool) -> Repair:
    what = f"a checkpoint of version {metadata.state.version} written from the commits"
    if dry_run:
        return _repair(what, CHECKPOINTS, dry_run)
    lists: dict[str, list[SegmentEvent]] = {}
    for topic in metadata.state.topics_in_order():
        numbers = range(len(topic.partitions))
        lists[topic.topic_id] = [s for number in numbers for s in metadata.lists[topic.name].partition(number)]
    written = checkpoint.write_checkpoint(store, ids, metadata.state, None, lists)
    if not _still_holds(store, metadata):
        checkpoint.withdraw(store, written)
        return _repair("not written", CHECKPOINTS, dry_run, CHANGED_LOG)
    return _repair(what, written.heads.key.removesuffix(".heads") + ".json", dry_run)


def _remove(
    store: Store, kept: KeptCheckpoint, sound: Sequence[KeptCheckpoint], metadata: FoundMetadata, dry_run: bool
) -> Iterator[Repair]:
    """Remove a checkpoint: the manifest first, so that no process starts to read it; then its files, except those of
    sound checkpoints. If the manifest cannot be read, its files are not known, and are left to a vacuum."""
    needed = {file.key for other in sound for file in other.files}
    keys = [kept.key, *sorted({file.key for file in kept.files} - needed)]
    if not dry_run and delete_while(store, keys, lambda: _still_holds(store, metadata)) < len(keys):
        yield _repair("not removed", kept.key, dry_run, CHANGED_LOG)
        return
    yield _repair("removed: the commits cover it", kept.key, dry_run)


def _remove_hint(store: Store, dry_run: bool) -> Iterator[Repair]:
    """Remove latest.json, unless it was corrected in the meantime."""
    if dry_run or Checkpoints(store).hint_fault() is not None:
        if not dry_run:
            store.delete(LATEST_KEY)
        yield _repair("removed: it named no sound checkpoint", LATEST_KEY, dry_run)
