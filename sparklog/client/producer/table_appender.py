"""A producer without a thread, for ``console-producer`` and tests: each table of rows is one commit of the caller's.

    appender = TableAppender(coordinator, "orders", acks=-1)
    staged = appender.stage(rows)
    appender.attempt(staged)

It is made of the parts of ``Producer``. What is its own: nothing is retried but writing to other brokers, so the caller
decides how often, and a table is in the log whole or not at all.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from sparklog import limits
from sparklog.client.producer.config import producer_config
from sparklog.client.producer.in_flight import PartitionBatches
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.record_accumulator import Accumulator
from sparklog.client.producer.sender import Sender, mark_outcome_unknown
from sparklog.client.producer.table_batches import check_batch, split_table
from sparklog.client.producer.topic_routing import Topics
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    IndeterminateCommitError,
    NotLeaderOrFollowerError,
    StaleWriteError,
    UnknownProducerIdError,
    UnlinkedHistoryError,
    WriteRefusedError,
)

logger = logging.getLogger(__name__)

ATTEMPTS = 5
"""How often an attempt writes its rows if brokers change in between."""

NO_LIMIT = 2**62


class TableAppender:
    """Appends rows to one topic. Not thread-safe. ``arguments`` are those of ``Producer``."""

    def __init__(self, coordinator: Coordinator, topic: str, **arguments: object) -> None:
        given = {"buffer_memory": NO_LIMIT, "max_request_size": NO_LIMIT, "cluster": coordinator, **arguments}
        config, _ = producer_config(given)
        self._coordinator = coordinator
        self._topic = topic
        self._accumulator = Accumulator(config, coordinator.log.clock)
        self._topics = Topics(coordinator, config, self._accumulator)
        metrics = ProducerMetrics(coordinator.log.clock, self._accumulator, config.buffer_memory)
        self._sender = Sender(coordinator, config, self._accumulator, self._topics, metrics)

    def check_topic(self) -> None:
        """Raise the error of a topic that cannot be written to: InvalidTopicError, UnknownTopicOrPartitionError."""
        self._topics.check_writable(self._topic, self._coordinator.refresh())

    def stage(self, rows: pa.RecordBatch) -> list[PartitionBatches]:
        """Check and route rows, for ``attempt``. They have a file's columns, and may have a column ``partition``.

        A topic that does not exist is created if that is allowed. Raises RefusedRecordError, whose ``index`` is that of
        the row, InvalidPartitionError, and as ``check_topic``; StorageError.
        """
        self._coordinator.refresh()
        topic = self._topics.check(self._topic) or self._topics.find(self._topic)
        check_batch(rows, topic, self._coordinator.log.clock.now_ms())
        for partition, columns in split_table([rows], topic, limits.TARGET_BATCH_BYTES * len(topic.queues)):
            self._accumulator.append_columns(topic.queues[partition], columns)
        return [PartitionBatches(*drained) for drained in self._accumulator.take()]

    def attempt(self, staged: list[PartitionBatches], failures: int = 0) -> None:
        """Commit these rows. May be repeated after an error, with the number of failures so far: an idempotent producer
        has them in the log once. ``outcome_unknown`` of the entries says that they may be in the log.

        Raises the errors of ``write_files`` and of ``Coordinator.append``.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return self._attempt(staged, failures)
            except (NotLeaderOrFollowerError, StaleWriteError) as error:
                logger.info("writing the rows for %s again after: %s", self._topic, error)
        return self._attempt(staged, failures)

    def _attempt(self, staged: list[PartitionBatches], failures: int) -> None:
        try:
            self._sender.attempt(staged, failures)
        except IndeterminateCommitError:
            mark_outcome_unknown(staged)
            raise
        except WriteRefusedError:
            self._sender.discard_files(staged)
            raise
        except (UnknownProducerIdError, UnlinkedHistoryError):
            if not any(entry.outcome_unknown for entry in staged):
                self._sender.renew()
                self._sender.discard_files(staged)
            raise
