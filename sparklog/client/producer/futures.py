"""The futures that ``send`` returns, and the metadata of a record once its commit is durable.

Many records share a ``RecordBatchResult``, which the sender resolves. One future is made for every record sent, so it
holds only that result and the record's index in it.

Rules: the interface is kafka-python's (``FutureRecordMetadata``, ``RecordMetadata``). A result is resolved once.
Callbacks run in the thread that resolves it, or immediately if it is resolved already; what they raise is logged and
ends no thread of a client (``call_all``). Thread-safe. Not for: when a batch is resolved (``sender``).
"""

from __future__ import annotations

import functools
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from sparklog.client.condition import Condition
from sparklog.client.representation import Facts, Shown
from sparklog.client.user_code import ends_program
from sparklog.errors import IllegalStateError, InvalidArgumentTypeError, KafkaTimeoutError, SparklogError
from sparklog.types import OffsetRange, TopicPartition, number

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class RecordMetadata(NamedTuple):
    """The offset and metadata of a committed record.

    ``timestamp`` is milliseconds since the epoch: the record's own, or that of its commit if the topic has
    ``message.timestamp.type=LogAppendTime``. Sizes are bytes, -1 for a part that the record does not have.
    ``checksum`` is None, as in Kafka since message format 2.

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


def as_timeout(seconds: object) -> float | None:
    """Return the seconds of a timeout as Python's. Raises InvalidArgumentTypeError unless it is a number or None."""
    given = number(seconds)
    if given is None and seconds is not None:
        raise InvalidArgumentTypeError(f"timeout={seconds!r}: give seconds, or None for no limit")
    return given


class SendOutcome:
    """Shared completion state of the records of one batch: pending, committed or failed. Thread-safe.

    ``condition`` is the producer's, notified at each change. ``in_transaction`` says that a wait without a timeout
    might never end: offsets are known at the commit, which the waiting thread itself may have to make.
    """

    __slots__ = ("callbacks", "condition", "done", "error", "in_transaction")

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.done = False
        self.error: BaseException | None = None
        self.in_transaction = False
        self.callbacks: list[Callable[[], None]] = []

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit); return whether it is done.

        Raises IllegalStateError for a wait without a timeout in an open transaction, InvalidArgumentTypeError.
        """
        if self.done:
            return True
        timeout = as_timeout(timeout)
        if timeout is None and self.in_transaction and not self.done:
            raise IllegalStateError(
                "the record is in an open transaction, and its offset is known only after the commit: call "
                "commit_transaction() first, or wait in another thread with a timeout"
            )
        return self.condition.wait_for(lambda: self.done, timeout)

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when this is done: now, or in the thread that resolves it."""
        self.callbacks.append(callback)
        if not self.done:
            return
        try:
            self.callbacks.remove(callback)
        except ValueError:  # the thread that has resolved it calls it
            return
        try:
            callback()
        except Exception:
            _log_failure()

    def resolve(self, error: BaseException | None) -> None:
        """Mark this as committed (``error`` None) or failed, and run the callbacks. Called without holding the lock."""
        self.error, self.done = error, True
        self.condition.notify_all()
        call_all(self.each_callback())

    def each_callback(self) -> Iterator[Callable[[], None]]:
        """Take the callbacks one by one, so that an interrupt loses none that was not called; for ``call_all``."""
        while self.callbacks:
            try:
                callback = self.callbacks.pop(0)
            except IndexError:  # ``call_when_done`` has taken it
                return
            yield callback


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call each callback, in the thread that has resolved their futures.

    Log what they raise; an exception that ends the program (``ends_program``) is raised after all have been called.
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
    """The interface of both futures, which is kafka-python's. Thread-safe."""

    __slots__ = ("_outcome",)
    _outcome: SendOutcome

    @property
    def is_done(self) -> bool:
        """Whether the record is committed or has failed."""
        return self._outcome.done

    @property
    def value(self) -> Result | None:
        """The result; None while it is pending or if it failed."""
        return self._result() if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """The error; None while it is pending or if it succeeded."""
        return self._outcome.error

    def succeeded(self) -> bool:
        return self._outcome.done and self._outcome.error is None

    def failed(self) -> bool:
        return self._outcome.done and self._outcome.error is not None

    def retriable(self) -> bool:
        """Return whether it failed with an error after which sending the record again may succeed."""
        error = self.exception
        return isinstance(error, SparklogError) and error.retriable

    def get(self, timeout: float | None = None) -> Result:
        """Wait until it is committed, at most ``timeout`` seconds, and return the result.

        Raises KafkaTimeoutError if it is still pending then, IllegalStateError for a wait without a timeout in an open
        transaction, and otherwise the error with which it failed.
        """
        if not self._outcome.wait(timeout):
            raise KafkaTimeoutError(
                f"not committed after {timeout} seconds; the producer keeps trying until delivery_timeout_ms has passed"
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
        """Return the facts of the result that ``repr`` shows."""
        return {"result": self._result()}


def _ignore(_: object) -> None:
    """Discard what a callback returns."""


Sizes = tuple[Sequence[int] | None, Sequence[int] | None, Sequence[int] | None]
"""The bytes of keys, values and headers, -1 for none: an item for each record, or None if no record has any."""


class RecordBatchResult(SendOutcome):
    """The outcome of the records of one batch, which get consecutive offsets starting at ``base_offset``.

    ``stamps`` are microseconds since the epoch, one a record. ``followers`` are outcomes that depend on this one.
    """

    __slots__ = ("append_time_ms", "base_offset", "followers", "sizes", "stamps", "topic_partition")

    def __init__(self, condition: Condition, topic_partition: TopicPartition) -> None:
        super().__init__(condition)
        self.topic_partition = topic_partition
        self.base_offset = -1
        self.append_time_ms = -1
        self.followers: list[SendOutcome] = []
        self.stamps: array[int] = array("q")
        self.sizes: Sizes = (None, None, None)

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at this index in the batch."""
        topic, partition = self.topic_partition
        stamp = self.append_time_ms if self.append_time_ms >= 0 else self.stamps[index] // 1000
        key, value, headers = (-1 if sizes is None else int(sizes[index]) for sizes in self.sizes)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(topic, partition, self.topic_partition, offset, stamp, None, key, value, headers)


class FutureRecordMetadata(Future[RecordMetadata]):
    """The future of one record; resolves to its ``RecordMetadata``."""

    __slots__ = ("_index",)
    _outcome: RecordBatchResult

    def __init__(self, outcome: RecordBatchResult, index: int) -> None:
        self._outcome = outcome
        self._index = index

    @property
    def _produce_future(self) -> SendOutcome:
        """Where instrumentations for kafka-python look for the record's partition."""
        return self._outcome

    def _result(self) -> RecordMetadata:
        return self._outcome.metadata(self._index)

    def _result_facts(self) -> Facts:
        metadata = self._result()
        return {"topic": metadata.topic, "partition": metadata.partition, "offset": metadata.offset}


class FutureOffsets(Future[list[OffsetRange]]):
    """The future of a table: resolves to the ``OffsetRange`` of each partition that got rows of it, by partition.

    A partition has several ranges if other records came in between.
    """

    __slots__ = ("_parts",)

    def __init__(self, condition: Condition) -> None:
        self._outcome = SendOutcome(condition)
        self._parts: list[tuple[RecordBatchResult, int]] = []

    def add_part(self, part: RecordBatchResult, rows: int) -> None:
        """Wait for this batch too. Called before the future is returned."""
        self._parts.append((part, rows))
        part.followers.append(self._outcome)

    def get(self, timeout: float | None = None) -> list[OffsetRange]:
        if timeout is None:
            for part, _ in self._parts:
                part.wait(None)
        return super().get(timeout)

    def watch(self) -> FutureOffsets:
        """Resolve when all parts are resolved, with the first error if there is one."""
        left = [None] * len(self._parts)

        def part_done() -> None:
            left.pop()  # one call of C: two threads may resolve parts, and one of them finds none left
            if not left:
                self._outcome.resolve(next((part.error for part, _ in self._parts if part.error is not None), None))

        if not self._parts:
            self._outcome.done = True
        for part, _ in self._parts:
            part.call_when_done(part_done)
        return self

    def _result(self) -> list[OffsetRange]:
        ranges: list[OffsetRange] = []
        for part, rows in sorted(self._parts, key=lambda item: (item[0].topic_partition, item[0].base_offset)):
            start = part.base_offset
            last = ranges[-1] if ranges else None
            if last is not None and (last.topic, last.partition, last.end) == (*part.topic_partition, start):
                ranges[-1] = last._replace(end=start + rows)
            else:
                ranges.append(OffsetRange(*part.topic_partition, start, start + rows))
        return ranges
