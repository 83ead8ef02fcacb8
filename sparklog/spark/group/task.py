"""Run one member of a consumer group in a Spark task: read owned partitions, call the user's function, commit.

Each call of the function gets records of one partition. The rows it sends are published together with the offset after
these records, in one commit that names the member and its generation. So output and progress are atomic, whichever
process dies at whatever moment; a member that has been removed from its group publishes nothing.

Rules: a thread sends heartbeats while the function runs; only the task's own thread calls the function. Positions, and
what a call makes of their records, are committed only in the timeline of the log in which the positions were found: a
root that was restored from a copy may have other records there, and not the files of the call.
Not for: starting the tasks (``group.consume``), the assignment of partitions (``coordinator.group_member``).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparklog.coordinator import shared_cluster
from sparklog.coordinator.group_member import GroupMember
from sparklog.coordinator.record_reader import RecordReader, records_deleted
from sparklog.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IndeterminateCommitError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownMemberIdError,
    UnlinkedHistoryError,
)
from sparklog.limits import MAX_TRANSACTIONAL_ID_LENGTH
from sparklog.log.layout import exists
from sparklog.log.records.batches import RowBuilder
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.decide.producers import ProducerIdentity, init_producer
from sparklog.protocol.group.start_offset import find_start
from sparklog.protocol.state import State
from sparklog.spark.group.output import TaskSends
from sparklog.spark.source.rows import STORED, read_columns, read_schema
from sparklog.spark.stream.offsets import find_logs
from sparklog.spark.versions.api import arrow_schema
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

CHUNK_BYTES = 16 * 1024 * 1024
"""bytes of records after which a call is full, even with fewer than ``max_records``."""

FIRST_WAIT_SECONDS = 0.01
LONGEST_WAIT_SECONDS = 1.0
"""Pauses of a member that has nothing to read; each poll costs two small requests."""

LONGEST_CALL_MS = 86_400_000
"""Rebalance timeout: how long the group waits for the user's function to finish before it revokes its partition, which
would lose the work of the call."""

COMMIT_TRIES = 10
"""attempts of a commit whose outcome is unknown, or that rebalances interrupt."""


@dataclass(frozen=True)
class ConsumeSettings:
    """Settings of the tasks. ``ends`` are the offsets to read up to, None to read until stopped.

    ``stop_key`` is the key of an object that appears when the tasks are to stop. Times in milliseconds.
    """

    root: str
    group: str
    topics: tuple[str, ...]
    frames: bool = False
    include_headers: bool = False
    max_records: int = 100_000
    reset: str = "earliest"
    assignor: str = "cooperative-sticky"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    ends: Mapping[TopicPartition, int] | None = None
    stop_key: str = ""
    storage_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberReport:
    """The work of one task: records and calls of the user's function, and the partitions it read."""

    task: int
    host: str
    records: int
    calls: int
    partitions: tuple[str, ...]


class ConsumeContext:
    """The partition and offsets of a call's records, and ``send`` for rows to publish with them."""

    def __init__(self, topic_partition: TopicPartition, start: int, end: int, task: int, sends: TaskSends) -> None:
        self.topic = topic_partition.topic
        self.partition = topic_partition.partition
        self.start_offset = start
        self.end_offset = end
        self.task = task
        self._sends = sends

    def send(self, topic: str, rows: Any) -> None:
        """Append rows to a topic, in the same commit as the offset after this call's records.

        ``rows`` is a pa.Table, a pa.RecordBatch or a pandas DataFrame with a column ``value`` and optional columns
        ``key``, ``headers``, ``partition`` and ``timestamp``, as for ``sparklog.write``. Raises InvalidRecordError,
        UnknownTopicOrPartitionError.
        """
        self._sends.add(topic, rows)


Process = Callable[[Any, ConsumeContext], object]


class ConsumeTask:
    """The life of one member in one task. ``run`` once."""

    def __init__(self, settings: ConsumeSettings, process: Process, task: int) -> None:
        self._settings = settings
        self._process = process
        self._task = task
        self._coordinator = shared_cluster(settings.root, settings.storage_options)
        self._member = GroupMember(
            self._coordinator,
            settings.group,
            client_id=f"spark-{task}",
            host=socket.gethostname(),
            assignors=(settings.assignor,),
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=LONGEST_CALL_MS,
            incremental=True,
        )
        self._reader = RecordReader(lambda: self._coordinator)
        self._schema = arrow_schema(read_schema(settings.include_headers))
        self._columns = read_columns(read_schema(settings.include_headers))
        self._sends = TaskSends(settings.root, settings.storage_options)
        self._positions: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._producer: ProducerIdentity | None = None
        self._timeline = self._coordinator.log.unlinked_jumps
        """The timeline of the log in which the positions were found, and of the producer id."""
        self._records = self._calls = 0
        self._read: set[TopicPartition] = set()

    def run(self) -> MemberReport:
        """Work as a member until everything is read or the job is stopped. Raises the errors of the user's function."""
        heartbeats = threading.Thread(target=self._send_heartbeats, name="sparklog-heartbeat", daemon=True)
        succeeded = False
        try:
            self._member.join(self._settings.topics)
            heartbeats.start()
            while not self._is_done():
                self._follow_group()
                if not self._process_next():
                    self._wait()
            succeeded = True
        finally:
            self._stopping.set()
            self._leave(quietly=not succeeded)
            self._reader.close()
            if heartbeats.ident is not None:
                heartbeats.join()
        partitions = tuple(str(topic_partition) for topic_partition in sorted(self._read))
        return MemberReport(self._task, socket.gethostname(), self._records, self._calls, partitions)

    def _leave(self, quietly: bool) -> None:
        try:
            self._member.leave("the task has ended")
        except SparklogError as error:  # the group expires it after its session timeout instead
            logger.log(logging.DEBUG if quietly else logging.WARNING, "could not leave the group: %s", error)

    # -- liveness

    def _send_heartbeats(self) -> None:
        """Renew the member's lease and check the stop object every heartbeat interval. Runs in a thread of its own."""
        while not self._stopping.wait(self._settings.heartbeat_interval_ms / 1000):
            try:
                self._member.beat()
                if self._settings.stop_key and exists(self._coordinator.store, self._settings.stop_key):
                    self._stopping.set()
            except Exception as error:  # keep sending: without heartbeats the member would expire again and again
                logger.warning("heartbeat of member %s failed: %s", self._member.member_id, error)

    def _is_done(self) -> bool:
        if self._stopping.is_set():
            return True
        ends = self._settings.ends
        return ends is not None and not find_unfinished(self._coordinator.state, self._settings.group, ends)

    _pause = FIRST_WAIT_SECONDS

    def _wait(self) -> None:
        """Back off and refresh the state; the pause doubles as long as there is no commit."""
        version = self._coordinator.state.version
        self._stopping.wait(self._pause)
        is_unchanged = self._coordinator.refresh().version == version
        self._pause = min(self._pause * 2, LONGEST_WAIT_SECONDS) if is_unchanged else FIRST_WAIT_SECONDS

    # -- partitions

    def _follow_group(self) -> frozenset[TopicPartition]:
        """Apply the group's changes: drop revoked and lost partitions, start assigned ones; rejoin if it was removed.

        Return the dropped partitions, including those assigned again immediately, as after a topic was recreated.
        """
        self._follow_timeline()
        if not self._member.joined:
            self._member.join(self._settings.topics)
        change = self._member.reconcile()
        dropped = change.revoked | change.lost
        for topic_partition in dropped:
            self._positions.pop(topic_partition, None)
        if change.to_acknowledge:
            self._member.acknowledge()  # all records read so far are committed
        for topic_partition in sorted(change.assigned):
            self._positions[topic_partition] = self._start(topic_partition)
        return dropped

    def _follow_timeline(self) -> None:
        """After unread commits were removed, which may be those of another timeline, continue at
        the committed offsets, with another producer id. Nothing is skipped where none is committed."""
        timeline = self._coordinator.log.unlinked_jumps
        if timeline == self._timeline:
            return
        self._timeline, self._producer = timeline, None
        logger.warning(
            "commits of %s were removed before this task had read them: it may have been restored from a copy; reading "
            "from the committed offsets of group %s again",
            self._settings.root,
            self._settings.group,
        )
        reset = "earliest" if self._settings.reset == "latest" else self._settings.reset
        state = self._coordinator.state
        for topic_partition in self._positions:
            if state.find_partition(*topic_partition) is not None:  # else the group's change revokes it
                self._positions[topic_partition] = start_offset(state, self._settings.group, topic_partition, reset)

    # -- records

    def _process_next(self) -> bool:
        """Make one call for the partition that has waited longest; return False if there is nothing to read."""
        for topic_partition in list(self._positions):
            start = self._positions.pop(topic_partition)
            self._positions[topic_partition] = start  # moves it to the end of the queue
            try:
                chunk = self._read_chunk(topic_partition, start)
            except OffsetOutOfRangeError as error:  # retention has deleted the records
                logger.warning("%s", error)
                self._call(topic_partition, start, None, self._start(topic_partition))
                return True
            if chunk is not None:
                self._call(topic_partition, start, *chunk)
                return True
        return False

    def _start(self, topic_partition: TopicPartition) -> int:
        return start_offset(self._coordinator.state, self._settings.group, topic_partition, self._settings.reset)

    def _read_chunk(self, topic_partition: TopicPartition, start: int) -> tuple[pa.RecordBatch | None, int] | None:
        """Return the next records of a partition and the offset after them; no records if compaction removed them all.

        Return None if there is nothing to read. Raises OffsetOutOfRangeError if records were deleted before they were
        read.
        """
        state = self._coordinator.state
        topic = state.topics.get(topic_partition.topic)
        if topic is None or topic.topic_id != self._member.topic_ids.get(topic_partition.topic):
            return None  # deleted or recreated: the group's next change revokes the partition
        partition = topic.partitions[topic_partition.partition]
        end = partition.high_watermark
        if self._settings.ends is not None:
            end = min(end, self._settings.ends.get(topic_partition, end))
        if start >= end:  # unfinished if the committed offset was deleted and the reset policy is latest
            return (None, start) if self._is_unfinished(topic_partition) else None
        if start < partition.log_start_offset:
            raise records_deleted(*topic_partition, start, partition.log_start_offset)
        columns = [name for name in STORED if name in self._columns]
        builder = RowBuilder(self._schema, self._columns, topic_partition.topic, topic_partition.partition)
        batches, left, size = [], self._settings.max_records, 0
        for _, stored in self._reader.read(*topic_partition, start, end, columns, state):
            records = stored.slice(0, left) if stored.batch.num_rows > left else stored
            batches.append(builder.build(records))
            left -= records.batch.num_rows
            size += records.batch.nbytes
            if left <= 0 or size >= CHUNK_BYTES:
                end = records.end_offset
                break
        return pa.concat_batches(batches) if batches else None, end

    def _is_unfinished(self, topic_partition: TopicPartition) -> bool:
        """Return whether others wait for the group to have read a partition."""
        ends = {} if self._settings.ends is None else self._settings.ends
        wanted = {topic_partition: ends[topic_partition]} if topic_partition in ends else {}
        return bool(find_unfinished(self._coordinator.state, self._settings.group, wanted))

    def _call(self, topic_partition: TopicPartition, start: int, records: pa.RecordBatch | None, end: int) -> None:
        """Call the user's function with the records, and commit its output with the offset ``end``; without records
        commit only the offset."""
        context = ConsumeContext(topic_partition, start, end, self._task, self._sends)
        try:
            if records is not None:
                self._process(records.to_pandas() if self._settings.frames else records, context)
            is_committed = self._commit(topic_partition, end)
        except BaseException:
            self._sends.discard()
            raise
        if is_committed:
            if records is not None:
                self._read.add(topic_partition)
                self._records += records.num_rows
                self._calls += 1
            if topic_partition in self._positions:
                self._positions[topic_partition] = end
            self._pause = FIRST_WAIT_SECONDS

    # -- commits

    def _commit(self, topic_partition: TopicPartition, end: int) -> bool:
        """Publish the rows of the call together with its offset; return False if the partition was reassigned."""
        if not self._sends:
            try:
                self._member.submit(self._member.prepare({topic_partition: end}, timeline=self._timeline))
            except CommitFailedError as error:
                logger.warning("%s", error)
                return False
            return True
        if self._publish(topic_partition, end):
            self._sends.clear()
            return True
        self._sends.discard()
        return False

    def _publish(self, topic_partition: TopicPartition, end: int) -> bool:
        """Commit the sent rows with the offset; return False only if they are not committed and never will be.

        Raises IndeterminateCommitError if the outcome stays unknown.
        """
        timeline = self._timeline  # before the files are begun; a rebalance may lead to another one
        began = self._coordinator.elapsed.now()
        appends, new_topics = self._sends.write()
        unknown: IndeterminateCommitError | None = None
        for _ in range(COMMIT_TRIES):
            commit = GroupCommit(
                group=self._settings.group,
                offsets={topic_partition: end},
                member=self._member.member_id,
                generation=self._member.generation,
                topic_ids=self._member.topic_ids,
            )
            if self._producer is None:
                self._producer = self._init_producer()
            request = AppendRequest(
                appends=appends,
                new_topics=new_topics,
                groups=[commit],
                transaction=self._producer,
                timeline=timeline,
            )
            try:
                self._producer = self._coordinator.append(request, began).producer
            except IndeterminateCommitError as error:
                unknown = error  # repeating the same request resolves it
            except UnlinkedHistoryError as error:  # nothing was decided: records, files and the id may be others
                if unknown is not None:
                    self._sends.clear()
                    raise unknown from error
                logger.warning("a call for %s is repeated: %s", topic_partition, error)
                return False
            except (IllegalGenerationError, UnknownMemberIdError, CommitFailedError):
                unknown = None
                if topic_partition in self._follow_group() or topic_partition not in self._member.owned:
                    break
            except SparklogError:
                if unknown is not None:
                    self._sends.clear()  # a commit may name these files
                raise
            except BaseException:  # the task is interrupted, perhaps after the commit
                self._sends.clear()
                raise
            else:
                return True
        if unknown is not None:
            self._sends.clear()
            raise unknown
        logger.warning("%s was reassigned to another member, which continues at the committed offset", topic_partition)
        return False

    def _init_producer(self) -> ProducerIdentity:
        """Return a new producer id of this member. Its own id is unique; the group's is cut where both are too long."""
        member = self._member.member_id
        transactional_id = f"{self._settings.group[: MAX_TRANSACTIONAL_ID_LENGTH - len(member) - 1]}/{member}"
        return self._coordinator.submit(partial(init_producer, transactional_id=transactional_id))


# -- positions


def start_offset(state: State, group: str, topic_partition: TopicPartition, reset: str) -> int:
    """Return the offset at which a member starts: the committed one, or by ``reset`` if there is none in the log.

    Raises NoOffsetForPartitionError if ``reset`` is ``none``.
    """
    partition = state.partition(*topic_partition)
    position = state.committed(group, *topic_partition)
    committed = None if position is None else position.offset
    start = find_start(reset, partition.log_start_offset, partition.high_watermark, committed)
    if start is None:
        raise NoOffsetForPartitionError(
            f"group {group!r} has no valid offset for {topic_partition} (committed: {committed}; the log has "
            f"{partition.log_start_offset} to {partition.high_watermark}), and auto_offset_reset is none: commit one "
            "with `sparklog consumer-groups --reset-offsets`, or choose earliest or latest",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            group=group,
        )
    return start


def find_unfinished(state: State, group: str, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions with uncommitted records before their end.

    Partitions of a deleted topic are finished. Those of a recreated topic are read up to its current end: it may never
    reach the end of the topic it replaced.
    """
    unfinished = []
    for topic_partition, log in find_logs(state, ends).items():
        committed = state.committed(group, *topic_partition)
        if (0 if committed is None else committed.offset) < min(ends[topic_partition], log.end):
            unfinished.append(topic_partition)
    return unfinished


def run_task(settings: ConsumeSettings, process: Process) -> MemberReport:
    """Run a member in a Spark task, and return its report."""
    context = TaskContext.get()
    return ConsumeTask(settings, process, 0 if context is None else context.partitionId()).run()


REPORT_SCHEMA = "task int, host string, records long, calls long, partitions array<string>"


def report_batch(report: MemberReport, schema: StructType) -> pa.RecordBatch:
    """Return a report as the row that the task returns to Spark."""
    return pa.RecordBatch.from_pylist([asdict(report)], schema=arrow_schema(schema))
