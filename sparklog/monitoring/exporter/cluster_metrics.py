"""Reads a cluster and writes its metrics as text.

    metrics = ClusterMetrics(coordinator, Selection())
    text = metrics.read()

A read costs two requests to the storage, one for each new commit, and once a minute some for what is not in the state:
the newest checkpoint, and listings of retired files that are new.

Rules: it only reads; not thread-safe. The text of a topic is kept and written again only if the topic has changed. A
listing that is damaged or gone is logged once, and its files are left out of the bytes by topic.
Not for: when to read, and what to answer if that fails (``collector``).
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.checkpoints.checkpoint import read_newest
from sparklog.log.commits.recent_commits import RecentCommits
from sparklog.log.commits.retired_files import read_removed
from sparklog.log.layout import read_boundary_file, read_certain_boundary
from sparklog.monitoring.exporter import families
from sparklog.monitoring.exporter.append_times import AppendTimes
from sparklog.monitoring.exporter.commit_counters import DELAY_BOUNDS, CommitCounters
from sparklog.monitoring.exporter.families import Family
from sparklog.monitoring.exporter.state_samples import (
    GroupOffsets,
    NameFilter,
    broker_rows,
    group_offsets,
    lag_rows,
    partition_rows,
    state_values,
    topic_values,
)
from sparklog.monitoring.exporter.text import Labels, Row, histogram_lines, sample_lines, with_header
from sparklog.protocol.commits import Append, Commit
from sparklog.protocol.file_names import topic_in
from sparklog.protocol.state import GroupState, State, TopicState
from sparklog.types import printable

logger = logging.getLogger(__name__)

LOOKBACK_COMMITS = 1000
"""Commits before the first read that are read for the times of records which groups have not read yet."""

MAX_NEW_COMMITS = 5_000
"""Commits since the last read of which more are not read one by one; then counters leave them out."""

SLOW_SECONDS = 60.0
"""seconds between two reads of what is not in the state."""

MAX_NEW_LISTINGS = 64
"""Listings of retired files that one such read opens."""


class MetricSelection(NamedTuple):
    """What is exported, and the labels that every sample has."""

    topics: NameFilter = NameFilter()
    groups: NameFilter = NameFilter()
    labels: Mapping[str, str] = {}
    lookback_commits: int = LOOKBACK_COMMITS
    with_counters: bool = True
    """Whether to export counters that begin with this process."""


class _Topic(NamedTuple):
    """A topic as it was written last: the lines of each of its families."""

    topic: TopicState
    min_insync_replicas: int
    lines: tuple[str, ...]


class _Group(NamedTuple):
    """A group, the names of all topics, and its offsets in these."""

    group: GroupState
    topic_names: Map[str, str]
    offsets: GroupOffsets


class _SlowFacts(NamedTuple):
    """What is not in the state."""

    checkpoint_version: int | None = None
    checkpoint_ms: int | None = None
    checkpoint_bytes: int = 0
    removed_bytes: int = 0


class ClusterMetrics:
    """The metrics of a cluster. Not thread-safe. ``unread_commits`` are those that no counter includes."""

    def __init__(self, coordinator: Coordinator, selection: MetricSelection) -> None:
        self._coordinator = coordinator
        self._selection = selection
        self._labels = Labels(selection.labels)
        self._followed: State | None = None
        self._recent = RecentCommits()
        coordinator.log.followers.add(self._recent)
        self._times = AppendTimes()
        self._counters = CommitCounters()
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, _Group] = {}
        self._accepted: dict[str, bool] = {}
        self._configs: Mapping[str, str] = {}
        self._facts = _SlowFacts()
        self._facts_read_at = -math.inf
        self._listings: dict[str, Counter[str]] = {}
        self.unread_commits = 0

    def read(self) -> str:
        """Read new commits and return all metrics but those of ``EXPORTER_FAMILIES``.

        Raises StorageError, CorruptMetadataError, ClusterMovedError, RootReplacedError.
        """
        state = self._coordinator.refresh()
        self._follow(state)
        self._read_slow_facts(state)
        return self._write(state)

    # -- reading

    def _follow(self, state: State) -> None:
        """Take the commits since the last read, or as many before the first as are looked back at."""
        before = self._followed
        first = state.version + 1 - self._selection.lookback_commits if before is None else before.version + 1
        if first <= state.version:
            commits = self._read_commits(max(first, state.version + 1 - MAX_NEW_COMMITS, 0), state.version)
            if before is not None:
                self.unread_commits += state.version + 1 - first - len(commits)
            self._count(before, commits)
        self._times.keep({topic.topic_id for topic in state.topics.values()})
        self._followed = state

    def _read_commits(self, first: int, last: int) -> list[Commit]:
        """Return the commits ``first`` to ``last``, without those that were removed before they could be read."""
        store = self._coordinator.store
        while True:
            try:
                return list(self._recent.take(store, first, last))
            except ObjectNotFoundError:
                boundary = read_certain_boundary(store)
                if boundary < first:
                    return []  # it is lost
                first = boundary + 1

    def _count(self, before: State | None, commits: Sequence[Commit]) -> None:
        """Take commits; those before the first read are not counted, since a counter has to begin with 0."""
        for commit in commits:
            for action in commit.actions:
                if isinstance(action, Append):
                    self._times.add(action, commit.timestamp)
        if before is not None:
            self._counters.add(before, commits)
            return
        for commit in commits:
            self._counters.note_maintenance(commit)

    def _read_slow_facts(self, state: State) -> None:
        now = self._coordinator.log.clock.monotonic()
        if now - self._facts_read_at < SLOW_SECONDS:
            return
        store = self._coordinator.store
        newest = read_newest(store)
        removed_bytes = read_boundary_file(store).removed_bytes
        if newest is None:
            self._facts = _SlowFacts(removed_bytes=removed_bytes)
        else:
            files = [*newest.head_parts, *newest.lists, *(each for files in newest.segments.values() for each in files)]
            written_ms = store.info(newest.heads.key).modified_ms
            size = sum(file.size for file in files)
            self._facts = _SlowFacts(newest.version, written_ms, size, removed_bytes)
        self._read_listings(state)
        self._facts_read_at = now

    def _read_listings(self, state: State) -> None:
        """Read new listings of retired files: they never change."""
        known = {key: sizes for key, sizes in self._listings.items() if key in state.removed_files}
        new = sorted(key for key in state.removed_files if key not in known)
        for key in new[:MAX_NEW_LISTINGS]:
            known[key] = sizes = Counter[str]()
            try:
                for file in read_removed(self._coordinator.store, key):
                    sizes[topic_in(file.path)] += file.size_bytes
            except (CorruptMetadataError, ObjectNotFoundError) as error:
                logger.warning("the bytes of retired files lack those of a listing: %s", printable(error))
        self._listings = known

    # -- writing

    def _write(self, state: State) -> str:
        now_ms = max(self._coordinator.log.clock.now_ms(), state.timestamp_ms)
        names = self._write_topics(state)
        blocks: list[tuple[Sequence[Family], Sequence[str]]] = [
            self._cluster_lines(state, now_ms),
            self._rows(families.BROKER_FAMILIES, broker_rows(state.brokers.values(), self._root, self._labels)),
            self._rows(families.MAINTENANCE_FAMILIES, self._counters.maintenance_rows(self._labels)),
            ((families.APPEND_DELAY,), [self._delay_lines()]),
            (
                (*families.PARTITION_FAMILIES, *families.TOPIC_FAMILIES),
                [*map("".join, zip(*(self._topics[name].lines for name in names), strict=True))] if names else [],
            ),
            self._rows(families.TOPIC_COUNTERS, self._topic_counters(names)),
            *self._group_lines(state, now_ms),
        ]
        with_counters = self._selection.with_counters
        return "".join(
            with_header(family, lines)
            for of_block, texts in blocks
            for family, lines in zip(of_block, texts, strict=bool(texts))
            if with_counters or not family.since_start
        )

    @property
    def _root(self) -> str:
        return self._coordinator.store.root

    def _rows(self, of_rows: Sequence[Family], rows: Iterable[Row]) -> tuple[Sequence[Family], Sequence[str]]:
        return of_rows, sample_lines(of_rows, rows)

    def _accepts_topic(self, name: str) -> bool:
        accepted = self._accepted.get(name)
        if accepted is None:
            accepted = self._accepted[name] = self._selection.topics.accepts(name)
        return accepted

    def _write_topics(self, state: State) -> list[str]:
        """Write the lines of topics that have changed; return the names of those that are exported, sorted."""
        if state.configs != self._configs:
            self._topics, self._configs = {}, state.configs
        for name in self._accepted.keys() - state.topics.keys():
            del self._accepted[name]
            self._topics.pop(name, None)
        names = [name for name in sorted(state.topics) if self._accepts_topic(name)]
        for name in names:
            topic, written = state.topics[name], self._topics.get(name)
            if written is None or written.topic is not topic:
                self._topics[name] = self._write_topic(topic, written)
        return names

    def _write_topic(self, topic: TopicState, written: _Topic | None) -> _Topic:
        if written is not None and written.topic.configs == topic.configs:
            least = written.min_insync_replicas
        else:
            least = TopicConfig.resolve(topic.configs, self._configs).min_insync_replicas
        of_topic: Row = (self._labels.of(("topic",), topic.name), topic_values(topic, least))
        lines = (
            *sample_lines(families.PARTITION_FAMILIES, partition_rows(topic, self._labels)),
            *sample_lines(families.TOPIC_FAMILIES, [of_topic]),
        )
        return _Topic(topic, least, lines)

    def _topic_counters(self, names: Sequence[str]) -> Iterable[Row]:
        retired: Counter[str] = Counter()
        for sizes in self._listings.values():
            retired.update(sizes)
        for name in names:
            yield self._labels.of(("topic",), name), (self._counters.appended_bytes[name], retired[name])

    def _group_lines(self, state: State, now_ms: int) -> Iterable[tuple[Sequence[Family], Sequence[str]]]:
        names = state.indexes.topic_names  # another object once a topic was created or deleted
        groups: dict[str, _Group] = {}
        for name, group in sorted(state.groups.items()):
            known = self._groups.get(name)
            if known is not None and known.group is group and known.topic_names is names:
                groups[name] = known
            elif self._selection.groups.accepts(name):
                offsets = group_offsets(state, name, self._labels, self._accepts_topic)
                groups[name] = _Group(group, names, offsets)
        self._groups = groups
        lag = lag_rows(state, (each.offsets for each in groups.values()), self._seconds_behind(now_ms))
        yield self._rows(families.GROUP_PARTITION_FAMILIES, lag.partitions)
        yield self._rows(families.GROUP_TOPIC_FAMILIES, lag.topics)
        yield self._rows(families.GROUP_FAMILIES, (each.offsets.row for each in groups.values()))

    def _seconds_behind(self, now_ms: int) -> Callable[[str, int, int], float | None]:
        def seconds_behind(topic_id: str, partition: int, offset: int) -> float | None:
            committed_ms = self._times.committed_ms(topic_id, partition, offset)
            return None if committed_ms is None else max(now_ms - committed_ms, 0) / 1000

        return seconds_behind

    def _cluster_lines(self, state: State, now_ms: int) -> tuple[Sequence[Family], Sequence[str]]:
        facts, counters = self._facts, self._counters
        commit_bytes = self._coordinator.log.commit_bytes
        values = (
            *state_values(state, commit_bytes, now_ms),
            facts.checkpoint_version,
            None if facts.checkpoint_ms is None else facts.checkpoint_ms / 1000,
            counters.isr_shrinks,
            counters.isr_expands,
            counters.leader_changes,
        )
        kinds = {"commits": max(commit_bytes - facts.removed_bytes, 0), "checkpoint": facts.checkpoint_bytes}
        metadata = [(self._labels.of(("kind",), kind), (size,)) for kind, size in kinds.items()]
        return (
            (*families.CLUSTER_FAMILIES, *families.METADATA_FAMILIES),
            (
                *sample_lines(families.CLUSTER_FAMILIES, [(self._labels.of(()), values)]),
                *sample_lines(families.METADATA_FAMILIES, metadata),
            ),
        )

    def _delay_lines(self) -> str:
        counters = self._counters
        return histogram_lines(
            families.APPEND_DELAY, self._labels, DELAY_BOUNDS, counters.delays, counters.delay_seconds
        )
