"""The sweep: deletes the files of segments and topics that left the log, once nobody needs them.

    result = sweep(coordinator)

A commit that takes files out of the log names a listing of them (``log.removals``) and how long they stay:
``file.delete.delay.ms``, as in Kafka's ``LocalLog.deleteSegmentFiles``. The sweep deletes what a listing names when
that time has passed and every reader that announced itself has seen the log without those files, and then commits that
the listing is dealt with.

Rules: a file is deleted at a broker only if no live segment is in it there: a file may hold runs of many partitions,
and a listing may name files of changes that were not made. What cannot be deleted now, since its broker is offline or
does not answer, keeps its listing, and the next sweep goes on with it. Every step may be repeated.
Not for: files that no listing names (``vacuum``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.coordinator import Coordinator
from sparklog.coordinator.announcements import Announcements, read_all_announcements
from sparklog.errors import (
    CorruptMetadataError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
)
from sparklog.log.parallel import each
from sparklog.log.removals import RemovedFile, read_removed
from sparklog.protocol.commits import ForgetRemovedFiles
from sparklog.protocol.decision import Decision
from sparklog.protocol.segments import index_path
from sparklog.protocol.state import State
from sparklog.retry import retry_read
from sparklog.store.base import Store

LISTINGS_PER_COMMIT = 100
"""listings whose end one commit says: what a sweep that is interrupted does again."""

FAILURES_IN_A_ROW = 3
"""listings that a sweep could not look at one after the other, before it takes the storage for away."""

EXPIRED_ANNOUNCEMENTS_KEPT_MS = 3_600_000
"""ms that a sweep leaves an announcement that is over, for a reader that renews it late."""


@dataclass
class Swept:
    """What a sweep has done. Listings wait for their time, for readers, or for a broker to come back."""

    listings: int = 0
    files: int = 0
    size_bytes: int = 0
    files_in_use: int = 0
    listings_not_due: int = 0
    listings_held_by_readers: int = 0
    announcements: int = 0
    problems: list[str] = field(default_factory=list)


def sweep(coordinator: Coordinator, check: Callable[[], None] = lambda: None) -> Swept:
    """Delete what is due. ``check`` is called between listings, to stop there.

    Raises StorageError where the root does not answer, IndeterminateCommitError, CommitConflictError. What happened
    before stays, and another sweep goes on from there.
    """
    result = Swept()
    state = coordinator.refresh()
    now_ms = coordinator.expiry_time_ms()
    readers = read_all_announcements(coordinator.store, now_ms)
    result.announcements = _remove_old(coordinator.store, readers, now_ms - EXPIRED_ANNOUNCEMENTS_KEPT_MS)
    due = _due(state, readers, now_ms, result)
    finished: list[str] = []
    for key in _sweep_listings(coordinator, due, check, result):
        finished.append(key)
        if len(finished) == LISTINGS_PER_COMMIT:
            _forget(coordinator, finished, result)
            finished.clear()
    _forget(coordinator, finished, result)
    return result


def _sweep_listings(
    coordinator: Coordinator, keys: Sequence[str], check: Callable[[], None], result: Swept
) -> Iterator[str]:
    """Delete what listings name; returns those that nothing is left of.

    Where the storage fails, a listing is left to the next sweep and the others are dealt with; where it fails several
    times in a row it is away, and the error is raised.
    """
    failures = 0
    for key in keys:
        check()
        try:
            files = _read_listing(coordinator, key, result)
            if files is None:
                continue
            state = coordinator.refresh()  # replicas may have moved while the files of another listing were deleted
            live = live_places(coordinator, state, {file.path for file in files})
        except StorageError as error:
            failures += 1
            if failures == FAILURES_IN_A_ROW:
                raise
            result.problems.append(f"the listing {key} is dealt with by the next sweep: {error}")
            continue
        failures = 0
        problems = _delete_files(coordinator, state, files, live, result)
        result.problems += problems
        if not problems:
            yield key


def due_files(coordinator: Coordinator, now_ms: int) -> list[RemovedFile]:
    """What a sweep would delete at this time. Errors as ``sweep``."""
    state, result = coordinator.refresh(), Swept()
    readers = read_all_announcements(coordinator.store, now_ms)
    clock = coordinator.log.clock
    listings = [
        retry_read(partial(_read_listing, coordinator, key, result), clock)
        for key in _due(state, readers, now_ms, result)
    ]
    files = [file for listed in listings for file in listed or () if file.broker in state.brokers]
    live = live_places(coordinator, state, {file.path for file in files})
    return [file for file in files if file.broker not in live.get(file.path, ())]


def _due(state: State, readers: Announcements, now_ms: int, result: Swept) -> list[str]:
    """The listings whose time has come, and that no reader holds."""
    due = [key for key, removed in sorted(state.removed_files.items()) if removed.delete_at_ms <= now_ms]
    result.listings_not_due += len(state.removed_files) - len(due)
    oldest = min((reader.version for reader in readers.valid), default=None)
    free = [key for key in due if oldest is None or state.removed_files[key].version <= oldest]
    result.listings_held_by_readers += len(due) - len(free)
    return free


def _read_listing(coordinator: Coordinator, key: str, result: Swept) -> list[RemovedFile] | None:
    """The files that a listing names; None where another sweep has dealt with it, or nobody can read it."""
    try:
        return list(read_removed(coordinator.store, key))
    except ObjectNotFoundError:
        if key not in coordinator.refresh().removed_files:
            return None
        result.problems.append(f"the listing {key} is gone; a vacuum finds the files that it named")
        return []
    except CorruptMetadataError as error:
        result.problems.append(error.message)
        return None


def live_places(coordinator: Coordinator, state: State, paths: Iterable[str]) -> dict[str, set[int]]:
    """Which of these files hold live segments of any topic, and the brokers that they may be needed at.

    Looks through the lists of all topics, column by column.
    """
    wanted = pa.array(sorted(paths), pa.string())
    found: dict[str, set[int]] = {}
    if not len(wanted):
        return found
    for topic in state.topics_in_order():
        if not any(partition.segments for partition in topic.partitions):
            continue
        listed = coordinator.segments(topic.name, state)
        for number, partition in enumerate(topic.partitions):
            replicas = {*partition.replicas, *partition.isr, *partition.adding, *partition.removing}
            for table in listed.partition(number).tables():
                hits = table.select(["path", "broker"]).filter(pc.is_in(table.column("path"), value_set=wanted))
                for path, broker in zip(*(column.to_pylist() for column in hits.columns), strict=True):
                    found.setdefault(path, set()).update(replicas, (broker,))
    return found


def _delete_files(
    coordinator: Coordinator,
    state: State,
    files: Iterable[RemovedFile],
    live: Mapping[str, set[int]],
    result: Swept,
) -> list[str]:
    """Delete the files of one listing, and say what stood in the way at which broker."""
    by_broker: dict[int, list[RemovedFile]] = {}
    for file in files:
        if file.broker in live.get(file.path, ()):
            result.files_in_use += 1
        elif file.broker in state.brokers:  # of one that is not registered any more nobody knows where it is
            by_broker.setdefault(file.broker, []).append(file)
    problems: list[str] = []
    for broker, gone in by_broker.items():
        if not state.brokers[broker].online:
            problems.append(f"{len(gone)} files stay at broker {broker} for now: it is offline")
            continue
        outcomes = _delete_at(coordinator, broker, gone)
        failures = [error for error in outcomes if error is not None]
        result.files += len(gone) - len(failures)
        result.size_bytes += sum(file.size_bytes for file, error in zip(gone, outcomes, strict=True) if error is None)
        if failures:
            problems.append(f"{len(failures)} files stay at broker {broker} for now: {failures[0]}")
    return problems


def _delete_at(coordinator: Coordinator, broker: int, files: list[RemovedFile]) -> list[SparklogError | None]:
    try:
        store = coordinator.store_of(broker)
    except SparklogError as error:
        return [error for _ in files]

    def delete(file: RemovedFile) -> SparklogError | None:
        try:
            store.delete(index_path(file.path))
            store.delete(file.path)
        except StorageError as error:
            return error
        return None

    return each(delete, files)


def _forget(coordinator: Coordinator, listings: Sequence[str], result: Swept) -> None:
    """Commit that nothing is left of these listings, then delete them."""
    if listings:
        coordinator.submit(partial(_forgotten, listings=listings))
        each(coordinator.store.delete, listings)
        result.listings += len(listings)


def _forgotten(state: State, listings: Iterable[str]) -> Decision:
    known = [key for key in listings if key in state.removed_files]
    return Decision([ForgetRemovedFiles(listings=known)] if known else [], None)


def remove_expired_announcements(store: Store, now_ms: int, older_than_ms: int) -> int:
    """Remove what readers that ended without a word left behind. Returns how many there were. Raises StorageError."""
    return _remove_old(store, read_all_announcements(store, now_ms), now_ms - older_than_ms)


def _remove_old(store: Store, readers: Announcements, before_ms: int) -> int:
    old = [reader.key for reader in readers.expired if reader.until_ms < before_ms]
    each(store.delete, old)
    return len(old)
