"""Removes objects of a root, or moves its boundary, only while the root has the timeline on which that was decided.

A clean-up or a repair decides on what it has read. It may be suspended before it acts, and the root be restored from a
copy meanwhile: the same names are then in use again, and what was replaced is the only copy. No storage can condition a
deletion on another object. So each process looks again, right before each batch, for what it decided on: the checkpoint
or the commit, by its content. A batch is what is sent at one moment, so that a process that resumes sends one at most,
and puts that back where it can.

Rules: what was decided on is missing: nothing more is deleted; the next run decides on what is there then. A boundary
that turns out to be of another timeline is taken back at once; if its process dies before that, the cluster is refused,
and ``sparklog fsck --repair`` corrects the boundary.

Not for: what may be removed (``cleanup``, ``maintenance``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError, StorageError, UnsupportedVersionError
from sparklog.log.checkpoints.checkpoint import Manifest, decode_manifest
from sparklog.log.checkpoints.usable_checkpoints import is_of_log, read_newest_of_log
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    COMMITS,
    Boundary,
    boundary_mark_key,
    checkpoint_version,
    commit_version,
    exists,
    is_boundary_mark,
    manifest_version,
    read_boundary_file,
    write_boundary,
)
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commit_bytes import decode_commit, stored_digest
from sparklog.protocol.commits import commit_key
from sparklog.retry import ATTEMPTS
from sparklog.store.base import Deleted, Store

Holds = Callable[[], bool]
"""Whether what a decision was based on is still at the root. Raises StorageError."""


def delete_while(store: Store, keys: Iterable[str], holds: Holds) -> int:
    """Delete objects, in order, as long as ``holds``; return how many were deleted. Raises StorageError.

    Where requests are cheap, an object is read before that look, only these bytes are deleted if the storage can
    condition it, and they are put back if the look after it fails and the log that is there now needs them. Elsewhere
    a look costs more than it saves; what is on its way when the root is replaced is lost there.
    """
    left, at_a_time = list(keys), max(1, store.parallel_requests)
    deleted: dict[str, bytes] = {}
    starts: list[int] = [*range(0, len(left), at_a_time), len(left)]
    for first in starts:
        batch = left[first : first + at_a_time]
        known = {key: _read(store, key) for key in batch} if at_a_time == 1 else {}
        if (batch or deleted) and not holds():
            for key, lost in deleted.items():
                _put_back(store, key, lost)
            return first
        done = map_parallel(partial(_delete, store, known), batch, at_a_time)
        deleted = {
            key: data for key, is_deleted in zip(batch, done, strict=True) if is_deleted and (data := known.get(key))
        }
    return len(left)


def _read(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None


def _delete(store: Store, known: Mapping[str, bytes | None], key: str) -> bool:
    """Delete an object; return whether it was there, or may have been."""
    data = known.get(key)
    if key in known and data is None:  # removed by another process; in a root that was restored since it may exist
        return False
    deleted = store.delete_exactly(key, data) if data is not None else Deleted.NO
    if not deleted:
        store.delete(key)
    return deleted is not Deleted.BEFORE


def _put_back(store: Store, key: str, data: bytes) -> None:
    """``put_back_if_needed``, repeated: nobody else has these bytes."""
    for attempt in range(ATTEMPTS):
        try:
            return put_back_if_needed(store, key, data)
        except StorageError:
            if attempt == ATTEMPTS - 1:
                raise


def put_back_if_needed(store: Store, key: str, data: bytes) -> None:
    """Put an object back that was deleted from a root that was restored in the same moment.

    Its name may be unique, then nothing else is stored under it. A commit is needed if it follows the one before, or
    the next one names it; a manifest if it is of the log that is there now; other files do no harm.
    """
    if is_boundary_mark(key) or exists(store, key):  # a mark would bind a log that it is not of
        return
    version = commit_version(key)
    if version is not None:
        if names_before(store, version + 1, stored_digest(data)) or _follows(store, version, data):
            create_object(store, key, data, limits.MAX_COMMIT_BYTES)
    elif manifest_version(key) is None or is_of_log(store, decode_manifest(data)):
        store.put(key, data)


def _follows(store: Store, version: int, data: bytes) -> bool:
    """Return whether the commit before this one is stored, and what this one follows. Raises StorageError."""
    try:
        previous = decode_commit(data, version)[0].previous
        return stored_digest(store.get(commit_key(version - 1), limits.MAX_COMMIT_BYTES)) == previous
    except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
        return False


def names_before(store: Store, version: int, digest: str) -> bool:
    """Return whether a commit is stored, and names this digest as that of the commit before. Raises StorageError."""
    try:
        return decode_commit(store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)[0].previous == digest
    except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
        return False


def advance_boundary(store: Store, boundary: Boundary, holds: Holds) -> bool:
    """Set the boundary if ``holds``, right before and after it; return whether it is set.

    Otherwise the root was replaced: it is taken back, unless a checkpoint of the log that is there now covers it.
    """
    if not holds():
        return False
    write_boundary(store, boundary)
    if holds():
        return True
    newest, _ = read_newest_of_log(store, True, set())
    if newest is not None and newest.version >= boundary.boundary:  # newer ones have replaced the one decided on
        return True
    right = _read_right_boundary(store, newest, without=boundary.boundary)
    if right is not None and read_boundary_file(store) == boundary:
        _put_boundary(store, right)
    store.delete(boundary_mark_key(boundary.boundary))
    return False


def correct_boundary(store: Store, newest: Manifest | None, dry_run: bool = False) -> int | None:
    """Set a boundary that cannot be read, or is beyond the newest sound checkpoint, to what the stored commits say.

    Deletes the marks beyond, and returns the boundary. None, and nothing is changed, if commits between the two are
    missing. Raises StorageError.
    """
    right = _read_right_boundary(store, newest)
    if right is None or dry_run:
        return None if right is None else right.boundary
    marks = _marks(store)
    listed = (manifest_version(info.key) for info in store.list(CHECKPOINTS))  # after the marks: a clean-up since then
    covered = max((version for version in listed if version is not None), default=-1)  # has a checkpoint for its own
    if _read_if_sound(store) > covered:
        _put_boundary(store, right)
    beyond = [mark for mark in marks if (checkpoint_version(mark) or 0) > covered]
    map_parallel(store.delete, beyond, store.parallel_requests)
    return right.boundary


def _read_if_sound(store: Store) -> float:
    try:
        return read_boundary_file(store).boundary
    except CorruptMetadataError:
        return float("inf")


def find_boundary(stored: Sequence[int], covered: int, marks: Iterable[int]) -> int | None:
    """Return the boundary of a log with these commits, in order, whose newest checkpoint is of version ``covered``.

    ``marks`` are the boundaries that were set once. None if the checkpoint does not reach the oldest commit. Pure.
    """
    oldest = stored[0] - 1 if stored else covered
    if oldest > covered:
        return None
    return max(oldest, max((mark for mark in marks if mark <= covered), default=-1))


def _read_right_boundary(store: Store, newest: Manifest | None, without: int = -1) -> Boundary | None:
    """Return the boundary that the stored commits and marks imply, other than the mark ``without``."""
    sizes = {version: info.size for info in store.list(COMMITS) if (version := commit_version(info.key)) is not None}
    marks = [version for mark in _marks(store) if (version := checkpoint_version(mark) or 0) != without]
    covered = -1 if newest is None else newest.version
    right = find_boundary(sorted(sizes), covered, marks)
    if right is None or newest is None:
        return None if right is None else Boundary(right)
    kept_bytes = sum(size for version, size in sizes.items() if right < version <= covered)
    return Boundary(right, max(0, newest.commit_bytes - kept_bytes))


def _put_boundary(store: Store, boundary: Boundary) -> None:
    if boundary.boundary < 0:
        store.delete(BOUNDARY_KEY)
    else:
        write_boundary(store, boundary)


def _marks(store: Store) -> list[str]:
    return [info.key for info in store.list(CHECKPOINTS) if is_boundary_mark(info.key)]
