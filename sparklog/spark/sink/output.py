"""Write the files of one writer task: many partitions, few files, bounded memory.

Records are buffered in memory, as a list of batches per partition. A partition that reaches ``OWN_FILE_BYTES`` gets its
own file, to which its records are streamed from then on. When the task ends, or all partitions together exceed
``MAX_BUFFERED_BYTES``, the partitions without a file are written to one shared file, each as one run of batches; so a
task that wrote a little to 64 partitions leaves one file, or one for each set of brokers that hold replicas. A file is
closed when it reaches the topic's ``segment.bytes``, and a new one is opened.

A small slice keeps the whole batch that it is part of in memory. So slices that stay buffered while
``COMPACT_AFTER_BYTES`` of other rows arrive are copied, and their batches released, which bounds memory for any rows.

Rules: the records of a partition are committed in the order of their arrival; batches in files are of about 1 MiB;
nothing is visible until a commit names it. After an error ``abort`` deletes the files, best effort; the rest are
orphans, which readers never see. Not for: choosing partitions (``routing``) and the commit (``writer``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sparklog import limits
from sparklog.errors import SparklogError
from sparklog.ids import Ids
from sparklog.log.records.batches import join_small
from sparklog.log.records.read_order import StoreOf
from sparklog.log.records.replicated_file import discard
from sparklog.log.records.segment_file_writer import SegmentFileWriter
from sparklog.protocol.decide.acks import check_copies
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.spark.broker_stores import BrokerMap
from sparklog.spark.sink.routing import Routed
from sparklog.spark.sink.topic_targets import TopicTarget

logger = logging.getLogger(__name__)

OWN_FILE_BYTES = 8 * 1024 * 1024
"""bytes of a partition's records after which it gets its own file."""
MAX_BUFFERED_BYTES = 64 * 1024 * 1024
"""bytes of records buffered in memory, over all partitions."""
COMPACT_AFTER_BYTES = 32 * 1024 * 1024
"""bytes of rows that may arrive before a buffered slice is copied; at most twice as much is kept in memory."""
MAX_OPEN_FILES_LOCAL = 64
MAX_OPEN_FILES_REMOTE = 8
"""files that one task keeps open; a remote file buffers a few MiB until they are sent."""
FINISH_THREADS = 4
"""files that are made durable in parallel when a task ends."""


class _File:
    """An open file. ``run_numbers`` are the positions of its runs in the order of the whole task."""

    def __init__(self, writer: SegmentFileWriter, limit: int) -> None:
        self.writer = writer
        self.limit = limit
        self.run_numbers: list[int] = []

    @property
    def is_full(self) -> bool:
        return self.writer.bytes_written >= self.limit


class _Pending:
    """The buffered records of one partition, and its own file if it has one."""

    def __init__(self, target: TopicTarget, partition: int) -> None:
        self.target = target
        self.partition = partition
        self.batches: list[tuple[pa.RecordBatch, int]] = []
        self.size = 0
        self.first_slice: int | None = None
        self.buffered_since = 0
        self.file: _File | None = None

    def add(self, routed: Routed, now: int) -> None:
        """Buffer records; ``now`` is the number of bytes that have arrived at the whole task."""
        if routed.is_slice and self.first_slice is None:
            self.first_slice, self.buffered_since = len(self.batches), now
        self.batches.append((routed.records, routed.size))
        self.size += routed.size

    def compact(self) -> None:
        """Copy slices, and release the batches that they are part of."""
        if self.first_slice is not None:
            slices = self.batches[self.first_slice :]
            copied = pa.concat_batches([batch for batch, _ in slices])
            self.batches[self.first_slice :] = [(copied, sum(size for _, size in slices))]
            self.first_slice = None

    def take(self) -> Iterator[pa.RecordBatch]:
        """Return the buffered records as batches for a file, and clear the buffer."""
        batches, self.batches, self.size, self.first_slice = self.batches, [], 0, None
        return join_small(_split_large(batches))


class TaskOutput:
    """Writes routed records to files at these stores. Not thread-safe.

    ``has_key`` and ``has_headers`` say which columns the records have.
    """

    def __init__(self, stores: BrokerMap, ids: Ids, has_key: bool, has_headers: bool) -> None:
        self._store_of: StoreOf = stores.__getitem__
        self._version = stores.begun.version
        self._ids = ids
        self._has_key = has_key
        self._has_headers = has_headers
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._buffered = 0
        self._arrived = 0
        self._compact_at = COMPACT_AFTER_BYTES
        self._own_files = 0
        self._runs = 0
        self._shared: dict[tuple[str, int | None, frozenset[int]], _File] = {}
        self._finished: list[tuple[int, PartitionAppend]] = []
        self._unfinished: list[_File] = []

    def add(self, routed: Routed) -> None:
        """Buffer records, or write them to files if limits are reached. Raises StorageError."""
        key = (routed.target.topic, routed.partition)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(routed.target, routed.partition)
        pending.add(routed, self._arrived)
        self._buffered += routed.size
        self._arrived += routed.size
        if pending.file is not None:
            if pending.size >= limits.TARGET_BATCH_BYTES:
                self._write_own(pending)
        elif pending.size >= OWN_FILE_BYTES and self._own_files < self._max_open(pending):
            self._write_own(pending)
        elif self._buffered >= MAX_BUFFERED_BYTES:
            self._write_buffered()
        if self._arrived >= self._compact_at:
            self._compact()

    def _compact(self) -> None:
        for pending in self._pending.values():
            if pending.buffered_since <= self._compact_at - COMPACT_AFTER_BYTES:
                pending.compact()
        self._compact_at = self._arrived + COMPACT_AFTER_BYTES

    def finish(self) -> list[PartitionAppend]:
        """Write the buffered records, make all files durable, and return the appends to commit, in order.

        Raises StorageError; NotEnoughReplicasError, NotLeaderOrFollowerError if too few brokers have a file.
        """
        self._write_buffered()
        files, self._unfinished = self._unfinished, []
        try:
            with ThreadPoolExecutor(FINISH_THREADS) as threads:
                for appends in threads.map(_finish, files):
                    self._finished += appends
        except BaseException:
            self._unfinished = files
            raise
        self._check_copies()
        return [append for _, append in sorted(self._finished, key=lambda numbered: numbered[0])]

    def abort(self) -> None:
        """Delete the files of this task. Best effort."""
        for file in self._unfinished:
            try:
                file.writer.abort()
            except SparklogError as error:
                logger.warning("deleting %s failed, leaving it as an orphan: %s", file.writer.key, error)
        discard((append.run for _, append in self._finished), self._store_of)

    def _max_open(self, pending: _Pending) -> int:
        remote = sum(not self._store_of(broker).is_local for broker in pending.target.brokers[pending.partition])
        return max(MAX_OPEN_FILES_REMOTE // remote, 1) if remote else MAX_OPEN_FILES_LOCAL

    def _write_own(self, pending: _Pending) -> None:
        """Write a partition's buffered records to its own file, opening one if it has none."""
        if pending.file is None:
            pending.file = self._open(pending.target, pending.partition)
            self._own_files += 1
            self._start_run(pending.file, pending)
        self._write(pending.file, pending)
        if pending.file.is_full:
            self._close(pending.file)
            pending.file = None
            self._own_files -= 1

    def _write_buffered(self) -> None:
        """Write all buffered records to files: to the partition's own if it has one, else to a shared one."""
        buffered = [pending for pending in self._pending.values() if pending.batches]
        for pending in buffered:
            if pending.file is not None:
                self._write_own(pending)
                continue
            brokers = frozenset(pending.target.brokers[pending.partition])
            kind = (pending.target.codec, pending.target.codec_level, brokers)
            file = self._shared.get(kind)
            if file is None:
                file = self._shared[kind] = self._open(pending.target, pending.partition)
            self._start_run(file, pending)
            self._write(file, pending)
            if file.is_full:
                self._close(file)
                del self._shared[kind]

    def _open(self, target: TopicTarget, partition: int) -> _File:
        leader, *others = target.brokers[partition]
        writer = SegmentFileWriter(
            self._store_of(leader),
            target.key(partition, self._version, self._ids.write_id()),
            codec=target.codec,
            level=target.codec_level,
            has_key=self._has_key,
            has_headers=self._has_headers,
            broker=leader,
            replicas=[(broker, self._store_of(broker)) for broker in others],
        )
        file = _File(writer, target.segment_bytes)
        self._unfinished.append(file)
        return file

    def _start_run(self, file: _File, pending: _Pending) -> None:
        file.writer.start_run(pending.target.run(pending.partition))
        file.run_numbers.append(self._runs)
        self._runs += 1

    def _write(self, file: _File, pending: _Pending) -> None:
        self._buffered -= pending.size
        for batch in pending.take():
            file.writer.write(batch)

    def _close(self, file: _File) -> None:
        self._finished += _finish(file)
        self._unfinished.remove(file)

    def _check_copies(self) -> None:
        """Raise if too few brokers have a file: the commit would refuse it, while Spark can retry the task."""
        for _, append in self._finished:
            target = self._pending[append.topic, append.partition].target
            check_copies(target.needs[append.partition], append.topic, append.partition, append.run)


def _finish(file: _File) -> list[tuple[int, PartitionAppend]]:
    """Make a file durable, and return its appends, each with the number of its run in the task."""
    return list(zip(file.run_numbers, file.writer.finish(), strict=True))


def _split_large(batches: Sequence[tuple[pa.RecordBatch, int]]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the batches, with those far over ``TARGET_BATCH_BYTES`` cut into pieces of about that size. No copies."""
    for batch, size in batches:
        pieces = max(size // limits.TARGET_BATCH_BYTES, 1)
        if pieces == 1:
            yield batch, size
            continue
        step = max(-(-batch.num_rows // pieces), 1)
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            yield piece, piece.nbytes
