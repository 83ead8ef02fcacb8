"""The order in which the replicas of a segment are read, and the read from the first that is intact.

All replicas in sync hold every live segment under the same path: local ones come first, then the leader, then the
others. A broker that has just failed comes last for a while.

Not for: what is read of a file (``fetch``), the ISR (the commit log).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from sparklog.clock import Clock
from sparklog.errors import (
    CorruptionError,
    DataLossError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

AVOID_SECONDS = 10.0
"""seconds for which a broker that failed is tried last; then one read finds out whether it has recovered."""

REPLICA_FAILED = (StorageError, CorruptionError, UnsupportedStoreError)
"""Errors of one replica that another may not have."""

Result = TypeVar("Result")
StoreOf = Callable[[int], Store]
ReplicasOf = Callable[[str, int], Sequence[int]]
"""(topic, partition) -> the brokers in sync, leader first."""


def replicas_in_sync(partition: PartitionState) -> tuple[int, ...]:
    """Return the brokers that hold every live segment of a partition, leader first."""
    leader = [partition.leader] if partition.leader >= 0 else []
    return tuple(dict.fromkeys([*leader, *partition.isr]))


class ReadOrder:
    """Orders the brokers to try for a read. Not thread-safe."""

    def __init__(self, store_of: StoreOf, replicas_of: ReplicasOf | None, clock: Clock) -> None:
        self._store_of = store_of
        self._replicas_of = replicas_of
        self._clock = clock
        self._avoided_until: dict[int, float] = {}
        self._local: dict[int, bool] = {}

    def brokers_for(self, topic: str, segment: Segment) -> list[int]:
        """Return the brokers to read a segment from, in order. At least one: the one that the segment names."""
        in_sync = [] if self._replicas_of is None else self._replicas_of(topic, segment.partition)
        brokers = list(dict.fromkeys([*in_sync, segment.broker]))
        if len(brokers) > 1:
            now = self._clock.monotonic()
            brokers.sort(key=lambda broker: (self._avoided_until.get(broker, now) > now, not self._is_local(broker)))
        return brokers

    def penalize(self, brokers: Iterable[int]) -> None:
        """Try these brokers last for a while: they failed a read that another one served."""
        until = self._clock.monotonic() + AVOID_SECONDS
        self._avoided_until.update(dict.fromkeys(brokers, until))

    def _is_local(self, broker: int) -> bool:
        if broker not in self._local:
            try:
                self._local[broker] = self._store_of(broker).is_local
            except SparklogError:  # reading from it fails again, with a better error
                return False
        return self._local[broker]


def read_any(
    topic: str,
    segment: Segment,
    brokers: Iterable[int],
    read: Callable[[int], Result],
    store_of: StoreOf,
    failures: dict[int, SparklogError],
) -> tuple[int, Result]:
    """Return the first broker at which ``read`` succeeds, with its result. Brokers in ``failures`` have failed before;
    the others that fail are added.

    If all fail, raises their error: DataLossError if none has the file, StorageUnavailableError if a retry may help.
    """
    for broker in brokers:
        if broker in failures:
            continue
        try:
            result = read(broker)
        except REPLICA_FAILED as error:
            failures[broker] = error
            continue
        for failed, why in failures.items():
            logger.warning("%s is read from broker %d, since broker %d failed: %s", segment.path, broker, failed, why)
        return broker, result
    _raise_failure(topic, segment, failures, store_of)


def _raise_failure(topic: str, segment: Segment, failures: Mapping[int, SparklogError], store_of: StoreOf) -> NoReturn:
    """Raise the error for a segment that no broker could serve, with the error of each."""
    errors = list(failures.values())
    missing = [error for error in errors if isinstance(error, ObjectNotFoundError)]
    if len(errors) == 1 and not missing:
        raise errors[0]
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
        raise DataLossError(message, path=path, **context) from missing[0]
    reasons = "; ".join(f"broker {broker}: {error.message}" for broker, error in sorted(failures.items()))
    message = f"{what} from any of their brokers: {reasons}"
    context["path"] = segment.path
    if len(missing) == len(errors):
        raise DataLossError(f"{message}; restore the file from a copy", **context) from errors[0]
    kinds: tuple[type[SparklogError], ...] = (StorageUnavailableError, StorageError, CorruptionError, SparklogError)
    rest = [error for error in errors if not isinstance(error, ObjectNotFoundError)]
    worst = next(error for kind in kinds for error in rest if isinstance(error, kind))
    raise type(worst)(message, **{**worst.context, **context}) from worst
