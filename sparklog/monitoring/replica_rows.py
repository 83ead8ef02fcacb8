"""Which replicas of partitions were in sync, as rows of the system table ``replicas``.

    history = ReplicaHistory(state, replicas, topic_changes)
    history.rows, history.is_certain

A commit states who is in sync after a creation, or after a change of leadership. After an append or a replacement of
segments those of the former in-sync replicas are that it was written to (``partition_fold``), so it takes the commit
before that to tell. A change by one of these is therefore stated if the partition's creation, or an earlier change of
its leadership, is among the commits that are known, and left out otherwise; what is stated is exact.

Rules: pure. Not for: the rows of one commit (``commit_rows``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.monitoring.commit_rows import ADDED, APPENDED, CREATED, REPLACED, read_rows
from sparklog.protocol.partition_fold import still_in_sync
from sparklog.protocol.state import State

_Key = tuple[str, int]
"""The id of a topic, and a partition."""


class _Leadership(NamedTuple):
    """Who leads a partition, and who is in sync."""

    leader: int | None
    leader_epoch: int
    isr: Sequence[int]
    replicas: Sequence[int]


class ReplicaHistory:
    """The changes of replicas in a range of commits that ends at ``state``. Not changed once it is made.

    ``replicas`` and ``topic_changes`` are what ``CommitRows`` makes of these commits. ``rows`` are those of the system
    table, in the order of the commits; ``is_certain`` says that earlier commits would not add any.
    """

    def __init__(self, state: State, replicas: pa.Table, topic_changes: pa.Table) -> None:
        self._first_added = _number_additions(state, topic_changes)
        self._known: dict[_Key, _Leadership] = {}
        self._unknown: set[_Key] = set()
        self.rows: list[tuple[Any, ...]] = list(self._follow(replicas))
        alone = {
            (topic.topic_id, number)
            for topic in state.topics.values()
            for number, partition in enumerate(topic.partitions)
            if len(partition.replicas) == 1
        }
        # one that has a single replica, and had no change, had a single one before
        self.is_certain = self._unknown <= alone - self._known.keys()

    def _follow(self, replicas: pa.Table) -> Iterator[tuple[Any, ...]]:
        for row in read_rows(replicas, replicas.column_names):
            version, time_ms, topic, topic_id, number, cause, *stated = row
            if cause == ADDED:
                number += self._first_added.get((version, topic_id), -sys.maxsize)
            key = topic_id, number
            if number < 0:
                self._unknown.add(key)
                continue
            now = self._after_write(key, stated[2]) if cause in (APPENDED, REPLACED) else _Leadership(*stated)
            if now is not None:
                self._known[key] = now
                yield version, time_ms, topic, topic_id, number, cause, *now

    def _after_write(self, key: _Key, written: Sequence[int]) -> _Leadership | None:
        """Return who is in sync after a run was written to these brokers, None if that is unknown or no change."""
        known = self._known.get(key)
        if known is None:
            self._unknown.add(key)
            return None
        isr = still_in_sync(known.isr, written)
        if len(isr) == len(known.isr):
            return None
        return known._replace(isr=isr, leader=known.leader if known.leader in isr else None)


def _number_additions(state: State, changes: pa.Table) -> dict[tuple[int, str], int]:
    """Return the first number of the partitions that each commit added to a topic, by its version and the topic's id.

    It follows from the topic's creation, or else from the partitions that it has now; a topic of which neither is known
    is left out.
    """
    wanted = ("version", "topic_id", "change", "partitions")
    changes_of_counts = [row for row in read_rows(changes, wanted) if row[2] in (CREATED, ADDED)]
    next_numbers = {topic.topic_id: len(topic.partitions) for topic in state.topics.values()}
    for _, topic_id, _, partitions in changes_of_counts:
        if topic_id in next_numbers:
            next_numbers[topic_id] -= partitions
    first: dict[tuple[int, str], int] = {}
    for version, topic_id, change, partitions in changes_of_counts:
        if change == CREATED:
            next_numbers[topic_id] = 0
        if topic_id in next_numbers:
            first.setdefault((version, topic_id), next_numbers[topic_id])
            next_numbers[topic_id] += partitions
    return first
