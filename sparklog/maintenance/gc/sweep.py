"""The sweep: deletes retired files, those of segments and topics that left the log, once no reader needs them.

    result = sweep(coordinator)

A commit that retires files names a listing of them (``log.commits.retired_files``) and how long they are kept:
``file.delete.delay.ms``, as in Kafka's ``LocalLog.deleteSegmentFiles``. When that time has passed and every reader with
a lease has seen the log without those files, the sweep deletes what the listing names, and then commits that the
listing is done.

Rules: a file is deleted only if it has no live segment: a file may hold runs of several partitions, and a listing may
name files of changes that were not made. If several listings name a file, the one that is due last decides
(``later_listings``): it is that of the commit with which the file left. A copy of a live file may be needed at any
broker later, so those that no replica needs are left to ``surplus_replicas``. A history segment is deleted only when
the topic's Delta table shows the log without it. Replaced files are kept while a file that replaced them is missing
everywhere: they may be the last copy of its records. That is checked again before a batch of deletions if brokers have
changed since, or after ``LOOK_SECONDS``. If a file cannot be deleted now, because its broker is offline or does not
answer, its table cannot be read, or its location is not this root's, the others are deleted, its listing is kept and
the next sweep retries it. Every step may be repeated. Not for: files that no listing names (``vacuum``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from sparklog.coordinator import Coordinator
from sparklog.coordinator.live_files import AddedFile, LiveFiles, find_live, read_live_partitions
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.coordinator.ownership import check_all_owned, check_owned
from sparklog.coordinator.reader_leases import StoredReaderLeases, read_reader_leases
from sparklog.delta.listing import tables_of
from sparklog.errors import (
    CorruptMetadataError,
    ObjectNotFoundError,
    RootReplacedError,
    SparklogError,
    StorageError,
)
from sparklog.log.commits.retired_files import RemovedFile, read_removed
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.parallel import map_parallel
from sparklog.maintenance.gc.later_listings import LaterListings
from sparklog.maintenance.gc.recent_look import RecentLook
from sparklog.maintenance.mirror import read_mirrored_versions
from sparklog.maintenance.tables import Tables
from sparklog.protocol.commits import ForgetRemovedFiles
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.file_names import index_path, is_history, topic_in
from sparklog.protocol.state import BrokerState, State
from sparklog.retry import retry_read
from sparklog.store.base import Store

DELETED_TOGETHER = 100
"""Files that are deleted before it is checked again that this may go on."""

LISTINGS_PER_COMMIT = 100
"""Listings that one commit reports as done; the most that an interrupted sweep has to repeat."""

FAILURES_IN_A_ROW = 3
"""Consecutive listings that a sweep fails to read before it takes the storage for unavailable."""

LOOK_SECONDS = 60.0
"""seconds for which a look at the files that replaced others counts, if no broker changes."""

EXPIRED_LEASES_KEPT_MS = 3_600_000
"""Time in ms that a sweep keeps an expired reader lease, for a reader that renews it late."""

HELD_BY_MIRROR_MS = 86_400_000
"""Time in ms after its delay for which the files of a listing are kept for a mirror that does not have its commit."""

MIRROR_IN_USE_MS = 7 * 86_400_000
"""Time in ms after its last pass for which a mirror is taken to be in use."""


@dataclass
class SweepResult:
    """What a sweep did. Listings remain while their delay has not passed, readers hold leases, or a broker is away.

    ``reader_leases`` counts the expired leases of readers that were deleted.
    """

    listings: int = 0
    files: int = 0
    size_bytes: int = 0
    files_in_use: int = 0
    listings_not_due: int = 0
    listings_held_by_readers: int = 0
    listings_held_by_mirrors: int = 0
    reader_leases: int = 0
    problems: list[str] = field(default_factory=list)


@in_one_timeline
def sweep(
    coordinator: Coordinator, check: Callable[[], None] = lambda: None, tables: Tables | None = None
) -> SweepResult:
    """Delete the files of listings that are due. ``check`` is called between listings and may raise to stop.
    ``tables``: what is known of the topics' tables already.

    Raises StorageError if the root does not answer, BrokerNotAvailableError if another root owns a location, so that
    this one may be a copy, IndeterminateCommitError, CommitConflictError. Another sweep continues where this one
    stopped.
    """
    result = SweepResult()
    state = coordinator.refresh()
    check_all_owned(coordinator)
    now_ms = coordinator.log.expiry_clock.now_ms()
    readers = read_reader_leases(coordinator.store, now_ms)
    result.reader_leases = _remove_leases(coordinator.store, readers, now_ms - EXPIRED_LEASES_KEPT_MS)
    tables = tables or Tables(coordinator)
    tables.begin_deletion()
    due = _find_due(coordinator.store, state, readers, now_ms, result)
    swept = _sweep_listings(coordinator, tables, due, check, result)
    while finished := list(islice(swept, LISTINGS_PER_COMMIT)):
        _finish_listings(coordinator, finished, result)
    return result


def _sweep_listings(
    coordinator: Coordinator, tables: Tables, keys: Sequence[str], check: Callable[[], None], result: SweepResult
) -> Iterator[str]:
    """Delete what the listings name; return the listings of which no file is left.

    If the storage fails, the listing is left to the next sweep and the others are processed. After
    ``FAILURES_IN_A_ROW`` failures the storage is considered unavailable, and the error is raised. The lists of live
    segments are read once for ``LISTINGS_PER_COMMIT`` listings: a file that has left the log does not come back.
    """
    failures, later = 0, LaterListings(coordinator, keys)
    for start in range(0, len(keys), LISTINGS_PER_COMMIT):
        listings: dict[str, list[RemovedFile]] = {}
        for key in keys[start : start + LISTINGS_PER_COMMIT]:
            check()
            try:
                files = _read_listing(coordinator, key, result)
            except StorageError as error:
                failures += 1
                if failures == FAILURES_IN_A_ROW:
                    raise
                result.problems.append(f"listing {key} failed, the next sweep retries it: {error}")
                continue
            failures = 0
            if files is not None:
                listings[key] = files
        if listings:
            yield from _sweep_read_listings(coordinator, tables, listings, later, check, result)


def _sweep_read_listings(
    coordinator: Coordinator,
    tables: Tables,
    listings: Mapping[str, list[RemovedFile]],
    later: LaterListings,
    check: Callable[[], None],
    result: SweepResult,
) -> Iterator[str]:
    """Delete what these listings name; return the listings of which no file is left. Raises StorageError."""
    state = coordinator.refresh()
    live = _find_live(coordinator, state, (file for files in listings.values() for file in files), listings)
    for key, files in listings.items():
        check()
        state = coordinator.refresh()  # brokers may have changed while the files of another listing were deleted
        replacements = _Replacements(coordinator, live, key)
        why = later.read(state) or replacements.find_lost()
        if why:
            which = f"the {len(files)} retired files" if files else "the retired files"
            result.problems.append(f"{which} of listing {key} are kept: {why}")
            continue
        if not files:
            result.problems.append(f"listing {key} is missing; run `sparklog vacuum` to delete the files that it named")
        free, others_remain = later.split(files)
        kept = _find_listed(tables, state, free, live)
        problems = _delete_files(coordinator, state, _without_topics(free, kept), live, replacements, result)
        result.problems += [why for why in (*kept.values(), *problems) if why not in result.problems]
        if not (kept or problems or others_remain):
            yield key


def _find_listed(tables: Tables, state: State, files: Iterable[RemovedFile], live: LiveFiles) -> dict[str, str]:
    """Return why files of a listing are kept, by topic: its table may not show the log without them yet."""
    paths = [file.path for file in files if file.path not in live]
    return {topic: why for topic in tables_of(paths) if (why := why_listed(tables, state, topic))}


def _without_topics(files: Iterable[RemovedFile], topics: Collection[str]) -> list[RemovedFile]:
    """Return the files that are no history segments of these topics."""
    return [file for file in files if not is_history(file.path) or topic_in(file.path) not in topics]


def why_listed(tables: Tables, state: State, topic: str) -> str:
    """Return why the table of a topic may list history segments that are not live in a state; empty if it lists none.
    A table that cannot be read or published is a problem of its topic alone, and is not tried again in this run."""
    try:
        tables.show(topic, state)
    except SparklogError as error:
        return f"the table of topic {topic} may list files to delete: {error.message}"
    return ""


def due_files(coordinator: Coordinator, now_ms: int) -> list[RemovedFile]:
    """Return the files that a sweep would delete at this time. Errors as ``sweep``."""
    state, result = coordinator.refresh(), SweepResult()
    readers = read_reader_leases(coordinator.store, now_ms)
    clock, due = coordinator.log.clock, _find_due(coordinator.store, state, readers, now_ms, result)
    listings = [retry_read(partial(_read_listing, coordinator, key, result), clock) for key in due]
    files = [file for listing in listings for file in listing or () if file.broker in state.brokers]
    later = LaterListings(coordinator, due)
    if later.read(state):
        return []
    files, _ = later.split(files)
    live = _find_live(coordinator, state, files)
    return [file for file in files if file.path not in live]


def _find_due(root: Store, state: State, readers: StoredReaderLeases, now_ms: int, result: SweepResult) -> list[str]:
    """Return the listings whose delay has passed and that neither a reader lease nor a mirror holds; count the others.

    A mirror that is promoted without the commit of a listing needs its files, and does not know those in their place.
    It holds them for ``HELD_BY_MIRROR_MS`` at most. Raises StorageError.
    """
    due = [key for key, listing in sorted(state.removed_files.items()) if listing.delete_at_ms <= now_ms]
    result.listings_not_due += len(state.removed_files) - len(due)
    oldest = min((lease.version for lease in readers.valid), default=None)
    unheld = [key for key in due if oldest is None or state.removed_files[key].version <= oldest]
    result.listings_held_by_readers += len(due) - len(unheld)
    mirrors = read_mirrored_versions(root, now_ms - MIRROR_IN_USE_MS) if unheld else []
    last = min(mirrors, default=state.version)
    free = [
        key
        for key in unheld
        if state.removed_files[key].version <= last
        or state.removed_files[key].delete_at_ms + HELD_BY_MIRROR_MS <= now_ms
    ]
    result.listings_held_by_mirrors += len(unheld) - len(free)
    return free


def _read_listing(coordinator: Coordinator, key: str, result: SweepResult) -> list[RemovedFile] | None:
    """Return the files that a listing names, none if it is missing; None if another sweep has finished it, or it is
    damaged."""
    try:
        return list(read_removed(coordinator.store, key))
    except ObjectNotFoundError:
        if key not in coordinator.refresh().removed_files:
            return None
        return []
    except CorruptMetadataError as error:
        result.problems.append(error.message)
        return None


def _find_live(
    coordinator: Coordinator, state: State, files: Iterable[RemovedFile], listings: Iterable[str] = ()
) -> LiveFiles:
    """Return those of the files that have live segments of any topic, with what the commits of listings added."""
    retired = [state.removed_files[key].version for key in listings if key in state.removed_files]
    return LiveFiles(read_live_partitions(coordinator, state), {file.path for file in files}, retired)


def why_listings_are_needed(coordinator: Coordinator, state: State, listings: Sequence[str]) -> str:
    """Return why the files of these listings, which are missing, may be the only copy of their records; empty if what
    replaced them is there. Raises StorageError."""
    live = _find_live(coordinator, state, (), listings)
    reasons = (_find_lost_replacement(coordinator, state, live, listing) for listing in listings)
    return next((f"of the missing listing {key}: {why}" for key, why in zip(listings, reasons, strict=True) if why), "")


def _find_lost_replacement(coordinator: Coordinator, state: State, live: LiveFiles, listing: str) -> str:
    """Return which file in place of a listing's files no broker certainly has; empty if all are there.

    The retired files are then the only copy of their records. One request for each file and index that the commit
    added, of which there are fewer than retired ones.
    """

    def why_lost(file: AddedFile) -> str:
        reasons = []
        for broker in sorted(file.brokers & state.brokers.keys()):
            why = why_not_there(coordinator, state, broker, file)
            if not why:
                return ""
            reasons.append(why)
        return "; ".join(reasons) or "it was on brokers that are no longer registered"

    retired = state.removed_files.get(listing)
    added = [] if retired is None else live.added_by(retired.version)
    for file, why in zip(added, map_parallel(why_lost, added, coordinator.store.parallel_requests), strict=True):
        if why and file.path in find_live(coordinator, {file.path}):  # else replaced while this sweep was suspended
            return (
                f"no broker is known to have {file.path}, which replaced them ({why}), so they may be the only copy of "
                "its records; run `sparklog fsck --repair`, which writes it again from them"
            )
    return ""


class _Replacements:
    """The files in place of those of a listing, and when they were looked at. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, live: LiveFiles, listing: str) -> None:
        self._coordinator = coordinator
        self._live = live
        self._listing = listing
        self._elapsed = ElapsedTime(coordinator.log.clock)
        self._looked_at: Moment | None = None
        self._brokers: Mapping[int, BrokerState] = {}
        self._why = ""

    def find_lost(self) -> str:
        """Return which of them no broker certainly has, in the newest state that was read; empty if all are there."""
        state = self._coordinator.state
        looked_at = self._looked_at
        if looked_at is None or self._elapsed.seconds_since(looked_at) > LOOK_SECONDS or state.brokers != self._brokers:
            self._looked_at, self._brokers = self._elapsed.now(), state.brokers
            self._why = _find_lost_replacement(self._coordinator, state, self._live, self._listing)
        return self._why


def why_not_there(coordinator: Coordinator, state: State, broker: int, file: AddedFile) -> str:
    """Return why a broker may not have a file with its index; empty if it has both."""
    if not state.brokers[broker].online:
        return f"broker {broker} is offline"
    try:
        store = coordinator.store_of(broker)
        if store.info(file.path).size < file.size_bytes:
            return f"broker {broker}: it is too short"
        if not store.info(index_path(file.path)).size:
            return f"broker {broker}: its index is empty"
    except StorageError as error:  # absent, or the location does not answer: another one may have it
        return f"broker {broker}: {error.message}"
    return ""


def _delete_files(
    coordinator: Coordinator,
    state: State,
    files: Iterable[RemovedFile],
    live: LiveFiles,
    replacements: _Replacements,
    result: SweepResult,
) -> list[str]:
    """Delete the files of one listing; return a problem for each broker at which files could not be deleted."""
    by_broker: dict[int, list[RemovedFile]] = {}
    for file in files:
        if file.path in live:
            result.files_in_use += 1
        elif file.broker in state.brokers:  # the location of a broker that was unregistered is not known
            by_broker.setdefault(file.broker, []).append(file)
    problems: list[str] = []
    for broker, unneeded in by_broker.items():
        if not state.brokers[broker].online:
            problems.append(f"broker {broker} is offline; {len(unneeded)} files will be deleted later")
            continue
        outcomes = _delete_at(coordinator, state, broker, unneeded, replacements)
        failures = [error for error in outcomes if error is not None]
        result.files += len(unneeded) - len(failures)
        result.size_bytes += sum(
            file.size_bytes for file, error in zip(unneeded, outcomes, strict=True) if error is None
        )
        if failures:
            problems.append(
                f"broker {broker}: {len(failures)} files could not be deleted, the next sweep retries them: "
                f"{failures[0]}"
            )
    return problems


def _delete_at(
    coordinator: Coordinator, state: State, broker: int, files: list[RemovedFile], replacements: _Replacements
) -> list[SparklogError | None]:
    """Delete files at a broker; return the error of each, None for those that were deleted.

    Raises RootReplacedError."""

    def look() -> Store:
        store = check_before_deletion(coordinator, broker, state)
        lost = replacements.find_lost()
        if lost:
            raise StorageError(lost)
        return store

    outcomes: list[SparklogError | None] = []
    for first in range(0, len(files), DELETED_TOGETHER):
        recent = RecentLook(coordinator.log.clock, look)
        try:
            store = recent.look()
        except RootReplacedError:
            raise
        except SparklogError as error:
            return [*outcomes, *(error for _ in files[first:])]
        together = files[first : first + DELETED_TOGETHER]
        outcomes += map_parallel(partial(_delete_file, recent), together, store.parallel_requests)
    return outcomes


def check_before_deletion(coordinator: Coordinator, broker: int, state: State) -> Store:
    """Return the store of a broker after checking that the root still has the timeline that was read, for good, and is
    the owner of the location: in a root that was restored since, or whose disk loses the newest commit, the files may
    be live. As ``check_owned``; raises RootReplacedError."""
    coordinator.refresh()
    coordinator.log.make_durable()
    return check_owned(coordinator, broker, state)


def _delete_file(recent: RecentLook, file: RemovedFile) -> SparklogError | None:
    try:
        recent.delete(index_path(file.path), file.path)
    except RootReplacedError:
        raise
    except SparklogError as error:
        return error
    return None


def _finish_listings(coordinator: Coordinator, listings: Sequence[str], result: SweepResult) -> None:
    """Commit that all files of these listings are deleted, then delete the listings."""
    coordinator.submit(partial(_forget_listings, listings=listings))
    map_parallel(coordinator.store.delete, listings, coordinator.store.parallel_requests)
    result.listings += len(listings)


def _forget_listings(state: State, listings: Iterable[str]) -> Decision[None]:
    listed = [key for key in listings if key in state.removed_files]
    return Decision([ForgetRemovedFiles(listings=listed)] if listed else [], None)


def remove_expired_reader_leases(store: Store, now_ms: int, older_than_ms: int) -> int:
    """Delete leases of readers that expired more than ``older_than_ms`` ago; return how many. Raises StorageError."""
    return _remove_leases(store, read_reader_leases(store, now_ms), now_ms - older_than_ms)


def _remove_leases(store: Store, readers: StoredReaderLeases, before_ms: int) -> int:
    old = [lease.key for lease in readers.expired if lease.until_ms < before_ms]
    map_parallel(store.delete, old, store.parallel_requests)
    return len(old)
