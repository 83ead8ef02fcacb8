"""Files that are no part of the log: what lies on the brokers against what the commit log names.

A ``.log`` or ``.index`` on a broker is accounted for when a live segment is in it and the broker is, was or becomes a
replica of its partition, or when it is on a listing of files that left the log and wait to be deleted. All others are
orphans: their writer died before its commit, or is still at work. Which of the two, the version in the name tells (see
``protocol.file_names``): a file begun at the writer fence or before will never be part of the log.

Rules: nothing here is wrong with the log, so findings are ``info``, but for listings that cannot be read.
Not for: deleting anything (``sparklog vacuum``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.broker_files import CHECK_KEY, LOCATIONS_KEY
from sparklog.log.commits.retired_files import REMOVED, read_removed
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    CLOCK_KEY,
    CLUSTER_KEY,
    COMMITS,
    REMOVED_COMMITS,
    actions_version,
)
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import INFO, WARNING, Finding
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.probe import PROBED

_DATA = re.compile(r"(.+)-(\d+)/\d{20}-[A-Za-z0-9_-]{1,90}\.(log|index)")
_KNOWN = (CLUSTER_KEY, BOUNDARY_KEY, CLOCK_KEY, IDENTITY_KEY, CHECK_KEY, LOCATIONS_KEY)
_OTHER_CHECKS = ("leases/", COMMITS, CHECKPOINTS, PROBED, REMOVED_COMMITS)
"""Folders that are somebody else's to check, or nobody's: leases come and go, trials of a server and removed commits
are kept."""


class Accounted:
    """The data files that the commit log knows of, by path and broker. Thread-safe once it is made."""

    def __init__(self, state: State, lists: Mapping[str, TopicSegments]) -> None:
        self.fence = state.writer_fence
        self._brokers: dict[str, frozenset[int]] = {}
        self._removed: set[tuple[str, int]] = set()
        for name, listed in lists.items():
            for number, partition in enumerate(state.topics[name].partitions):
                replicas = {*partition.replicas, *partition.isr, *partition.adding, *partition.removing}
                for segment in listed.partition(number):
                    self._add(segment.path, frozenset({*replicas, segment.broker}))

    def _add(self, path: str, brokers: frozenset[int]) -> None:
        known = self._brokers.get(path)
        if known is None or not brokers <= known:
            self._brokers[path] = brokers if known is None else known | brokers

    def remove(self, path: str, broker: int) -> None:
        """This file waits to be deleted."""
        self._removed.add((path, broker))

    def has(self, key: str, broker: int) -> bool:
        """Whether a ``.log`` or ``.index`` is accounted for."""
        path = key.removesuffix(".index") + ".log" if key.endswith(".index") else key
        return broker in self._brokers.get(path, ()) or (path, broker) in self._removed

    def is_live(self, path: str) -> bool:
        return path in self._brokers

    @property
    def paths(self) -> Iterable[str]:
        return self._brokers


def read_listings(store: Store, state: State, accounted: Accounted) -> Iterator[Finding]:
    """Take in what waits to be deleted; yields a finding for each listing that cannot be read."""
    for listing in sorted(state.removed_files):
        try:
            for removed in read_removed(store, listing):
                accounted.remove(removed.path, removed.broker)
        except (ObjectNotFoundError, CorruptMetadataError) as error:
            yield Finding(
                kind=kinds.MISSING_LISTING,
                severity=WARNING,
                message=f"which files left the log in commit {state.removed_files[listing].version} is not known: "
                f"{error}",
                action="run `sparklog vacuum`, which finds and removes them by itself",
                path=listing,
                version=state.removed_files[listing].version,
            )


def unaccounted(store: Store, broker: int, accounted: Accounted, listings: Iterable[str]) -> Iterator[Finding]:
    """Every object on a broker that nothing refers to. Raises StorageError."""
    known = set(listings)
    for info in store.list():
        key = info.key
        if key in _KNOWN or (broker == 0 and key.startswith(_OTHER_CHECKS)):
            continue
        if broker == 0 and key.startswith(REMOVED):
            if key not in known:
                yield _orphan_listing(key)
        elif broker == 0 and actions_version(key) is not None:
            continue  # of a commit, or of one that lost its number: it goes with the commits up to there
        elif _DATA.fullmatch(key) is None:
            message = f"{info.size} bytes under a name that no part of sparklog gives"
            yield Finding(kind=kinds.UNKNOWN_OBJECT, severity=INFO, message=message, path=key, broker=broker)
        elif not accounted.has(key, broker):
            yield _orphan(key, broker, info.size, accounted.fence)


def _orphan(key: str, broker: int, size: int, fence: int) -> Finding:
    version = begun_at(key)
    if version == NO_VERSION:
        message, action = "no part of the log, and its name does not tell since when", "look at it, and delete it"
    elif version <= fence:
        message = (
            f"no part of the log, and never will be: it was begun at version {version}, writers are fenced at {fence}"
        )
        action = "`sparklog vacuum` removes it"
    else:
        message = f"begun at version {version} and not committed: its writer is at work or has died"
        action = "`sparklog vacuum` removes it once it is old enough"
    return Finding(
        kind=kinds.ORPHAN_FILE,
        severity=INFO,
        message=f"{size} bytes; {message}",
        action=action,
        path=key,
        broker=broker,
        version=version,
    )


def _orphan_listing(key: str) -> Finding:
    return Finding(
        kind=kinds.ORPHAN_LISTING,
        severity=INFO,
        message="a listing of removed files that no commit waits for: its writer died, or its files are deleted",
        action="`sparklog vacuum` removes it",
        path=key,
    )


def still_unaccounted(finding: Finding, accounted: Accounted) -> bool:
    """Whether an orphan is one in the light of a newer state: writers commit while others look."""
    return finding.kind != kinds.ORPHAN_FILE or not accounted.has(finding.path, finding.broker)
