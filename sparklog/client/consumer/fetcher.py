"""Reads ahead for a consumer: one background thread that fills a bounded buffer and looks for new commits.

The consumer says where each partition is to be read from; the thread reads stored batches from there on, one of each
partition in turn, until ``max_partition_fetch_bytes`` of it or ``fetch_max_bytes`` in all wait to be taken. Then,
or when there is no more, it looks for the next commit: after ``tail_backoff`` at first, and ever more rarely up to
``tail_backoff_max`` while none comes. A look is one request (does the next commit exist); what a checkpoint and its
boundary may have hidden, every ``FULL_LOOK_EVERY`` looks find out.

Rules: the thread alone touches the storage here; everything shared is guarded by one condition, never held while
reading. What goes wrong is handed to the consumer with the partition, in the order of its records.

Not for: positions, subscriptions, what a record looks like.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.records import RecordBatches
from sparklog.client.producer.futures import clamp_timeout
from sparklog.client.reader import Bounds, Fetched
from sparklog.client.request_metrics import ROOT
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
from sparklog.store.process_lock import ProcessLock
from sparklog.types import CREATE_TIME, TopicPartition

logger = logging.getLogger(__name__)

FULL_LOOK_EVERY = 10
"""Every so many looks ask for more than whether the next commit is there: it may have been removed already."""

WARNING_SECONDS = 60.0
"""seconds between two warnings that the storage cannot be read."""

_ERROR_PAUSE_SECONDS = 1.0

_RETRY_SECONDS = 0.1
"""after a storage that did not answer."""


class PartitionReader(Protocol):
    """Where records come from: ``client.reader.LogReader``, or something derived. One thread uses it."""

    def bounds(self, topic: str, partition: int) -> Bounds | None:
        """What there is as far as this process has read, None where there is no such partition."""

    def fetch(
        self, topic: str, partition: int, start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[Fetched]:
        """The records of this range."""

    @property
    def bytes_read(self) -> int:
        """Bytes of files read so far."""

    @property
    def last_broker(self) -> int:
        """The broker whose location was read last, -1 before any was."""

    def close(self) -> None: ...


class Taken(NamedTuple):
    """Records in the buffer or taken out of it, the stream they may be given back to, and their size in bytes.

    Without a record it says that there is none up to ``batches.end_offset``: compaction took the last ones out.
    """

    stream: Stream
    batches: RecordBatches
    size: int

    def split(self, rows: int) -> tuple[Taken, Taken]:
        """The first so many records, and the rest."""
        batches, size = self.batches, self.size * rows // int(self.batches.batch.num_rows)
        first, rest = batches.slice(0, rows), batches.slice(rows)
        return self._replace(batches=first, size=size), self._replace(batches=rest, size=self.size - size)


class Stream:
    """One partition that is read ahead: the next offset to read, and what waits to be taken."""

    __slots__ = ("chunks", "end", "error", "is_log", "next", "paused", "place", "reading", "size", "topic_id")

    def __init__(self, place: TopicPartition, offset: int, paused: bool) -> None:
        self.place = place
        self.next = self.end = offset
        self.paused = paused
        self.chunks: deque[Taken] = deque()
        self.size = 0
        self.topic_id = ""
        self.is_log = True
        self.reading: Iterator[Fetched] | None = None
        self.error: SparklogError | None = None


class ReadAhead:
    """The buffer and its thread, which starts at the first ``read_from``.

    One consumer's thread calls its methods, but for ``wake`` and ``close``, which any thread may.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        reader: PartitionReader,
        *,
        partition_bytes: int,
        total_bytes: int,
        backoff: float,
        backoff_max: float,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._reader = reader
        self._clock: Clock = coordinator.log.clock
        self._metrics = metrics or ConsumerMetrics(self._clock)
        self._partition_bytes = partition_bytes
        self._total_bytes = total_bytes
        self._backoff = backoff
        self._backoff_max = backoff_max
        self._changed = threading.Condition()
        self._streams: OrderedDict[TopicPartition, Stream] = OrderedDict()
        self._turns: deque[Stream] = deque()
        self._size = 0
        self._woken = False
        self._look_wanted = False
        self._closed = False
        self._idle = False
        self._exhausted = False
        self._failure: Exception | None = None
        self._next_warning = -math.inf
        self._next_late_warning = -math.inf
        self._thread: threading.Thread | None = None
        self._noticed = coordinator.state
        self.looks = 0

    # -- what the consumer says

    def read_from(self, place: TopicPartition, offset: int, paused: bool = False) -> None:
        """Read this partition from here on; what was read of it before is dropped."""
        with self._changed:
            self._drop(place)
            self._streams[place] = Stream(place, offset, paused)
            self._worth_a_try()

    def forget(self, place: TopicPartition) -> None:
        """Read this partition no more."""
        with self._changed:
            self._drop(place)

    def pause(self, place: TopicPartition, paused: bool) -> None:
        """Keep what was read of this partition, but neither hand it out nor read more; or go on."""
        with self._changed:
            if place in self._streams:
                self._streams[place].paused = paused
                self._worth_a_try()

    def known(self, place: TopicPartition) -> bool:
        """Whether this partition is being read."""
        return place in self._streams

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sparklog-consumer-fetch", daemon=True)
            self._thread.start()

    def _worth_a_try(self) -> None:
        """There may be something to read that there was not before."""
        self._exhausted = False
        self._changed.notify_all()

    def _drop(self, place: TopicPartition) -> None:
        gone = self._streams.pop(place, None)
        if gone is not None:
            self._size -= gone.size

    # -- what it takes

    def take(self, max_records: int | None) -> list[Taken]:
        """What waits, at most so many records, beginning with the partition that has waited longest.

        Raises what went wrong with a partition once there is nothing else to take; the next call tries again.
        """
        taken: list[Taken] = []
        left = max_records if max_records is not None else 2**62
        with self._changed:
            if self._failure is not None:
                raise self._failure
            for stream in list(self._streams.values()):
                if left <= 0:
                    break
                if stream.paused or not stream.chunks:
                    continue
                while stream.chunks and left > 0:
                    taken.append(self._pop(stream, left))
                    left -= taken[-1].batches.batch.num_rows
                self._streams.move_to_end(stream.place)
            if not taken:
                self._raise_error()
            elif self._idle:
                self._worth_a_try()
            else:
                self._exhausted = False
        return taken

    def _raise_error(self) -> None:
        for stream in self._streams.values():
            if stream.error is not None and not stream.paused and not stream.chunks:
                error, stream.error = stream.error, None
                self._streams.move_to_end(stream.place)
                self._worth_a_try()
                raise error

    def _pop(self, stream: Stream, most: int) -> Taken:
        """The first chunk, or the first so many records of it."""
        first = stream.chunks.popleft()
        if first.batches.batch.num_rows > most:
            first, rest = first.split(most)
            stream.chunks.appendleft(rest)
        self._resize(stream, -first.size)
        return first

    def _resize(self, stream: Stream, by: int) -> None:
        stream.size += by
        self._size += by

    def give_back(self, taken: Taken, offset: int) -> None:
        """Put back what was taken and not used, from ``offset`` on; it is handed out next."""
        stream, used = taken.stream, taken.batches.rows_before(offset)
        with self._changed:
            if self._streams.get(stream.place) is not stream or 0 < taken.batches.batch.num_rows <= used:
                return
            rest = taken.split(used)[1] if used else taken
            stream.chunks.appendleft(rest)
            self._resize(stream, rest.size)
            self._streams.move_to_end(stream.place, last=False)

    def wait(self, seen: State, timeout: float) -> bool:
        """Wait for records or a newer state than ``seen``, at most ``timeout`` seconds, or until ``wake``: whether it
        was that."""
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            while not (self._woken or self._failure or self._ready() or self._coordinator.state is not seen):
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 3600.0))
            woken, self._woken = self._woken, False
            return woken

    def gather(self, rows: int, seconds: float, age: float) -> None:
        """Where records wait, but fewer than ``rows``: wait until so many do, or all that is there has been read.

        At most so many ``seconds``. What was committed ``age`` seconds ago counts as there, and with 0 whatever was
        committed before the call. So one poll returns what several small writes have left.
        """
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            if not 0 < self._waiting_rows(rows) < rows:
                return
            if not _looked_since(self._coordinator, age):
                self._look_wanted = True
                self._worth_a_try()
            while not (self._woken or self._failure or self._closed or self._waiting_rows(rows) >= rows):
                left = deadline - self._clock.monotonic()
                caught_up = self._exhausted or self._size >= self._total_bytes
                if left <= 0 or (caught_up and not self._look_wanted):
                    break
                self._changed.wait(min(left, 3600.0))

    def _waiting_rows(self, enough: int) -> int:
        """How many records may be taken, counted up to ``enough``."""
        rows: int = 0
        for stream in self._streams.values():
            if stream.paused:
                continue
            for taken in stream.chunks:
                rows += int(taken.batches.batch.num_rows)
                if rows >= enough:
                    return rows
        return rows

    def _ready(self) -> bool:
        return any((stream.chunks or stream.error) and not stream.paused for stream in self._streams.values())

    def log_retry(self, error: Exception) -> None:
        """Say that something will be tried again; once in a while, that it takes longer than a poll."""
        if not isinstance(error, KafkaTimeoutError):
            logger.warning("%s is tried again after: %s", self._coordinator.store.root, error)
        elif self._clock.monotonic() >= self._next_late_warning:
            self._next_late_warning = self._clock.monotonic() + WARNING_SECONDS
            logger.warning("%s is slow: %s", self._coordinator.store.root, error)

    def wake(self) -> None:
        """End a wait at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Let the thread end soon, and with it let go of the files, without a lock and without waiting."""
        self._closed = True

    def close(self, seconds: float = math.inf) -> None:
        """Stop reading and let go of the files. Doing it twice is fine. A thread that a storage holds up for longer
        ends when that answers."""
        with self._changed:
            self._closed = True
            self._streams.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(clamp_timeout(seconds))
            if self._thread.is_alive():
                return
        self._reader.close()

    # -- the thread

    def _run(self) -> None:
        """Read ahead; a mistake that nobody foresaw ends it, and is raised to whoever takes."""
        try:
            self._read_ahead()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _read_ahead(self) -> None:
        pause = self._backoff
        while not self._closed:
            if self._fill_one():
                continue
            if self._look(pause):
                pause = self._backoff
                continue
            if not self._rest(pause):
                pause = min(pause * 1.5, self._backoff_max)

    def _rest(self, seconds: float) -> bool:
        """Wait this long, or until there is something to read; whether there is."""
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            self._idle = True
            while not self._closed and not self._look_wanted and self._next_stream() is None:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._idle = False
            return self._look_wanted or self._next_stream() is not None

    def _look(self, pause: float) -> bool:
        """Whether there are new commits; they are read then. Of several consumers that share a coordinator and look as
        often, one asks the storage for all."""
        wanted = self._look_wanted
        try:
            if not _looked_lately(self._coordinator, 0 if wanted else pause):
                self.looks += 1
                self._look_at_log()
        except (FencedError, CorruptionError, UnsupportedVersionError):
            raise  # it does not pass: whoever polls has to know
        except SparklogError as error:
            self._answer_look(wanted)
            self._warn_of(error)
        else:
            self._answer_look(wanted)
        if self._coordinator.state is self._noticed:
            return False
        self._noticed = self._coordinator.state
        with self._changed:
            self._worth_a_try()
        return True

    def _look_at_log(self) -> None:
        with self._metrics.requests.at_root():
            try:
                if self.looks % FULL_LOOK_EVERY:
                    self._coordinator.store.info(commit_key(self._coordinator.state.version + 1))
                self._coordinator.refresh()
            except ObjectNotFoundError:
                pass  # there is no newer commit

    def _answer_look(self, wanted: bool) -> None:
        """Whoever wanted a look that began after that has had it, once what it found may be read."""
        if wanted:
            with self._changed:
                self._look_wanted = False
                self._worth_a_try()

    def _warn_of(self, error: SparklogError) -> None:
        """Say that the storage cannot be read, once in a while, and do not ask it again at once."""
        now = self._clock.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + WARNING_SECONDS
            logger.warning("could not look for new commits in %s: %s", self._coordinator.store.root, error)
        self._rest(_ERROR_PAUSE_SECONDS)

    def _fill_one(self) -> bool:
        """Read one stored batch of the partition whose turn it is; whether there was one to read."""
        with self._changed:
            stream = self._next_stream()
            if stream is None:
                return False
            self._turns.popleft()
        chunk: RecordBatches | None = None
        failure: SparklogError | None = None
        try:
            chunk = self._read(stream)
        except StorageUnavailableError as error:
            logger.warning("could not read %s, and tries again: %s", stream.place, error)
            stream.reading = None
            with self._changed:
                self._changed.wait(_RETRY_SECONDS)
        except SparklogError as error:
            stream.reading = None
            if self._reader.bounds(*stream.place) is not None:  # else its topic was deleted while it was read
                failure = error
        with self._changed:
            if self._streams.get(stream.place) is stream:
                self._store(stream, chunk, failure)
        return True

    def _store(self, stream: Stream, chunk: RecordBatches | None, failure: SparklogError | None) -> None:
        if failure is not None:
            stream.error = failure
        elif chunk is not None:
            size = int(chunk.batch.get_total_buffer_size())  # what it keeps in memory, also where it is a slice
            stream.chunks.append(Taken(stream, chunk, size))
            stream.next = chunk.end_offset
            self._resize(stream, size)
        if chunk is not None or failure is not None:
            self._changed.notify_all()

    def _next_stream(self) -> Stream | None:
        """The stream that is to be read next. All that want more get a turn, those with least waiting first."""
        if self._exhausted or self._size >= self._total_bytes:
            return None
        while self._turns:
            stream = self._turns[0]
            if self._streams.get(stream.place) is stream and self._wants_more(stream):
                return stream
            self._turns.popleft()
        wanting = [stream for stream in self._streams.values() if self._wants_more(stream)]
        self._turns.extend(sorted(wanting, key=lambda stream: stream.size))
        self._exhausted = not wanting
        if self._exhausted:
            self._changed.notify_all()  # whoever gathers records has all there is
        return self._turns[0] if wanting else None

    def _wants_more(self, stream: Stream) -> bool:
        if stream.paused or stream.error is not None or stream.size >= self._partition_bytes:
            return False
        if stream.reading is not None:
            return True
        bounds = self._reader.bounds(*stream.place)
        return bounds is not None and (stream.next != bounds.end or stream.topic_id not in ("", bounds.topic_id))

    def _read(self, stream: Stream) -> RecordBatches | None:
        """The next stored batch from the stream's offset on. Raises OffsetOutOfRangeError."""
        topic, partition = stream.place
        if stream.reading is None:
            bounds = self._reader.bounds(topic, partition)
            if bounds is None:
                return None
            if not bounds.start <= stream.next <= bounds.end or stream.topic_id not in ("", bounds.topic_id):
                raise _out_of_range(stream, bounds)
            stream.topic_id = bounds.topic_id
            stream.reading, stream.end = self._reader.fetch(topic, partition, stream.next, bounds.end), bounds.end
            stream.is_log = bounds.is_log
        began, read_before = self._clock.monotonic(), self._reader.bytes_read
        with self._metrics.requests.counted():
            fetched = next(stream.reading, None)
        if fetched is None:
            stream.reading, reached = None, stream.next == stream.end
            stream.next = stream.end  # there may be no record for the last offsets
            return None if reached or not stream.is_log else _nothing_before(stream)
        base_offset, batch, timestamp_type, offsets = fetched.records
        node = str(self._reader.last_broker) if stream.is_log else ROOT
        size, seconds = self._reader.bytes_read - read_before, self._clock.monotonic() - began
        self._metrics.fetched(topic, node, batch.num_rows, size, seconds)
        return RecordBatches(topic, partition, base_offset, batch, timestamp_type, fetched.leader_epoch, offsets)


def _nothing_before(stream: Stream) -> RecordBatches:
    """No record, up to where the stream has been read."""
    return RecordBatches(*stream.place, stream.end, without_columns(0), CREATE_TIME, -1)


_looks: WeakKeyDictionary[Coordinator, float] = WeakKeyDictionary()
_looks_lock = ProcessLock()


def _looked_since(coordinator: Coordinator, age: float) -> bool:
    """Whether somebody in this process has begun a look in the last ``age`` seconds."""
    with _looks_lock:
        return coordinator.log.clock.monotonic() - _looks.get(coordinator, -math.inf) < age


def _looked_lately(coordinator: Coordinator, pause: float) -> bool:
    """Whether somebody in this process has looked since nearly a pause ago; if not, the caller does it now."""
    now = coordinator.log.clock.monotonic()
    with _looks_lock:
        if now - _looks.get(coordinator, -math.inf) < pause * 0.9:
            return True
        _looks[coordinator] = now
        return False


def _out_of_range(stream: Stream, bounds: Bounds) -> OffsetOutOfRangeError:
    topic, partition = stream.place
    why = "was created again since" if stream.topic_id not in ("", bounds.topic_id) else "has"
    return OffsetOutOfRangeError(
        f"offset {stream.next} of {topic}-{partition} cannot be read: the topic {why} offsets {bounds.start} to "
        f"{bounds.end}; seek to one of them, or set auto_offset_reset to earliest or latest",
        topic=topic,
        partition=partition,
        offset=stream.next,
    )
