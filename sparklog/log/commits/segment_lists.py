"""The lists of live segments: those of a checkpoint, and the changes by commits since.

Lists are large, so they are kept per topic, and a checkpoint's lists are loaded only for topics in use. Changes that a
newer checkpoint includes are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from sparklog import limits
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.lists import ListCache, read_list
from sparklog.log.segments import TopicSegments, part_up_to
from sparklog.protocol.commits import Commit
from sparklog.protocol.fold import Entry
from sparklog.protocol.segments import SegmentEvent, segment_events
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import Store


class SegmentLists:
    """The segment lists of a commit log. Not thread-safe: its owner's lock guards it.

    ``base`` is the checkpoint it is based on, None for the empty cluster; ``recent_count`` is the number of changes of
    segments since.
    """

    def __init__(self, store: Store, cache: ListCache, base: checkpoint.Manifest | None) -> None:
        self.base = base
        self.recent_count = 0
        self._store = store
        self._list_cache = cache
        self._recent: dict[str, list[SegmentEvent]] = {}
        self._touched: dict[Entry, int] = {}
        self._parts: dict[str, list[pa.RecordBatch]] = {}
        self._lists: dict[str, tuple[TopicState, TopicSegments]] = {}

    def take(self, commit: Commit, touched: Iterable[Entry]) -> None:
        """Record a commit's changes of segments, and the entries of the state it touched."""
        self._touched.update(dict.fromkeys(touched, commit.version))
        for topic_id, events in segment_events(commit).items():
            self._recent.setdefault(topic_id, []).extend(events)
            self.recent_count += len(events)

    def changes_since(self, version: int) -> tuple[dict[str, list[SegmentEvent]], list[Entry]]:
        """Return the changes of segments by topic id, and the entries touched, after a version not before the base."""
        changed = {
            topic_id: recent
            for topic_id, events in self._recent.items()
            if (recent := [event for event in events if event.version > version])
        }
        return changed, [entry for entry, at in self._touched.items() if at > version]

    def of(self, topic: str, state: State, newest_state: State) -> TopicSegments:
        """Return the live segments of a topic as of ``state``, which comes from this log as ``newest_state`` does.

        Raises UnknownTopicOrPartitionError, and CorruptMetadataError with ``missing`` set if a file of the base is
        missing.
        """
        version = state.version
        topic_state = state.topic(topic)
        cached = self._lists.get(topic_state.topic_id)
        if cached is not None and cached[0] is topic_state:
            return cached[1]
        recent = [s for s in self._recent.get(topic_state.topic_id, ()) if s.version <= version]
        parts = self._load_parts(topic_state.topic_id)
        if self.base is not None and self.base.version > version:
            parts = [part_up_to(part, version) for part in parts]
        newest = self._newer_list(topic_state, version, newest_state)
        listed = TopicSegments(topic_state, parts, recent, newest, self._is_lost(newest, version))
        if _is_live(topic_state, newest_state):
            self._lists[topic_state.topic_id] = (topic_state, listed)
        elif len(recent) + sum(part.num_rows for part in parts) < sum(p.segments for p in topic_state.partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} of version {version} was deleted since (id {topic_state.topic_id}), and its segments "
                "are no longer listed; refresh, and read the current topic",
                topic=topic,
            )
        return listed

    def _newer_list(self, topic: TopicState, version: int, newest_state: State) -> TopicSegments | None:
        """Return the newest list, for partitions no longer listed as of ``version``; None unless the base is newer."""
        if self.base is None or self.base.version <= version or not _is_live(topic, newest_state):
            return None
        newest = newest_state.topics[topic.name]
        return TopicSegments(newest, self._load_parts(topic.topic_id), self._recent.get(topic.topic_id, ()))

    def _is_lost(self, newest: TopicSegments | None, version: int) -> Callable[[int], bool]:
        """Return a test: the base has only replacements of a partition's segments that were live at ``version``."""
        base = self.base.version if self.base is not None else -1

        def is_lost(partition: int) -> bool:
            assert newest is not None
            changes = newest.topic.partitions[partition].changes
            forgotten = len(changes) == limits.SEGMENT_CHANGES_KEPT and changes[0].version > version
            return forgotten or any(version < change.version <= base for change in changes)

        return is_lost

    def _load_parts(self, topic_id: str) -> list[pa.RecordBatch]:
        if self.base is None:
            return []
        if topic_id not in self._parts:
            listed = checkpoint.read_lists(self._store, self.base, self._list_cache).of(topic_id)
            self._parts[topic_id] = read_list(self._store, listed)
        return self._parts[topic_id]

    def rebase(self, manifest: checkpoint.Manifest, newest_state: State) -> None:
        """Change the base, and drop all changes it includes. Lists returned before keep what they need."""
        self.base = manifest
        self._parts = {}
        self._lists = {topic_id: kept for topic_id, kept in self._lists.items() if _is_live(kept[0], newest_state)}
        self._recent, touched = self.changes_since(manifest.version)
        self.recent_count = sum(len(events) for events in self._recent.values())
        self._touched = {entry: self._touched[entry] for entry in touched}


def _is_live(topic: TopicState, newest_state: State) -> bool:
    newest = newest_state.topics.get(topic.name)
    return newest is not None and newest.topic_id == topic.topic_id
