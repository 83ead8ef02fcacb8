"""Facts of files: those that are retired, and what the files of a topic take."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from sparklog.monitoring.facts.columns import Count, NullableCount, NullableText
from sparklog.monitoring.facts.topics import stored_bytes
from sparklog.protocol.file_names import topic_in
from sparklog.protocol.state import State


class RetiredFiles(NamedTuple):
    """Files that were replaced and not deleted yet: their number and bytes, and when the first is due, in ms."""

    files: int
    bytes: int
    first_due_ms: int | None


def retired_files(state: State, due_ms: int | None = None) -> RetiredFiles:
    """Return the retired files of a cluster, or those that are due at a time."""
    listings = [each for each in state.removed_files.values() if due_ms is None or each.delete_at_ms <= due_ms]
    return RetiredFiles(
        files=sum(each.files for each in listings),
        bytes=sum(each.size_bytes for each in listings),
        first_due_ms=min((each.delete_at_ms for each in listings), default=None),
    )


class StorageFacts(NamedTuple):
    """What the files of a topic take: bytes of the live segments at all their in-sync replicas, bytes and number of the
    retired files and of the orphans, None where they are not known. ``topic`` is None for files of deleted topics."""

    topic: NullableText
    live: Count
    retired: NullableCount
    retired_files: NullableCount
    orphaned: NullableCount
    orphaned_files: NullableCount


Files = Iterable[tuple[str, int]]
"""Path and bytes of each file."""


def storage(state: State, retired: Files | None, orphaned: Files | None) -> Iterator[StorageFacts]:
    """Yield the facts of the files of topics, in the order of their names; None stands for files that are unknown."""
    topics = sorted(state.topics)
    by_topic = [None if files is None else _by_topic(files, state.topics) for files in (retired, orphaned)]
    for name in topics:
        yield _storage(name, stored_bytes(state.topics[name].partitions), by_topic)
    if any(files is not None and None in files for files in by_topic):
        yield _storage(None, 0, by_topic)


_Sizes = Mapping["str | None", list[int]]


def _storage(topic: str | None, live: int, by_topic: list[_Sizes | None]) -> StorageFacts:
    (retired, retired_count), (orphaned, orphaned_count) = (
        (None, None) if files is None else (sum(files.get(topic, ())), len(files.get(topic, ()))) for files in by_topic
    )
    return StorageFacts(topic, live, retired, retired_count, orphaned, orphaned_count)


def _by_topic(files: Files, topics: Container[str]) -> _Sizes:
    """Return the bytes of files by topic, under None those of topics that do not exist."""
    sizes: dict[str | None, list[int]] = {}
    for path, size in files:
        name = topic_in(path)
        sizes.setdefault(name if name in topics else None, []).append(size)
    return sizes
