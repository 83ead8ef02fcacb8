"""Records that wait to be sent, as in Kafka's RecordAccumulator: a queue of batches for each partition.

A batch stores its records by column, so that the sender turns each column into Arrow with one call. It takes records
until the sender drains it or it has ``limits.TARGET_BATCH_BYTES``. As soon as anything is due, the sender drains all
batches of all partitions, to publish them in one commit.

Rules: a single lock, held for microseconds, and never during a write. A signal handler (Ctrl-C, an alarm) may interrupt
a method at any call, and call others of the same producer before it returns, also ones that wait, during which the lock
is free. What depends on nothing having changed, so that a record is in a batch and counted or not there at all, is done
in statements without a call, between which no handler runs; they create no object that the garbage collector counts,
since what that calls may be interrupted. A batch without rows is never sent or waited for. Memory is counted from
``append`` until the records are committed or have failed; an append waits while none is free. Nothing is due before
``linger``, unless a batch has ``batch_size`` bytes, memory is scarce, or the producer is flushed or closed.

Not for: storage, sequences, transactions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparklog import limits
from sparklog.client.condition import Condition
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.futures import FutureRecordMetadata, RecordBatchResult, call_all
from sparklog.clock import Clock
from sparklog.errors import KafkaTimeoutError, MessageSizeTooLargeError
from sparklog.records.record_checks import Headers
from sparklog.threads import Wakeup
from sparklog.types import TopicPartition

RECORD_OVERHEAD_BYTES = 100
"""bytes counted for a waiting record on top of its key, value and headers: about what Python needs for it."""

NOTHING = (None,)
"""What is added to the column of keys, or of headers, for a record without one."""

LONGEST_WAIT_SECONDS = 3600.0
"""seconds after which the thread that fails overdue batches looks again, however long ``delivery_timeout_ms`` is."""


class PendingBatch(RecordBatchResult):
    """Records of one partition that become one record batch, and their outcome.

    Records are added, by column, while the batch ``is_open``: until it is taken. ``times`` are microseconds; ``keys``
    and ``header_list`` are None as long as no record has any. A batch made of Arrow columns has ``columns``, of the
    file's types, instead. ``rows`` is how many records it has. ``size`` is in bytes, as counted against
    ``buffer_memory``.
    """

    __slots__ = (
        "columns", "created", "header_list", "is_open", "keys", "next_step", "rows", "size", "times", "values"
    )  # fmt: skip

    def __init__(self, condition: Condition, topic_partition: TopicPartition, created: float, full: int) -> None:
        super().__init__(condition, topic_partition)
        self.created = created
        self.next_step = full
        self.size = 0
        self.rows = 0
        self.is_open = True
        self.values: list[bytes | None] = []
        self.times: list[int] = []
        self.keys: list[bytes | None] | None = None
        self.header_list: list[Headers | None] | None = None
        self.columns: pa.RecordBatch | None = None

    def begin_column(self, key: bytes | None, headers: Headers | None) -> None:
        """Begin the column of headers or of keys that a record needs and the batch lacks."""
        rows = self.rows
        missing: list[Any] = [None] * rows
        is_unchanged = self.is_open and self.rows == rows  # else a handler has sent, or has had the batch taken
        if is_unchanged and headers and self.header_list is None:
            self.header_list = missing
        if is_unchanged and key is not None and self.keys is None and self.header_list is not missing:  # one a call
            self.keys = missing


@dataclass(eq=False, slots=True)
class PartitionQueue:
    """The waiting batches of one partition, oldest first; records are added to ``open``, the newest.

    Guarded by the accumulator's lock.
    """

    topic_partition: TopicPartition
    batches: list[PendingBatch] = field(default_factory=list)
    open: PendingBatch | None = None


Drained = list[tuple[TopicPartition, list[PendingBatch]]]
"""What the sender takes: the batches of each partition that has any."""


class Accumulator:
    """See the module. Thread-safe. ``refusal``, if set, makes the error that every append raises."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        # reentrant: the garbage collector may drop the producer, and so close this, in a thread that holds the lock
        self.lock = threading.RLock()
        self.changed = Condition(self.lock)
        """Notified when batches are resolved or memory is freed."""
        self._wakeup = Wakeup()
        """What the sender waits for."""
        self._overdue = Condition(self.lock)
        self.refusal: Callable[[], Exception] | None = None
        self.make_room: Callable[[], None] | None = None
        """Frees memory where no sender does; the thread that waits for memory calls it, without the lock."""
        self.used = 0
        self._waiting: set[object] = set()
        self.unfinished: set[PendingBatch] = set()
        self.in_transaction = False
        self._config = config
        self._clock = clock
        self._limit = config.buffer_memory
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._filled: dict[PartitionQueue, None] = {}
        self._full = False
        self._flushing: set[object] = set()
        self._closing = False
        self._forced = False
        self._ended = False

    @property
    def waiting_threads(self) -> int:
        """The calls that wait for memory."""
        return len(self._waiting)

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, always the same object."""
        with self.lock:
            return self._queues.setdefault(topic_partition, PartitionQueue(topic_partition))

    # -- appending

    def append(
        self,
        queue: PartitionQueue,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        stamp: int,
        size: int,
    ) -> FutureRecordMetadata:
        """Add a record of ``size`` bytes, overhead included, with its timestamp in milliseconds.

        Raises the error that ``refusal`` makes, and KafkaTimeoutError if no memory was free within ``max_block_ms``.
        """
        values, times = (value,), (stamp * 1000,)
        keys = NOTHING if key is None else (key,)
        header_list = (headers,) if headers else NOTHING
        while True:
            with self.lock:
                if self.refusal is not None:
                    raise self.refusal()
                if self.used + size <= self._limit or self._wait_for_room(queue, size):
                    batch = queue.open or self._open(queue)
                    # No call and no new object but numbers from here until the record is counted: a handler's call may
                    # have had the batch taken, or have closed the producer.
                    if (
                        batch.is_open
                        and self.refusal is None  # type: ignore[redundant-expr]
                        and (key is None or batch.keys is not None)
                        and (not headers or batch.header_list is not None)
                    ):
                        index = batch.rows
                        batch.values += values
                        batch.times += times
                        if batch.keys is not None:
                            batch.keys += keys
                        if batch.header_list is not None:
                            batch.header_list += header_list
                        batch.rows = index + 1
                        batch.size += size
                        self.used += size
                        if batch.size >= batch.next_step:
                            self._fill(queue, batch)
                        return FutureRecordMetadata(batch, index)
                    batch.begin_column(key, headers)
                    continue
            self._call_make_room()

    def append_columns(self, queue: PartitionQueue, columns: pa.RecordBatch) -> PendingBatch:
        """Add a record batch, whose columns have a file's types, after the waiting records. Raises as ``append``."""
        size = columns.nbytes
        while True:
            with self.lock:
                if self.refusal is not None:
                    raise self.refusal()
                if self.used + size <= self._limit or self._wait_for_room(queue, size):
                    batch = self._open(queue, columns)
                    if size >= batch.next_step:
                        self._fill(queue, batch)
                    return batch
            self._call_make_room()

    def _open(self, queue: PartitionQueue, columns: pa.RecordBatch | None = None) -> PendingBatch:
        """Begin a batch, with these columns or open for records. Its last record is in it, and counted, as it gets into
        the queue."""
        batch = PendingBatch(self.changed, queue.topic_partition, self._clock.monotonic(), self._config.batch_size)
        batch.in_transaction = self.in_transaction
        batch.columns = columns
        if columns is not None:
            batch.is_open, batch.size, batch.rows = False, columns.nbytes, columns.num_rows
        try:
            queue.batches += [batch]  # from here on without a call but the last: no interrupt comes in between
            self._filled[queue] = None
            self.used += batch.size
            self.unfinished |= {batch}
            queue.open = batch if columns is None else None  # the records after columns begin another batch
            self._wakeup.release()
        except RuntimeError:  # the wakeup is set already
            pass
        return batch

    def _fill(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        """Mark a batch that reached its next threshold: it is due, or so large that the next record begins another."""
        self._full = True
        if batch.size >= limits.TARGET_BATCH_BYTES and queue.open is batch:
            queue.open = None
        batch.next_step = limits.TARGET_BATCH_BYTES
        self._wakeup.set()

    def _wait_for_room(self, queue: PartitionQueue, size: int) -> bool:
        """Wait until ``size`` bytes are free. Return False if the caller has to make room, without the lock that it
        holds."""
        if size > self._limit:
            raise memory_error(str(queue.topic_partition), size, self._limit, **queue.topic_partition._asdict())
        if self.make_room is not None:
            return False
        deadline = self._clock.monotonic() + self._config.max_block
        call = object()
        self._waiting |= {call}
        try:
            self._wakeup.set()
            while self.used + size > self._limit:
                self._block_until(deadline, queue, size)
                if self.refusal is not None:
                    raise self.refusal()
        finally:
            self._waiting -= {call}
        return True

    def _call_make_room(self) -> None:
        assert self.make_room is not None
        self.make_room()

    def _block_until(self, deadline: float, queue: PartitionQueue, size: int) -> None:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise KafkaTimeoutError(
                f"no memory for a record for {queue.topic_partition} within max_block_ms: {self.used:,} of "
                f"{self._limit:,} bytes of buffer_memory wait for their commit; send more slowly, or see the program's "
                "log for what delays commits",
                **queue.topic_partition._asdict(),
                size=size,
            )
        self.changed.wait(left)

    # -- the sender's side

    def drain(self, longest: float = math.inf) -> Drained | None:
        """Wait until a batch is due, then take all batches; return None once the producer is closed and all are taken.

        Returns an empty list if nothing is due within ``longest`` seconds.
        """
        until = self._clock.monotonic() + longest
        while True:
            with self.lock:
                if self._forced:
                    return None
                due_in = self._due_in()
                if due_in <= 0:
                    return self._take()
                if self._closing and not self._filled:
                    return None
                left = until - self._clock.monotonic()
                if left <= 0:
                    return []
            self._wakeup.wait(min(due_in, left))

    def take(self) -> Drained:
        """Take all batches, due or not."""
        with self.lock:
            return self._take()

    def _take(self) -> Drained:
        taken: Drained = []
        for queue in self._filled:
            for batch in queue.batches:
                batch.is_open = False
                if not batch.rows:  # an append was interrupted before its first record was in it
                    self.unfinished.discard(batch)
            batches = [batch for batch in queue.batches if batch.rows]
            if batches:
                taken.append((queue.topic_partition, batches))
        for queue in self._filled:
            queue.open, queue.batches = None, []
        self._filled = {}
        self._full = False
        return taken

    def _due_in(self) -> float:
        """Return the seconds until a waiting batch is due; infinity if none waits."""
        if not self._filled:
            return math.inf
        if self._full or self._flushing or self._closing or self._waiting or not self._config.linger:
            return 0
        now = self._clock.monotonic()
        oldest = min((queue.batches[0].created for queue in self._filled if queue.batches), default=now)
        return oldest + self._config.linger - now

    def take_expired(self) -> list[PendingBatch]:
        """Take the batches that have waited for longer than ``delivery_timeout_ms``."""
        oldest = self._clock.monotonic() - self._config.delivery_timeout
        with self.lock:
            expired: list[PendingBatch] = []
            for queue in self._filled:
                old = [batch for batch in queue.batches if batch.created <= oldest]
                for batch in old:
                    batch.is_open = False
                if old:
                    queue.batches = [batch for batch in queue.batches if batch.created > oldest]
                    queue.open = queue.batches[-1] if queue.open in queue.batches else None
                    expired += old
            self._filled = dict.fromkeys(queue for queue in self._filled if queue.batches)
            return expired

    def wait_for_overdue(self, grace: float) -> list[PendingBatch] | None:
        """Wait until batches are not resolved ``grace`` seconds after ``delivery_timeout_ms``, and return them; None
        once the sender has ended."""
        timeout = self._config.delivery_timeout + grace
        with self.lock:
            while not self._ended:
                now = self._clock.monotonic()
                overdue = [batch for batch in self.unfinished if batch.rows and batch.created + timeout <= now]
                if overdue:
                    return overdue
                # a batch that is created from now on is due later, so none needs to end this wait
                due = min((batch.created for batch in self.unfinished), default=now) + timeout
                self._overdue.wait(min(max(due - now, grace), LONGEST_WAIT_SECONDS))
        return None

    def end(self) -> None:
        """Note that the sender has ended."""
        with self.lock:
            self._ended = True
            self._overdue.notify_all()

    def pause(self, seconds: float) -> bool:
        """Wait before a retry; return False, without waiting, if the producer is closed by force."""
        with self.lock:
            return not self._overdue.wait_for(lambda: self._forced, seconds)

    def resolve(self, batches: Sequence[PendingBatch], error: BaseException | None) -> None:
        """Mark these batches as committed (``error`` None) or failed, and run their callbacks.

        A batch that is resolved already keeps its outcome; the call may be repeated after an interrupt.
        """
        with self.lock:
            try:
                for batch in batches:
                    if not batch.done:
                        batch.error = error
                        batch.done = True
                    self.used, batch.size = self.used - batch.size, 0
                    self.unfinished.discard(batch)
                if not self.unfinished:
                    self.used = 0  # an interrupted append may have counted columns that are in no batch
            finally:
                self.changed.notify_all()
        call_all(callback for batch in batches if batch.callbacks for callback in batch.each_callback())

    def release(self, batches: Sequence[PendingBatch]) -> None:
        """Free the memory of batches whose records are in files now; they are not resolved yet."""
        with self.lock:
            for batch in batches:
                self.used -= batch.size
                batch.size = 0
            self.changed.notify_all()

    # -- flushing and closing

    def set_refusal(self, refusal: Callable[[], Exception] | None) -> None:
        """Accept records (None), or refuse them with this error. A closed producer stays closed."""
        with self.lock:
            if not self._closing:
                self.refusal = refusal

    def flush(self, timeout: float | None) -> None:
        """Wait until every record appended before is resolved. Raises KafkaTimeoutError after ``timeout`` seconds."""
        with self.lock:
            batches = [batch for batch in list(self.unfinished) if batch.rows]
            for queue in list(self._filled):
                queue.open = None  # records appended from now on are not waited for
            call = object()
            self._flushing |= {call}
            try:
                self._wakeup.set()
                done = self.changed.wait_for(lambda: all(batch.done for batch in batches), timeout)
            finally:
                self._flushing -= {call}
        if not done:
            left = sum(not batch.done for batch in batches)
            raise KafkaTimeoutError(
                f"{left} batches are not committed after {timeout} seconds; the producer keeps trying until "
                "delivery_timeout_ms has passed"
            )

    def close(self, refusal: Callable[[], Exception]) -> None:
        """Refuse further records; the sender sends those that wait, then ends."""
        with self.lock:
            if not self._closing:
                self.refusal = refusal
            self._closing = True
            self._wakeup.set()
            self.changed.notify_all()

    def force_close(self) -> list[PendingBatch]:
        """Make the sender end now; return the unresolved batches, for the caller to fail."""
        with self.lock:
            self._forced = self._ended = True
            self._wakeup.set()
            self._overdue.notify_all()
            return list(self.unfinished)

    def abandon_after_fork(self, refusal: Callable[[], Exception]) -> None:
        """Replace the locks in a forked child: threads that do not exist here may hold them. Called in its only thread.

        Futures fail, without callbacks: in the parent the records are still in flight.
        """
        self.lock = threading.RLock()
        for condition in (self.changed, self._overdue):
            condition.lock = self.lock  # in place: futures have the condition too
        self.refusal = refusal
        self._closing = True
        for batch in self.unfinished:
            for outcome in (batch, *batch.followers):
                outcome.callbacks, outcome.error, outcome.done = [], refusal(), True
        self.unfinished = set()


def memory_error(target: str, size: int, buffer_memory: int, **context: Any) -> MessageSizeTooLargeError:
    """Return the error of a record for a topic or partition that needs more than all memory."""
    return MessageSizeTooLargeError(
        f"a record for {target} needs {size:,} bytes of memory, more than all of buffer_memory, {buffer_memory:,}; "
        "raise buffer_memory, or send less at a time",
        **context,
        size=size,
    )
