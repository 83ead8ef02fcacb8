"""Putting what tasks wrote in the place of the segments it was made from: one commit for many partitions.

    replacing = Replacing(coordinator, state)
    with replacing.committed_at_the_end():
        for result in runner.run(...):
            replacing.take(lambda: [Replaced(change, old_segments, places)])

The listing of the files that go is stored first, then the commit names it (``log.removals``). Files that a commit
leaves out, since another job changed the same offsets meanwhile, are deleted at once: nobody ever saw them. Where it is
not known whether a commit happened, they stay, and a vacuum finds out.

Rules: a crash at any step leaves the log as it was or as it is to be, and files and listings that no commit names.
Not for: what is put in the place of what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from msgspec.structs import replace

from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import DataLossError, IndeterminateCommitError, SparklogError, StorageError
from sparklog.log.commits.retired_files import files_of, write_removed
from sparklog.maintenance.runner import StopRequested, raise_first
from sparklog.maintenance.segments.files import FETCHED_AHEAD, Places, delete_files
from sparklog.maintenance.segments.merge import Target
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, changed_since, removed
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State
from sparklog.store.base import Store

SEGMENTS_PER_COMMIT = 4000
"""new segments that one commit names at most: some 1.5 MB of the 4 MiB that a commit may have."""

BYTES_PER_COMMIT = 4 * 1024**3
"""bytes of new segments after which a commit is made while a job is still at work, so that an end does not cost all."""


class Replaced(NamedTuple):
    """A replacement with the segments it takes out of the log, and where its files are."""

    change: Replacement
    old: Sequence[Segment]
    places: Places


@dataclass
class Counts:
    """What a job has done: files taken out of the log and put in, bytes of their records, and what was left out."""

    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    records_removed: int = 0
    commits: int = 0
    left_out: list[str] = field(default_factory=list)


class ConflictError(Exception):
    """A file that a task was to read is gone, since another job has changed the same segments."""


class SegmentReplacement:
    """Gathers replacements that were planned at ``state``, and commits them. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self.counts = Counts()
        self._coordinator = coordinator
        self._state = state
        self._waiting: list[Replaced] = []
        self._waiting_segments = self._waiting_bytes = 0
        self._errors: list[Exception] = []

    @contextmanager
    def committed_at_the_end(self) -> Iterator[None]:
        """Commit what the block took in, also where an error or a stop ends it; then raise errors.

        Raises StorageError, IndeterminateCommitError, CommitConflictError besides.
        """
        try:
            yield
        except Exception as error:
            self._errors.insert(0, error)
        except StopRequested:
            self.finish()
            raise
        self.finish()
        raise_first(self._errors)

    def take(self, result: Callable[[], Sequence[Replaced]]) -> None:
        """Take in what a task has made, to be committed together; at once where much is waiting. An error is kept."""
        try:
            self.add(*result())
        except ConflictError as overtaken:
            self.counts.left_out.append(str(overtaken))
        except Exception as error:
            self._errors.append(error)

    def add(self, *belonging: Replaced) -> None:
        """Take these in, which are committed together. Errors as ``finish``."""
        added = [live for one in belonging for live in one.change.added]
        if self._waiting_segments + len(added) > SEGMENTS_PER_COMMIT or self._waiting_bytes > BYTES_PER_COMMIT:
            self.finish()
        self._waiting += belonging
        self._waiting_segments += len(added)
        self._waiting_bytes += sum(live.run.size_bytes for live in added)

    def finish(self) -> None:
        """Commit what is waiting. Raises StorageError, IndeterminateCommitError, CommitConflictError."""
        waiting, self._waiting = self._waiting, []
        self._waiting_segments = self._waiting_bytes = 0
        by_delay: dict[int, list[Replaced]] = {}
        for one in _joined(waiting):
            by_delay.setdefault(self._delay_ms(one.change.topic), []).append(one)
        for delay_ms, replaced in by_delay.items():
            self._commit(replaced, delay_ms)

    def _commit(self, replaced: Sequence[Replaced], delay_ms: int) -> None:
        try:
            done = self._change(replaced, delay_ms)
        except IndeterminateCommitError:
            raise
        except SparklogError:  # nothing was committed for certain
            for one in replaced:
                _delete_new(one)
            raise
        self.counts.commits += bool(done)
        for one in replaced:
            if any(change is one.change for change in done):
                self._count(one)
            else:
                _delete_new(one)

    def _change(self, replaced: Sequence[Replaced], delay_ms: int) -> Sequence[object]:
        """Store the listing, commit, and say which changes were made."""
        coordinator, version = self._coordinator, self._state.version
        gone = [file for one in replaced for file in files_of(self._partition(one.change), one.old)]
        listing = write_removed(coordinator.store, coordinator.log.ids, version, gone, delay_ms)
        request = SegmentsRequest(version=version, changes=[one.change for one in replaced], files=listing)
        try:
            result = coordinator.change_segments(request)
        except IndeterminateCommitError:
            raise
        except SparklogError:
            self._forget(listing.listing)
            raise
        if not result.done:
            self._forget(listing.listing)
        for left_out in result.left_out:
            place = f"{left_out.change.topic}-{left_out.change.partition}"
            self.counts.left_out.append(f"{place} was left as it is: {left_out.why}; it is planned again next time")
        return result.done

    def _forget(self, listing: str) -> None:
        with suppress(StorageError):
            self._coordinator.store.delete(listing)

    def _count(self, one: Replaced) -> None:
        counts = self.counts
        counts.files_in += len(one.old)
        counts.records_removed += sum(segment.records for segment in one.old)
        counts.records_removed -= sum(added.run.records for added in one.change.added)
        counts.bytes_in += sum(segment.size_bytes for segment in one.old)
        counts.files_out += len(one.change.added)
        counts.bytes_out += sum(added.run.size_bytes for added in one.change.added)

    def _partition(self, change: Replacement) -> PartitionState:
        return self._state.partition(change.topic, change.partition)

    def _delay_ms(self, topic: str) -> int:
        return TopicConfig.resolve(self._state.topic(topic).configs, self._state.configs).file_delete_delay_ms


def _joined(waiting: Sequence[Replaced]) -> list[Replaced]:
    """Neighbouring replacements as one: a partition remembers few changes."""
    found: list[Replaced] = []
    for one in sorted(waiting, key=lambda one: (one.change.topic, one.change.partition, one.change.start_offset)):
        before, change = found[-1].change if found else None, one.change
        if before is None or change.together or before.together or not _touch(before, change):
            found.append(one)
            continue
        old = [*found[-1].old, *one.old]
        both = replace(
            before,
            end_offset=change.end_offset,
            removed=removed(change.topic_id, old),
            added=[*before.added, *change.added],
        )
        found[-1] = Replaced(both, old, one.places)
    return found


def _touch(before: Replacement, change: Replacement) -> bool:
    same = (before.topic_id, before.partition) == (change.topic_id, change.partition)
    return same and before.end_offset == change.start_offset


def _delete_new(one: Replaced) -> None:
    delete_files(one.places, [added.run.path for added in one.change.added])


def places_of(coordinator: Coordinator, partition: PartitionState) -> Places | None:
    """Where a partition is read and written now: all in-sync replicas, its leader first; None where it has no leader.

    Raises StorageError, UnsupportedStoreError for a location that cannot be opened.
    """
    if partition.leader < 0:
        return None
    brokers = tuple(dict.fromkeys([partition.leader, *partition.isr]))
    stores = {broker: coordinator.store_of(broker) for broker in brokers}
    return Places(stores, brokers, brokers, FETCHED_AHEAD if any(map(_is_remote, stores.values())) else 0)


def _is_remote(store: Store) -> bool:
    """Whether a request to the storage takes so long that several are better made at the same time."""
    return "://" in store.root and not store.root.startswith("memory://")


def target_of(coordinator: Coordinator, state: State, topic: str, partition: int) -> Target:
    """How files of a partition are written."""
    config = TopicConfig.resolve(state.topic(topic).configs, state.configs)
    kind = config.compression_type
    codec = {"producer": None, "uncompressed": "none"}.get(kind, kind)
    return Target(
        topic,
        partition,
        state.version,
        coordinator.log.ids,
        codec,
        None if codec is None else config.compression_level(codec),
        cast(int, config.get("index.interval.bytes")),
    )


def missing_source(
    coordinator: Coordinator, state: State, topic: str, segments: Sequence[Segment], path: str
) -> ConflictError | DataLossError:
    """What it means that a task found a file of these segments missing, which were listed at ``state``.

    A job announces itself to nobody: what is deleted while it reads was replaced or deleted by another job, so what is
    made of it would not be taken anyway.
    """
    partition = segments[0].partition
    newest = coordinator.refresh()
    found = newest.topics.get(topic)
    if (
        found is None
        or found.topic_id != state.topic(topic).topic_id
        or changed_since(found.partitions[partition], state.version, segments[0].base_offset, segments[-1].end_offset)
    ):
        return ConflictError(f"{topic}-{partition} was changed by another job meanwhile; it is planned again next time")
    return DataLossError(
        f"{path} is part of {topic}-{partition} and missing; `sparklog fsck` tells what else is",
        topic=topic,
        partition=partition,
        path=path,
    )
