"""Which checkpoints may be built on and started from: those that are whole, and of the log that is at the root now.

A process that writes a checkpoint may be stopped meanwhile; others may clean up what it wrote, or an older copy of the
root may be put in its place. So the writer looks again once the manifest is stored, and withdraws what does not hold;
and since it may die before that, others look as well before they use a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.errors import CorruptMetadataError, StorageUnavailableError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.commits.commit_files import not_there, read_log_end, read_mounted_log_end
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.state import State
from sparklog.store.base import Store

Result = TypeVar("Result")

_ATTEMPTS = 5


def is_of_log(store: Store, manifest: checkpoint.Manifest) -> bool:
    """Whether a checkpoint is one of this log: its commit is stored, or was removed with those before it.

    Where another commit has that number, or none although the boundary is lower, it is of a former history, unless the
    boundary was higher once: then a stalled writer has created the number again. Raises StorageError.
    """
    stored = read_log_end(store, manifest.version, with_boundary=False)
    if stored.digest == manifest.digest or not manifest.digest:  # of level 1, which does not say
        return True
    if stored.digest is None and stored.removed_up_to >= manifest.version:
        return True
    return read_certain_boundary(store) >= manifest.version


def read_newest_of_log(
    store: Store, listed: bool, passed_over: set[str]
) -> tuple[checkpoint.Manifest | None, State | None]:
    """The newest checkpoint to start from, with its state; as ``checkpoint.read_newest_state``.

    ``passed_over`` are the heads of those that are not used; those of another history join them. But one that the log
    cannot do without, since the commits up to it were removed, is of the log: what has its number is no commit then but
    a stalled writer's create, at a number that a late clean-up has set the boundary back to.
    """
    newest = checkpoint.read_newest_state(store, listed, passed_over)
    others = []
    while newest[0] is not None and not is_of_log(store, newest[0]):
        others.append(newest)
        passed_over.add(newest[0].heads.key)
        newest = checkpoint.read_newest_state(store, True, passed_over)
    boundary = read_certain_boundary(store) if others else -1
    if boundary <= (-1 if newest[0] is None else newest[0].version):
        return newest
    for manifest, state in reversed(others):
        if manifest is not None and manifest.version >= boundary:
            passed_over.discard(manifest.heads.key)
            return manifest, state
    return newest


def check_whole(store: Store, base: checkpoint.Manifest, cache: ListCache) -> None:
    """A checkpoint repeats files of the one that it continues, unread; so these must be there.

    Raises CorruptMetadataError with ``missing`` set.
    """
    if not checkpoint.is_whole(store, base, cache):
        path = f"{store.root}/{base.heads.key}"
        raise CorruptMetadataError(f"files of the checkpoint {path} are missing", path=path, missing=True)


def withdraw_unless_whole(store: Store, manifest: checkpoint.Manifest, cache: ListCache) -> None:
    """For a process that was stopped while it wrote: what it had written by then may have been taken for left behind.

    Raises CorruptMetadataError where that is so.
    """
    if not checkpoint.is_whole(store, manifest, cache):
        checkpoint.withdraw(store, manifest)
        path = f"{store.root}/{manifest.heads.key}"
        raise CorruptMetadataError(
            f"files of the checkpoint {path} were removed while it was written; it was withdrawn", path=path
        )


def withdraw_unless_of_log(store: Store, clock: Clock, manifest: checkpoint.Manifest, state: State) -> None:
    """The root may have been replaced meanwhile: nobody may start from a checkpoint of the former history.

    Raises RootReplacedError where that is so.
    """
    end = _repeat(clock, lambda: read_mounted_log_end(store, state.version, with_boundary=True))
    if end.digest == state.digest or end.removed_up_to >= state.version:
        return
    if _repeat(clock, lambda: read_certain_boundary(store)) < state.version:
        _repeat(clock, lambda: checkpoint.withdraw(store, manifest))
        raise not_there(store, state.version, end)


def _repeat(clock: Clock, request: Callable[[], Result]) -> Result:
    """A request that must not be left undone for a storage that fails now and then. Raises StorageError."""
    for attempt in range(_ATTEMPTS - 1):
        try:
            return request()
        except StorageUnavailableError:
            clock.sleep(0.05 * 2**attempt)
    return request()
