"""Deletes topics so that their space is reclaimed: the files are listed first, then the commit names the listings.

    with prepare_deletion(coordinator, ["orders"]) as delete_topic:
        coordinator.submit(lambda state: delete_topic(state, "orders"))

Kafka deletes the files of a deleted topic after ``file.delete.delay.ms`` (``LogManager.asyncDelete``); here a sweep
does (``maintenance.gc``), by the listings. Files appended between listing and commit are not listed; a vacuum finds
them.

Rules: a listing is written once per topic, before the first decision; one that no commit names is deleted again, unless
the outcome of the commit is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice

from msgspec.structs import replace

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import SparklogError, StorageFullError, UnknownTopicOrPartitionError
from sparklog.log.commits.retired_files import delete_unnamed, files_of, write_removed
from sparklog.log.reserve import with_reserve
from sparklog.protocol.commits import RemoveFiles
from sparklog.protocol.decide import topics as decide_topics
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State, TopicState

logger = logging.getLogger(__name__)

DeleteTopic = Callable[[State, str], Decision[str]]
"""Decides the deletion of a topic; result and errors as ``delete_topic``."""


def delete_topic(coordinator: Coordinator, topic: str) -> None:
    """Delete a topic and its records. Raises UnknownTopicOrPartitionError, PolicyViolationError."""
    with prepare_deletion(coordinator, [topic]) as decide:
        coordinator.submit(lambda state: decide(state, topic))


@contextmanager
def prepare_deletion(coordinator: Coordinator, topics: Iterable[str]) -> Iterator[DeleteTopic]:
    """List the files of these topics, and yield how to decide their deletion, which refuses topics that do not exist,
    or were deleted and created again since.

    Raises StorageError, CorruptMetadataError; nothing was deleted then.
    """
    state = coordinator.refresh()
    names = list(topics)
    ids = {name: state.topics[name].topic_id for name in names if name in state.topics}
    listings = {
        state.topics[name].topic_id: _list_what_fits(coordinator, state, name) for name in _find_deletable(state, names)
    }
    with delete_unnamed(coordinator.log, listings.values()):
        yield lambda newest, name: _decide_with_listing(newest, name, ids, listings, state.version)


def _find_deletable(state: State, topics: Iterable[str]) -> Iterator[str]:
    for name in dict.fromkeys(topics):
        with suppress(SparklogError):  # the decision raises it again
            decide_topics.delete_topic(state, name)
            if any(partition.segments for partition in state.topics[name].partitions):
                yield name


def _list_what_fits(coordinator: Coordinator, state: State, name: str) -> RemoveFiles:
    """Store the listing of a topic's files. On a disk that is full without its reserve, too, a vacuum has to find the
    other ones: a reserve holds a listing of ``limits.LISTED_FILES``."""
    try:
        return with_reserve(coordinator.store, partial(_write_listing, coordinator, state, name))
    except StorageFullError:
        listing = _write_listing(coordinator, state, name, limits.LISTED_FILES)
    logger.warning(
        "%s is full: `sparklog maintain` deletes only %d files of topic %s, and `sparklog vacuum` the others",
        coordinator.store.root,
        listing.files,
        name,
    )
    return listing


def _write_listing(coordinator: Coordinator, state: State, name: str, most: int | None = None) -> RemoveFiles:
    topic, segments = state.topics[name], coordinator.segments(name, state)
    files = chain.from_iterable(
        files_of(partition, segments.partition(number)) for number, partition in enumerate(topic.partitions)
    )
    delay_ms = _delay_ms(state, topic)
    return write_removed(coordinator.store, coordinator.log.ids, state.version, islice(files, most), delay_ms)


def _decide_with_listing(
    state: State, name: str, ids: Mapping[str, str], listings: Mapping[str, RemoveFiles], version: int
) -> Decision[str]:
    """Add the listing, unless a vacuum since ``version`` may have deleted it; the vacuum finds the files as well."""
    decision = decide_topics.delete_topic(state, name)
    check_same_topic(ids.get(name, decision.result), state.topics[name])
    listing = listings.get(decision.result)
    if listing is None or version <= state.writer_fence:
        return decision
    delay_ms = max(listing.delay_ms, _delay_ms(state, state.topics[name]))
    return Decision([*decision.actions, replace(listing, delay_ms=delay_ms)], decision.result)


def check_same_topic(topic_id: str, topic: TopicState) -> None:
    """Raise UnknownTopicOrPartitionError unless a topic that is found by its name has this id: a process that was
    suspended deletes nothing of the topic that was created again."""
    if topic.topic_id != topic_id:
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name} with the id {topic_id} was deleted meanwhile; nothing was deleted of the one that has "
            "its name now",
            topic=topic.name,
        )


def _delay_ms(state: State, topic: TopicState) -> int:
    return TopicConfig.resolve(topic.configs, state.configs).file_delete_delay_ms
