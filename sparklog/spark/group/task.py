"""One member of a consumer group that is a Spark task: it reads what it owns, hands it to the user's function, commits.

Each call of the function gets records of one partition, and what it sends is published with the offset after them in
one commit that names the member and its generation. So an output and the progress that it stands for are never apart,
whoever dies when; a member that was taken out of its group meanwhile publishes nothing.

Rules: a thread renews the lease while the function takes its time; nothing but this task's own thread calls the
function. Not for: starting the tasks (``group_job``), who owns what (``coordinator.membership``).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparklog.coordinator import shared_cluster
from sparklog.coordinator.membership import GroupMember
from sparklog.coordinator.newest import newest_segments, records_deleted
from sparklog.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IndeterminateCommitError,
    NoOffsetForPartitionError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownMemberIdError,
    UnlinkedHistoryError,
)
from sparklog.log.records.batches import RowBuilder
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.ranges import read_range
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.records import Records
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.state import State
from sparklog.spark.group.output import TaskSends
from sparklog.spark.source.rows import STORED, arrow_schema, read_columns, read_schema
from sparklog.store.base import Store
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

CHUNK_BYTES = 16 * 1024 * 1024
"""bytes of records after which a call is full, whatever ``max_records`` says."""

FIRST_WAIT_SECONDS = 0.01
LONGEST_WAIT_SECONDS = 1.0
"""Pauses of a member that has nothing to read; each look for news costs two small requests."""

LONGEST_CALL_MS = 86_400_000
"""How long others wait for a partition that is to move while the user's function is at work: its work would be lost."""

COMMIT_TRIES = 10
"""tries of a commit whose outcome the storage does not tell, or that rebalances overtake."""


@dataclass(frozen=True)
class ConsumeSettings:
    """What the tasks are told. ``ends`` are the offsets to read up to, None to go on until stopped.

    ``stop_key`` is an object that appears when they are to stop. Times are milliseconds.
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
    """What one task did: records and calls of the user's function, and the partitions it read."""

    task: int
    host: str
    records: int
    calls: int
    partitions: tuple[str, ...]


class ConsumeContext:
    """Where the records of a call are from, and what is to be published with them."""

    def __init__(self, place: TopicPartition, start: int, end: int, task: int, sends: TaskSends) -> None:
        self.topic = place.topic
        self.partition = place.partition
        self.start_offset = start
        self.end_offset = end
        self.task = task
        self._sends = sends

    def send(self, topic: str, rows: Any) -> None:
        """Append rows to a topic, in the one commit that also says that this call's records are done.

        ``rows`` is a pa.Table, a pa.RecordBatch or a pandas frame with a column ``value`` and, if wanted, ``key``,
        ``headers``, ``partition`` and ``timestamp``, as for ``sparklog.write``. Raises InvalidRecordError,
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
        self._fetcher = Fetcher(self._store_of, self._replicas_of)
        self._schema = arrow_schema(read_schema(settings.include_headers))
        self._columns = read_columns(read_schema(settings.include_headers))
        self._sends = TaskSends(settings.root, settings.storage_options)
        self._positions: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._producer: ProducerIdentity | None = None
        self._history = 0
        self._records = self._calls = 0
        self._read: set[TopicPartition] = set()

    def run(self) -> MemberReport:
        """Take part until everything is read or the job is stopped. Raises whatever the user's function raises."""
        heart = threading.Thread(target=self._beat, name="sparklog-heartbeat", daemon=True)
        ended = False
        try:
            self._member.join(self._settings.topics)
            heart.start()
            while not self._is_done():
                self._take_part()
                if not self._work():
                    self._wait()
            ended = True
        finally:
            self._stopping.set()
            self._leave(quietly=not ended)
            self._fetcher.close()
            if heart.ident is not None:
                heart.join()
        places = tuple(str(place) for place in sorted(self._read))
        return MemberReport(self._task, socket.gethostname(), self._records, self._calls, places)

    def _leave(self, quietly: bool) -> None:
        try:
            self._member.leave("the task has ended")
        except SparklogError as error:  # it is expired after its session timeout instead
            logger.log(logging.DEBUG if quietly else logging.WARNING, "could not leave the group: %s", error)

    # -- liveness

    def _beat(self) -> None:
        """Renew the lease and look whether to stop, every heartbeat interval, in a thread of its own."""
        while not self._stopping.wait(self._settings.heartbeat_interval_ms / 1000):
            try:
                self._member.beat()
                if self._is_stop_wanted():
                    self._stopping.set()
            except Exception as error:  # whatever it is: without heartbeats the task would be expired again and again
                logger.warning("a heartbeat of %s failed: %s", self._member.member_id, error)

    def _is_stop_wanted(self) -> bool:
        if not self._settings.stop_key:
            return False
        try:
            self._coordinator.store.info(self._settings.stop_key)
        except ObjectNotFoundError:
            return False
        return True

    def _is_done(self) -> bool:
        if self._stopping.is_set():
            return True
        ends = self._settings.ends
        return ends is not None and not behind(self._coordinator.state, self._settings.group, ends)

    _pause = FIRST_WAIT_SECONDS

    def _wait(self) -> None:
        """Nothing to read: look again after a pause that grows as long as nothing comes."""
        version = self._coordinator.state.version
        self._stopping.wait(self._pause)
        quiet = self._coordinator.refresh().version == version
        self._pause = min(self._pause * 2, LONGEST_WAIT_SECONDS) if quiet else FIRST_WAIT_SECONDS

    # -- partitions

    def _take_part(self) -> frozenset[TopicPartition]:
        """Follow the group: forget what is given up, start with what is new, join again where it was taken out.

        Returns what is gone, also where it has come back at once: as another topic of that name, say.
        """
        if not self._member.joined:
            self._member.join(self._settings.topics)
        change = self._member.reconcile()
        gone = change.revoked | change.lost
        for place in gone:
            self._positions.pop(place, None)
        if change.to_acknowledge:
            self._member.acknowledge()  # all that was read is committed
        for place in sorted(change.assigned):
            self._positions[place] = self._start(place)
        return gone

    # -- records

    def _work(self) -> bool:
        """One call for the partition that waits longest; False where nothing is to be read."""
        for place in list(self._positions):
            start = self._positions.pop(place)
            self._positions[place] = start  # to the end of the line
            try:
                chunk = self._chunk(place, start)
            except OffsetOutOfRangeError as error:  # retention was faster
                logger.warning("%s", error)
                self._call(place, start, None, self._start(place))
                return True
            if chunk is not None:
                self._call(place, start, *chunk)
                return True
        return False

    def _start(self, place: TopicPartition) -> int:
        return start_of(self._coordinator.state, self._settings.group, place, self._settings.reset)

    def _chunk(self, place: TopicPartition, start: int) -> tuple[pa.RecordBatch | None, int] | None:
        """The next records of a partition and the offset to go on from; none where compaction took them all out."""
        state = self._coordinator.state
        topic = state.topics.get(place.topic)
        if topic is None or topic.topic_id != self._member.topic_ids.get(place.topic):
            return None  # deleted, or another one by now: the group tells with its next change
        end = topic.partitions[place.partition].high_watermark
        if self._settings.ends is not None:
            end = min(end, self._settings.ends.get(place, end))
        if start >= end:
            return None
        builder = RowBuilder(self._schema, self._columns, place.topic, place.partition)
        batches, left, size = [], self._settings.max_records, 0
        for stored in self._stored(place, state, start, end):
            records = stored.slice(0, left) if stored.batch.num_rows > left else stored
            batches.append(builder.build(records))
            left -= records.batch.num_rows
            size += records.batch.nbytes
            if left <= 0 or size >= CHUNK_BYTES:
                end = records.end_offset
                break
        return pa.concat_batches(batches) if batches else None, end

    def _stored(self, place: TopicPartition, state: State, start: int, end: int) -> Iterator[Records]:
        """Raises OffsetOutOfRangeError where records were deleted before they were read."""
        topic, partition = place
        log_start = state.partition(*place).log_start_offset
        if start < log_start:
            raise records_deleted(topic, partition, start, log_start)
        segments = self._coordinator.segments(topic, state).partition(partition).between(start, end)
        newest = newest_segments(self._coordinator, topic, state.topic(topic).topic_id, partition)
        columns = [name for name in STORED if name in self._columns]
        for _, records in read_range(self._fetcher, topic, segments, start, end, columns, newest):
            yield records

    def _store_of(self, broker: int) -> Store:
        return self._coordinator.brokers.store_of(self._coordinator.state, broker)

    def _replicas_of(self, topic: str, partition: int) -> Sequence[int]:
        return replicas_in_sync(self._coordinator.state.partition(topic, partition))

    def _call(self, place: TopicPartition, start: int, records: pa.RecordBatch | None, end: int) -> None:
        """Let the user's function have records, and commit what comes of it; without any just the offset."""
        context = ConsumeContext(place, start, end, self._task, self._sends)
        try:
            if records is not None:
                self._process(records.to_pandas() if self._settings.frames else records, context)
            done = self._commit(place, end)
        except BaseException:
            self._sends.discard()
            raise
        if done:
            if records is not None:
                self._read.add(place)
                self._records += records.num_rows
                self._calls += 1
            if place in self._positions:
                self._positions[place] = end
            self._pause = FIRST_WAIT_SECONDS

    # -- commits

    def _commit(self, place: TopicPartition, end: int) -> bool:
        """Publish what the call has sent together with its offset; False where the partition is another's by now."""
        if not self._sends:
            try:
                self._member.commit({place: end})
            except CommitFailedError as error:
                logger.warning("%s", error)
                return False
            return True
        if self._publish(place, end):
            self._sends.clear()
            return True
        self._sends.discard()
        logger.warning("%s was given to another member, which reads on from what was committed", place)
        return False

    def _publish(self, place: TopicPartition, end: int) -> bool:
        """Commit what was sent with the offset; False where it certainly is not and will not be committed."""
        appends, new_topics = self._sends.write()
        unsure: IndeterminateCommitError | None = None
        for _ in range(COMMIT_TRIES):
            commit = GroupCommit(
                group=self._settings.group,
                offsets={place: end},
                member=self._member.member_id,
                generation=self._member.generation,
                topic_ids=self._member.topic_ids,
            )
            producer = self._identity()
            request = AppendRequest(
                appends=appends,
                new_topics=new_topics,
                groups=[commit],
                transaction=producer,
                history=self._history,
            )
            try:
                self._producer = self._coordinator.append(request).producer
            except IndeterminateCommitError as error:
                unsure = error  # the same request again tells
            except UnlinkedHistoryError as error:  # nothing was decided: the producer id may be another's by now
                self._producer = None
                if unsure is not None:
                    self._sends.clear()
                    raise unsure from error
            except (IllegalGenerationError, UnknownMemberIdError, CommitFailedError):
                unsure = None
                if place in self._take_part() or place not in self._member.owned:
                    return False
            except SparklogError:
                if unsure is not None:
                    self._sends.clear()  # a commit may name these files
                raise
            except BaseException:  # the task is interrupted, perhaps after the commit
                self._sends.clear()
                raise
            else:
                return True
        if unsure is not None:
            self._sends.clear()
            raise unsure
        return False

    def _identity(self) -> ProducerIdentity:
        """Who publishes, and in which history of the cluster that is."""
        if self._producer is None:
            self._history = self._coordinator.log.unlinked_jumps  # before: what comes meanwhile makes it get another
            self._producer = self._coordinator.init_producer(f"{self._settings.group}/{self._member.member_id}")
        return self._producer


# -- positions


def committed_offset(state: State, group: str, place: TopicPartition) -> int | None:
    """What the group has committed for a partition of the topic as it is now."""
    known, topic = state.groups.get(group), state.topics.get(place.topic)
    if known is None or topic is None:
        return None
    found = known.offsets.get(f"{topic.topic_id}:{place.partition}")
    return None if found is None else found.offset


def start_of(state: State, group: str, place: TopicPartition, reset: str) -> int:
    """Where a member starts: what is committed, or by ``reset`` where that is nothing or not there any more.

    Raises NoOffsetForPartitionError where ``reset`` is ``none``.
    """
    partition = state.partition(*place)
    committed = committed_offset(state, group, place)
    if committed is not None and partition.log_start_offset <= committed <= partition.high_watermark:
        return committed
    if reset == "none":
        raise NoOffsetForPartitionError(
            f"group {group!r} has no offset for {place} that is there ({committed}; there are "
            f"{partition.log_start_offset} to {partition.high_watermark}), and auto_offset_reset is none: commit one "
            "with `sparklog consumer-groups --reset-offsets`, or choose earliest or latest",
            topic=place.topic,
            partition=place.partition,
            group=group,
        )
    return partition.log_start_offset if reset == "earliest" else partition.high_watermark


def behind(state: State, group: str, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions whose records before the end are not all done.

    Those of a deleted topic are, and of one that was made again since only as many as it has come to: it may never get
    to an end that was another one's.
    """
    found = []
    for place, end in ends.items():
        topic = state.topics.get(place.topic)
        if topic is not None and place.partition < len(topic.partitions):
            reachable = min(end, topic.partitions[place.partition].high_watermark)
            if (committed_offset(state, group, place) or 0) < reachable:
                found.append(place)
    return found


def run_task(settings: ConsumeSettings, process: Process) -> MemberReport:
    """What a Spark task runs."""
    context = TaskContext.get()
    return ConsumeTask(settings, process, 0 if context is None else context.partitionId()).run()


REPORT_SCHEMA = "task int, host string, records long, calls long, partitions array<string>"


def report_batch(report: MemberReport, schema: StructType) -> pa.RecordBatch:
    """A report as the row that the task gives to Spark."""
    values = [[report.task], [report.host], [report.records], [report.calls], [list(report.partitions)]]
    target = arrow_schema(schema)
    arrays = [pa.array(value, kind.type) for value, kind in zip(values, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)
