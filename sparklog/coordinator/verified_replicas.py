"""Verifies after a change of the owner of locations which replicas in sync hold the live files of their partitions.

What the log says of a location is evidence only as long as its root owned it. A root that was restored, continued or
promoted with loss does not know what was deleted there since; and a mirror that is promoted does not know which check a
location had last, so an older copy of it is not noticed.

Rules: by listing. A replica that was not shown to hold all files leaves the ISR where another one was; replication
copies what it lacks. Not for: deciding that (``protocol.decide.locations``), repairs (``maintenance.fsck``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from sparklog.coordinator.broker_listings import BrokerListings, Sizes
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.ownership import broker_store
from sparklog.errors import SparklogError
from sparklog.protocol import levels
from sparklog.protocol.decide.elections import MAX_CHANGES, every_partition
from sparklog.protocol.decide.locations import Verified, verify_isr
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

LOOKS = 3
"""times that a partition is looked at while it changes."""


def verify_replicas(coordinator: Coordinator) -> None:
    """Let replicas that lack files leave the ISR; log a warning of partitions without a replica that has all, and of
    programs that know no owners of locations.

    Raises StorageError if the root does not answer.
    """
    state = coordinator.refresh()
    if state.level < levels.OWNERS_SINCE:
        logger.warning(
            "stop `maintain` and `vacuum` of sparklog 0.2.0 wherever they run for another root of this cluster: they "
            "know no owners of locations, and delete files that %s needs",
            coordinator.store.root,
        )
    wanted: Sequence[TopicPartition] = every_partition(state)
    unheld: list[TopicPartition] = []
    for _ in range(LOOKS):
        unseen: list[TopicPartition] = []
        found = _look(coordinator, coordinator.refresh(), wanted)
        while part := dict(islice(found, MAX_CHANGES)):
            result = coordinator.submit(partial(verify_isr, found=part))
            unheld += result.unheld
            unseen += result.unseen
            if result.shrunk:
                logger.warning(
                    "replicas of %d partitions, such as %s, lack files: they are out of sync until replication has "
                    "copied them",
                    len(result.shrunk),
                    result.shrunk[0],
                )
        wanted = unseen
        if not wanted:
            break
    for partitions, why in (
        (unheld, "have no replica that was found to have all files"),
        (
            wanted,
            "were rolled or cleaned while they were looked at, so that it is not known which replicas have all files",
        ),
    ):
        if partitions:
            logger.warning("%d partitions, such as %s, %s: run `sparklog fsck`", len(partitions), partitions[0], why)


def _look(
    coordinator: Coordinator, state: State, wanted: Collection[TopicPartition]
) -> Iterator[tuple[TopicPartition, Verified]]:
    """Yield which replicas in sync hold all live files, of the partitions that have files."""
    listings = BrokerListings(coordinator, state, partial(broker_store, coordinator))
    for name in wanted:
        partition = state.find_partition(*name)
        if partition is None or not partition.segments:
            continue
        topic = state.topics[name.topic]
        segments = coordinator.segments(name.topic, state).partition(name.partition)
        paths = {segment.path for segment in segments}
        at: dict[int, Sizes] = {}
        for broker in partition.isr:
            try:
                at[broker] = listings.sizes(broker, paths)
            except SparklogError as error:
                logger.warning("broker %d could not be listed, and may have all files: %s", broker, error)
        hold = tuple(broker for broker, sizes in at.items() if _holds_all(paths, sizes, at))
        lack = tuple(broker for broker in at if broker not in hold)
        yield name, Verified(topic.topic_id, state.version, hold, lack)


def _holds_all(
    paths: Collection[str], sizes: Mapping[str, tuple[int, int]], at: Mapping[int, Mapping[str, tuple[int, int]]]
) -> bool:
    """Return whether a replica has these files, none of them smaller than another replica's."""
    return all(
        path in sizes and sizes[path] >= max(other[path] for other in at.values() if path in other) for path in paths
    )
