"""The vacuum: finds and deletes orphans, files that are not part of the log and never will be.

    report = vacuum(coordinator)                     # a dry run: what would be deleted, and why
    report = vacuum(coordinator, dry_run=False)

Writers that died before their commit leave orphans; so do jobs that lost a conflict. The name of a file contains the
version of the cluster that its writer had read (``protocol.file_names``). The vacuum takes the newest version that is
older than the age limit, and fences writers at that version with a commit: from then on no file begun at that version
or before can become part of the log, since ``protocol.decide.append`` refuses it with StaleWriteError and its writer
writes the records again. Of these files, all that the log does not name after the fence may be deleted, however long a
writer was paused. The age of a version is measured by ``ExpiryClock``.

A vacuum begins with a sweep, which deletes retired files whose delay has passed (``sweep``), and also deletes
the copies that a reassignment left behind (``surplus_replicas``).

Rules: a file with a live segment is kept at every broker that has a replica of its partition; a file that a listing
names is kept until its delay has passed; a history segment is deleted only when the topic's Delta table shows the log
without it; files without a version in their name are reported and kept. A dry run changes
nothing, and reports what a real run would do.
Not for: damage (``fsck``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.coordinator.leases import LEASES, lease_key
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.coordinator.ownership import check_all_owned
from sparklog.coordinator.removals import end_removals
from sparklog.delta.listing import tables_of
from sparklog.errors import InvalidRequestError, RootReplacedError, SparklogError
from sparklog.log.commits.retired_files import REMOVED
from sparklog.log.parallel import map_parallel
from sparklog.maintenance.gc.recent_look import RecentLook
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.sweep import (
    DELETED_TOGETHER,
    SweepResult,
    check_before_deletion,
    due_files,
    remove_expired_reader_leases,
    sweep,
    why_listed,
    why_listings_are_needed,
)
from sparklog.maintenance.tables import Tables
from sparklog.monitoring.orphans import (
    DEFAULT_AGE_MS,
    NEVER_COMMITTED,
    NO_VERSION_IN_NAME,
    NeededFiles,
    find_orphans,
    newest_before,
)
from sparklog.progress import Show
from sparklog.protocol.commits import FenceWriters
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.features import check_written
from sparklog.protocol.file_names import log_path_of
from sparklog.protocol.state import State
from sparklog.store.base import Store

MIN_AGE_MS = 86_400_000
"""Age limit in ms below which ``force`` is required, since active writers would have to write again."""

_LISTING = re.compile(re.escape(REMOVED) + r"(\d{20})-[A-Za-z0-9_-]{1,64}\.arrow\Z")

RETIRED = "rolled, compacted or deleted"
NO_REPLICA = "the replica was moved to another broker"
UNUSED_LISTING = "no commit names this listing"
OLD_LEASE = "its member left the group long ago"


class GarbageFile(NamedTuple):
    """A file that is deleted, or reported and kept: its broker, path, size in bytes, and the reason."""

    broker: int
    path: str
    size: int
    why: str


@dataclass
class OrphanReport:
    """What a vacuum found and did. ``files`` were deleted, or would be in a dry run; ``left_alone`` are kept.

    ``superseded`` are retired files whose delay has passed; they were, or would be, deleted too.
    ``fence`` is the version at or before which the files were begun; ``younger`` counts files that were begun later.
    ``unfinished`` counts temporary files that were deleted, which a dry run cannot see. ``reader_leases`` counts the
    expired leases of readers that were deleted.
    """

    dry_run: bool
    fence: int
    files: list[GarbageFile] = field(default_factory=list)
    superseded: list[GarbageFile] = field(default_factory=list)
    left_alone: list[GarbageFile] = field(default_factory=list)
    younger: int = 0
    unfinished: int = 0
    reader_leases: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in (*self.files, *self.superseded))


@in_one_timeline
def vacuum(
    coordinator: Coordinator,
    older_than_ms: int = DEFAULT_AGE_MS,
    dry_run: bool = True,
    force: bool = False,
    check: Callable[[], None] = lambda: None,
    progress: Show = lambda unit, done, total: None,
) -> OrphanReport:
    """Find garbage, and delete it unless it is a ``dry_run``. ``check`` is called between brokers and may raise to
    stop. ``progress`` is told how many files of a broker were looked at, and how many brokers are done.

    Raises InvalidRequestError for an age limit under ``MIN_AGE_MS`` without ``force``, FeatureLevelError for a cluster
    of a level that this version only reads (unless it is a dry run), StorageError if the root does not answer,
    BrokerNotAvailableError if another root owns a location, so that this one may be a copy (unless it is a dry run),
    CorruptMetadataError if a listing cannot be read. Errors of other brokers are added to the problems.
    """
    if older_than_ms < (0 if force else MIN_AGE_MS):
        raise InvalidRequestError(
            f"invalid age limit: {older_than_ms} ms is less than {MIN_AGE_MS} ms (a day), so that writers that take "
            "longer from their first byte to their commit would have to write again; choose a longer one, or give "
            "--force (force=True)"
        )
    if not dry_run:
        check_written(coordinator.refresh().level)
        check_all_owned(coordinator)
        end_removals(coordinator)
    now_ms = coordinator.log.clock.now_ms() if dry_run else coordinator.log.expiry_clock.now_ms()
    before_ms = now_ms - older_than_ms
    retired = due_files(coordinator, now_ms)
    superseded = [GarbageFile(file.broker, file.path, file.size_bytes, RETIRED) for file in retired]
    swept = SweepResult() if dry_run else sweep(coordinator, check)
    state = coordinator.refresh()
    fence = max(newest_before(coordinator, state, before_ms), state.writer_fence)
    if not dry_run:
        state = _fence(coordinator, fence)
    result = OrphanReport(
        dry_run, fence, superseded=superseded, problems=swept.problems, reader_leases=swept.reader_leases
    )
    needed, tables = NeededFiles(coordinator, state), Tables(coordinator)
    why = why_listings_are_needed(coordinator, state, needed.missing_listings)
    if why:
        result.problems.append(f"nothing that looks like an orphan is deleted: files {why}")
        return result
    for done, broker in enumerate(sorted(state.brokers)):
        check()
        progress("brokers", done, len(state.brokers))
        _vacuum_broker(coordinator, state, broker, needed, tables, before_ms, result, progress)
    _vacuum_root(coordinator, state, now_ms, older_than_ms, result)
    return result


def _fence(coordinator: Coordinator, version: int) -> State:
    """Fence out all files begun at this version or before; return a state that names those of them that are part of
    the log."""

    def decide(state: State) -> Decision[None]:
        return Decision([FenceWriters(version=version)] if version > state.writer_fence else [], None)

    coordinator.submit(decide)
    return coordinator.refresh()


def _vacuum_broker(
    coordinator: Coordinator,
    state: State,
    broker: int,
    needed: NeededFiles,
    tables: Tables,
    before_ms: int,
    result: OrphanReport,
    progress: Show,
) -> None:
    if not state.brokers[broker].online:
        result.problems.append(f"broker {broker} is offline and was skipped")
        return

    def scanned(files: int) -> None:
        progress(f"files at broker {broker}", files, 0)

    try:
        store = coordinator.brokers.store_of(state, broker)
        orphans = list(_find_orphans(store, broker, needed, result, scanned))
        if not result.dry_run:
            orphans = _find_unlisted(tables, state, orphans, result)
            for first in range(0, max(1, len(orphans)), DELETED_TOGETHER):  # looks there also if there are none
                recent = RecentLook(
                    coordinator.log.clock, lambda: check_before_deletion(coordinator, broker, coordinator.state)
                )
                recent.look()
                paths = [orphan.path for orphan in orphans[first : first + DELETED_TOGETHER]]
                map_parallel(recent.delete, paths, store.parallel_requests)
            result.unfinished += store.remove_unfinished(before_ms)
        result.files += orphans
        surplus = remove_surplus_replicas(coordinator, broker, result.dry_run, result.problems)
        result.files += [GarbageFile(broker, info.key, info.size, NO_REPLICA) for info in surplus]
    except SparklogError as error:
        if not state.brokers[broker].url or isinstance(error, RootReplacedError):  # the root itself
            raise
        result.problems.append(f"broker {broker}: {error}")


def _find_unlisted(tables: Tables, state: State, orphans: list[GarbageFile], result: OrphanReport) -> list[GarbageFile]:
    """Return the orphans that no table lists: one that was part of the log once, and whose listing was lost, might."""
    kept: set[str] = set()
    for topic in tables_of(log_path_of(orphan.path) for orphan in orphans):
        why = why_listed(tables, state, topic)
        if why:
            kept.add(topic)
            if why not in result.problems:
                result.problems.append(why)
    return [orphan for orphan in orphans if not kept.intersection(tables_of([log_path_of(orphan.path)]))]


def _find_orphans(
    store: Store, broker: int, needed: NeededFiles, result: OrphanReport, scanned: Callable[[int], None]
) -> Iterator[GarbageFile]:
    """Return the orphans at a broker; count files begun after the fence, and add those without a version to the
    files left alone."""
    for found in find_orphans(store, needed, result.fence, scanned):
        file = GarbageFile(broker, found.key, found.size, found.why)
        if found.why == NEVER_COMMITTED:
            yield file
        elif found.why == NO_VERSION_IN_NAME:
            result.left_alone.append(file)
        else:
            result.younger += 1


def _vacuum_root(coordinator: Coordinator, state: State, now_ms: int, older_than_ms: int, result: OrphanReport) -> None:
    """Delete listings that no commit names, leases of members that left their group, and expired reader leases."""
    store = coordinator.store
    garbage = [
        *_find_unused_listings(store, state, result.fence),
        *_find_old_leases(store, state, now_ms - older_than_ms),
    ]
    if not result.dry_run:
        coordinator.refresh()  # in a root that was restored since, a listing may be needed: RootReplacedError
        map_parallel(store.delete, [file.path for file in garbage], store.parallel_requests)
        result.reader_leases += remove_expired_reader_leases(store, now_ms, older_than_ms)
    result.files += garbage


def _find_unused_listings(store: Store, state: State, fence: int) -> Iterator[GarbageFile]:
    for info in store.list(REMOVED):
        match = _LISTING.fullmatch(info.key)
        if match and int(match.group(1)) <= fence and info.key not in state.removed_files:
            yield GarbageFile(0, info.key, info.size, UNUSED_LISTING)


def _find_old_leases(store: Store, state: State, before_ms: int) -> Iterator[GarbageFile]:
    """Return leases that were not renewed since ``before_ms``, of members that are in no group."""
    member_leases = {lease_key(name, member) for name, group in state.groups.items() for member in group.members}
    for info in store.list(LEASES):
        if info.modified_ms < before_ms and info.key not in member_leases:
            yield GarbageFile(0, info.key, info.size, OLD_LEASE)
