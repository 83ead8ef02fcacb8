"""The lists of live segments: those of a checkpoint, and what the commits since have done to them.

Lists are large, so they are kept per topic, and those of the checkpoint are loaded for the topics in hand alone. What a
checkpoint holds is let go once there is a newer one.
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
    """What a commit log knows of segments. Not thread-safe: its owner's lock guards it.

    ``base`` is the checkpoint from which it goes on, None for the empty cluster; ``recent_count`` are the changes of
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
        """Note what a commit did to segments, and which entries of the state it touched."""
        self._touched.update(dict.fromkeys(touched, commit.version))
        for topic_id, events in segment_events(commit).items():
            self._recent.setdefault(topic_id, []).extend(events)
            self.recent_count += len(events)

    def changes_since(self, version: int) -> tuple[dict[str, list[SegmentEvent]], list[Entry]]:
        """What came after a version, at or after that of the base: changes of segments by topic id, entries touched."""
        changed = {
            topic_id: recent
            for topic_id, events in self._recent.items()
            if (recent := [event for event in events if event.version > version])
        }
        return changed, [entry for entry, at in self._touched.items() if at > version]

    def of(self, topic: str, state: State, newest_state: State) -> TopicSegments:
        """The live segments of a topic as of ``state``, which this log handed out; ``newest_state`` is the newest read.

        Raises UnknownTopicOrPartitionError, CorruptMetadataError with ``missing`` set where a file of the base is gone.
        """
        version = state.version
        known = state.topic(topic)
        cached = self._lists.get(known.topic_id)
        if cached is not None and cached[0] is known:
            return cached[1]
        recent = [s for s in self._recent.get(known.topic_id, ()) if s.version <= version]
        parts = self._checkpointed(known.topic_id)
        if self.base is not None and self.base.version > version:
            parts = [part_up_to(part, version) for part in parts]
        newest = self._newer_list(known, version, newest_state)
        listed = TopicSegments(known, parts, recent, newest, self._is_lost(newest, version))
        if _is_live(known, newest_state):
            self._lists[known.topic_id] = (known, listed)
        elif len(recent) + sum(part.num_rows for part in parts) < sum(p.segments for p in known.partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} of version {version} was deleted since (id {known.topic_id}), and its segments "
                "are not listed any more; refresh, and read what there is",
                topic=topic,
            )
        return listed

    def _newer_list(self, topic: TopicState, version: int, newest_state: State) -> TopicSegments | None:
        """The newest list, for what cannot be listed as of ``version`` any more; None where the base is not newer."""
        if self.base is None or self.base.version <= version or not _is_live(topic, newest_state):
            return None
        newest = newest_state.topics[topic.name]
        return TopicSegments(newest, self._checkpointed(topic.topic_id), self._recent.get(topic.topic_id, ()))

    def _is_lost(self, newest: TopicSegments | None, version: int) -> Callable[[int], bool]:
        """Whether segments of a partition were replaced after ``version`` and the base has what took their place."""
        base = self.base.version if self.base is not None else -1

        def is_lost(partition: int) -> bool:
            assert newest is not None
            changes = newest.topic.partitions[partition].changes
            forgotten = len(changes) == limits.SEGMENT_CHANGES_KEPT and changes[0].version > version
            return forgotten or any(version < change.version <= base for change in changes)

        return is_lost

    def _checkpointed(self, topic_id: str) -> list[pa.RecordBatch]:
        if self.base is None:
            return []
        if topic_id not in self._parts:
            listed = checkpoint.read_lists(self._store, self.base, self._list_cache).of(topic_id)
            self._parts[topic_id] = read_list(self._store, listed)
        return self._parts[topic_id]

    def rebase(self, manifest: checkpoint.Manifest, newest_state: State) -> None:
        """Let go of what the checkpoint holds. Lists handed out before keep what they need."""
        self.base = manifest
        self._parts = {}
        self._lists = {topic_id: kept for topic_id, kept in self._lists.items() if _is_live(kept[0], newest_state)}
        self._recent = {
            topic_id: kept
            for topic_id, events in self._recent.items()
            if (kept := [event for event in events if event.version > manifest.version])
        }
        self.recent_count = sum(len(events) for events in self._recent.values())
        self._touched = {entry: version for entry, version in self._touched.items() if version > manifest.version}


def _is_live(topic: TopicState, newest_state: State) -> bool:
    newest = newest_state.topics.get(topic.name)
    return newest is not None and newest.topic_id == topic.topic_id
