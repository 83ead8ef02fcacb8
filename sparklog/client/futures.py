"""What ``send`` returns: a record's future, and the record's metadata once its commit is durable.

Many records share a ``RecordBatchResult``, which is what the sender resolves; a record's future is only that result and
the record's place in it, since one is made for every record sent.

Rules: the interface is kafka-python's (``FutureRecordMetadata``, ``RecordMetadata``). A result is resolved once.
Callbacks run in the thread that resolves, or at once where the result is known already; what they raise is logged, and
ends no thread of a client (``call_all``).
Thread-safe.
"""

from __future__ import annotations

import functools
import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from sparklog.client.representation import Facts, Shown
from sparklog.client.user_code import ends_program
from sparklog.errors import IllegalStateError, KafkaTimeoutError, SparklogError
from sparklog.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class RecordMetadata(NamedTuple):
    """Where a record ended up. ``timestamp`` is milliseconds since the epoch: the record's own, or of its commit where
    the topic has ``message.timestamp.type=LogAppendTime``. Sizes are bytes, -1 for what the record does not have.
    ``checksum`` is None, as with Kafka since message format 2.

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     metadata = producer.send("orders", b"v").get()
        >>> metadata.topic, metadata.partition, metadata.offset
        ('orders', 0, 0)
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class Outcome:
    """What becomes of records that share their fate: pending, then done with an error or without. Thread-safe.

    ``condition`` is the producer's, notified at each change. ``in_transaction`` says that waiting without end would be
    for ever: the offsets are known at the commit, which the waiting thread may be the one to make.
    """

    __slots__ = ("callbacks", "condition", "done", "error", "in_transaction")

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition
        self.done = False
        self.error: BaseException | None = None
        self.in_transaction = False
        self.callbacks: list[Callable[[], None]] = []

    def wait(self, timeout: float | None) -> bool:
        """Whether it is done, after at most ``timeout`` seconds."""
        if self.done:
            return True
        with self.condition:
            if timeout is None and self.in_transaction and not self.done:
                raise IllegalStateError(
                    "the record is in a transaction that is still open, and its offset is known at the commit: call "
                    "commit_transaction() first, or wait in another thread with a timeout"
                )
            return self.condition.wait_for(lambda: self.done, longest_wait(timeout))

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` once this is done: now, or in the thread that resolves it."""
        with self.condition:
            if not self.done:
                self.callbacks.append(callback)
                return
        try:
            callback()
        except Exception:
            _log_failure()

    def run_callbacks(self) -> None:
        """What the thread that resolved this calls afterwards, without holding the lock."""
        call_all(self.take_callbacks())

    def take_callbacks(self) -> list[Callable[[], None]]:
        """What ``call_all`` is to call once this is resolved."""
        callbacks, self.callbacks = self.callbacks, []
        return callbacks


def longest_wait(timeout: float | None) -> float | None:
    """Seconds that a lock can wait for; infinity, which programs use for no limit, is more."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call each of these in the thread that has resolved their futures.

    What they raise is logged; what ends the program (``ends_program``) is raised once all have been called.
    """
    ending: BaseException | None = None
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            _log_failure()
            ending = ending or (error if ends_program(error) else None)
    if ending is not None:
        raise ending


def _log_failure() -> None:
    logger.exception("a callback of a producer's future failed")


class Future(Shown, Generic[Result]):
    """The interface of both futures: kafka-python's. Thread-safe."""

    __slots__ = ("_outcome",)
    _outcome: Outcome

    @property
    def is_done(self) -> bool:
        """Whether the record is committed or has failed."""
        return self._outcome.done

    @property
    def value(self) -> Result | None:
        """The result; None while it is pending and where it failed."""
        return self._result() if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """Why it failed; None while it is pending and where it succeeded."""
        return self._outcome.error

    def succeeded(self) -> bool:
        return self._outcome.done and self._outcome.error is None

    def failed(self) -> bool:
        return self._outcome.done and self._outcome.error is not None

    def retriable(self) -> bool:
        """Whether it failed with an error after which the same may be sent again with some hope."""
        error = self.exception
        return isinstance(error, SparklogError) and error.retriable

    def get(self, timeout: float | None = None) -> Result:
        """Wait until it is committed, at most ``timeout`` seconds, and return the result.

        Raises KafkaTimeoutError where it is still pending then, IllegalStateError for an endless wait for a
        transaction that is still open, and otherwise what made it fail.
        """
        if not self._outcome.wait(timeout):
            raise KafkaTimeoutError(
                f"not committed after {timeout} seconds; it is still tried, until delivery_timeout_ms has passed"
            )
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._result()

    def add_callback(self, f: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call ``f(*args, result, **kwargs)`` when it is committed."""
        call = functools.partial(f, *args, **kwargs)
        self._outcome.call_when_done(lambda: None if self.failed() else _ignore(call(self._result())))
        return self

    def add_errback(self, f: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call ``f(*args, exception, **kwargs)`` when it fails."""
        call = functools.partial(f, *args, **kwargs)
        self._outcome.call_when_done(lambda: _ignore(call(self.exception)) if self.failed() else None)
        return self

    def add_both(self, f: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call ``f`` with the result or the exception."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def _result(self) -> Result:
        raise NotImplementedError

    def _facts(self) -> Facts:
        error = self._outcome.error
        if error is not None:
            return {"": "failed", "error": f"{type(error).__name__}: {error}"}
        return {"": "done", **self._result_facts()} if self._outcome.done else {"": "pending"}

    def _result_facts(self) -> Facts:
        """What is shown of the result, once it is there."""
        return {"result": self._result()}


def _ignore(_: object) -> None:
    """Callbacks return what they like."""


class RecordBatchResult(Outcome):
    """The outcome of the records of one batch, which get consecutive offsets from ``base_offset`` on.

    ``stamps`` are microseconds; ``sizes`` are those of keys, values and headers, -1 for none. Both are sequences with
    an item for each record, or None where no record has any. ``followers`` are outcomes that depend on this one.
    """

    __slots__ = ("append_time_ms", "base_offset", "followers", "sizes", "stamps", "topic_partition")

    def __init__(self, condition: threading.Condition, topic_partition: TopicPartition) -> None:
        super().__init__(condition)
        self.topic_partition = topic_partition
        self.base_offset = -1
        self.append_time_ms = -1
        self.followers: list[Outcome] = []
        self.stamps: array[int] = array("q")
        self.sizes: tuple[Sequence[int] | None, Sequence[int] | None, Sequence[int] | None] = (None, None, None)

    def metadata(self, index: int) -> RecordMetadata:
        """Of the record at this place in the batch."""
        topic, partition = self.topic_partition
        stamp = self.append_time_ms if self.append_time_ms >= 0 else self.stamps[index] // 1000
        key, value, headers = (-1 if sizes is None else int(sizes[index]) for sizes in self.sizes)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(topic, partition, self.topic_partition, offset, stamp, None, key, value, headers)


class FutureRecordMetadata(Future[RecordMetadata]):
    """The future of one record; resolves to its ``RecordMetadata``."""

    __slots__ = ("_index",)

    def __init__(self, outcome: RecordBatchResult, index: int) -> None:
        self._outcome = outcome
        self._index = index

    @property
    def _produce_future(self) -> Outcome:
        """Where instrumentations for kafka-python look for the record's partition."""
        return self._outcome

    def _result(self) -> RecordMetadata:
        outcome = self._outcome
        assert isinstance(outcome, RecordBatchResult)
        return outcome.metadata(self._index)

    def _result_facts(self) -> Facts:
        found = self._result()
        return {"topic": found.topic, "partition": found.partition, "offset": found.offset}


class FutureOffsets(Future[list[OffsetRange]]):
    """The future of a table: resolves to the ``OffsetRange`` of each partition that got rows of it, by partition.

    More than one of a partition where other records came in between.
    """

    __slots__ = ("_parts",)

    def __init__(self, condition: threading.Condition) -> None:
        self._outcome = Outcome(condition)
        self._parts: list[tuple[RecordBatchResult, int]] = []

    def add_part(self, part: RecordBatchResult, rows: int) -> None:
        """Wait for this batch too. Called before the future is handed out."""
        self._parts.append((part, rows))
        part.followers.append(self._outcome)

    def get(self, timeout: float | None = None) -> list[OffsetRange]:
        if timeout is None:
            for part, _ in self._parts:
                part.wait(None)
        return super().get(timeout)

    def watch(self) -> FutureOffsets:
        """Resolve when all parts are: with the first error there is, or without one."""
        left = [len(self._parts)]

        def part_done() -> None:
            with self._outcome.condition:
                left[0] -= 1
                if left[0] > 0:
                    return
                self._outcome.error = next((part.error for part, _ in self._parts if part.error is not None), None)
                self._outcome.done = True
                self._outcome.condition.notify_all()
            self._outcome.run_callbacks()

        if not self._parts:
            self._outcome.done = True
        for part, _ in self._parts:
            part.call_when_done(part_done)
        return self

    def _result(self) -> list[OffsetRange]:
        found: list[OffsetRange] = []
        for part, rows in sorted(self._parts, key=lambda item: (item[0].topic_partition, item[0].base_offset)):
            start = part.base_offset
            last = found[-1] if found else None
            if last is not None and (last.topic, last.partition, last.end) == (*part.topic_partition, start):
                found[-1] = last._replace(end=start + rows)
            else:
                found.append(OffsetRange(*part.topic_partition, start, start + rows))
        return found
