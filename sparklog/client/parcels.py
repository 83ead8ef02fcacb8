"""What a producer's thread has in hand: the batches of a partition on their way, and those that wait for brokers.

A partition whose replicas take no records now (too few in sync, no leader, others than a moment ago) keeps what was
sent to it, in order, while all other partitions go on; after ``retry_backoff_ms`` it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklog.client.accumulator import PendingBatch
from sparklog.clock import Clock
from sparklog.errors import WriteRefusedError
from sparklog.protocol.decide import PartitionAppend
from sparklog.types import TopicPartition


class Parcel:
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


class Held:
    """Parcels that wait for their brokers, oldest first in each partition. Only the producer's thread uses it."""

    def __init__(self, clock: Clock, retry_backoff: float) -> None:
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._parcels: dict[TopicPartition, list[Parcel]] = {}
        self._due_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def __iter__(self) -> Iterator[Parcel]:
        for parcels in self._parcels.values():
            yield from parcels

    def hold(self, parcel: Parcel) -> None:
        """Keep a parcel that was refused, before what was sent to its partition later."""
        if not self._parcels:
            self._due_at = self._clock.monotonic() + self._retry_backoff
        self._parcels.setdefault(parcel.place, []).insert(0, parcel)

    def without_held(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """Those whose partition holds nothing; the others are kept behind what it holds."""
        if not self._parcels:
            return list(parcels)
        free: list[Parcel] = []
        for parcel in parcels:
            self._parcels.get(parcel.place, free).append(parcel)
        return free

    def due_in(self) -> float | None:
        """Seconds until the next try; None where nothing is held."""
        return max(self._due_at - self._clock.monotonic(), 0.0) if self._parcels else None

    def take_oldest(self) -> list[Parcel]:
        """The oldest parcel of each partition, to be tried now. What is left follows with ``take_rest``, or waits."""
        self._due_at = self._clock.monotonic() + self._retry_backoff
        return [parcels.pop(0) for parcels in self._parcels.values()]

    def take_unclear(self) -> list[Parcel]:
        """Those of which nobody knows whether they are committed; what was sent later stays."""
        unclear = [parcel for parcel in self if parcel.unclear]
        for parcel in unclear:
            self._parcels[parcel.place].remove(parcel)
        self._parcels = {place: parcels for place, parcels in self._parcels.items() if parcels}
        return unclear

    def take_rest(self, tried: Sequence[Parcel], created_after: float) -> list[Parcel]:
        """What was sent later to those partitions whose oldest parcel is not held again, in a parcel each.

        Batches that are older than that are parcels of their own: they are too late, and the others may not be.
        """
        rest: list[Parcel] = []
        for place in [parcel.place for parcel in tried]:
            later = self._parcels.get(place, [])
            if later and later[0].refusal is not None:
                continue
            self._parcels.pop(place, None)
            batches = [batch for parcel in later for batch in parcel.batches]
            late = [batch for batch in batches if batch.created <= created_after]
            parts = (late, batches[len(late) :])
            rest += [Parcel(place, part) for part in parts if part]
        return rest
