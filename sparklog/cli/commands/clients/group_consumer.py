"""``console-consumer --group``: reading as a member of a group, through the Python consumer.

Offsets are committed automatically and at the end, of what was printed: a batch that could not be printed is not
committed. SIGTERM and Ctrl-C are seen between two batches, so that what was read is printed and committed.
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

LOOK_SECONDS = 0.2
"""A request to stop is seen after it at the latest. Waiting costs no request: the consumer reads ahead by itself."""


class GroupConsumer:
    """Records that the group gives this member, with the interface of the consumer without a group. Not thread-safe."""

    def __init__(self, consumer: Consumer, clock: Clock, limit: int, stop: StopRequest) -> None:
        """``limit`` is how many records to take at most, -1 for any number."""
        self.clock = clock
        self._consumer = consumer
        self._left = limit
        self._stop = stop
        self._waiting: list[PolledRecord] = []

    def available(self) -> Iterator[ConsumerRecord]:
        """The records at hand."""
        if not self._waiting:
            self._poll(0)
        while self._waiting:
            polled, self._waiting = self._waiting, []
            for record in polled:
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
        """Wait for records, at most so long."""
        deadline = self.clock.monotonic() + seconds
        left = seconds
        while left > 0 and not self._waiting:
            self.stop_if_asked()
            self._poll(min(left, LOOK_SECONDS))
            left = deadline - self.clock.monotonic()

    def stop_if_asked(self) -> None:
        """Raises SystemExit."""
        if self._stop:
            raise SystemExit(self._stop.exit_code)

    def close(self, printed: bool) -> None:
        """Leave the group; with ``printed`` offsets are committed first."""
        self._consumer.close(autocommit=printed)

    def _poll(self, seconds: float) -> None:
        if self._left == 0:
            return
        found = self._consumer.poll(seconds * 1000, max_records=self._left if self._left > 0 else None)
        self._waiting = [record for records in found.values() for record in records]
        if self._left > 0:
            self._left -= len(self._waiting)
