"""What a producer's thread (``sender``) and its transactions share: the parts they work with, writing files, and
resolving batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.client.producer.batch_files import PartitionRun, write_files
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.in_flight import PartitionBatches, forget_files
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.record_accumulator import Accumulator, PendingBatch
from sparklog.client.producer.topic_routing import Topics
from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError, UnknownTopicOrPartitionError
from sparklog.log.records.replicated_file import discard
from sparklog.protocol.decide.append import UNKNOWN_OFFSET, AppendResult
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.state import missing_partition
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

SEQUENCES = 2**31
"""Sequences count the records of a partition and wrap around to 0 here, as in Kafka."""


@dataclass(eq=False, repr=False)
class SenderBase:
    """Base class: takes batches from an accumulator and writes them to files. Not thread-safe."""

    _coordinator: Coordinator
    _config: ProducerConfig
    _accumulator: Accumulator
    _topics: Topics
    _metrics: ProducerMetrics

    def __post_init__(self) -> None:
        self._clock = self._coordinator.log.clock
        self._sequences: dict[TopicPartition, int] = {}

    def _write_topic(
        self, topic: str, unwritten: Sequence[PartitionBatches], identity: ProducerIdentity, skipped: int = 0
    ) -> None:
        """Write a topic's batches to files, and set ``append`` of each entry. Errors as ``write_files``, and
        UnknownTopicOrPartitionError."""
        metadata = self._topics.check(topic)
        if metadata is None:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} was deleted while records for it were in flight; create it, then send them again",
                topic=topic,
            )
        highest = max(entry.topic_partition.partition for entry in unwritten)
        if highest >= len(metadata.queues):  # the topic was created again, with fewer partitions
            raise missing_partition(topic, highest, len(metadata.queues))
        ordered = sorted(unwritten, key=lambda entry: entry.topic_partition.partition)
        numbered = identity.producer_id >= 0
        runs = [
            PartitionRun(
                entry.topic_partition.partition,
                entry.batches,
                self._sequences.get(entry.topic_partition, 0) if numbered else -1,
            )
            for entry in ordered
        ]
        began = self._clock.monotonic()
        with self._metrics.requests.counted():
            written = write_files(self._coordinator, metadata, runs, identity, self._config.acks, skipped)
        self._metrics.wrote(runs, written, began)
        for entry, append in zip(ordered, written, strict=True):
            entry.append = append

    def _set_results(self, in_flight: Sequence[PartitionBatches], result: AppendResult) -> None:
        """Give the records of a commit their offsets and, if the topic uses LogAppendTime, the commit's timestamp."""
        timestamp_ms = self._coordinator.state.timestamp_ms
        for entry, appended in zip(in_flight, result.appended, strict=True):
            set_offsets(entry.batches, appended.base_offset, timestamp_ms if appended.log_append_time else -1)

    def _resolve(self, batches: Sequence[PendingBatch], error: BaseException | None = None) -> None:
        """Record these batches as committed (``error`` None) or failed, and run their callbacks."""
        unresolved = [batch for batch in batches if not batch.done]
        if error is None:
            self._metrics.committed(unresolved)
        else:
            self._metrics.failed(unresolved)
        self._accumulator.resolve(batches, error)

    def _refresh(self) -> None:
        """Read the newest state before a retry, which uses an older one if this fails."""
        try:
            self._coordinator.refresh()
        except SparklogError as error:
            logger.info("could not read the cluster: %s", error)

    def discard_files(self, refused: Sequence[PartitionBatches]) -> None:
        """Delete the files of refused records that no commit can name, as far as the storage allows.

        For the thread of one call only. A producer's own thread leaves such files to the vacuum: a slow broker would
        delay the records of other partitions.
        """
        kept = {entry.append.run.path for entry in refused if entry.append is not None and entry.outcome_unknown}
        runs = [entry.append.run for entry in refused if entry.append is not None]
        discard((run for run in runs if run.path not in kept), self._coordinator.store_of)
        forget_files(refused)


def set_offsets(batches: Sequence[PendingBatch], base_offset: int, append_time_ms: int) -> None:
    """Set the offsets that the batches of one run got."""
    for batch in batches:
        batch.base_offset = base_offset
        batch.append_time_ms = append_time_ms
        if base_offset != UNKNOWN_OFFSET:
            base_offset += batch.rows
        batch.columns = None


def unwritten_by_topic(in_flight: Sequence[PartitionBatches]) -> Mapping[str, Sequence[PartitionBatches]]:
    """Return the entries that are in no file yet, by topic."""
    by_topic: dict[str, list[PartitionBatches]] = {}
    for entry in in_flight:
        if entry.append is None:
            by_topic.setdefault(entry.topic_partition.topic, []).append(entry)
    return by_topic
