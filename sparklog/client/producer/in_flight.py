"""What a producer's thread has in hand: the batches of a partition on their way, and those that wait for brokers.

A partition whose replicas take no records now (too few in sync, no leader, others than a moment ago) keeps what was
sent to it, in order, while all other partitions go on; after ``retry_backoff_ms`` it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklog.client.producer.record_accumulator import PendingBatch
from sparklog.clock import Clock
from sparklog.errors import WriteRefusedError
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.types import TopicPartition


class PartitionBatches:
    """The batches of one partition on their way. ``append`` is set once they are in a file, ``refusal`` once that file
    or its brokers were refused, so many ``refusals`` times; ``unclear`` once nobody knows whether a try was
    committed. ``history`` is that of the producer id in the file, None without one."""

    __slots__ = ("append", "batches", "history", "place", "refusal", "refusals", "unclear")

    def __init__(self, place: TopicPartition, batches: list[PendingBatch]) -> None:
        self.place = place
        self.batches = batches
        self.append: PartitionAppend | None = None
        self.history: int | None = None
        self.refusal: WriteRefusedError | None = None
        self.refusals = 0
        self.unclear = False


class RetryQueue:
    """Parcels that wait for their brokers, oldest first in each partition. Only the producer's thread uses it."""

    def __init__(self, clock: Clock, retry_backoff: float) -> None:
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._in_flight: dict[TopicPartition, list[PartitionBatches]] = {}
        self._due_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._in_flight)

    def __iter__(self) -> Iterator[PartitionBatches]:
        for in_flight in self._in_flight.values():
            yield from in_flight

    def hold(self, entry: PartitionBatches) -> None:
        """Keep a parcel that was refused, before what was sent to its partition later."""
        if not self._in_flight:
            self._due_at = self._clock.monotonic() + self._retry_backoff
        self._in_flight.setdefault(entry.place, []).insert(0, entry)

    def without_held(self, in_flight: Sequence[PartitionBatches]) -> list[PartitionBatches]:
        """Those whose partition holds nothing; the others are kept behind what it holds."""
        if not self._in_flight:
            return list(in_flight)
        free: list[PartitionBatches] = []
        for entry in in_flight:
            self._in_flight.get(entry.place, free).append(entry)
        return free

    def due_in(self) -> float | None:
        """Seconds until the next try; None where nothing is held."""
        return max(self._due_at - self._clock.monotonic(), 0.0) if self._in_flight else None

    def take_oldest(self) -> list[PartitionBatches]:
        """The oldest parcel of each partition, to be tried now. What is left follows with ``take_rest``, or waits."""
        self._due_at = self._clock.monotonic() + self._retry_backoff
        return [in_flight.pop(0) for in_flight in self._in_flight.values()]

    def take_unclear(self) -> list[PartitionBatches]:
        """Those of which nobody knows whether they are committed; what was sent later stays."""
        unclear = [entry for entry in self if entry.unclear]
        for entry in unclear:
            self._in_flight[entry.place].remove(entry)
        self._in_flight = {place: in_flight for place, in_flight in self._in_flight.items() if in_flight}
        return unclear

    def take_rest(self, tried: Sequence[PartitionBatches], created_after: float) -> list[PartitionBatches]:
        """What was sent later to those partitions whose oldest parcel is not held again, in a parcel each.

        Batches that are older than that are parcels of their own: they are too late, and the others may not be.
        """
        rest: list[PartitionBatches] = []
        for place in [entry.place for entry in tried]:
            later = self._in_flight.get(place, [])
            if later and later[0].refusal is not None:
                continue
            self._in_flight.pop(place, None)
            batches = [batch for entry in later for batch in entry.batches]
            late = [batch for batch in batches if batch.created <= created_after]
            parts = (late, batches[len(late) :])
            rest += [PartitionBatches(place, part) for part in parts if part]
        return rest
