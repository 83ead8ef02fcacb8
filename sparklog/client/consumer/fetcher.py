"""Reads ahead for a consumer: one background thread fills a bounded buffer and checks for new commits.

The consumer sets the offset from which each partition is read. The thread reads stored batches from there, one per
partition in turn, until ``max_partition_fetch_bytes`` of a partition or ``fetch_max_bytes`` of all but paused ones are
buffered. When nothing is left to read it checks for the next commit, after ``tail_backoff`` at first; the interval
grows up to ``tail_backoff_max`` while no commit appears. A check is one request (does the next commit exist?). Every
``FULL_CHECK_EVERY``-th check reads the whole tail of the log, since that commit may have been removed behind the
boundary after a checkpoint. While there is something to read it checks every ``BUSY_CHECK_SECONDS``: a backlog may take
longer to read than commits are kept, and a group may rebalance meanwhile. A check that takes long is made less often.

Rules: only the thread accesses the storage here. One condition guards all shared state and is never held while reading.
An error of a partition is raised to the consumer after the records that were read before it.

Not for: positions, subscriptions, the shape of records.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sparklog.client.background_thread import BackgroundThread
from sparklog.client.condition import Condition
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.records import RecordBatches
from sparklog.client.metrics.requests import ROOT
from sparklog.client.reader import Bounds, Fetched, LogReader
from sparklog.clock import Clock
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptionError,
    FencedError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.log.records.records import without_columns
from sparklog.protocol.commits import commit_key
from sparklog.protocol.state import State
from sparklog.types import CREATE_TIME, TopicPartition

logger = logging.getLogger(__name__)

FULL_CHECK_EVERY = 10
"""Every n-th check refreshes the state without asking for the next commit, which may have been removed."""

BUSY_CHECK_SECONDS = 3.0
LONGEST_BUSY_CHECK_SECONDS = 60.0
"""Seconds between two checks for commits while there are records to read: nine times what the last one took, within
these."""

WARNING_SECONDS = 60.0
"""Seconds between two warnings that the storage cannot be read."""

_ERROR_PAUSE_SECONDS = 1.0

_RETRY_SECONDS = 0.1
"""Pause after a storage error before the read is retried."""


class FetchedChunk(NamedTuple):
    """Records in the buffer or taken from it, the stream to give them back to, and their size in bytes.

    A chunk without records means that there are none up to ``batches.end_offset``: compaction removed the last ones.
    """

    stream: Stream
    batches: RecordBatches
    size: int

    def split(self, rows: int) -> tuple[FetchedChunk, FetchedChunk]:
        """Return the first ``rows`` records, and the rest."""
        batches, size = self.batches, self.size * rows // int(self.batches.batch.num_rows)
        first, rest = batches.slice(0, rows), batches.slice(rows)
        return self._replace(batches=first, size=size), self._replace(batches=rest, size=self.size - size)


class Stream:
    """One partition that is read ahead: the next offset to read, and the buffered chunks."""

    __slots__ = (
        "chunks",
        "end",
        "error",
        "is_dropped",
        "is_log",
        "next",
        "paused",
        "reading",
        "size",
        "timeline",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, partition: TopicPartition, offset: int, paused: bool, topic_id: str, timeline: int | None
    ) -> None:
        self.topic_partition = partition
        self.next = self.end = offset
        self.paused = paused
        self.chunks: deque[FetchedChunk] = deque()
        self.size = 0
        self.topic_id = topic_id
        self.timeline = timeline
        self.is_dropped = False
        self.is_log = True
        self.reading: Iterator[Fetched] | None = None
        self.error: SparklogError | None = None


class ReadAhead:
    """The fetch buffer and the thread that fills it once ``start`` is called.

    Only the consumer's thread calls its methods, except ``wake`` and ``close``, which any thread may call.
    """

    def __init__(
        self, coordinator: Coordinator, reader: LogReader, config: ConsumerConfig, metrics: ConsumerMetrics
    ) -> None:
        self._coordinator = coordinator
        self._reader = reader
        self._clock: Clock = coordinator.log.clock
        self._config = config
        self._metrics = metrics
        self.lock = metrics.lock
        self._changed = Condition(self.lock)
        self.streams: OrderedDict[TopicPartition, Stream] = OrderedDict()
        self._turns: deque[Stream] = deque()
        self.buffered_bytes = 0
        self._woken = False
        self._check_requested = False
        self._closed = False
        self._idle = False
        self._exhausted = False
        self._failure: Exception | None = None
        self._next_warning = -math.inf
        self._next_slow_warning = -math.inf
        self._thread = BackgroundThread(self._run, "sparklog-consumer-fetch", self.lock)
        self._checked_state = coordinator.state
        self.checks = 0

    # -- what is read

    def read_from(
        self,
        partition: TopicPartition,
        offset: int,
        paused: bool = False,
        topic_id: str = "",
        timeline: int | None = None,
    ) -> None:
        """Read this partition from ``offset`` on; its buffered records are dropped. Nothing more is read once the log
        has left this timeline: the caller has to find the offset again."""
        with self.lock:
            self._exhausted = False  # first, for an interrupt in between
            self._remove_stream(partition)
            self.streams[partition] = Stream(partition, offset, paused, topic_id, timeline)
            self._wake_thread()

    def forget(self, *partitions: TopicPartition) -> None:
        """Stop reading these partitions, and drop their buffered records."""
        with self.lock:
            for partition in partitions:
                self._remove_stream(partition)

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        """Pause a partition: keep its buffered records, but neither return them nor read more. Or resume it."""
        with self.lock:
            if partition in self.streams:
                self._exhausted = False  # as in read_from
                self.streams[partition].paused = paused
                self._wake_thread()

    def is_reading(self, partition: TopicPartition) -> bool:
        """Return whether this partition is being read."""
        return partition in self.streams

    def start(self) -> None:
        """Start the thread if it is not running yet. Raises SparklogError if the system starts no thread now."""
        self._thread.start()

    def _wake_thread(self) -> None:
        """Wake the fetch thread: new data may be available."""
        self._exhausted = False
        self._changed.notify_all()

    def _remove_stream(self, partition: TopicPartition) -> None:
        stream = self.streams.pop(partition, None)
        if stream is not None:
            stream.is_dropped = True  # in the middle of a call, if a handler of a signal drops it
            self.buffered_bytes -= stream.size

    # -- taking records

    def take(self, max_records: int | None) -> list[FetchedChunk]:
        """Return up to ``max_records`` buffered records, beginning with the partition that has waited longest.

        Raises the error of a partition once no records are buffered; the next call retries that partition.
        """
        chunks: list[FetchedChunk] = []
        left = max_records if max_records is not None else 2**62
        with self.lock:
            if self._failure is not None:
                raise self._failure
            for stream in list(self.streams.values()):
                if left <= 0:
                    break
                if stream.paused or not stream.chunks:
                    continue
                while stream.chunks and left > 0:
                    chunks.append(self._pop(stream, left))
                    left -= chunks[-1].batches.batch.num_rows
                self._move(stream, last=True)
            if not chunks:
                self._raise_error()
            elif self._idle:
                self._wake_thread()
            else:
                self._exhausted = False
        return chunks

    def _raise_error(self) -> None:
        for stream in list(self.streams.values()):
            if stream.error is not None and not stream.paused and not stream.chunks:
                self._exhausted = False  # as in read_from
                error, stream.error = stream.error, None
                self._move(stream, last=True)
                self._wake_thread()
                raise error

    def _pop(self, stream: Stream, limit: int) -> FetchedChunk:
        """Remove and return the first chunk, or its first ``limit`` records."""
        first = stream.chunks.popleft()
        if first.batches.batch.num_rows > limit:
            first, rest = first.split(limit)
            stream.chunks.appendleft(rest)
        self._add_size(stream, -first.size)
        return first

    def _move(self, stream: Stream, last: bool) -> None:
        """Let the others be read first, or this one; unless a handler of a signal has dropped it since."""
        if stream.topic_partition in self.streams:
            self.streams.move_to_end(stream.topic_partition, last=last)

    def _add_size(self, stream: Stream, size: int) -> None:
        stream.size += size
        self.buffered_bytes += 0 if stream.is_dropped else size

    def give_back(self, chunk: FetchedChunk, offset: int) -> None:
        """Return the unused records of a chunk, from ``offset`` on, to the front of the buffer."""
        stream, used = chunk.stream, chunk.batches.rows_before(offset)
        with self.lock:
            if self.streams.get(stream.topic_partition) is not stream or 0 < chunk.batches.batch.num_rows <= used:
                return
            rest = chunk.split(used)[1] if used else chunk
            stream.chunks.appendleft(rest)
            self._add_size(stream, rest.size)
            self._move(stream, last=False)

    def wait(self, seen: State, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for records, a newer state than ``seen``, or ``wake``; return whether ``wake``
        ended the wait."""
        with self.lock:
            self._wait_until(
                lambda: self._woken or self._failure or self._ready() or self._coordinator.state is not seen, timeout
            )
            woken, self._woken = self._woken, False
            return woken

    def gather(self, rows: int, seconds: float, age: float) -> None:
        """If some records are buffered, but fewer than ``rows``, wait until there are ``rows`` or the log has no more.

        Waits at most ``seconds``. The log is taken as of a check at most ``age`` seconds ago; with an age of 0 it
        includes everything committed before the call. So one poll returns the records of several small writes.
        """

        def is_over() -> object:
            caught_up = self._exhausted or self._is_full()
            ended = self._woken or self._failure or self._closed or self._count_rows(rows) >= rows
            return ended or (caught_up and not self._check_requested)

        with self.lock:
            if not 0 < self._count_rows(rows) < rows:
                return
            if not self._coordinator.was_checked_within(age):
                self._check_requested = True
                self._wake_thread()
            self._wait_until(is_over, seconds)

    def _wait_until(self, is_over: Callable[[], object], seconds: float) -> None:
        """Wait at most ``seconds`` until this is true. The caller holds the condition."""
        deadline = self._clock.monotonic() + seconds
        while not is_over() and (left := deadline - self._clock.monotonic()) > 0:
            self._changed.wait(min(left, 3600.0))

    def _count_rows(self, enough: int) -> int:
        """Return how many records can be taken; stops counting at ``enough``."""
        rows = 0
        streams = list(self.streams.values())
        for chunk in (chunk for stream in streams if not stream.paused for chunk in list(stream.chunks)):
            rows += int(chunk.batches.batch.num_rows)
            if rows >= enough:
                break
        return rows

    def _ready(self) -> bool:
        return any((stream.chunks or stream.error) and not stream.paused for stream in list(self.streams.values()))

    def has_caught_up(self) -> bool:
        """Return whether nothing is left to read or to take, as of the last check for commits."""
        with self.lock:
            return self._exhausted and not self._ready()

    def log_retry(self, error: Exception) -> None:
        """Log that an error is retried; for timeouts, at most once in ``WARNING_SECONDS``, that the storage is slow."""
        if not isinstance(error, KafkaTimeoutError):
            logger.warning("retrying %s after: %s", self._coordinator.store.root, error)
        elif self._clock.monotonic() >= self._next_slow_warning:
            self._next_slow_warning = self._clock.monotonic() + WARNING_SECONDS
            logger.warning("%s is slow: %s", self._coordinator.store.root, error)

    def wake(self) -> None:
        """End a wait immediately."""
        with self.lock:
            self._woken = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Let the thread end soon and close the files, without a lock and without waiting."""
        self._closed = True

    def close(self, seconds: float = math.inf) -> None:
        """Stop reading and close the files, waiting up to ``seconds``; idempotent. A thread that still waits for the
        storage ends once that answers."""
        with self.lock:
            self._closed = True
            self.streams.clear()
            self._changed.notify_all()
        if self._thread.join(seconds):
            self._reader.close()

    # -- the thread

    def _run(self) -> None:
        """Read ahead. An unexpected exception stops the thread and is re-raised by ``take``."""
        try:
            self._read_ahead()
        except Exception as error:
            with self.lock:
                self._failure = error
                self._changed.notify_all()

    def _read_ahead(self) -> None:
        pause, next_check = self._config.tail_backoff, self._clock.monotonic() + BUSY_CHECK_SECONDS
        while not self._closed:
            began = self._clock.monotonic()
            if began >= next_check:
                self._check_for_commits(BUSY_CHECK_SECONDS)
                now = self._clock.monotonic()
                next_check = now + min(max(9 * (now - began), BUSY_CHECK_SECONDS), LONGEST_BUSY_CHECK_SECONDS)
            if self._read_one():
                continue
            if self._check_for_commits(pause):
                pause = self._config.tail_backoff
            elif not self._wait_for_stream(pause):
                pause = min(pause * 1.5, self._config.tail_backoff_max)

    def _wait_for_stream(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a stream to read or a requested check; return whether there is one."""
        with self.lock:
            self._idle = True
            self._wait_until(lambda: self._closed or self._check_requested or self._next_stream(), seconds)
            self._idle = False
            return self._check_requested or self._next_stream() is not None

    def _check_for_commits(self, pause: float) -> bool:
        """Read new commits; return whether there were any. Of the consumers that share a coordinator and check equally
        often, one asks the storage for all."""
        requested, failure = self._check_requested, None
        try:
            if self._coordinator.claim_check(0 if requested else pause):
                self.checks += 1
                self._read_log()
        except (FencedError, CorruptionError, UnsupportedVersionError):
            raise  # not transient: the caller of poll has to know
        except SparklogError as error:
            failure = error
        if requested:
            with self.lock:  # the check that ``gather`` requested is done; the commits it found are read next
                self._check_requested = False
                self._wake_thread()
        if failure is not None:
            self._warn_of(failure)
        if self._coordinator.state is self._checked_state:
            return False
        self._checked_state = self._coordinator.state
        with self.lock:
            self._wake_thread()
        return True

    def _read_log(self) -> None:
        with self._metrics.requests.at_root(), suppress(ObjectNotFoundError):  # no newer commit
            if self.checks % FULL_CHECK_EVERY:
                self._coordinator.store.info(commit_key(self._coordinator.state.version + 1))
            self._coordinator.refresh()

    def _warn_of(self, error: SparklogError) -> None:
        """Log at most once in ``WARNING_SECONDS`` that the storage cannot be read; pause before the next request."""
        now = self._clock.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + WARNING_SECONDS
            logger.warning("could not check for new commits in %s, retrying: %s", self._coordinator.store.root, error)
        self._wait_for_stream(_ERROR_PAUSE_SECONDS)

    def _read_one(self) -> bool:
        """Read one stored batch of the partition whose turn it is; return whether there was a partition to read."""
        with self.lock:
            stream = self._next_stream()
            if stream is None:
                return False
            self._turns.popleft()
        chunk: RecordBatches | None = None
        failure: SparklogError | None = None
        try:
            chunk = self._read_batch(stream)
        except StorageUnavailableError as error:
            logger.warning("could not read %s, retrying: %s", stream.topic_partition, error)
            stream.reading = None
            with self.lock:
                self._changed.wait(_RETRY_SECONDS)
        except SparklogError as error:
            stream.reading = None
            bounds = self._reader.bounds(*stream.topic_partition)
            is_same = bounds is not None and bounds.topic_id == stream.topic_id and not self._is_of_another(stream)
            # A topic that was deleted during the read, or created again, has no such file: the next look says so.
            if is_same or (isinstance(error, OffsetOutOfRangeError) and not self._is_of_another(stream)):
                failure = error
                topic, partition = stream.topic_partition
                error.context = {"topic": topic, "partition": partition, **error.context}  # a file does not know them
        with self.lock:
            if self.streams.get(stream.topic_partition) is stream:
                self._store(stream, chunk, failure)
        return True

    def _store(self, stream: Stream, chunk: RecordBatches | None, failure: SparklogError | None) -> None:
        if failure is not None:
            stream.error = failure
        elif chunk is not None:
            size = int(chunk.batch.get_total_buffer_size())  # memory it keeps alive, even if it is a slice
            stream.chunks.append(FetchedChunk(stream, chunk, size))
            stream.next = chunk.end_offset
            self._add_size(stream, size)
        if chunk is not None or failure is not None:
            self._changed.notify_all()

    def _next_stream(self) -> Stream | None:
        """Return the stream to read next. Every stream with room gets a turn, those with the least buffered first."""
        if self._exhausted or self._is_full():
            return None
        while self._turns:
            stream = self._turns[0]
            if self.streams.get(stream.topic_partition) is stream and self._wants_more(stream):
                return stream
            self._turns.popleft()
        wanting = [stream for stream in self.streams.values() if self._wants_more(stream)]
        self._turns.extend(sorted(wanting, key=lambda stream: stream.size))
        self._exhausted = not wanting
        if self._exhausted:
            self._changed.notify_all()  # ``gather`` has everything there is
        return self._turns[0] if wanting else None

    def _is_full(self) -> bool:
        """Return whether the buffer is full. Records of paused partitions do not count: nobody takes them."""
        if self.buffered_bytes < self._config.fetch_max_bytes:
            return False
        paused = sum(stream.size for stream in list(self.streams.values()) if stream.paused)
        return self.buffered_bytes - paused >= self._config.fetch_max_bytes

    def _wants_more(self, stream: Stream) -> bool:
        if stream.paused or stream.error is not None or stream.size >= self._config.max_partition_fetch_bytes:
            return False
        if self._is_of_another(stream):
            return False
        if stream.reading is not None:
            return True
        bounds = self._reader.bounds(*stream.topic_partition)
        return bounds is not None and (stream.next != bounds.end or stream.topic_id not in ("", bounds.topic_id))

    def _is_of_another(self, stream: Stream) -> bool:
        """Return whether the offset of the stream was found in a timeline that the log has left."""
        return stream.timeline not in (None, self._coordinator.log.unlinked_jumps)

    def _read_batch(self, stream: Stream) -> RecordBatches | None:
        """Return the next stored batch at the offset of the stream, or None. Raises OffsetOutOfRangeError."""
        topic, partition = stream.topic_partition
        if stream.reading is None:
            # one for both: another thread may read that the topic was created again, or leave the timeline
            state, timeline = self._coordinator.log.state_in_timeline()
            if stream.timeline not in (None, timeline):
                return None
            bounds = self._reader.bounds(topic, partition, state)
            if bounds is None:
                return None
            if not bounds.start <= stream.next <= bounds.end or stream.topic_id not in ("", bounds.topic_id):
                raise _out_of_range_error(stream, bounds)
            stream.topic_id = bounds.topic_id
            stream.reading = self._reader.fetch(topic, partition, stream.next, bounds.end, state=state)
            stream.end, stream.is_log = bounds.end, bounds.is_log
        started, bytes_before = self._clock.monotonic(), self._reader.bytes_read
        with self._metrics.requests.counted():
            fetched = next(stream.reading, None)
        if fetched is None:
            stream.reading, at_end = None, stream.next == stream.end
            stream.next = stream.end  # the last offsets may have no records
            if at_end or not stream.is_log:
                return None
            return RecordBatches(topic, partition, stream.end, without_columns(0), CREATE_TIME, -1)
        base_offset, batch, timestamp_type, offsets = fetched.records
        node = str(self._reader.last_broker) if stream.is_log else ROOT
        size, seconds = self._reader.bytes_read - bytes_before, self._clock.monotonic() - started
        self._metrics.record_fetch(topic, node, batch.num_rows, size, seconds)
        return RecordBatches(topic, partition, base_offset, batch, timestamp_type, fetched.leader_epoch, offsets)


def _out_of_range_error(stream: Stream, bounds: Bounds) -> OffsetOutOfRangeError:
    topic, partition = stream.topic_partition
    verb = "was recreated and has" if stream.topic_id not in ("", bounds.topic_id) else "has"
    return OffsetOutOfRangeError(
        f"offset {stream.next} of {topic}-{partition} cannot be read: the topic {verb} offsets {bounds.start} to "
        f"{bounds.end}; seek to one of them, or set auto_offset_reset to earliest or latest",
        topic=topic,
        partition=partition,
        offset=stream.next,
    )
