"""Finds an unclean leader: a replica that is not in sync, for partitions whose replicas in sync are all lost.

The replica with most records is chosen, the first of the replica list among equals (Kafka takes the first, whatever it
holds). Records that it lacks leave the log with its election; see ``protocol.decide.elections``. It does not lack those
whose file was rolled or compacted while it was away, as long as the files from before are kept at it: their segment
stays in the log, and ``sparklog fsck --repair`` writes it again from them.

Rules: reads storages and decides nothing. A location that cannot be read is not taken for empty, which would lose
records: that it is the right one is checked before and after its listing. A replica holds a segment if its ``.index``
has the run that the commit names, and its ``.log`` is as long as the ``.index`` says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, cast

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.location_files import is_whole
from sparklog.coordinator.ownership import check_owned
from sparklog.errors import (
    EligibleLeadersNotAvailableError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.commits.retired_files import RemovedFile, read_removed
from sparklog.log.layout import CLUSTER_KEY, exists
from sparklog.protocol.decide.elections import UncleanElection, allows_unclean_election, needs_unclean_election
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.file_names import topic_in
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


def waiting_for_unclean_election(state: State) -> Iterator[TopicPartition]:
    """Yield the partitions without a leader whose topic allows unclean leader election."""
    for topic in state.topics_in_order():
        leaderless = [number for number, partition in enumerate(topic.partitions) if partition.leader < 0]
        if leaderless and allows_unclean_election(state, topic.name):
            yield from (
                TopicPartition(topic.name, number)
                for number in leaderless
                if needs_unclean_election(state, topic.name, number)
            )


class UncleanSearch:
    """Finds the unclean leaders of many partitions at a state: each location is listed once, and one that cannot be
    read is asked once. ``progress`` is called now and then. Not thread-safe; for one pass."""

    def __init__(self, coordinator: Coordinator, state: State, progress: Callable[[], object] = lambda: None) -> None:
        self._coordinator = coordinator
        self._state = state
        self._progress = progress
        self._listed: dict[int, _ListedStore] = {}
        self._failed: set[int] = set()
        self._retired: dict[str, list[RemovedFile]] = {}

    def find(self, topic: str, number: int) -> UncleanElection:
        """Return the election of the online replica that lacks fewest records.

        Raises UnknownTopicOrPartitionError, EligibleLeadersNotAvailableError if none answers, StorageError,
        CorruptMetadataError for a listing of retired files that cannot be read.
        """
        state = self._state
        partition = state.partition(topic, number)
        topic_id = state.topics[topic].topic_id
        segments = list(self._coordinator.segments(topic, state).partition(number))
        best: tuple[tuple[int, int], int, list[Segment]] | None = None
        candidates = needs_unclean_election(state, topic, number)
        for broker in candidates:
            lacking = self._look_at(broker, segments)
            if lacking is None:
                continue
            lost = [segment for segment in lacking if not self._has_replaced(broker, topic, segment)]
            rank = _records_of(lost), _records_of(lacking)
            if best is None or rank < best[0]:
                best = (rank, broker, lost)
        if best is None:
            raise EligibleLeadersNotAvailableError(
                f"no replica of {topic}-{number} is online and answers; bring one of brokers "
                f"{list(partition.replicas)} back",
                topic=topic,
                partition=number,
            )
        (lost_records, lacking_records), broker, lost = best
        if lacking_records > lost_records:
            logger.warning(
                "broker %d has %d records of %s-%d only in files that were replaced while it was away: run "
                "`sparklog fsck --repair`, which writes them again from these",
                broker,
                lacking_records - lost_records,
                topic,
                number,
            )
        changes = _group_lacking(topic, topic_id, number, segments, lost)
        end, others = partition.log_end_offset, [other for other in candidates if other != broker]
        return UncleanElection(topic, topic_id, number, broker, end, state.version, changes, others)

    def _look_at(self, broker: int, segments: Sequence[Segment]) -> list[Segment] | None:
        """Return the segments that a broker lacks; None if its location cannot be read: it may hold all records."""
        if broker in self._failed:
            return None
        try:
            if broker not in self._listed:
                check_owned(self._coordinator, broker, self._state)
                store = self._coordinator.brokers.store_of(self._state, broker)
                self._listed[broker] = _ListedStore(store, self._progress)
            self._progress()
            lacking = _find_lacking(self._listed[broker], segments)
            check_owned(self._coordinator, broker, self._state)  # its disk may have been unmounted before it was listed
        except SparklogError as error:
            logger.warning("broker %d could not be inspected as a candidate leader: %s", broker, error)
            self._failed.add(broker)
            return None
        return lacking

    def _has_replaced(self, broker: int, topic: str, segment: Segment) -> bool:
        """Return whether a broker may have the records of a segment that it lacks, in the files of this topic that the
        segment's commit replaced and nobody has deleted yet."""
        return any(
            file.broker == broker and topic_in(file.path) == topic and file.path in self._listed[broker].sizes
            for listing, entry in self._state.removed_files.items()
            if entry.version == segment.version
            for file in self._read_retired(listing)
        )

    def _read_retired(self, listing: str) -> list[RemovedFile]:
        if listing not in self._retired:
            self._retired[listing] = list(read_removed(self._coordinator.store, listing))
        return self._retired[listing]


def _records_of(segments: Iterable[Segment]) -> int:
    return sum(segment.records for segment in segments)


class _ListedStore:
    """A store whose whole listing is read once, when it is first needed: ``sizes`` by key. Not thread-safe."""

    def __init__(self, store: Store, progress: Callable[[], object]) -> None:
        self._store = store
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @cached_property
    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for info in self._store.list():
            sizes[info.key] = info.size
            self._progress()
        return sizes


def _find_lacking(store: _ListedStore, segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments that a location does not hold completely. Raises StorageError.

    By one listing of all of it, which has to contain what identifies it: looks before and after a listing would miss a
    disk that was unmounted in between, and mounted again."""
    if IDENTITY_KEY not in store.sizes and CLUSTER_KEY not in store.sizes:
        raise StorageUnavailableError(f"{store.root} was unmounted while it was listed; try again", path=store.root)
    lacking = [segment for segment in segments if not is_whole(cast(Store, store), segment, store.sizes)]
    for segment in lacking:  # a folder that is a link is read, and not listed
        if segment.path not in store.sizes and exists(cast(Store, store), segment.path):
            raise StorageUnavailableError(
                f"{segment.path} exists at {store.root}, whose listing does not have it: if a folder is a link, mount "
                "what it points to in its place; else try again",
                path=segment.path,
            )
    return lacking


def _group_lacking(
    topic: str, topic_id: str, number: int, segments: Sequence[Segment], lacking: Sequence[Segment]
) -> list[Replacement]:
    """Return the replacements that take the lacking segments out of the log, one for each run of neighbours."""
    missing = {segment.base_offset for segment in lacking}
    replacements: list[Replacement] = []
    for is_missing, group in groupby(segments, key=lambda segment: segment.base_offset in missing):
        run = list(group)
        if is_missing:
            replacements.append(
                Replacement(
                    topic=topic,
                    topic_id=topic_id,
                    partition=number,
                    start_offset=run[0].base_offset,
                    end_offset=run[-1].end_offset,
                    removed=removed(topic_id, run),
                )
            )
    return replacements
