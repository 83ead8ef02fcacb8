"""Repairs of the metadata: what can be derived from what is sound, and nothing else.

    cluster.json        written again with the id that the checkpoints hold
    boundary.json       written again, below the first commit that is there, if a checkpoint stands for the rest
    commits             put back from a mirror, where the commits beside them name their digests; where none has those
                        that are missing: what lies beyond the hole is moved out of the way, or, where a checkpoint
                        stands for the hole, the boundary is set to it
    checkpoints         one that is of no use is removed, after a new one was written from the commits
    latest.json         removed where it names nothing of use

Rules: each step leaves a cluster that opens no worse than before, so a repair may be killed and run again. A checkpoint
is removed only while the state of the newest commit is known without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec import structs

from sparklog import limits
from sparklog.errors import CorruptionError, ObjectNotFoundError, UnsupportedVersionError
from sparklog.ids import Ids
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    CLUSTER_KEY,
    COMMITS,
    Boundary,
    commit_version,
    encode_cluster_file,
    read_boundary,
    read_boundary_file,
    write_boundary,
)
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.checkpoint_checks import Checkpoints, KeptCheckpoint
from sparklog.maintenance.fsck.kinds import ERROR, Finding, Repair
from sparklog.maintenance.fsck.log_end import LogUntil, keep_copies, take_out
from sparklog.maintenance.fsck.metadata_checks import Metadata, check_metadata, read_commit
from sparklog.protocol.commit_bytes import decode_actions, decode_commit
from sparklog.protocol.commits import GENESIS_DIGEST, Commit, commit_key
from sparklog.protocol.segments import SegmentEvent
from sparklog.store.base import Store

_NO_STATE = "the state of the newest commit is not known without it"


def repair_metadata(
    store: Store,
    metadata: Metadata,
    ids: Ids,
    mirrors: Sequence[Store] = (),
    dry_run: bool = False,
    files_are_there: bool = False,
) -> Iterator[Repair]:
    """Mend what was found. Raises StorageError; what was done until then stays, and does no harm.

    ``files_are_there``: all data files that the newest state names were found.
    """
    if metadata.newer:
        newer = [finding for finding in metadata.findings if finding.kind == kinds.NEWER_VERSION]
        yield from (_repair("not repaired", finding.path, dry_run, finding.message) for finding in newer)
        return
    for finding in metadata.findings:
        if finding.kind == kinds.CLUSTER_FILE and finding.repairable:
            yield _cluster_file(store, metadata, dry_run)
        elif finding.kind == kinds.DAMAGED_BOUNDARY:
            yield _boundary(store, metadata, dry_run)
        elif finding.kind in (kinds.DAMAGED_COMMIT, kinds.BROKEN_CHAIN, kinds.MISSING_COMMIT):
            repairs = list(_commits(store, finding, metadata, mirrors, dry_run))
            yield from repairs
            if finding.kind == kinds.MISSING_COMMIT and any(repair.why_not for repair in repairs):
                yield from _without(store, finding, metadata, files_are_there, dry_run)
    yield from _checkpoints(store, metadata, ids, dry_run)


def _repair(what: str, path: str, dry_run: bool, why_not: str = "") -> Repair:
    return Repair(what=what, path=path, done=not dry_run and not why_not, why_not=why_not)


def _cluster_file(store: Store, metadata: Metadata, dry_run: bool) -> Repair:
    if not dry_run:
        store.put(CLUSTER_KEY, encode_cluster_file(metadata.state.cluster_id))
    return _repair(f"written for cluster {metadata.state.cluster_id}", CLUSTER_KEY, dry_run)


def _boundary(store: Store, metadata: Metadata, dry_run: bool) -> Repair:
    """Everything below the first commit that is there was removed, or is lost for good: a checkpoint has to stand for
    it either way. A boundary that was higher meant commits that are there now, and may be there."""
    boundary = metadata.first - 1
    if not metadata.is_whole:
        return _repair("not repaired", BOUNDARY_KEY, dry_run, "no checkpoint stands for the commits that are not there")
    if boundary < 0:
        if not dry_run:
            store.delete(BOUNDARY_KEY)
        return _repair("removed: no commit was ever removed", BOUNDARY_KEY, dry_run)
    if not dry_run:
        write_boundary(store, Boundary(boundary=boundary))
    return _repair(f"written as {boundary}", BOUNDARY_KEY, dry_run)


# -- commits


def _commits(
    store: Store, finding: Finding, metadata: Metadata, mirrors: Sequence[Store], dry_run: bool
) -> Iterator[Repair]:
    """The last of several first: each is vouched for by the one after it, which is there or has just been put back."""
    first = finding.version
    last = _last_missing(store, metadata, first) if finding.kind == kinds.MISSING_COMMIT else first
    if finding.kind == kinds.BROKEN_CHAIN and any(_is_same(store, mirror, first) for mirror in mirrors):
        first = last = first - 1  # of two that do not fit, it is the other one
    for version in range(last, first - 1, -1):
        repair = _commit(store, version, metadata, mirrors, dry_run)
        yield repair
        if repair.why_not:
            return


def _last_missing(store: Store, metadata: Metadata, first: int) -> int:
    """The end of the row of missing commits that begins there."""
    present = (commit_version(info.key) for info in store.list(COMMITS))
    return min((version - 1 for version in present if version is not None and version > first), default=metadata.last)


def _without(
    store: Store, finding: Finding, metadata: Metadata, files_are_there: bool, dry_run: bool
) -> Iterator[Repair]:
    """Let the log go on without commits that nobody has: from before them, or from the checkpoint that has them."""
    end = metadata.state.version
    beyond = [one.version for one in metadata.findings if one.kind == kinds.COMMITS_BEYOND_THE_END]
    if finding.version == end + 1 and beyond:
        if not _follows(store, beyond[0]):  # nobody has filled the hole since, up to what follows it
            yield from take_out(store, end, beyond[0], dry_run)
    elif metadata.is_whole and finding.version <= end:
        yield from _pass_over(store, finding, metadata, files_are_there, dry_run)


def _follows(store: Store, version: int) -> bool:
    """Whether a commit follows the one before it, and both are there."""
    before, commit = read_commit(store, version - 1), read_commit(store, version)
    return before is not None and commit is not None and commit[0].previous == before[1]


def _pass_over(
    store: Store, finding: Finding, metadata: Metadata, files_are_there: bool, dry_run: bool
) -> Iterator[Repair]:
    """Set the boundary to the last missing commit, so that nobody takes those before them for the end of the log.

    What was committed after the checkpoint before the hole is kept as a copy first: clean-ups remove commits up to the
    boundary, and whether these are of the same history as the later checkpoint nothing can tell.
    """
    first, last = finding.version, _last_missing(store, metadata, finding.version)
    if not files_are_there:
        why = "data files that the checkpoint names were not found or not looked for, so it may be of another history"
        yield _repair("not written", BOUNDARY_KEY, dry_run, why)
        return
    older = max((kept.version for kept in metadata.checkpoints if kept.is_sound and kept.version < first), default=-1)
    present = {version for info in store.list(COMMITS) if (version := commit_version(info.key)) is not None}
    yield from keep_copies(store, sorted(version for version in present if older < version < first), dry_run)
    known = read_boundary_file(store)
    if not dry_run and known.boundary < last:
        write_boundary(store, structs.replace(known, boundary=last))
    yield _repair(f"written as {last}: the checkpoint after it stands for what is missing", BOUNDARY_KEY, dry_run)


def end_log_at(store: Store, end: int, dry_run: bool = False) -> Iterator[Repair]:
    """Take everything after version ``end`` out of the log, if the state of that version is known without it.

    For a root that was put back to an older state, where commits of two histories meet. Raises StorageError.
    """
    found = check_metadata(cast(Store, LogUntil(store, end)))
    errors = [finding.message for finding in found.findings if finding.severity == ERROR]
    if read_boundary(store) > end:
        why = f"commits up to {read_boundary(store)} were removed, so it cannot end at {end}"
    elif found.newer or errors or found.state.version != end:
        why = f"the state of version {end} is not known: {(errors or ['it is not there'])[0]}"
    else:
        yield from take_out(store, end, end + 1, dry_run)
        return
    yield _repair("not ended", COMMITS, dry_run, why)


def _is_same(store: Store, mirror: Store, version: int) -> bool:
    ours = read_commit(store, version)
    return ours is not None and ours == read_commit(mirror, version)


def _bytes_of(store: Store, version: int) -> bytes | None:
    """What lies under a commit's name, whatever it is; None where nothing does."""
    try:
        return store.get(commit_key(version))
    except ObjectNotFoundError:
        return None


def _commit(store: Store, version: int, metadata: Metadata, mirrors: Sequence[Store], dry_run: bool) -> Repair:
    key = commit_key(version)
    present = _bytes_of(store, version)
    why = "no mirror of the commit log was given"
    for mirror in mirrors:
        try:
            data = mirror.get(key, limits.MAX_COMMIT_BYTES)
            commit, digest = decode_commit(data, version)
            beside = _beside(mirror, commit)
        except (CorruptionError, ObjectNotFoundError, UnsupportedVersionError) as error:
            why = str(error)
            continue
        why = _contradicted(store, mirror, commit, digest, metadata, assumed=dry_run and version < metadata.last)
        if not why and not dry_run:
            if commit.spilled is not None:  # before the commit that names it
                store.put(commit.spilled.path, beside)
            why = _put(store, key, data, present)
        if not why:
            return _repair(f"put back from {mirror.root}", key, dry_run)
    return _repair("not repaired", key, dry_run, why)


def _beside(mirror: Store, commit: Commit) -> bytes:
    """The object with a commit's actions, empty where it holds them. Raises ObjectNotFoundError, CorruptionError."""
    if commit.spilled is None:
        return b""
    data = mirror.get(commit.spilled.path, limits.MAX_SPILLED_ACTIONS_BYTES)
    decode_actions(data, commit.spilled, commit.version)
    return data


def _put(store: Store, key: str, data: bytes, present: bytes | None) -> str:
    """Put a commit in its place, unless somebody else has done something about it: why it was not done."""
    if present is None:
        if create_object(store, key, data, limits.MAX_COMMIT_BYTES) != data:
            return "somebody has created this commit meanwhile"
    elif store.get(key) != present:
        return "somebody has changed this commit meanwhile"
    else:
        store.put(key, data)
    return ""


def _contradicted(store: Store, mirror: Store, commit: Commit, digest: str, metadata: Metadata, assumed: bool) -> str:
    """Why a mirror's commit cannot be the one of this log: a neighbour of it, or a checkpoint, says otherwise.

    ``assumed``: in a dry run the commit after it would have been put back by now.
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


def _checkpoints(store: Store, metadata: Metadata, ids: Ids, dry_run: bool) -> Iterator[Repair]:
    bad = [kept for kept in metadata.checkpoints if not kept.is_sound]
    if bad and not metadata.is_whole:
        for kept in bad:
            yield _repair("not removed", kept.key, dry_run, _NO_STATE)
        return
    sound = [kept for kept in metadata.checkpoints if kept.is_sound]
    if bad and max(kept.version for kept in bad) > max((kept.version for kept in sound), default=-1):
        yield _write_new(store, metadata, ids, dry_run)
    for kept in bad:
        yield from _remove(store, kept, sound, dry_run)
    if any(finding.kind == kinds.STALE_HINT for finding in metadata.findings):
        yield from _hint(store, dry_run)


def _write_new(store: Store, metadata: Metadata, ids: Ids, dry_run: bool) -> Repair:
    what = f"a checkpoint of version {metadata.state.version} written from the commits"
    if dry_run:
        return _repair(what, CHECKPOINTS, dry_run)
    lists: dict[str, list[SegmentEvent]] = {}
    for topic in metadata.state.topics_in_order():
        numbers = range(len(topic.partitions))
        lists[topic.topic_id] = [s for number in numbers for s in metadata.lists[topic.name].partition(number)]
    written = checkpoint.write_checkpoint(store, ids, metadata.state, None, lists)
    return _repair(what, written.heads.key.removesuffix(".heads") + ".json", dry_run)


def _remove(store: Store, kept: KeptCheckpoint, sound: Sequence[KeptCheckpoint], dry_run: bool) -> Iterator[Repair]:
    """The manifest first, so that nobody begins to read it; then its files, but for those of sound checkpoints."""
    if not dry_run:
        store.delete(kept.key)
    yield _repair("removed: the commits stand for it", kept.key, dry_run)
    if kept.manifest is None:
        return  # its files are left for a vacuum: which they are, it does not say
    needed = {key for other in sound for key in _files(other)}
    for key in sorted(_files(kept) - needed):
        if not dry_run:
            store.delete(key)


def _files(kept: KeptCheckpoint) -> set[str]:
    if kept.manifest is None:
        return set()
    return {file.key for file in kept.files}


def _hint(store: Store, dry_run: bool) -> Iterator[Repair]:
    """Unless it is right by now."""
    if dry_run or Checkpoints(store).hint_fault() is not None:
        if not dry_run:
            store.delete(LATEST_KEY)
        yield _repair("removed: it named nothing of use", LATEST_KEY, dry_run)
