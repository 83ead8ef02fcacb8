"""Finds orphans: compares the files at the brokers with those that the commit log names.

A ``.log`` or ``.index`` at a broker is accounted for if it has a live segment and the broker is, was or becomes a
replica of its partition, or if a listing of retired files names it. All others are orphans: their writer died before
its commit, or is still running. The version in the name decides (see ``protocol.file_names``): a file begun at the
writer fence or before will never be part of the log.

Rules: orphans do no harm to the log, so findings are ``info``, except for listings that cannot be read.
Not for: deleting anything (``sparklog vacuum``).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from msgspec.structs import replace

from sparklog.coordinator.live_files import LiveFiles, live_partitions
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.broker_files import CHECK_KEY, LOCATIONS_KEY
from sparklog.log.commits.retired_files import REMOVED, read_removed
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    CLOCK_KEY,
    CLUSTER_KEY,
    COMMITS,
    FSCK_KEY,
    REMOVED_COMMITS,
    actions_version,
)
from sparklog.log.owner_files import EPOCHS, FORMER_ROOTS, OWNERS, SOURCE_EPOCHS
from sparklog.log.reserve import reserve_keys
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.monitoring.rollups import commits_of
from sparklog.protocol.file_names import NO_VERSION, begun_at, is_data_file, is_table_log, log_path_of
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.conditional_write_probe import PROBED
from sparklog.store.location import IDENTITY_KEY

_KNOWN = (
    CLUSTER_KEY, BOUNDARY_KEY, CLOCK_KEY, FSCK_KEY, IDENTITY_KEY, CHECK_KEY, LOCATIONS_KEY, *reserve_keys(),
)  # fmt: skip
_OTHER_CHECKS = ("leases/", COMMITS, CHECKPOINTS, PROBED, REMOVED_COMMITS)
"""Folders that other checks cover, or none: leases come and go; probes of a server and removed commits are kept."""


class Accounted:
    """The data files that the commit log accounts for, by path and broker. Thread-safe once ``retired`` is complete."""

    def __init__(self, state: State, lists: Mapping[str, TopicSegments]) -> None:
        self.fence = state.writer_fence
        self.live = LiveFiles(live_partitions(state, lists))
        self.retired: set[tuple[str, int]] = set()

    def has(self, key: str, broker: int) -> bool:
        """Whether a ``.log`` or ``.index`` is accounted for."""
        path = log_path_of(key)
        return self.live.may_need(path, broker) or (path, broker) in self.retired


def read_listings(store: Store, state: State, accounted: Accounted) -> Iterator[Finding]:
    """Add the retired files to ``accounted``; return a finding for each listing that cannot be read."""
    for listing in sorted(state.removed_files):
        try:
            accounted.retired.update((file.path, file.broker) for file in read_removed(store, listing))
        except (ObjectNotFoundError, CorruptMetadataError) as error:
            yield Finding(
                kind=kinds.MISSING_LISTING,
                severity=WARNING,
                message=f"the files that commit {state.removed_files[listing].version} retired are not known: {error}",
                action="run `sparklog vacuum`, which finds and deletes them by itself",
                path=listing,
                version=state.removed_files[listing].version,
            )


def unaccounted(
    store: Store, broker: int, accounted: Accounted, listings: Container[str], is_root: bool
) -> Iterator[Finding]:
    """Return a finding for every object at a broker to which nothing refers. Unless it ``is_root``, broker 0 is a
    replaced root, whose metadata nothing refers to or deletes. Raises StorageError."""
    for info in store.list():
        key = info.key
        if (
            key in _KNOWN
            or key.startswith((OWNERS, EPOCHS, FORMER_ROOTS, SOURCE_EPOCHS))
            or (broker == 0 and (key.startswith(_OTHER_CHECKS) or is_table_log(key)))
        ):
            continue
        if broker == 0 and key.startswith(REMOVED):
            if is_root and key not in listings:
                yield _orphan_listing(key)
        elif broker == 0 and actions_version(key) is not None:
            continue  # of a commit or a lost commit attempt: it is removed with the commits up to its version
        elif broker == 0 and commits_of(key) is not None:
            continue  # a rollup: derived, and verified by who reads it
        elif not is_data_file(key):
            message = f"{info.size} bytes; sparklog does not write objects of this name"
            yield Finding(kind=kinds.UNKNOWN_OBJECT, severity=INFO, message=message, path=key, broker=broker)
        elif not accounted.has(key, broker):
            yield _orphan(key, broker, info.size, accounted.fence)


def _orphan(key: str, broker: int, size: int, fence: int) -> Finding:
    version = begun_at(key)
    if version == NO_VERSION:
        message, action = "not part of the log, and its name has no version", "look at it, and delete it"
    elif version <= fence:
        message = (
            f"not part of the log, and never will be: it was begun at version {version}, writers are fenced at {fence}"
        )
        action = "`sparklog vacuum` deletes it"
    else:
        message = f"begun at version {version} and not committed: its writer is still running or has died"
        action = "`sparklog vacuum` deletes it once it is old enough"
    return Finding(
        kind=kinds.ORPHAN_FILE,
        severity=INFO,
        message=f"{size} bytes; {message}",
        action=action,
        path=key,
        broker=broker,
        version=version,
    )


def keep_beside_lost(finding: Finding, lost: Mapping[str, str]) -> Finding:
    """Return an orphan with the advice to keep it, if a file of its partition is ``lost`` (severities by path): a copy
    of the locations that is later than that of the root has the lost records in files that the root does not know."""
    folder = finding.path.rpartition("/")[0]
    beside = [path for path, severity in lost.items() if severity == ERROR and path.rpartition("/")[0] == folder]
    if finding.kind != kinds.ORPHAN_FILE or not beside:
        return finding
    action = (
        f"keep it, and run no vacuum: {beside[0]} is missing, and this file may have its records. If the root was "
        "restored, restore a newer copy of it, or locations of before"
    )
    return replace(finding, action=action)


def _orphan_listing(key: str) -> Finding:
    return Finding(
        kind=kinds.ORPHAN_LISTING,
        severity=INFO,
        message="a listing of retired files that no commit names: its writer died, or its files are deleted",
        action="`sparklog vacuum` deletes it",
        path=key,
    )


def still_unaccounted(finding: Finding, accounted: Accounted) -> bool:
    """Whether an orphan is still one by a newer state, since writers may have committed during the check."""
    return finding.kind != kinds.ORPHAN_FILE or not accounted.has(finding.path, finding.broker)
