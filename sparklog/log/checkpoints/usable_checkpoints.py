"""Checks which checkpoints may be used: those that are complete, and of the log that is at the root now.

A process may stall while it writes a checkpoint; others may clean up its files, or replace the root by an older copy.
So the writer checks again once the manifest is stored, and withdraws an invalid checkpoint; and since it may die before
that, others check as well before they use one.
"""

from __future__ import annotations

from sparklog.clock import Clock
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.commits.replaced_root import read_log_end, read_mounted_log_end, refuse_other_timeline
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.state import State
from sparklog.retry import retry_read
from sparklog.store.base import Store


def is_of_log(store: Store, manifest: checkpoint.Manifest) -> bool:
    """Return whether a checkpoint is of this log: its commit is stored, or was removed with those before it.

    If another commit has that number, or none although the boundary is lower, it is of a former timeline, unless the
    boundary was higher once: then a stalled writer created the number again. Raises StorageError.
    """
    stored = read_log_end(store, manifest.version, with_boundary=False)
    if stored.digest == manifest.digest or not manifest.digest:  # level 1 has no digest
        return True
    if stored.digest is None and stored.removed_up_to >= manifest.version:
        return True
    return read_certain_boundary(store) >= manifest.version


def is_still_of_log(store: Store, manifest: checkpoint.Manifest) -> bool:
    """Return whether a checkpoint that was read before is still at the root, and of the log that is there now.

    Not if newer ones have replaced it since, or the root was restored from a copy. Raises StorageError.
    """
    return is_still_there(store, manifest) and is_of_log(store, manifest)


def are_commits_replaced(store: Store, manifest: checkpoint.Manifest) -> bool:
    """Return whether commits up to a checkpoint that was read before are replaced in the log that is at the root now:
    by that checkpoint, or, where newer ones have replaced it, by the newest.

    Raises StorageError, CorruptMetadataError.
    """
    if is_still_there(store, manifest):
        return is_of_log(store, manifest)
    newest = checkpoint.read_newest_listed(store)
    return newest is not None and newest.version >= manifest.version and is_of_log(store, newest)


def is_still_there(store: Store, manifest: checkpoint.Manifest) -> bool:
    """Return whether a checkpoint that was read before is still at the root, of whatever log. Raises StorageError."""
    try:
        return checkpoint.read_manifest(store, checkpoint.manifest_key(manifest)) == manifest
    except ObjectNotFoundError:
        return False


def read_newest_of_log(
    store: Store, listed: bool, passed_over: set[str]
) -> tuple[checkpoint.Manifest | None, State | None]:
    """Return the newest checkpoint to start from, with its state; as ``checkpoint.read_newest_state``.

    ``passed_over`` are the heads of checkpoints to skip; those of another timeline are added. But a checkpoint that the
    log needs, since the commits up to it were removed, is of the log: the object with its number is then not a commit
    but a stalled writer's create, at a number that a late clean-up has set the boundary back to.
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
    """Check that all files of a base exist, since a checkpoint built on it repeats them without reading.

    Raises CorruptMetadataError with ``missing`` set.
    """
    if not checkpoint.is_whole(store, base, cache):
        path = f"{store.root}/{base.heads.key}"
        raise CorruptMetadataError(f"files of the checkpoint {path} are missing", path=path, missing=True)


def withdraw_unless_whole(store: Store, manifest: checkpoint.Manifest, cache: ListCache) -> None:
    """Withdraw a checkpoint if a clean-up took its files for orphans while its writer stalled.

    Raises CorruptMetadataError then.
    """
    if not checkpoint.is_whole(store, manifest, cache):
        checkpoint.withdraw(store, manifest)
        path = f"{store.root}/{manifest.heads.key}"
        raise CorruptMetadataError(
            f"files of the checkpoint {path} were removed while it was written; it was withdrawn", path=path
        )


def withdraw_unless_of_log(store: Store, clock: Clock, manifest: checkpoint.Manifest, state: State) -> None:
    """Withdraw a checkpoint if the root was replaced in the meantime, so that no process starts from a former timeline.

    Raises RootReplacedError then.
    """
    end = retry_read(lambda: read_mounted_log_end(store, state.version, with_boundary=True), clock)
    if end.digest == state.digest or end.removed_up_to >= state.version:
        return
    if retry_read(lambda: read_certain_boundary(store), clock) < state.version:
        retry_read(lambda: checkpoint.withdraw(store, manifest), clock)
        raise refuse_other_timeline(store, state.version, end)
