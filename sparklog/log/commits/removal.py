"""Removes objects of a root, or moves its boundary, only while the root has the history on which that was decided.

A clean-up or a repair decides on what it has read. It may be suspended before it acts, and the root be restored from a
copy meanwhile: the same names are then in use again, and what was replaced is the only copy. No storage can condition a
deletion on another object. So each process looks again, right before each batch, for what it decided on: the checkpoint
or the commit, by its content. A batch is what is sent at one moment, so that a process that resumes sends one at most.

Rules: what was decided on is missing: nothing more is deleted; the next run decides on what is there then. A boundary
that turns out to be of another history is taken back at once; if its process dies before that, the cluster is refused,
and ``sparklog fsck --repair`` corrects the boundary.

Not for: what may be removed (``cleanup``, ``maintenance``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sparklog.errors import ObjectNotFoundError
from sparklog.log.checkpoints.checkpoint import Manifest
from sparklog.log.checkpoints.usable_checkpoints import read_newest_of_log
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    COMMITS,
    Boundary,
    boundary_mark_key,
    checkpoint_version,
    commit_version,
    is_boundary_mark,
    read_boundary_file,
    write_boundary,
)
from sparklog.log.parallel import map_parallel
from sparklog.store.base import Store

Holds = Callable[[], bool]
"""Whether what a decision was based on is still at the root. Raises StorageError."""


def delete_while(store: Store, keys: Iterable[str], holds: Holds, exactly: bool = False) -> int:
    """Delete objects, in order, as long as ``holds``; return how many were deleted. Raises StorageError.

    ``exactly``, for names that are used again: where requests are cheap, an object is read before that look, and only
    these bytes are deleted, if the storage can condition it. So what is on its way when the root is replaced hits
    nothing that is not in the copy.
    """
    left, at_a_time = list(keys), max(1, store.parallel_requests)
    for first in range(0, len(left), at_a_time):
        batch = left[first : first + at_a_time]
        known = {key: _read(store, key) for key in batch} if exactly and at_a_time == 1 else {}
        if not holds():
            return first
        map_parallel(partial(_delete, store, known), batch, at_a_time)
    return len(left)


def _read(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None


def _delete(store: Store, known: Mapping[str, bytes | None], key: str) -> None:
    data = known.get(key)
    if key in known and data is None:  # removed by another process; in a root that was restored since it may exist
        return
    if data is None or not store.delete_exactly(key, data):
        store.delete(key)


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
    if read_boundary_file(store) == boundary:
        _write_right_boundary(store, newest, without=boundary.boundary)
    store.delete(boundary_mark_key(boundary.boundary))
    return False


def correct_boundary(store: Store, newest: Manifest | None) -> int | None:
    """Set a boundary that is beyond the newest sound checkpoint to what the stored commits say, and delete the marks
    beyond it; return it. None, and nothing is changed, if commits between the two are missing. Raises StorageError."""
    right = _write_right_boundary(store, newest)
    if right is not None:
        beyond = [mark for mark in _marks(store) if (checkpoint_version(mark) or 0) > right]
        map_parallel(store.delete, beyond, store.parallel_requests)
    return right


def find_boundary(stored: Sequence[int], covered: int, marks: Iterable[int]) -> int | None:
    """Return the boundary of a log with these commits, in order, whose newest checkpoint is of version ``covered``.

    ``marks`` are the boundaries that were set once. None if the checkpoint does not reach the oldest commit. Pure.
    """
    oldest = stored[0] - 1 if stored else covered
    if oldest > covered:
        return None
    return max(oldest, max((mark for mark in marks if mark <= covered), default=-1))


def _write_right_boundary(store: Store, newest: Manifest | None, without: int = -1) -> int | None:
    """Write the boundary that the stored commits and marks imply, and return it; as ``correct_boundary``."""
    sizes = {version: info.size for info in store.list(COMMITS) if (version := commit_version(info.key)) is not None}
    marks = [version for mark in _marks(store) if (version := checkpoint_version(mark) or 0) != without]
    covered = -1 if newest is None else newest.version
    right = find_boundary(sorted(sizes), covered, marks)
    if right is None:
        return None
    if right < 0:
        store.delete(BOUNDARY_KEY)
        return right
    assert newest is not None
    kept_bytes = sum(size for version, size in sizes.items() if right < version <= covered)
    write_boundary(store, Boundary(right, max(0, newest.commit_bytes - kept_bytes)))
    return right


def _marks(store: Store) -> list[str]:
    return [info.key for info in store.list(CHECKPOINTS) if is_boundary_mark(info.key)]
