"""Finds what is stored beyond the end that a process has read: commits or checkpoints behind a hole.

A log is tailed until the next number is absent. If that commit was lost, by a deleted file or a disk that was repaired,
later ones still exist: a process that took the place before the hole for the end would show a shorter log, and write
into the hole; those writes contradict the later commits, and are lost once the missing ones are put back. So a
process looks once, when it has read the log for the first time or was away for long, for what is stored beyond its end.
A commit there is refused; a checkpoint alone is only reported, since a stalled writer may have left it after a restore.

Rules: reads only, one request (a storage whose listings cannot begin at a key is asked for the next numbers, together).
A higher commit proves nothing alone: others append meanwhile, and a stalled writer may be about to withdraw one. So the
caller reads the log again and only what it still does not reach is a hole.

Not for: describing or repairing it (``maintenance.fsck``), and a newest commit that is missing (``replaced_root``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparklog.errors import CorruptMetadataError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.layout import COMMITS, checkpoint_version, commit_version, exists
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commits import commit_key
from sparklog.store.base import Store

PROBED_COMMITS = 16
"""Numbers beyond the next one that are looked for where no listing can begin at a key. Wider holes are found only if
there is a checkpoint behind them; there is one for every hundred commits."""


def commits_after(store: Store, version: int, in_doubt: bool = False) -> list[int]:
    """Return commits stored with a higher number than this, at most a thousand, in order. Raises StorageError.

    ``in_doubt``: list them all, however long that takes, where no listing can begin at a key.
    """
    keys = store.keys_after(COMMITS, commit_key(max(version, 0)))
    if keys is None and in_doubt:
        keys = [info.key for info in store.list(COMMITS)]
    if keys is not None:
        return [number for key in keys if (number := commit_version(key)) is not None and number > version]
    numbers = range(version + 2, version + 2 + PROBED_COMMITS)  # the next one was absent a moment ago
    found = map_parallel(lambda number: exists(store, commit_key(number)), numbers, store.parallel_requests)
    return [number for number, is_stored in zip(numbers, found, strict=True) if is_stored]


def newest_unused_checkpoint(store: Store, version: int, passed_over: Collection[str]) -> int:
    """Return the version of the newest stored checkpoint that is beyond ``version``, -1 if there is none.

    ``passed_over`` are the heads of checkpoints that were not used; without one beyond, nothing is read. Raises
    StorageError, CorruptMetadataError.
    """
    if all((checkpoint_version(heads) or 0) <= version for heads in passed_over):
        return -1
    newest = checkpoint.read_newest_listed(store)
    return newest.version if newest is not None and newest.version > version else -1


def refuse_hole(store: Store, version: int, listed: Sequence[int]) -> None:
    """Raise CorruptMetadataError if one of these commits is stored: the log ends at ``version``, and the next one is
    missing. A listing may be out of date, and name one that was withdrawn."""
    first = next((number for number in listed if number > version + 1 and exists(store, commit_key(number))), -1)
    if first < 0:
        return
    missing = f"commit {version + 1} is" if first == version + 2 else f"commits {version + 1} to {first - 1} are"
    raise CorruptMetadataError(
        f"{missing} missing from {store.root}, but commit {first} is stored: what was written now would be lost when "
        "they are put back, so nothing is read or written. If the root was restored from an older copy, a client of "
        f"its former self left commit {first}: stop all writers and run `sparklog fsck --repair`, which moves it away. "
        "Otherwise put the missing commits back from a mirror or a backup; `sparklog fsck` shows what is stored",
        path=f"{store.root}/{commit_key(version + 1)}",
        version=version + 1,
    )


def describe_lost_end(store: Store, version: int, checkpoint_at: int) -> str:
    """Describe a checkpoint that is beyond the end of a log: of a former timeline, or of commits that are lost."""
    return (
        f"{store.root} has a checkpoint of version {checkpoint_at}, but its commits end at {version}: either the root "
        f"was restored to an older state, or commits from {version + 1} on are lost. If it was not restored, stop all "
        "writers and run `sparklog fsck`, which says how to continue from the checkpoint"
    )
