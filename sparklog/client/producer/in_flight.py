"""Batches in flight: taken from the accumulator and not yet acknowledged, and those that wait for a retry.

A partition whose replicas accept no records now (too few in sync, no leader, or other replicas than a moment ago) keeps
its batches, in order, while all other partitions continue; it is retried after ``retry_backoff_ms``.

Not for: when a batch is retried or failed (``sender``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparklog.client.producer.record_accumulator import PendingBatch
from sparklog.clock import Clock
from sparklog.errors import SparklogError, WriteRefusedError
from sparklog.log.elapsed import Moment
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.types import TopicPartition


@dataclass(eq=False, slots=True)
class PartitionBatches:
    """The batches of one partition that are in flight together.

    ``append`` is set once they are in a file, ``written`` is when that was begun. ``refusal`` is the latest error that
    refused that file or its brokers, and ``refusals`` counts them. ``unknown_under`` is set once an attempt may or may
    not have been committed: to the producer id under which it can be repeated. ``timeline`` is that of the producer id
    in the file, None without one. ``cause`` is the latest error after which they are retried.
    """

    topic_partition: TopicPartition
    batches: list[PendingBatch]
    append: PartitionAppend | None = None
    written: Moment | None = None
    timeline: int | None = None
    refusal: WriteRefusedError | None = None
    refusals: int = 0
    unknown_under: ProducerIdentity | None = None
    cause: SparklogError | None = None

    @property
    def outcome_unknown(self) -> bool:
        """Whether an attempt may or may not have been committed."""
        return self.unknown_under is not None


def oldest_of(entries: Sequence[PartitionBatches]) -> Moment | None:
    """Return when the oldest file of these entries was begun."""
    return min((entry.written for entry in entries if entry.written is not None), default=None)


def forget_files(entries: Sequence[PartitionBatches]) -> None:
    """Let the next attempt write other files."""
    for entry in entries:
        entry.append = None


def halve(in_flight: Sequence[PartitionBatches]) -> tuple[list[PartitionBatches], list[PartitionBatches]] | None:
    """Return two parts that can be committed one by one; None if that is not possible.

    The runs of a file go into one commit. A file is only taken apart, and its records written again, if it is alone and
    was certainly not committed: other files could not be recognised as its repetition.
    """
    files: dict[object, list[PartitionBatches]] = {}
    for entry in in_flight:
        files.setdefault(entry if entry.append is None else entry.append.run.path, []).append(entry)
    parts = list(files.values())
    if len(parts) == 1:
        if len(in_flight) == 1 or any(entry.outcome_unknown for entry in in_flight):
            return None
        forget_files(in_flight)
        parts = [[entry] for entry in in_flight]
    first, second = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    return [entry for part in first for entry in part], [entry for part in second for entry in part]


def batches_of(in_flight: Iterable[PartitionBatches]) -> list[PendingBatch]:
    """Return the batches of all these entries."""
    return [batch for entry in in_flight for batch in entry.batches]


class RetryQueue:
    """Batches that wait for their brokers, oldest first in each partition. Used by the producer's thread alone."""

    def __init__(self, clock: Clock, retry_backoff: float) -> None:
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._in_flight: dict[TopicPartition, list[PartitionBatches]] = {}
        self._due_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._in_flight)

    def hold(self, entry: PartitionBatches) -> None:
        """Queue batches that were refused, ahead of those that were sent to the partition later."""
        if not self._in_flight:
            self._due_at = self._clock.monotonic() + self._retry_backoff
        self._in_flight.setdefault(entry.topic_partition, []).insert(0, entry)

    def queue_behind_held(self, in_flight: Sequence[PartitionBatches]) -> list[PartitionBatches]:
        """Return the entries whose partition holds nothing; queue the others behind the held ones."""
        if not self._in_flight:
            return list(in_flight)
        free: list[PartitionBatches] = []
        for entry in in_flight:
            self._in_flight.get(entry.topic_partition, free).append(entry)
        return free

    def due_in(self) -> float:
        """Return the seconds until the next retry; infinity if nothing is held."""
        return max(self._due_at - self._clock.monotonic(), 0.0) if self._in_flight else math.inf

    def take_oldest(self) -> list[PartitionBatches]:
        """Take the oldest entry of each partition, to be retried now. The rest follows with ``take_rest``, or waits."""
        self._due_at = self._clock.monotonic() + self._retry_backoff
        return [in_flight.pop(0) for in_flight in self._in_flight.values()]

    def take_outcome_unknown(self) -> list[PartitionBatches]:
        """Take the entries whose outcome is unknown; those sent later stay."""
        unknown = [entry for held in self._in_flight.values() for entry in held if entry.outcome_unknown]
        for entry in unknown:
            self._in_flight[entry.topic_partition].remove(entry)
        self._in_flight = {
            topic_partition: in_flight for topic_partition, in_flight in self._in_flight.items() if in_flight
        }
        return unknown

    def take_rest(self, tried: Sequence[PartitionBatches], created_after: float) -> list[PartitionBatches]:
        """Take what was sent later to the partitions of ``tried`` whose oldest entry is not held again, an entry each.

        Batches created no later than ``created_after`` get an entry of their own: they are too late, and the others may
        not be.
        """
        rest: list[PartitionBatches] = []
        for topic_partition in [entry.topic_partition for entry in tried]:
            later = self._in_flight.get(topic_partition, [])
            if later and later[0].refusal is not None:
                continue
            self._in_flight.pop(topic_partition, None)
            batches = batches_of(later)
            late = [batch for batch in batches if batch.created <= created_after]
            parts = (late, batches[len(late) :])
            rest += [PartitionBatches(topic_partition, part) for part in parts if part]
        return rest
