"""Write exactly once inside ``foreachBatch``.

    def handle(batch, batch_id):
        write_batch(batch, batch_id, "/data/log", "copies")

    stream.writeStream.foreachBatch(handle).option("checkpointLocation", ...).start()

Each call is one commit, recorded under the query's id, a name, the topic and the number of the batch; a batch that is
run again adds nothing, and a different batch under a used number is an error, unless ``on_batch_mismatch`` says
otherwise (``sink.repeated_batches``). A batch that writes several times gives each write a name, which must not change
from run to run.

Rules: runs in the user's process; builds options and calls Spark's batch writer.
Not for: ``writeStream.format("sparklog")``, which does the same without this function (``stream.writer``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from sparklog.coordinator import shared_cluster
from sparklog.errors import InvalidRequestError
from sparklog.spark.api import write
from sparklog.spark.sink.repeated_batches import FAIL, application_of, numbered_as
from sparklog.spark.stream.writer import QUERY_ID
from sparklog.store.process_local import ProcessTable

RUN_ID = "spark.jobGroup.id"
"""The local property that holds the id of a query's run; each start of the query has its own."""

_written: ProcessTable[str, tuple[str, int]] = ProcessTable()
"""The last run and batch by application id."""


def write_batch(
    batch: DataFrame,
    batch_id: int,
    root: str | os.PathLike[str],
    topic: str | None = None,
    *,
    name: str | None = None,
    query_id: str | None = None,
    partitioner: str | None = None,
    compression: str | None = None,
    on_batch_mismatch: str = FAIL,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Append the rows of a micro-batch to topics, exactly once: one commit, all rows or none.

    ``name`` distinguishes several writes of one batch; the default is their topic. ``query_id`` is by default the id of
    the running query; outside of ``foreachBatch`` and with Spark Connect it is required. ``on_batch_mismatch`` decides
    what happens to a batch whose number was used for a different one: fail, skip it, or append it. The other arguments
    are those of ``sparklog.write``.
    Raises InvalidRequestError for two writes of a batch under one name, and if the query is not known.

        >>> rows = spark.createDataFrame([("k", "v")], "key string, value string")
        >>> for attempt in range(2):
        ...     sparklog.write_batch(rows, 7, root, topic="orders", query_id="nightly")
        >>> sparklog.read(spark, root, subscribe="orders").count()
        1
    """
    query = query_id or _local_property(batch, QUERY_ID)
    if not query:
        raise InvalidRequestError(
            "write_batch cannot determine the streaming query: it was called outside of foreachBatch, or in a session "
            "of Spark Connect, which does not provide it; pass query_id, a name that stays the same from run to run, "
            "or use sparklog.write"
        )
    application = _find_application(query, name, topic, os.fspath(root), storage_options)
    run_and_batch = (_local_property(batch, RUN_ID), batch_id)
    _check_first(application, *run_and_batch)
    write(
        batch,
        root,
        topic,
        partitioner=partitioner,
        compression=compression,
        txn_app_id=application,
        txn_version=batch_id,
        on_batch_mismatch=on_batch_mismatch,
        storage_options=storage_options,
    )
    with _written.held:
        written = _written.entries
        written[application] = run_and_batch


def _local_property(batch: DataFrame, name: str) -> str:
    """Return a local property of this thread; empty in a session of Spark Connect, which has no context."""
    if getattr(batch.sparkSession, "_jvm", None) is None:
        return ""
    return batch.sparkSession.sparkContext.getLocalProperty(name) or ""


def _find_application(
    query: str, name: str | None, topic: str | None, root: str, storage_options: Mapping[str, Any] | None
) -> str:
    """Return the application id of the write: the query and the name, and the topic if that differs from the name."""
    former = application_of(query, name or topic or "rows")
    if not name or not topic or name == topic:
        return former
    state = shared_cluster(root, storage_options).state
    return numbered_as(state, f"{former}:{topic}", former, topic)


def _check_first(application: str, run: str, batch_id: int) -> None:
    """Raise InvalidRequestError if this batch was already written under this name: the second write would look like a
    repetition and be dropped."""
    with _written.held:
        written = _written.entries
        if run and written.get(application) == (run, batch_id):
            raise InvalidRequestError(
                f"micro-batch {batch_id} is written twice as {application}: give each write of a batch its own "
                "name with name=..., or combine them into one"
            )
