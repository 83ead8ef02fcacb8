"""Describes commits beyond the end of a log, and moves them away, after a root was restored to an older state.

A root that is restored from a copy while clients are running may get commits of theirs that do not continue the log:
``0..7`` and ``18``, or a commit 18 that follows another 17. Nothing at or after such a break can be read; a checkpoint
of a later version may have been written too. To compare acknowledged writes with the log, one has to know these
commits, so each is described, and a repair never destroys them:

    meta/removed-commits/commits/<20 digits>-<digest>.json     a commit that was removed from the log
    meta/removed-commits/checkpoints/..., actions/...          checkpoints, and spilled actions of commits

``take_out`` moves everything beyond the end there, the newest first: a client that still commits there finds its newest
commit missing, and stops (``RootReplacedError``). Commits that others add right after the end in the meantime continue
the log, and are kept. Another repair may have filled the hole, mended the damage or ended the log since, and clients
have gone on: so only what was found is moved, by its content, and only as long as the log ends where it did.

Not for: what is missing or broken (``metadata_checks``), and choosing the version at which the log ends.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError, SparklogError
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.commits.commit_files import complete_commit
from sparklog.log.commits.removal import put_back_if_needed
from sparklog.log.layout import (
    ACTIONS,
    CHECKPOINTS,
    COMMITS,
    REMOVED_COMMITS,
    actions_version,
    checkpoint_version,
    commit_version,
)
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import ERROR, INFO, Finding, Repair
from sparklog.protocol.commits import Append, Commit, commit_key
from sparklog.store.base import ObjectInfo, Store

SHOWN = 5
"""Commits that are described one by one."""

CHANGED_LOG = "the log was changed in the meantime, by another repair or a restore: check it again"

ROUNDS = 100
"""Maximum listings of one repair, in case that commits keep being added; the rest is left to another repair."""


# -- naming what lies beyond


def commits_beyond(store: Store, end: int, versions: Sequence[int], hole: range) -> Finding:
    """Return a finding for the commits beyond version ``end``, the end of the log; ``hole`` are the missing ones
    between."""
    reason = f"{_numbers(hole)} missing" if hole else f"commit {versions[0]} does not follow {end}"
    descriptions = [f"{version}: {_describe_stored(store, version)}" for version in versions[:SHOWN]]
    if len(versions) > SHOWN:
        descriptions.append(f"and {len(versions) - SHOWN:,} more up to {versions[-1]}")
    command = "`sparklog fsck --repair" + ("`" if hole else f" --end-at {end}`")
    return Finding(
        kind=kinds.COMMITS_BEYOND_THE_END,
        severity=ERROR if hole else INFO,
        message=f"the log ends at version {end}, but {_numbers(versions)} stored beyond that: {reason}. "
        + "; ".join(descriptions),
        action=f"if the root was restored from an older copy: stop all writers, and run {command}, which moves "
        f"everything beyond the end to {REMOVED_COMMITS}; the log then continues from version {end}. Otherwise, if a "
        "mirror or a backup has the missing commits, put them back first. If other commits have their numbers "
        "by now, do not overwrite these: they may hold acknowledged records, so move them to "
        f"{REMOVED_COMMITS} (`--repair --mirror` keeps a copy there)",
        repairable=bool(hole),
        path=commit_key(versions[0]),
        version=versions[0],
    )


def _numbers(versions: Sequence[int]) -> str:
    if len(versions) == 1:
        return f"commit {versions[0]} is"
    return f"{len(versions):,} commits from {versions[0]} to {versions[-1]} are"


def _describe_stored(store: Store, version: int) -> str:
    try:
        data = store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        return describe(complete_commit(store, data, version).commit)
    except SparklogError as error:
        return f"it cannot be read ({error})"


def describe(commit: Commit) -> str:
    """Describe a commit: when and by which writer it was written, and its actions."""
    written = datetime.fromtimestamp(commit.timestamp / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    records: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for action in commit.actions:
        if isinstance(action, Append):
            records[f"{action.topic}-{action.partition}"] += action.run.records
        else:
            tag: Any = type(action).__struct_config__.tag
            others[str(tag)] += 1
    parts = [f"{count:,} records of {partition}" for partition, count in sorted(records.items())[:SHOWN]]
    if len(records) > SHOWN:
        parts.append(f"{len(records) - SHOWN:,} more partitions")
    parts += [name if count == 1 else f"{count:,} of {name}" for name, count in sorted(others.items())]
    return f"written {written} by {ascii(commit.writer)[1:-1] or 'an unknown writer'}, {', '.join(parts) or 'nothing'}"


# -- setting the end


class LogUntil:
    """The metadata of a store as if the log ended at a version; reads only. Thread-safe if the store is.

    Commits, spilled actions and checkpoints of later versions are hidden, and so is the hint.
    """

    def __init__(self, store: Store, end: int) -> None:
        self._store = store
        self._end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        self._refuse(key)
        return self._store.get(key, max_bytes)

    def info(self, key: str) -> ObjectInfo:
        self._refuse(key)
        return self._store.info(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self._store.list(prefix) if not self._is_hidden(info.key))

    def _refuse(self, key: str) -> None:
        if self._is_hidden(key):
            raise ObjectNotFoundError(f"{key} is beyond version {self._end}", path=key)

    def _is_hidden(self, key: str) -> bool:
        return key == LATEST_KEY or version_of(key) > self._end


def version_of(key: str) -> int:
    """Return the version in the key of a metadata object; -1 if it has none."""
    versions = (parse(key) for parse in (commit_version, actions_version, checkpoint_version))
    return next((version for version in versions if version is not None), -1)


Holds = Callable[[int], bool]
"""Whether the log still ends where it was to end, and does not go on to a version. Raises StorageError."""

Found = Mapping[str, bytes]
"""Objects beyond the end by key: the SHA-256 of a commit, whose name may be used again; empty for others."""


def find_beyond(store: Store, first: int) -> Found:
    """Return everything of version ``first`` and later. Raises StorageError."""
    found = {}
    for key in _list_from(store, first):
        with suppress(ObjectNotFoundError):  # moved by another repair
            found[key] = hashlib.sha256(store.get(key)).digest() if key.startswith(COMMITS) else b""
    return found


def take_out(store: Store, end: int, first: int, found: Found, holds: Holds, dry_run: bool = False) -> Iterator[Repair]:
    """Move everything of version ``first`` and later, beyond the end, out of the log. May be killed, and run again.

    ``found`` is what was there when that was decided; ``holds`` is asked before and after each object. Raises
    StorageError; objects moved by then remain moved.
    """
    for number in range(ROUNDS):
        beyond = sorted(found, key=_removal_order)
        if number:  # listed before the commits that continue the log, each of which is created after all before it
            kept = _find_continuous_end(store, end) + 1  # a commit in flight may have stored its actions
            beyond = [key for key in beyond if version_of(key) > kept]
        for key in beyond:
            repair = _move(store, key, found[key], holds, dry_run)
            yield repair
            if repair.why_not:
                return
        if dry_run or not beyond:
            return
        store.delete(LATEST_KEY)  # only a hint, and it may name a checkpoint that was moved
        found = find_beyond(store, first)


def _removal_order(key: str) -> tuple[int, bool, bool, str]:
    """Return a sort key: the newest version first; files that name others before these."""
    return -version_of(key), key.startswith(ACTIONS), not key.endswith(".json"), key


def _list_from(store: Store, first: int) -> Iterator[str]:
    for folder in (COMMITS, CHECKPOINTS, ACTIONS):
        yield from (info.key for info in store.list(folder) if version_of(info.key) >= first)


def _find_continuous_end(store: Store, end: int) -> int:
    """Return the last version of the commits that continue from ``end`` without a hole."""
    present = {version_of(info.key) for info in store.list(COMMITS)}
    while end + 1 in present:
        end += 1
    return end


def _move(store: Store, key: str, found: bytes, holds: Holds, dry_run: bool) -> Repair:
    """Move an object out of the log if it is what was found; ``found`` is as in ``Found``."""
    try:
        data = store.get(key)
    except ObjectNotFoundError:
        return Repair(what="deleted in the meantime", path=key)
    target = _target_key(key, data)
    if not dry_run:
        if found and hashlib.sha256(data).digest() != found:
            return Repair(what="not moved", path=key, done=False, why_not=CHANGED_LOG)
        copy_to(store, target, data)
        if not holds(version_of(key)):
            return Repair(what="not moved", path=key, done=False, why_not=CHANGED_LOG)
        if not store.delete_exactly(key, data):
            store.delete(key)
        if not holds(version_of(key) - 1):
            put_back_if_needed(store, key, data)  # another repair has mended the log up to it
            return Repair(what="not moved", path=key, done=False, why_not=CHANGED_LOG)
    return Repair(what=f"moved to {target}", path=key, done=not dry_run)


def keep_copies(store: Store, versions: Sequence[int], dry_run: bool = False) -> Iterator[Repair]:
    """Copy commits to the folder of removed ones, before a clean-up may remove them. Raises StorageError."""
    for version in versions:
        data = store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        target = _target_key(commit_key(version), data)
        if not dry_run:
            copy_to(store, target, data)
        yield Repair(what=f"copied to {target}", path=commit_key(version), done=not dry_run)


def copy_to(store: Store, target: str, data: bytes) -> None:
    """Store a copy, and read it back. Raises CorruptMetadataError, StorageError."""
    store.put(target, data)
    if store.get(target) != data:
        raise CorruptMetadataError(f"{target} is not what was written to it", path=target)


def keep_replaced(store: Store, key: str, data: bytes) -> None:
    """Keep a copy of an object that is about to be replaced: it may be acknowledged. Raises as ``copy_to``."""
    copy_to(store, _target_key(key, data), data)


def _target_key(key: str, data: bytes) -> str:
    """Return the key to which an object is moved. Several commits may have the same number, so the name of a commit
    contains a part of its digest."""
    folder, _, name = key.removeprefix("meta/").rpartition("/")
    if key.startswith(COMMITS):
        name = name.replace(".json", f"-{hashlib.sha256(data).hexdigest()[:16]}.json")
    return f"{REMOVED_COMMITS}{folder}/{name}"
