"""Looks for a leader among replicas that are not in sync, where all that are in sync are gone.

The one that holds most records is taken, the first of the replica list among equals (Kafka takes the first, whatever it
holds). What it lacks leaves the log with its election; see ``protocol.elections``.

Rules: looks at storages and decides nothing. What cannot be looked at is not taken for empty, which would lose records.
A segment is held if its ``.log`` is as long as its ``.index`` says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.errors import CorruptionError, EligibleLeadersNotAvailableError, ObjectNotFoundError, SparklogError
from sparklog.format.index import decode_index
from sparklog.protocol.decide.elections import UncleanElection, needs_unclean_election
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


def waiting_for_unclean_election(state: State) -> Iterator[TopicPartition]:
    """The partitions without a leader whose topic lets a replica take over that is not in sync."""
    for topic in state.topics_in_order():
        leaderless = [number for number, partition in enumerate(topic.partitions) if partition.leader < 0]
        if leaderless and TopicConfig.resolve(topic.configs, state.configs).get("unclean.leader.election.enable"):
            yield from (
                TopicPartition(topic.name, number)
                for number in leaderless
                if needs_unclean_election(state, topic.name, number)
            )


def find_unclean_leader(coordinator: Coordinator, state: State, topic: str, number: int) -> UncleanElection:
    """The election of the online replica that lacks fewest records.

    Raises UnknownTopicOrPartitionError, EligibleLeadersNotAvailableError where none answers, StorageError.
    """
    partition = state.partition(topic, number)
    topic_id = state.topics[topic].topic_id
    segments = list(coordinator.segments(topic, state).partition(number))
    best: tuple[int, int, list[Segment]] | None = None
    for broker in needs_unclean_election(state, topic, number):
        try:
            store = coordinator.brokers.store_of(state, broker)
            check_identity(store, state.cluster_id, broker, state.brokers[broker].url)
            lacking = _lacking(store, segments)
        except SparklogError as error:  # it may hold everything
            logger.warning("broker %d cannot be looked at as a leader of %s-%d: %s", broker, topic, number, error)
            continue
        records = sum(segment.records for segment in lacking)
        if best is None or records < best[0]:
            best = (records, broker, lacking)
    if best is None:
        raise EligibleLeadersNotAvailableError(
            f"no replica of {topic}-{number} is online and answers; bring one of brokers {list(partition.replicas)} "
            "back",
            topic=topic,
            partition=number,
        )
    _, broker, lacking = best
    lost = _replacements(topic, topic_id, number, segments, lacking)
    return UncleanElection(topic, topic_id, number, broker, partition.log_end_offset, state.version, lost)


def _lacking(store: Store, segments: Sequence[Segment]) -> list[Segment]:
    """The segments that a location does not hold whole. Raises StorageError."""
    sizes: dict[str, int] = {}
    for folder in sorted({segment.path.rpartition("/")[0] for segment in segments}):
        sizes.update((info.key, info.size) for info in store.list(f"{folder}/"))
    return [segment for segment in segments if not _is_whole(store, segment, sizes)]


def _is_whole(store: Store, segment: Segment, sizes: dict[str, int]) -> bool:
    if segment.path not in sizes or segment.index_path not in sizes:
        return False
    try:
        index = decode_index(store.get(segment.index_path, limits.MAX_INDEX_BYTES), segment.index_path)
    except (ObjectNotFoundError, CorruptionError):
        return False
    return index.summary.log_length == sizes[segment.path]


def _replacements(
    topic: str, topic_id: str, number: int, segments: Sequence[Segment], lacking: Sequence[Segment]
) -> list[Replacement]:
    """What takes the lacking segments out of the log, neighbours together."""
    missing = {segment.base_offset for segment in lacking}
    found: list[Replacement] = []
    for is_missing, group in groupby(segments, key=lambda segment: segment.base_offset in missing):
        run = list(group)
        if is_missing:
            found.append(
                Replacement(
                    topic=topic,
                    topic_id=topic_id,
                    partition=number,
                    start_offset=run[0].base_offset,
                    end_offset=run[-1].end_offset,
                    removed=removed(topic_id, run),
                )
            )
    return found
