"""Records that wait to be sent, as in Kafka's RecordAccumulator: a queue of batches for each partition.

A batch stores its records by column, so that the sender turns each column into Arrow with one call. It takes records
until the sender drains it or it has ``limits.TARGET_BATCH_BYTES``. As soon as anything is due, the sender drains all
batches of all partitions, to publish them in one commit.

Rules: a single lock, held for microseconds, and never during a write. Memory is counted from ``append`` until the
records are committed or have failed; an append waits while none is free. Nothing is due before ``linger``, unless a
batch has ``batch_size`` bytes, memory is scarce, or the producer is flushed or closed.

Not for: storage, sequences, transactions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sparklog import limits
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.futures import FutureRecordMetadata, RecordBatchResult, call_all, clamp_timeout
from sparklog.clock import Clock
from sparklog.errors import KafkaTimeoutError, MessageSizeTooLargeError
from sparklog.records.record_checks import Headers
from sparklog.types import TopicPartition

RECORD_OVERHEAD_BYTES = 100
"""bytes counted for a waiting record on top of its key, value and headers: about what Python needs for it."""

LONGEST_IDLE_SECONDS = 60.0
"""seconds after which an idle sender checks whether it was closed: a producer may be garbage-collected in the sender's
own thread just before it waits, and the notification is then lost."""


class PendingBatch(RecordBatchResult):
    """Records of one partition that become one record batch, and their outcome.

    ``keys`` and ``header_list`` are None as long as no record has any. A batch made of Arrow columns has ``columns``,
    of the file's types, in place of lists. ``size`` is in bytes, as counted against ``buffer_memory``.
    """

    __slots__ = ("columns", "created", "header_list", "keys", "next_step", "rows", "size", "values")

    def __init__(
        self, condition: threading.Condition, topic_partition: TopicPartition, created: float, full: int
    ) -> None:
        super().__init__(condition, topic_partition)
        self.created = created
        self.next_step = full
        self.size = 0
        self.rows = 0
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.header_list: list[Headers | None] | None = None
        self.columns: pa.RecordBatch | None = None

    def add_rare(self, index: int, key: bytes | None, headers: Headers | None) -> None:
        """Add the key and headers of the record at ``index``, if any record of the batch has one."""
        if key is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * index
            self.keys.append(key)
        if headers or self.header_list is not None:
            if self.header_list is None:
                self.header_list = [None] * index
            self.header_list.append(headers or None)


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
        self.changed = threading.Condition(self.lock)
        """Notified when batches are resolved or memory is freed."""
        self._work = threading.Condition(self.lock)
        self.refusal: Callable[[], Exception] | None = None
        self.make_room: Callable[[], None] | None = None
        """Frees memory where no sender does; the thread that waits for memory calls it, without the lock."""
        self.used = 0
        self.waiting_threads = 0
        self.unfinished: set[PendingBatch] = set()
        self.in_transaction = False
        self._config = config
        self._clock = clock
        self._limit = config.buffer_memory
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._filled: list[PartitionQueue] = []
        self._full = False
        self._idle = False
        self._flushing = 0
        self._closing = False
        self._forced = False

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
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            if self.used + size > self._limit:
                self._wait_for_room(queue, size)
            batch = queue.open
            if batch is None:
                batch = self._open(queue)
            values = batch.values
            index = len(values)
            values.append(value)
            batch.stamps.append(stamp * 1000)
            if key is not None or headers or batch.keys is not None or batch.header_list is not None:
                batch.add_rare(index, key, headers)
            self.used += size
            batch.size += size
            if batch.size >= batch.next_step:
                self._fill(queue, batch)
        return FutureRecordMetadata(batch, index)

    def append_columns(self, queue: PartitionQueue, columns: pa.RecordBatch) -> PendingBatch:
        """Add a record batch, whose columns have a file's types, after the waiting records. Raises as ``append``."""
        size = columns.nbytes
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            if self.used + size > self._limit:
                self._wait_for_room(queue, size)
            batch = self._open(queue)
            queue.open = None  # later records begin another batch, which keeps the order
            batch.columns = columns
            batch.rows = columns.num_rows
            batch.size = size
            self.used += size
            if size >= batch.next_step:
                self._fill(queue, batch)
        return batch

    def _open(self, queue: PartitionQueue) -> PendingBatch:
        batch = PendingBatch(self.changed, queue.topic_partition, self._clock.monotonic(), self._config.batch_size)
        batch.in_transaction = self.in_transaction
        if not queue.batches:
            self._filled.append(queue)
        queue.batches.append(batch)
        queue.open = batch
        self.unfinished.add(batch)
        self._wake()
        return batch

    def _fill(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        """Mark a batch that reached its next threshold: it is due, or so large that the next record begins another."""
        self._full = True
        batch.next_step = limits.TARGET_BATCH_BYTES
        if batch.size >= limits.TARGET_BATCH_BYTES:
            queue.open = None
        self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._work.notify()

    def _wait_for_room(self, queue: PartitionQueue, size: int) -> None:
        """Wait until ``size`` bytes are free. The caller holds the lock."""
        if size > self._limit:
            raise MessageSizeTooLargeError(
                f"a record for {queue.topic_partition} needs {size:,} bytes of memory, more than all of buffer_memory, "
                f"{self._limit:,}; raise buffer_memory, or send less at a time",
                **queue.topic_partition._asdict(),
                size=size,
            )
        deadline = self._clock.monotonic() + self._config.max_block
        self.waiting_threads += 1
        try:
            self._wake()
            while self.used + size > self._limit:
                if self.make_room is not None:
                    self._release_and(self.make_room)
                else:
                    self._block_until(deadline, queue, size)
                if self.refusal is not None:
                    raise self.refusal()
        finally:
            self.waiting_threads -= 1

    def _release_and(self, action: Callable[[], None]) -> None:
        self.lock.release()
        try:
            action()
        finally:
            self.lock.acquire()

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
        with self.lock:
            while not self._forced:
                due_in = self._due_in()
                if due_in <= 0:
                    return self._take()
                if self._closing and not self._filled:
                    return None
                left = until - self._clock.monotonic()
                if left <= 0:
                    return []
                self._idle = True
                self._work.wait(min(due_in, left, LONGEST_IDLE_SECONDS))
                self._idle = False
        return None

    def take(self) -> Drained:
        """Take all batches, due or not."""
        with self.lock:
            return self._take()

    def _take(self) -> Drained:
        taken = [(queue.topic_partition, queue.batches) for queue in self._filled]
        for queue in self._filled:
            queue.batches, queue.open = [], None
        self._filled = []
        self._full = False
        return taken

    def _due_in(self) -> float:
        """Return the seconds until a waiting batch is due; infinity if none waits."""
        if not self._filled:
            return math.inf
        if self._full or self._flushing or self._closing or self.waiting_threads or not self._config.linger:
            return 0
        oldest = min(queue.batches[0].created for queue in self._filled)
        return oldest + self._config.linger - self._clock.monotonic()

    def take_expired(self) -> list[PendingBatch]:
        """Take the batches that have waited for longer than ``delivery_timeout_ms``."""
        oldest = self._clock.monotonic() - self._config.delivery_timeout
        with self.lock:
            expired: list[PendingBatch] = []
            for queue in self._filled:
                old = [batch for batch in queue.batches if batch.created <= oldest]
                if old:
                    queue.batches = [batch for batch in queue.batches if batch.created > oldest]
                    queue.open = queue.batches[-1] if queue.open in queue.batches else None
                    expired += old
            self._filled = [queue for queue in self._filled if queue.batches]
            return expired

    def pause(self, seconds: float) -> bool:
        """Wait before a retry; return False, without waiting, if the producer is closed by force."""
        with self.lock:
            if seconds > 0 and not self._forced:
                self._work.wait(seconds)
            return not self._forced

    def resolve(self, batches: Sequence[PendingBatch], error: BaseException | None) -> None:
        """Mark these batches as committed (``error`` None) or failed, and run their callbacks."""
        with self.lock:
            fresh = [batch for batch in batches if not batch.done]
            for batch in fresh:
                batch.error = error
                batch.done = True
                self.used -= batch.size
                self.unfinished.discard(batch)
            self.changed.notify_all()
        call_all([callback for batch in fresh if batch.callbacks for callback in batch.take_callbacks()])

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
            batches = list(self.unfinished)
            for queue in self._filled:
                queue.open = None  # records appended from now on are not waited for
            self._flushing += 1
            self._wake()
            try:
                done = self.changed.wait_for(lambda: all(batch.done for batch in batches), clamp_timeout(timeout))
            finally:
                self._flushing -= 1
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
            self._wake()
            self.changed.notify_all()

    def force_close(self) -> list[PendingBatch]:
        """Make the sender end now; return the unresolved batches, for the caller to fail."""
        with self.lock:
            self._forced = True
            self._work.notify_all()
            return list(self.unfinished)

    def abandon_after_fork(self, refusal: Callable[[], Exception]) -> None:
        """Replace the locks in a forked child: threads that do not exist here may hold them. Called in its only thread.

        Futures fail, without callbacks: in the parent the records are still in flight.
        """
        self.lock = threading.RLock()
        for condition in (self.changed, self._work):
            condition.__init__(self.lock)  # type: ignore[misc] # in place: futures have it too
        self.refusal = refusal
        self._closing = True
        for batch in self.unfinished:
            for outcome in (batch, *batch.followers):
                outcome.callbacks, outcome.error, outcome.done = [], refusal(), True
        self.unfinished = set()
