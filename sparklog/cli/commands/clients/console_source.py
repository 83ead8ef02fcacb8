"""The records that ``console-consumer`` prints: of a member of a group, or of all partitions of its topics.

A partition with a batch that cannot be read is set aside at that batch: the others are read to their ends first, then
its error is raised. Nothing is skipped, and no error is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sparklog.cli.arguments.parser import complain
from sparklog.client.admin.offsets_topic import described_topic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptionError,
    DataLossError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.protocol.group.start_offset import EARLIEST, LATEST, NONE
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.types import TopicPartition

UNREADABLE_SECONDS = 60.0
"""Time after which existing records that still cannot be read are an error."""
REFRESH_SECONDS = 1.0
"""Interval of the checks whether a missing topic exists now."""


OF_A_BATCH = (CorruptionError, DataLossError, StorageError, UnsupportedVersionError)
"""Errors that concern one partition if they name it."""


class TopicSelection(NamedTuple):
    """The topics to read, by name, and the only partition if one is given; ``missing`` says that no such topic
    exists."""

    matches: Callable[[str], bool]
    missing: str
    topic: str | None
    partition: int | None


class GroupSource:
    """Polls a consumer that is a member of a group. Not thread-safe."""

    def __init__(self, consumer: Consumer, coordinator: Coordinator, limit: int) -> None:
        """``limit`` is the largest number of records to read, -1 for no limit."""
        self.clock = coordinator.log.clock
        self._consumer = consumer
        self._coordinator = coordinator
        self._remaining = limit
        self._unreadable: dict[TopicPartition, SparklogError] = {}

    def poll(self, seconds: float) -> list[ConsumerRecord]:
        """Return records as soon as there are any, none after ``seconds``. Sets a partition aside that cannot be
        read."""
        try:
            polled = self._consumer.poll(seconds * 1000, max_records=self._remaining if self._remaining > 0 else None)
        except OF_A_BATCH as error:
            self._set_aside(error)
            return []
        records = [record for partition_records in polled.values() for record in partition_records]
        if self._remaining > 0:
            self._remaining -= len(records)
        return records

    def has_caught_up(self, overdue_seconds: float) -> bool:
        """Return whether to stop, this long after the timeout."""
        return True

    def is_over(self) -> bool:
        """Return whether a partition was set aside and the others have been read to their ends."""
        others = self._consumer.assignment() - self._unreadable.keys()
        return bool(self._unreadable) and (not others or self._consumer.has_caught_up())

    def raise_unreadable(self) -> None:
        """Raise the error of a partition that was set aside, if any; complain of those of further ones."""
        errors = list(self._unreadable.values())
        for error in errors[1:]:
            complain(f"{error}")
        if errors:
            raise errors[0]

    def _set_aside(self, error: SparklogError) -> None:
        """Pause the partition that an error names, to read the others first. Raises an error that names none."""
        if error.topic is None or error.partition is None:
            raise error
        partition = TopicPartition(str(error.topic), int(error.partition))
        if partition not in self._consumer.assignment():
            raise error
        self._consumer.pause(partition)
        self._unreadable[partition] = error
        if self._consumer.assignment() - self._unreadable.keys():
            position = self._consumer.position(partition)
            complain(f"{partition} cannot be read from offset {position} on; reading the other partitions first")


class LogSource(GroupSource):
    """Reads all partitions of a selection without a group; those created later, from their beginning."""

    def __init__(
        self,
        consumer: Consumer,
        coordinator: Coordinator,
        limit: int,
        selection: TopicSelection,
        start: str | int,
        reset: str,
    ) -> None:
        """The consumer has ``auto_offset_reset`` none: ``reset`` is applied here, with a line for the user."""
        super().__init__(consumer, coordinator, limit)
        self._selection = selection
        self._reset = reset
        self._topic_ids: dict[TopicPartition, str] = {}
        self._ends: dict[TopicPartition, int] | None = None
        self._refresh_at = 0.0
        self._follow(start)
        if not self._topic_ids:
            complain(f"{self._missing()} yet; waiting for it (Ctrl-C stops)")

    def _missing(self) -> str:
        """Say which topic or partition does not exist."""
        topic = self._coordinator.state.topics.get(self._selection.topic or "")
        if topic is None:
            return f"{self._selection.missing} in this cluster"
        count = len(topic.partitions)
        return f"topic {topic.name!r} has partitions 0 to {count - 1}, and no partition {self._selection.partition}"

    def poll(self, seconds: float) -> list[ConsumerRecord]:
        if not self._topic_ids:  # a consumer without partitions would warn of that
            self.clock.sleep(seconds)
            if self.clock.monotonic() >= self._refresh_at:
                self._refresh_at = self.clock.monotonic() + REFRESH_SECONDS
                self._coordinator.refresh()
        if self._coordinator.state is not self._state:
            self._follow(EARLIEST)
        if not self._topic_ids:
            return []
        try:
            return super().poll(seconds)
        except OffsetOutOfRangeError as error:
            partition = TopicPartition(str(error.topic), int(error.partition))
            topic_id = self._topic_ids.get(partition)
            self._follow(EARLIEST)
            if self._topic_ids.get(partition) == topic_id:
                self._reset_out_of_range(partition, error)
            return []

    def has_caught_up(self, overdue_seconds: float) -> bool:
        """Return whether all records that existed at the first call were read. Raises KafkaTimeoutError if that takes
        too long, StorageError."""
        if self._ends is None:
            self._coordinator.refresh()  # a storage that does not answer is an error here, and not the end of the log
            self._follow(EARLIEST)
            self._ends = self._consumer.end_offsets(
                [partition for partition in self._topic_ids if partition.topic != CONSUMER_OFFSETS_TOPIC]
            )
        is_derived = len(self._ends) < len(self._topic_ids)  # its offsets have gaps: no position reaches its end
        behind = [
            partition
            for partition in (self._topic_ids.keys() & self._ends.keys()) - self._unreadable.keys()
            if (self._consumer.position(partition) or 0) < self._ends[partition]
        ]
        if not behind and (not is_derived or self._consumer.has_caught_up()):
            return True
        if overdue_seconds > UNREADABLE_SECONDS:
            raise KafkaTimeoutError(
                f"the records of {self._coordinator.store.root} could not be read within {UNREADABLE_SECONDS:.0f} s"
            )
        return False

    def _follow(self, start: str | int) -> None:
        """Assign new partitions, and those of topics that were recreated, from ``start`` on; drop deleted ones."""
        self._state = state = self._coordinator.state
        topics = filter(self._selection.matches, {*state.topics, CONSUMER_OFFSETS_TOPIC})
        current = {
            TopicPartition(name, number): topic.topic_id
            for name, topic in ((name, described_topic(state, name)) for name in topics)
            for number in range(len(topic.partitions))
            if self._selection.partition in (None, number)
        }
        if current == self._topic_ids:
            return
        added = [partition for partition, topic_id in current.items() if self._topic_ids.get(partition) != topic_id]
        self._topic_ids = current
        self._consumer.assign(list(current))
        for partition in added:
            self._seek(partition, start)

    def _seek(self, partition: TopicPartition, start: str | int) -> None:
        if isinstance(start, int):
            self._consumer.seek(partition, start)
        elif start == EARLIEST:
            self._consumer.seek_to_beginning(partition)
        elif start == LATEST:
            self._consumer.seek_to_end(partition)
        else:
            raise OffsetOutOfRangeError(
                f"{partition} has no offset to start at, and auto.offset.reset is none", topic=partition.topic
            )

    def _reset_out_of_range(self, partition: TopicPartition, error: OffsetOutOfRangeError) -> None:
        """Continue where auto.offset.reset says. Raises OffsetOutOfRangeError if it is none."""
        start = self._consumer.beginning_offsets([partition])[partition]
        end = self._consumer.end_offsets([partition])[partition]
        message = f"offset {error.offset} of {partition} is out of range: it has {start} to {end}"
        if self._reset == NONE:
            raise OffsetOutOfRangeError(f"{message}, and auto.offset.reset is none", **error.context) from error
        complain(f"{message}; continuing at {self._reset}")
        self._seek(partition, self._reset)
