"""``console-consumer --group``: reads as a member of a group, with the Python consumer.

Offsets of printed records are committed automatically and at the end: a batch that could not be printed is not
committed. SIGTERM and Ctrl-C take effect between two batches, so that all records that were read are printed and
committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparklog.cli.commands.clients.throughput import StopRequest
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.reader import ConsumerRecord

if TYPE_CHECKING:
    from sparklog.client.consumer.records import ConsumerRecord as PolledRecord
    from sparklog.clock import Clock

POLL_SECONDS = 0.2
"""Longest delay until a stop request takes effect. Polling costs no request: the consumer reads ahead by itself."""


class GroupConsumer:
    """Reads this member's partitions, with the interface of the consumer without a group. Not thread-safe."""

    def __init__(self, consumer: Consumer, clock: Clock, limit: int, stop: StopRequest) -> None:
        """``limit`` is the largest number of records to read, -1 for no limit."""
        self.clock = clock
        self._consumer = consumer
        self._remaining = limit
        self._stop = stop
        self._polled: list[PolledRecord] = []

    def available(self) -> Iterator[ConsumerRecord]:
        """Yield the records that are available without waiting."""
        if not self._polled:
            self._poll(0)
        while self._polled:
            records, self._polled = self._polled, []
            for record in records:
                yield ConsumerRecord(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp * 1000,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                    record.leader_epoch,
                )
            self.stop_if_asked()
            self._poll(0)

    def wait(self, seconds: float) -> None:
        """Wait for records, up to ``seconds``."""
        deadline = self.clock.monotonic() + seconds
        left = seconds
        while left > 0 and not self._polled:
            self.stop_if_asked()
            self._poll(min(left, POLL_SECONDS))
            left = deadline - self.clock.monotonic()

    def stop_if_asked(self) -> None:
        """Raise SystemExit after a stop request."""
        if self._stop:
            raise SystemExit(self._stop.exit_code)

    def close(self, printed: bool) -> None:
        """Leave the group; with ``printed`` commit offsets first."""
        self._consumer.close(autocommit=printed)

    def _poll(self, seconds: float) -> None:
        if self._remaining == 0:
            return
        polled = self._consumer.poll(seconds * 1000, max_records=self._remaining if self._remaining > 0 else None)
        self._polled = [record for records in polled.values() for record in records]
        if self._remaining > 0:
            self._remaining -= len(self._polled)
