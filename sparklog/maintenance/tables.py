"""Publishes the history of topics as Delta tables: ``<root>/tables/<topic>``.

    Tables(coordinator).publish("orders")

A table shows the history segments of a topic at one version of the log: in each partition those before the first
segment that is not a history segment. The log stays the truth; a publication makes the table equal to it, whatever the
table showed before (``delta.publication``).

Rules:

* The table is read first and the log afterwards, and the next version of the table is created only if it is still the
  next: so a table never goes back to an older version of the log, however long a publisher was suspended.
* A history segment is deleted only when its table shows a version of the log without it (``Tables.show``): a publisher
  that has planned with the file can no longer win, and no table lists a file that is gone.
* Of each partition the file around the log start offset, which has deleted records until the roll has rewritten it, is
  listed only if the table shows these records already; else the partition begins after it. So a log start offset that
  moves all the time holds up nothing, and no deleted record appears again.
* A publication that changes no file still creates a version if the table has to show a later version of the log: to
  this version a suspended publisher loses.

Not for: writing the files (``segments``), and when this runs (``steps``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from sparklog import limits
from sparklog.coordinator import Coordinator
from sparklog.delta.actions import Line, TableSnapshot
from sparklog.delta.listing import find_table, has_table
from sparklog.delta.publication import (
    Publication,
    TopicTable,
    commit_lines,
    plan_publication,
    published_version,
    split,
)
from sparklog.delta.table_log import TableLog
from sparklog.errors import CommitConflictError, SparklogError, StorageError
from sparklog.protocol.state import State, TopicState

logger = logging.getLogger(__name__)

ATTEMPTS = 10
"""Times that a publication is planned again because another publisher was faster."""

COMMIT_BYTES = 3 * limits.MAX_COMMIT_BYTES // 4


@dataclass
class PublicationResult:
    """What a run published: tables that changed, and files that they gained and lost. ``waiting`` says which
    partitions are not shown exactly yet; ``failed`` are topics whose tables could not be published."""

    tables: int = 0
    added: int = 0
    removed: int = 0
    waiting: list[str] = field(default_factory=list)
    failed: list[tuple[str, Exception]] = field(default_factory=list)


class Tables:
    """The Delta tables of a cluster. Keeps what it has read of them. Not thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._logs: dict[str, TableLog] = {}
        self._shown: dict[str, tuple[int, TopicState | None]] = {}
        self._failed: dict[str, SparklogError] = {}

    def publish_all(self, topics: Collection[str]) -> PublicationResult:
        """Publish the topics among these that have a table, by name, and the tables of topics that were published here
        and deleted since. What fails for one topic does not stop the others.

        Raises StorageError if the root does not answer."""
        result = PublicationResult()
        state = self._coordinator.refresh()
        deleted = [name for name in self._logs if name not in state.topics]
        for name in (*sorted(topic for topic in topics if topic in state.topics), *deleted):
            try:
                if name not in deleted and not has_table(state, name, partial(self._coordinator.segments, state=state)):
                    continue
                publication = self.publish(name)
            except Exception as error:
                self._coordinator.refresh()  # raises if the storage is unavailable: then every topic would fail
                result.failed.append((name, error))
                continue
            if name in deleted:
                self._logs.pop(name, None)  # it is empty now, and stays so
            result.waiting += [
                f"{name}-{number}: the table is exact when a segment with deleted records has been rewritten"
                for number in publication.inexact
            ]
            if publication.changes:
                result.tables += 1
                result.added += len(publication.adds)
                result.removed += len(publication.removes)
        return result

    def publish(self, topic: str) -> Publication:
        """Make a topic's table show the newest version of the log; return what had to change. The table of a topic that
        does not exist becomes empty.

        Raises StorageError, CorruptMetadataError for a damaged table, CommitConflictError if other publishers were
        faster ``ATTEMPTS`` times.
        """
        return self._publish(topic, -1)

    def begin_deletion(self) -> None:
        """Forget what the tables show: others may have changed them since."""
        self._shown.clear()
        self._failed.clear()

    def show(self, topic: str, state: State) -> None:
        """Publish a topic's table unless it shows this state or a later one.

        Then no table lists a history segment of the topic that is not live in ``state``. What was found since
        ``begin_deletion`` holds for a later state too, if the topic's segments have not been replaced or deleted since.
        Errors as ``publish``; a table that failed since
        ``begin_deletion`` is not tried again.
        """
        if topic in self._failed:
            raise self._failed[topic]
        found = state.topics.get(topic)
        if topic not in self._shown or not _has_same_segments(self._shown[topic], found):
            try:
                self._publish(topic, state.version)
            except SparklogError as error:
                self._failed[topic] = error
                raise
            self._shown[topic] = state.version, found

    def _publish(self, topic: str, version: int) -> Publication:
        """Publish a topic, so that the table shows this version of the log or a later one."""
        log = self._logs.setdefault(topic, TableLog(self._coordinator.store, topic))
        for _ in range(ATTEMPTS):
            snapshot = log.read()
            table = self._find_table(topic, snapshot)
            publication = plan_publication(snapshot, table)
            shown = published_version(snapshot, table.cluster_id, topic)
            if not publication.changes and version <= shown <= table.version:  # beyond: the root was restored
                return publication
            if self._commit(log, table, publication):
                _write_checkpoint(log, topic)
                return publication
        raise CommitConflictError(
            f"other publishers changed the table of topic {topic} {ATTEMPTS} times in a row; run it again", topic=topic
        )

    def _commit(self, log: TableLog, table: TopicTable, publication: Publication) -> bool:
        """Write the commits of a publication: one, unless it has more files than a commit may name."""
        ids = self._coordinator.log.ids
        for part in split(publication, COMMIT_BYTES):
            is_last = part.is_last
            lines: list[Line] = list(commit_lines(part.publication, table, ids.write_id(), is_last))
            if not log.commit(lines):
                return False
        return True

    def _find_table(self, topic: str, snapshot: TableSnapshot) -> TopicTable:
        """Return what a table has to show now, read after ``snapshot``."""
        state = self._coordinator.refresh()
        listed = self._coordinator.segments(topic, state) if topic in state.topics else None
        return find_table(state, topic, listed, snapshot)


def _has_same_segments(shown: tuple[int, TopicState | None], topic: TopicState | None) -> bool:
    """Return whether a topic has lost no segments since its table was known to show a version."""
    version, before = shown
    if before is None or topic is None:
        return before is topic
    changes = (change for partition in topic.partitions for change in partition.changes)
    return before.topic_id == topic.topic_id and all(change.version <= version for change in changes)


def _write_checkpoint(log: TableLog, topic: str) -> None:
    """Write a checkpoint of a table if one is due. Best effort: the next publication tries again."""
    try:
        log.write_checkpoint()
    except StorageError as error:
        logger.warning("could not write a checkpoint of the table of topic %s: %s", topic, error)
