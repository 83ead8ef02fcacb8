"""``console-producer``: sends lines in order, retries while the storage fails, and names the line at which it gives up.

A batch of lines is one commit. Its records have sequence numbers of a producer id, so that a commit whose outcome is
unknown is retried without storing a line twice.

Rules: no line is dropped silently. A line that cannot become a record ends the sending; the lines before it are sent.
An error names the first line that was not sent, or says that the outcome is unknown.

Not for: reading and parsing lines (``console_producer``, ``line_reader``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.cli.arguments.line_reader import InputLine
from sparklog.cli.arguments.parser import complain, logger
from sparklog.client.producer.in_flight import PartitionBatches
from sparklog.client.producer.table_appender import TableAppender
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    RefusedRecordError,
    ReplicaError,
    SparklogError,
    StorageFullError,
    UnknownProducerIdError,
    UnlinkedHistoryError,
    WriteRefusedError,
)
from sparklog.records.columns import to_columns
from sparklog.retry import is_transient

MAX_BACKOFF_MS = 1000
"""Longest back-off in ms: it doubles with each retry, as in Kafka's producer."""
MAX_PAUSE_MS = 86_400_000
"""Upper limit of ``--retry-backoff-ms``: the system refuses arbitrarily large waits."""
DEFAULT_RETRIES = 3


class Retries(NamedTuple):
    """Retry policy: ``number`` retries; without a number Kafka's three if replicas are missing or a disk is full, and
    retries until ``delivery_timeout_ms`` if the storage does not answer."""

    number: int | None
    backoff_ms: int
    delivery_timeout_ms: int

    def allow(self, error: SparklogError, failures: int, seconds: float) -> bool:
        """Whether to retry after this many failures, ``seconds`` after the first attempt."""
        if not (is_transient(error) or isinstance(error, WriteRefusedError | ReplicaError)):
            return False
        number = self.number
        if number is None and isinstance(error, WriteRefusedError | ReplicaError | StorageFullError):
            number = DEFAULT_RETRIES
        if number is not None and failures > number:
            return False
        return number is not None or seconds * 1000 < self.delivery_timeout_ms

    def pause_seconds(self, failures: int) -> float:
        max_ms = min(max(MAX_BACKOFF_MS, self.backoff_ms), MAX_PAUSE_MS)
        return float(min(self.backoff_ms << min(failures - 1, 16), max_ms)) / 1000


class LineSender:
    """Appends records in order, one commit per call, and counts the lines that were sent. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, topic: str, codec: str, acks: int, retries: Retries) -> None:
        self.sent_lines = 0
        self._clock = coordinator.log.clock
        self._appender = TableAppender(coordinator, topic, compression_type=codec, acks=acks)
        self._retries = retries
        self._outcome_unknown = False

    def check_topic(self) -> None:
        """Raise the error of a topic that cannot be written to, before the first line is typed."""
        self._appender.check_topic()

    def send(self, batch: list[InputLine]) -> None:
        """Append all records, or those before the first one that the topic refuses.

        Raises RefusedRecordError for a refused line, or the error that ended the retries; the message names the line.
        """
        if not batch:
            return
        try:
            self._append(batch)
        except RefusedRecordError as error:
            refused = error.index
            if refused is None or self._outcome_unknown:
                raise self._give_up(error, len(batch)) from error
            if refused:
                self.send(batch[:refused])
            raise _with_message(error, f"line number {self.sent_lines + 1}: {error.message}") from error
        except SparklogError as error:
            raise self._give_up(error, len(batch)) from error
        self.sent_lines += len(batch)

    def interrupted(self) -> str:
        """Return the message for an interruption before all lines that were read are sent."""
        return (
            f"line number {self.sent_lines + 1}: interrupted; it is unknown whether this line and those after it were "
            "sent"
        )

    def _append(self, batch: list[InputLine]) -> None:
        start, failures = self._clock.monotonic(), 0
        self._outcome_unknown = False
        staged: list[PartitionBatches] = []
        stamps = [self._clock.now_ms() * 1000] * len(batch)
        rows = to_columns(
            [line.key for line in batch], [line.value for line in batch], stamps, [line.headers for line in batch]
        )
        while True:
            try:
                staged = staged or self._appender.stage(rows)
                return self._appender.attempt(staged, failures)
            except (UnknownProducerIdError, UnlinkedHistoryError) as error:
                if self._outcome_unknown or failures > DEFAULT_RETRIES:
                    raise
                logger.info("sending lines with a new producer id: %s", error)
                failures += 1
            except SparklogError as error:
                self._outcome_unknown = any(entry.outcome_unknown for entry in staged)
                failures += 1
                if not self._retries.allow(error, failures, self._clock.monotonic() - start):
                    raise
                if failures == 1:
                    first = self.sent_lines + 1
                    complain(f"WARN: sending {_lines(first, len(batch))} failed, retrying: {error}")
                self._clock.sleep(self._retries.pause_seconds(failures))

    def _give_up(self, error: SparklogError, lines: int) -> SparklogError:
        """Return the error with a message that names the first line that was not sent."""
        first = self.sent_lines + 1
        if self._outcome_unknown:
            outcome = f"it is unknown whether {_lines(first, lines)} are in the log"
        else:
            outcome = "this line and those after it were not sent"
        return _with_message(error, f"line number {first}: {outcome}: {error.message}")


def _lines(first: int, count: int) -> str:
    return f"line number {first}" if count == 1 else f"lines {first} to {first + count - 1}"


def _with_message(error: SparklogError, message: str) -> SparklogError:
    return type(error)(message, **error.context)
