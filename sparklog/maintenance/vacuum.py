"""The vacuum: finds files that are no part of the log and never will be, and deletes them.

    report = vacuum(coordinator)                     # a dry run: what would go, and why
    report = vacuum(coordinator, dry_run=False)

Writers that died leave files that no commit names; so do jobs that others got in the way of. A file's name says which
version of the cluster its writer knew (``protocol.file_names``). The vacuum chooses the newest version that is older
than the age limit, fences writers there by a commit, and from then on no file begun at that version or before can
become part of the log: ``decide.append`` refuses it with StaleWriteError, and its writer writes the records again. Of
those files, what the log does not name by then may go, however long a writer was stopped. How old a version is goes by
``ExpiryClock``.

Files that left the log long enough ago go as well, a vacuum begins with a sweep (``deletion``); and copies that a
reassignment left behind (``surplus``).

Rules: what a live segment is in stays at every broker that has a replica of its partition; what a listing names stays
until its time has come; files whose name has no version are reported and left alone. A dry run changes nothing, and
says what one without it would do.
Not for: damage (``fsck``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.coordinator.leases import LEASES, lease_key
from sparklog.errors import InvalidRequestError, ObjectNotFoundError, SparklogError
from sparklog.log.cleanup import newest_version_before
from sparklog.log.parallel import each
from sparklog.log.removals import REMOVED, RemovedFile, read_removed
from sparklog.maintenance.deletion import Swept, due_files, remove_expired_announcements, sweep
from sparklog.maintenance.surplus import remove_surplus
from sparklog.protocol.commits import FenceWriters
from sparklog.protocol.decision import Decision
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.state import State
from sparklog.retry import retry_read
from sparklog.store.base import ObjectInfo, Store

DEFAULT_AGE_MS = 7 * 86_400_000
"""ms that a writer may take from its first byte to its commit, and a lease may lie about."""

MIN_AGE_MS = 86_400_000
"""ms: a smaller age limit has to be forced, since writers at work have to write again then."""

_DATA = re.compile(r".+-\d+/[^/]+\.(?:log|index)\Z")
_LISTING = re.compile(re.escape(REMOVED) + r"(\d{20})-[A-Za-z0-9_-]{1,64}\.arrow\Z")

LEFT_LOG = "rolled, compacted or deleted"
NEVER_PART = "its writer ended before its commit"
NO_REPLICA = "the replica was moved to another broker"
UNUSED_LISTING = "no commit names this listing"
OLD_LEASE = "its member left the group long ago"
NO_VERSION_IN_NAME = "its name has no version, so nobody can tell whether a writer still needs it"


class Found(NamedTuple):
    """A file that goes, or is left alone: where it is, its size in bytes, and why."""

    broker: int
    path: str
    size: int
    why: str


@dataclass
class Vacuumed:
    """What a vacuum found, and what it did. ``files`` go, or went; ``left_alone`` stay.

    ``superseded`` are those that left the log by a commit, and whose time has come; they go, or went, too.
    ``fence`` is the version at or before which files were begun; ``younger`` counts those that were begun later.
    ``unfinished`` counts temporary files that were removed, which a dry run cannot see.
    """

    dry_run: bool
    fence: int
    files: list[Found] = field(default_factory=list)
    superseded: list[Found] = field(default_factory=list)
    left_alone: list[Found] = field(default_factory=list)
    younger: int = 0
    unfinished: int = 0
    announcements: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(found.size for found in (*self.files, *self.superseded))


def vacuum(
    coordinator: Coordinator,
    older_than_ms: int = DEFAULT_AGE_MS,
    dry_run: bool = True,
    force: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Vacuumed:
    """Find what goes, and delete it unless it is a ``dry_run``. ``check`` is called between brokers, to stop there.

    Raises InvalidRequestError for an age limit under ``MIN_AGE_MS`` without ``force``, StorageError where the root does
    not answer, CorruptMetadataError where a listing cannot be read; a broker that does not answer is a problem noted.
    """
    if older_than_ms < (0 if force else MIN_AGE_MS):
        raise InvalidRequestError(
            f"an age limit of {older_than_ms} ms is under {MIN_AGE_MS} (a day): writers that take longer from their "
            "first byte to their commit would have to write again; choose more, or give --force (force=True)"
        )
    now_ms = coordinator.log.clock.now_ms() if dry_run else coordinator.expiry_time_ms()
    before_ms = now_ms - older_than_ms
    superseded = [Found(file.broker, file.path, file.size_bytes, LEFT_LOG) for file in due_files(coordinator, now_ms)]
    swept = Swept() if dry_run else sweep(coordinator, check)
    state = coordinator.refresh()
    fence = max(_newest_before(coordinator, state, before_ms), state.writer_fence)
    if not dry_run:
        state = _fence(coordinator, fence)
    result = Vacuumed(dry_run, fence, superseded=superseded, problems=swept.problems, announcements=swept.announcements)
    needed = _Needed(coordinator, state)
    for broker in sorted(state.brokers):
        check()
        _vacuum_broker(coordinator, state, broker, needed, before_ms, result)
    _vacuum_root(coordinator, state, now_ms, older_than_ms, result)
    return result


def _newest_before(coordinator: Coordinator, state: State, before_ms: int) -> int:
    """The newest version that is old enough; also where its commit was removed, in a cluster that has come to rest."""
    if state.timestamp_ms < before_ms:
        return state.version
    return newest_version_before(coordinator.store, state.version, before_ms)


def _fence(coordinator: Coordinator, version: int) -> State:
    """Rule out everything begun at this version or before, and return a state that has all of it that made it."""

    def decide(state: State) -> Decision:
        return Decision([FenceWriters(version=version)] if version > state.writer_fence else [], None)

    coordinator.submit(decide)
    return coordinator.refresh()


class _Needed:
    """The paths of all live segments, and of files that the sweep will deal with."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self._paths: set[str] = set()
        for topic in state.topics_in_order():
            if any(partition.segments for partition in topic.partitions):
                listed = coordinator.segments(topic.name, state)
                for number in range(len(topic.partitions)):
                    for table in listed.partition(number).tables():
                        self._paths.update(table.column("path").to_pylist())
        for key in sorted(state.removed_files):
            with suppress(ObjectNotFoundError):  # of a listing that was lost a vacuum is what finds the files
                files = retry_read(partial(_listed, coordinator.store, key), coordinator.log.clock)
                self._paths.update(file.path for file in files)

    def has(self, key: str) -> bool:
        return (key.removesuffix(".index") + ".log" if key.endswith(".index") else key) in self._paths


def _listed(store: Store, key: str) -> list[RemovedFile]:
    return list(read_removed(store, key))


def _vacuum_broker(
    coordinator: Coordinator, state: State, broker: int, needed: _Needed, before_ms: int, result: Vacuumed
) -> None:
    if not state.brokers[broker].online:
        result.problems.append(f"broker {broker} is offline and was left out")
        return
    try:
        store = coordinator.store_of(broker)
        gone = list(_orphans(store, broker, needed, result))
        if not result.dry_run:
            each(lambda found: store.delete(found.path), gone)
            result.unfinished += store.remove_unfinished(before_ms)
        result.files += gone
        left = remove_surplus(coordinator, broker, result.dry_run)
        result.files += [Found(broker, info.key, info.size, NO_REPLICA) for info in left]
    except SparklogError as error:
        if broker == 0:
            raise
        result.problems.append(f"broker {broker}: {error}")


def _orphans(store: Store, broker: int, needed: _Needed, result: Vacuumed) -> Iterator[Found]:
    for info in store.list():
        if not _DATA.fullmatch(info.key) or needed.has(info.key):
            continue
        version = begun_at(info.key)
        if version == NO_VERSION:
            result.left_alone.append(Found(broker, info.key, info.size, NO_VERSION_IN_NAME))
        elif version <= result.fence:
            yield Found(broker, info.key, info.size, NEVER_PART)
        else:
            result.younger += 1


def _vacuum_root(coordinator: Coordinator, state: State, now_ms: int, older_than_ms: int, result: Vacuumed) -> None:
    """Listings that no commit names, leases of members that are gone, announcements of readers that are."""
    store = coordinator.store
    gone = [Found(0, info.key, info.size, UNUSED_LISTING) for info in _unused_listings(store, state, result.fence)]
    gone += [Found(0, info.key, info.size, OLD_LEASE) for info in _old_leases(store, state, now_ms - older_than_ms)]
    if not result.dry_run:
        each(lambda found: store.delete(found.path), gone)
        result.announcements += remove_expired_announcements(store, now_ms, older_than_ms)
    result.files += gone


def _unused_listings(store: Store, state: State, fence: int) -> Iterator[ObjectInfo]:
    for info in store.list(REMOVED):
        found = _LISTING.fullmatch(info.key)
        if found and int(found.group(1)) <= fence and info.key not in state.removed_files:
            yield info


def _old_leases(store: Store, state: State, before_ms: int) -> Iterator[ObjectInfo]:
    """Leases that nobody has written for long, of members that no group has."""
    held: Mapping[str, None] = {
        lease_key(group, member): None for group, known in state.groups.items() for member in known.members
    }
    for info in store.list(LEASES):
        if info.modified_ms < before_ms and info.key not in held:
            yield info
