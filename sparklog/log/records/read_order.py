"""From which broker to read a file that several hold.

All replicas in sync hold every live segment under the same path, so any will do: the nearest first, which is one on a
local disk, then the leader, then the others. A broker that has just failed comes last for a while.

Not for: reading (``fetch``), who is in sync (the commit log).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import (
    CorruptionError,
    DataLossError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    StorageUnavailableError,
)
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState
from sparklog.store.base import Store

AVOID_SECONDS = 10.0
"""How long a broker that failed is asked last: one look at a time is spent on finding out whether it is well again."""

StoreOf = Callable[[int], Store]
ReplicasOf = Callable[[str, int], Sequence[int]]
"""(topic, partition) -> the brokers in sync, the leader first."""


def replicas_in_sync(partition: PartitionState) -> tuple[int, ...]:
    """The brokers that hold every live segment of a partition, the leader first."""
    leader = [partition.leader] if partition.leader >= 0 else []
    return tuple(dict.fromkeys([*leader, *partition.isr]))


class ReadOrder:
    """The order in which brokers are tried. Not thread-safe."""

    def __init__(self, store_of: StoreOf, replicas_of: ReplicasOf | None, clock: Clock) -> None:
        self._store_of = store_of
        self._replicas_of = replicas_of
        self._clock = clock
        self._avoided_until: dict[int, float] = {}
        self._local: dict[int, bool] = {}

    def of(self, topic: str, segment: Segment) -> list[int]:
        """The brokers to read a segment from, in this order. At least one: the one that the segment names."""
        held = [] if self._replicas_of is None else self._replicas_of(topic, segment.partition)
        found = list(dict.fromkeys([*held, segment.broker]))
        if len(found) > 1:
            now = self._clock.monotonic()
            found.sort(key=lambda broker: (self._avoided_until.get(broker, now) > now, not self._is_local(broker)))
        return found

    def avoid(self, brokers: Iterable[int]) -> None:
        """These have failed where another one did not."""
        until = self._clock.monotonic() + AVOID_SECONDS
        self._avoided_until.update(dict.fromkeys(brokers, until))

    def _is_local(self, broker: int) -> bool:
        if broker not in self._local:
            try:
                self._local[broker] = "://" not in self._store_of(broker).root
            except SparklogError:  # it fails again, with more to say, once it is read from
                return False
        return self._local[broker]


def read_failure(topic: str, segment: Segment, failures: Mapping[int, SparklogError], store_of: StoreOf) -> Exception:
    """The error for a segment that none of its brokers gave: what each of them said.

    StorageUnavailableError where trying again may help, DataLossError where the file is on none of them.
    """
    errors = list(failures.values())
    missing = [error for error in errors if isinstance(error, ObjectNotFoundError)]
    if len(errors) == 1 and not missing:
        return errors[0]
    what = f"records {segment.base_offset} to {segment.end_offset - 1} of {topic}-{segment.partition} cannot be read"
    context: dict[str, Any] = {
        "topic": topic,
        "partition": segment.partition,
        "offset": segment.base_offset,
        "end_offset": segment.end_offset,
    }
    if len(errors) == 1:
        path = missing[0].path or segment.path
        root = store_of(next(iter(failures))).root
        message = f"{what}: {path} is missing from {root}; restore it from a copy"
        return _caused(DataLossError(message, path=path, **context), missing[0])
    tried = "; ".join(f"broker {broker}: {error.message}" for broker, error in sorted(failures.items()))
    message = f"{what} from any of their brokers: {tried}"
    context["path"] = segment.path
    if len(missing) == len(errors):
        return _caused(DataLossError(f"{message}; restore the file from a copy", **context), errors[0])
    kinds: tuple[type[SparklogError], ...] = (StorageUnavailableError, StorageError, CorruptionError, SparklogError)
    rest = [error for error in errors if not isinstance(error, ObjectNotFoundError)]
    worst = next(error for kind in kinds for error in rest if isinstance(error, kind))
    return _caused(type(worst)(message, **{**worst.context, **context}), worst)


def _caused(error: SparklogError, cause: SparklogError) -> SparklogError:
    error.__cause__ = cause
    return error
