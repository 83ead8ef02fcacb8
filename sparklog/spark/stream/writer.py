"""Implement the streaming writer that Spark runs: one micro-batch is one commit, exactly once.

The commit is recorded under the id of the query, which its checkpoint keeps for good, the topic of option ``topic``,
and the number of the batch. A batch that is run again after a crash, or by a second instance of the query, gets the
result of the first commit, and its files are orphans. A different batch under a used number is an error, unless option
``onBatchMismatch`` says otherwise (``sink.repeated_batches``).

The planner does not get the query id from Spark. Tasks do, and send it with their output.

With ``kafka.group.id`` and ``checkpointLocation`` the same commit carries the offsets that the batch has read, if its
source is a topic of the same cluster: output and consumer offsets are atomic.

Rules: as in ``sink.writer``. A batch without rows commits nothing, unless it has offsets to commit.
Not for: ``foreachBatch`` (``foreach_batch``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sparklog.errors import InvalidOptionError, InvalidRequestError
from sparklog.protocol.decide.groups import GroupCommit, topic_ids
from sparklog.protocol.names import validate_group_id
from sparklog.spark.options import SinkOptions
from sparklog.spark.sink.repeated_batches import FAIL, query_numbered_as
from sparklog.spark.sink.writer import RowWriter, SparklogCommitMessage
from sparklog.spark.stream.checkpoint import batch_offsets, batch_sources
from sparklog.spark.versions.api import StreamArrowWriter

logger = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark passes the id of their query to tasks."""


class SparklogStreamCommitMessage(SparklogCommitMessage):
    """The output of one task of a micro-batch, and the id of its query."""

    def __init__(self, written: SparklogCommitMessage, query_id: str) -> None:
        super().__init__(written.appends, written.new_topics, written.begun, written.spread)
        self.query_id = query_id


class SparklogStreamWriter(RowWriter, StreamArrowWriter):
    """Writes the micro-batches of a query. Errors as ``RowWriter``."""

    def check_options(self, options: SinkOptions) -> SinkOptions:
        if options.application:
            raise InvalidOptionError(
                "options txnAppId and txnVersion number the writes of batch jobs; a streaming query numbers its "
                "micro-batches itself: leave them out",
                option="txnAppId",
            )
        if options.group:
            validate_group_id(options.group)
            if not options.checkpoint:
                raise InvalidOptionError(
                    f"kafka.group.id={options.group} of a sink commits a batch's offsets with its output, and reads "
                    "them from the query's checkpoint: set option checkpointLocation on this query, or leave "
                    "kafka.group.id out",
                    option="checkpointLocation",
                )
        return replace(options, on_mismatch=options.on_mismatch or FAIL)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SparklogStreamCommitMessage:
        """Write a task's rows to files. Errors as ``RowWriter.write``."""
        return SparklogStreamCommitMessage(super().write(iterator), _query_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the output of all tasks in one commit, unless this batch of the query was published before.

        Errors as ``Coordinator.append``; InvalidRequestError for a different batch under a used number,
        RootReplacedError for offsets of another timeline than the log's.
        """
        written = [message for message in messages if isinstance(message, SparklogStreamCommitMessage)]
        groups = self._consumed(batchId)
        if not groups and not any(message.appends for message in written):
            logger.info("micro-batch %s has no rows: nothing was committed", batchId)
            return
        queries = {message.query_id for message in written}
        if len(queries) != 1 or not all(queries):
            raise InvalidRequestError(
                f"the tasks of micro-batch {batchId} sent query ids {sorted(queries) or 'none'}, expected exactly one: "
                f"Spark has not set the local property {QUERY_ID} in its tasks"
            )
        options = self.options
        application = query_numbered_as(self._committer().state, queries.pop(), options.topic)
        sources = batch_sources(options.checkpoint, options.address.storage_options, batchId, options.address.root)
        self.publish(written, application, batchId, groups, sources)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of the tasks, unless a commit may name them."""
        self.discard(messages)

    def _consumed(self, batch_id: int) -> list[GroupCommit]:
        """Return the offsets at which the batch ended in its sources, for the group of the options, if any."""
        options = self.options
        if not options.group:
            return []
        log = self._committer().log
        state, timeline = log.state_in_timeline()  # before the offsets are checked
        offsets = batch_offsets(options.checkpoint, options.address.storage_options, batch_id, log, state)
        if not offsets:
            return []
        ids = topic_ids(state, offsets)
        return [GroupCommit(group=options.group, offsets=offsets, topic_ids=ids, timeline=timeline)]


def _query_id() -> str:
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or "") if context is not None else ""
