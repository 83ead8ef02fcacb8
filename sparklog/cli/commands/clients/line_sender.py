"""``console-producer``: sends lines in order, retries while the storage fails, and names the line where it gives up.

A batch of lines is one commit. Its records are numbered under a producer id, so that a commit whose outcome nobody
knows is asked for again without a line being stored twice.

Rules: nothing that was read is dropped in silence. A line that cannot become a record ends the sending; the lines
before it are sent. An error says from which line on nothing was sent, or that it is not known.

Not for: where lines come from, and how they become records (``console_producer``, ``line_reader``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.cli.arguments.parser import complain, logger
from sparklog.client.producer.records import Numbering, Record, append_records, route_records
from sparklog.client.producer.sender import is_transient
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    IndeterminateCommitError,
    RefusedRecordError,
    ReplicaError,
    SparklogError,
    StorageFullError,
    UnknownProducerIdError,
    UnlinkedHistoryError,
    WriteRefusedError,
)

LONGEST_BACKOFF_MS = 1000
"""ms between two tries at most: each waits twice as long as the one before, as Kafka's producer does."""
LONGEST_PAUSE_MS = 86_400_000
"""ms that the system can be asked to wait, whatever ``--retry-backoff-ms`` says."""
DEFAULT_RETRIES = 3


class Retries(NamedTuple):
    """How long a failure is ridden out: so many tries more, or without a number Kafka's three where replicas are
    missing or a disk is full, and until ``delivery_timeout_ms`` where the storage does not answer."""

    number: int | None
    backoff_ms: int
    delivery_timeout_ms: int

    def allow(self, error: SparklogError, failures: int, seconds: float) -> bool:
        """Whether to try again after so many failures, ``seconds`` after the first try."""
        if not (is_transient(error) or isinstance(error, WriteRefusedError | ReplicaError)):
            return False
        number = self.number
        if number is None and isinstance(error, WriteRefusedError | ReplicaError | StorageFullError):
            number = DEFAULT_RETRIES
        if number is not None and failures > number:
            return False
        return number is not None or seconds * 1000 < self.delivery_timeout_ms

    def pause_seconds(self, failures: int) -> float:
        """How long to wait after so many failures."""
        longest = min(max(LONGEST_BACKOFF_MS, self.backoff_ms), LONGEST_PAUSE_MS)
        return float(min(self.backoff_ms << min(failures - 1, 16), longest)) / 1000


class LineSender:
    """Appends records in order, a commit for each call, and counts the lines that are sent. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, topic: str, codec: str, acks: int, retries: Retries) -> None:
        self.sent_lines = 0
        self._coordinator = coordinator
        self._clock = coordinator.log.clock
        self._topic = topic
        self._codec = codec
        self._acks = acks
        self._retries = retries
        self._numbering: Numbering | None = None
        self._unclear = False

    def check_topic(self) -> None:
        """Fail before the first line is typed where the topic cannot be written to."""
        append_records(self._coordinator, self._topic, [])

    def send(self, batch: list[Record]) -> None:
        """Append all, or those before the first that the topic refuses, and then say which line that was.

        Raises RefusedRecordError and its like for a line, and what ended the retries; the message names the line.
        """
        if not batch:
            return
        try:
            self._append(batch)
        except RefusedRecordError as error:
            refused = error.index
            if refused is None or self._unclear:
                raise self._given_up(error, len(batch)) from error
            if refused:
                self.send(batch[:refused])
            raise _renamed(error, f"line number {self.sent_lines + 1}: {error.message}") from error
        except SparklogError as error:
            raise self._given_up(error, len(batch)) from error
        self.sent_lines += len(batch)

    def interrupted(self) -> str:
        """What to say where the sending of what was read is cut short."""
        return (
            f"line number {self.sent_lines + 1}: interrupted; whether it and the lines after it are sent is not known"
        )

    def _append(self, batch: list[Record]) -> None:
        """Append these, again for a while where that fails and may pass."""
        began, failures = self._clock.monotonic(), 0
        self._unclear = False
        placed: list[Record] | None = None
        while True:
            numbered = self._numbering is not None
            try:
                if self._numbering is None:
                    self._numbering = Numbering(self._coordinator)
                    numbered = True
                if placed is None:
                    placed = route_records(self._coordinator, self._topic, batch)
                append_records(
                    self._coordinator, self._topic, placed, compression=self._codec, acks=self._acks,
                    numbering=self._numbering,
                )  # fmt: skip
                return
            except (UnknownProducerIdError, UnlinkedHistoryError) as error:
                if self._unclear or failures > DEFAULT_RETRIES:
                    raise
                logger.info("lines are sent under another producer id: %s", error)
                self._numbering = None
                failures += 1
            except SparklogError as error:
                self._unclear = self._unclear or (numbered and isinstance(error, IndeterminateCommitError))
                failures += 1
                if not self._retries.allow(error, failures, self._clock.monotonic() - began):
                    raise
                if failures == 1:
                    first = self.sent_lines + 1
                    complain(f"WARN: {_lines(first, len(batch))} cannot be sent now, retrying: {error}")
                self._clock.sleep(self._retries.pause_seconds(failures))

    def _given_up(self, error: SparklogError, lines: int) -> SparklogError:
        first = self.sent_lines + 1
        if self._unclear:
            what = f"whether {_lines(first, lines)} are in the log is not known"
        else:
            what = "this line and those after it were not sent"
        return _renamed(error, f"line number {first}: {what}: {error.message}")


def _lines(first: int, count: int) -> str:
    return f"line number {first}" if count == 1 else f"lines {first} to {first + count - 1}"


def _renamed(error: SparklogError, message: str) -> SparklogError:
    return type(error)(message, **error.context)
