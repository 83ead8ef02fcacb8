"""Implement the batch writer that Spark runs: one Spark job is one commit.

Tasks write files that are not visible yet; Spark passes the messages of the successful attempts (not those of failed,
retried or speculative ones) to ``commit`` in a process beside the driver, which publishes all files of all topics in
one commit. With ``txnAppId`` and ``txnVersion`` a job that is run again writes nothing; with ``onBatchMismatch`` its
rows are compared with those of the first run (``repeated_batches``). Batch and streaming writers share ``RowWriter``.

Rules: ``abort`` deletes only files that were certainly not committed. Spark also calls it after a failed ``commit``,
whose outcome may be unknown, and then all tasks have a message; before a commit some task has none.
Not for: streaming queries (``stream.writer``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructField, StructType

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.errors import InvalidOptionError, InvalidPartitionsError, InvalidRecordError, InvalidRequestError
from sparklog.ids import Ids, RandomIds
from sparklog.log.records.batches import gather
from sparklog.log.records.replicated_file import discard
from sparklog.protocol.decide.append import AppendRequest, AppendResult, Begun, PartitionAppend
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.decide.topics import NewTopic
from sparklog.protocol.features import check_written
from sparklog.protocol.state import State
from sparklog.spark.broker_stores import broker_stores
from sparklog.spark.options import SinkOptions
from sparklog.spark.picklable import Picklable
from sparklog.spark.sink.conversion import Converter
from sparklog.spark.sink.output import TaskOutput
from sparklog.spark.sink.repeated_batches import (
    APPEND,
    FAIL,
    REMEDIES,
    SKIP,
    BatchSources,
    describe_mismatch,
    find_difference,
)
from sparklog.spark.sink.routing import Router, check_has_key, partitioner
from sparklog.spark.sink.topic_targets import TopicTarget, target_of
from sparklog.spark.sink.typed_rows import TypedRows, find_typed_rows
from sparklog.spark.source.rows import NO_TOPIC, check_write_schema

logger = logging.getLogger(__name__)

GATHERED_BATCHES = 8
"""batches of ``TARGET_BATCH_BYTES`` that are sorted by partition together; more would only take more memory."""


Assignment = Sequence[Sequence[int]]
"""The replicas of each partition of a topic."""


class SparklogCommitMessage(Picklable, WriterCommitMessage):
    """The output of one task: the runs to commit, in order, and the replicas of topics to be created with them.

    ``spread`` are the topics whose records another run of the task may place in other partitions. ``begun`` is the
    commit that the version in the names of the files means.
    """

    def __init__(
        self,
        appends: Sequence[PartitionAppend],
        new_topics: Mapping[str, Assignment],
        begun: Begun,
        spread: Iterable[str] = (),
    ) -> None:
        self.appends = list(appends)
        self.new_topics = dict(new_topics)
        self.begun = begun
        self.spread = frozenset(spread)


class RowWriter(Picklable):
    """Writes rows of one schema to topics. Created beside the driver, used in tasks and for the commit.

    The constructor opens the cluster and checks all that can be checked without rows. Raises InvalidRecordError for a
    schema that cannot be converted to records, InvalidOptionError, InvalidTopicError, UnknownTopicOrPartitionError,
    NotEnoughReplicasError, NotLeaderOrFollowerError, ClusterNotFoundError.

    ``names`` are the names in the log of a table's columns, empty for those that are not in the log.
    """

    left_out = ("_opened",)

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        clock: Clock | None = None,
        ids: Ids | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        options = self.check_options(options)
        self.must_be_null = {index: schema.fieldNames()[index] for index, name in enumerate(names or ()) if not name}
        schema = schema if names is None else _renamed(schema, names)
        partitioner(options.partitioner)
        coordinator = shared_cluster(*options.address)
        state = coordinator.state
        check_written(state.level)  # before any file is written
        self.typed = self._find_typed_rows(options.topic, schema, state) if names is None else None
        schema = schema if self.typed is None else self.typed.row_schema
        advice = _instead_of_value(options.topic, state)
        check_write_schema(schema, bool(options.topic), options.include_timestamp, advice)
        # A relative path is relative to this process's folder; tasks run in others.
        self.options = replace(options, address=options.address._replace(root=coordinator.store.root))
        self.columns = schema.fieldNames()
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.stores = broker_stores(coordinator, state)
        self.target = self._target_of(state, options.topic) if options.topic else None
        if self.target is not None and self.target.needs_key:
            check_has_key(self.target.topic, self.columns)
        self.is_repeated = self._was_written(state)
        self._opened: Coordinator | None = coordinator

    def check_options(self, options: SinkOptions) -> SinkOptions:
        """Return the options of this kind of write. Raises InvalidOptionError for those of another kind."""
        return options

    @staticmethod
    def _find_typed_rows(topic: str, schema: StructType, state: State) -> TypedRows | None:
        """Return how rows of the columns of a topic's schema get a value; None if they need none."""
        if topic not in state.topics:
            return None
        return find_typed_rows(schema, topic, TopicConfig.resolve(state.topics[topic].configs, state.configs))

    # -- in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SparklogCommitMessage:
        """Write a task's rows to files. Raises InvalidRecordError and its subclasses, StorageError; its files are then
        deleted."""
        if self.is_repeated:
            for _ in iterator:  # Spark expects that all rows are consumed
                pass
            return SparklogCommitMessage([], {}, self.stores.begun)
        converter = Converter(self.columns, bool(self.options.topic), self.options.include_timestamp)
        choose = partitioner(self.options.partitioner, self.options.ignore_keys)
        router = Router(self._lookup, self.options.topic, choose, _task())
        output = TaskOutput(self.stores, self.ids, converter.has_key, converter.has_headers)
        try:
            selected = (converter.select(batch) for given in iterator for batch in self._with_values(given))
            for batch in gather(selected, self._gather_bytes(converter)):
                now_ms = self.clock.now_ms()
                for routed in router.route(converter.convert(batch, now_ms), now_ms):
                    output.add(routed)
            appends = output.finish()
        except BaseException:
            output.abort()
            raise
        new_topics = {name: target.assignment for name, target in router.targets.items() if not target.topic_id}
        return SparklogCommitMessage(appends, new_topics, self.stores.begun, router.spread)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch. Raises InvalidRecordError for a value in a column that the log does not have: it would be
        lost."""
        for index, name in self.must_be_null.items():
            if batch.column(index).null_count < batch.num_rows:
                raise InvalidRecordError(
                    f"column {name} was added to the table and is not in the log, which cannot store its values; leave "
                    "it out of the INSERT, or make it part of the value"
                )
        return batch

    def _with_values(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch with their values. Raises InvalidRecordError."""
        batch = self._checked(batch)
        if self.typed is None:
            yield batch
        else:
            yield from self.typed.convert(batch)

    def _gather_bytes(self, converter: Converter) -> int:
        """Return the bytes of rows to sort by partition together, so that batches get the right size; 0 if rows are not
        sorted."""
        is_sorted = converter.has_targets or (converter.has_key and not self.options.ignore_keys)
        if not is_sorted or (self.target is not None and self.target.partitions == 1):
            return 0
        partitions = self.target.partitions if self.target is not None else GATHERED_BATCHES
        return min(partitions, GATHERED_BATCHES) * limits.TARGET_BATCH_BYTES

    def _lookup(self, topic: str) -> TopicTarget:
        """Return the target of option ``topic``, or of a topic that a row names, looked up in the cluster by this
        task."""
        target = self.target or self._target_of(self._coordinator().state, topic)
        return target.after_failures(_failures())

    def _target_of(self, state: State, topic: str) -> TopicTarget:
        return target_of(state, topic, self.options.codec, self.options.codec_level, self.options.acks)

    # -- beside the driver

    def publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        application: str,
        version: int,
        groups: Sequence[GroupCommit] = (),
        sources: BatchSources = BatchSources(),  # noqa: B008 - immutable
    ) -> None:
        """Commit the output of all tasks, once for each version of the application, with offsets of groups.

        ``sources`` is what is known of the input of the rows.

        Errors as ``Coordinator.append``.
        """
        written = [message for message in messages if isinstance(message, SparklogCommitMessage)]
        appends = [append for message in written for append in message.appends]
        coordinator = self._committer()
        new_topics: dict[str, Assignment] = {}
        for message in written:
            for name, assignment in message.new_topics.items():
                count, others = len(assignment), len(new_topics.setdefault(name, assignment))
                if count != others:
                    raise InvalidPartitionsError(
                        f"num.partitions changed while this job wrote to topic {name!r}, which does not exist yet: "
                        f"some tasks placed keys for {others} partitions, others for {count}; run the job again",
                        topic=name,
                    )
        request = AppendRequest(
            appends=appends,
            application=application,
            application_version=version,
            is_repetition=self.is_repeated,
            source_digest=sources.recorded,
            new_topics=[new_topic(coordinator, *new) for new in sorted(new_topics.items())],
            acks=self.options.acks,
            groups=groups,
            begun=sorted({message.begun for message in written if message.appends}),
        )
        result = coordinator.append(request)
        if result.duplicate and self.options.on_mismatch:
            spread = frozenset(topic for message in written for topic in message.spread)
            result = self._resolve_duplicate(coordinator, request, result, sources, spread)
        self._report(result, len(appends), application, version)

    def _resolve_duplicate(
        self,
        coordinator: Coordinator,
        request: AppendRequest,
        result: AppendResult,
        sources: BatchSources,
        spread: frozenset[str],
    ) -> AppendResult:
        """Handle a write whose number was used: return ``result`` if it is a repetition, else apply
        ``onBatchMismatch``.

        Raises InvalidRequestError for a different write, or if another instance has appended under this number again.
        """
        application, version = request.application, request.application_version
        while result.duplicate:
            recorded = coordinator.state.applications.get(application)
            if recorded is not None:
                why = find_difference(recorded, request, sources, spread, coordinator.state)
                if not why:
                    return result
                policy, problem = self.options.on_mismatch, describe_mismatch(application, version, why)
                if policy == FAIL or (policy == APPEND and request.application_replaces >= 0):
                    raise InvalidRequestError(f"{problem}. {REMEDIES}")
                logger.warning("%s; onBatchMismatch is %s", problem, policy)
                if policy == SKIP:
                    return result
                request = msgspec.structs.replace(request, application_replaces=recorded.commit_version)
            result = coordinator.append(request)
        return result

    def discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks, unless a commit may name them."""
        written = [message for message in messages if isinstance(message, SparklogCommitMessage)]
        if len(written) == len(messages):
            return
        discard((append.run for message in written for append in message.appends), self.stores.__getitem__)

    def _committer(self) -> Coordinator:
        """Return the cluster to commit to. Spark creates a stream's writer just before each commit: the cluster that it
        has opened needs no refresh, since a commit reads all newer ones itself."""
        return self._opened or self._coordinator()

    def _coordinator(self) -> Coordinator:
        return shared_cluster(*self.options.address)

    def _was_written(self, state: State) -> bool:
        if self.options.on_mismatch:  # decided after the rows are written and compared
            return False
        recorded = state.applications.get(self.options.application)
        return recorded is not None and self.options.application_version <= recorded.version

    def _report(self, result: AppendResult, runs: int, application: str, version: int) -> None:
        records = sum(appended.records for appended in result.appended)
        if result.duplicate:
            logger.warning(
                "version %s of application %s was written before (%s records); this job wrote nothing",
                version,
                application,
                records,
            )
        else:
            logger.info("committed %s records in %s runs to %s", records, runs, self.options.address.root)


class SparklogWriter(RowWriter, DataSourceArrowWriter):
    """The writer of a batch query."""

    def check_options(self, options: SinkOptions) -> SinkOptions:
        if options.on_mismatch and not options.application:
            raise InvalidOptionError(
                "option onBatchMismatch applies to numbered writes; set txnAppId and txnVersion too, or leave it out",
                option="onBatchMismatch",
            )
        return options

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the output of all tasks in one commit. Errors as ``Coordinator.append``."""
        if not self.options.application and not any(getattr(message, "appends", ()) for message in messages):
            logger.info("the job had no rows: nothing was committed")
            return
        self.publish(messages, self.options.application, self.options.application_version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks, unless a commit may name them."""
        self.discard(messages)


def _renamed(schema: StructType, names: Sequence[str]) -> StructType:
    """Return the schema with the names of the log; columns that are not in the log keep theirs, marked."""
    pairs = zip(schema.fields, names, strict=True)
    return StructType([StructField(name or f"{column.name} of the table", column.dataType) for column, name in pairs])


def _instead_of_value(topic: str, state: State) -> str:
    """Return what to do so that rows without a column value can be written to a topic."""
    if topic and topic not in state.topics:
        return f"create topic {topic!r}, which does not exist, with value.format=json and these columns as value.schema"
    return f"let topic {topic!r} have value.format=json and these columns in its value.schema" if topic else NO_TOPIC


def new_topic(coordinator: Coordinator, name: str, assignment: Assignment) -> NewTopic:
    """Return a topic to create in the commit of the records written to this assignment."""
    return NewTopic(
        name=name,
        topic_id=coordinator.log.ids.topic_id(),
        partitions=len(assignment),
        replication_factor=len(assignment[0]),
        assignment=assignment,
    )


def _failures() -> int:
    """Return how often the running task has failed before; 0 outside Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _task() -> int:
    """Return the number of the running task in its job; 0 outside Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
