"""Collect the rows that a call of a group's function sends, and write them to files for the commit.

Rules: nothing is visible before the commit; the files of a failed call are deleted.
Not for: the commit itself (``group.task``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from sparklog.coordinator import shared_cluster
from sparklog.errors import InvalidRecordError
from sparklog.log.records.replicated_file import discard
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.protocol.decide.topics import NewTopic
from sparklog.protocol.names import validate_written_topic
from sparklog.spark.options import Address, SinkOptions
from sparklog.spark.sink.writer import Assignment, RowWriter, new_topic


class TaskSends:
    """Rows to be written, by topic. Not thread-safe. True while there are any."""

    def __init__(self, root: str, storage_options: Mapping[str, Any]) -> None:
        self._address = Address(root, storage_options)
        self._rows: dict[str, list[pa.Table]] = {}
        self._writers: list[RowWriter] = []
        self._appends: list[PartitionAppend] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, topic: str, rows: Any) -> None:
        """Keep rows for a topic. Raises InvalidTopicError, InvalidRecordError."""
        table = _to_table(rows, validate_written_topic(topic))
        if table.num_rows:
            self._rows.setdefault(topic, []).append(table)

    def write(self) -> tuple[list[PartitionAppend], list[NewTopic]]:
        """Write the rows to files, and return the appends and new topics to commit. Errors as ``RowWriter``."""
        new_topics: dict[str, Assignment] = {}
        for topic, tables in self._rows.items():
            table = pa.concat_tables(tables, promote_options="default")
            writer = RowWriter(SinkOptions(self._address, topic=topic), from_arrow_schema(table.schema))
            self._writers.append(writer)
            written = writer.write(iter(table.combine_chunks().to_batches()))
            self._appends += written.appends
            new_topics.update(written.new_topics)
        coordinator = shared_cluster(*self._address)
        return list(self._appends), [new_topic(coordinator, *new) for new in new_topics.items()]

    def clear(self) -> None:
        """Forget the rows and files after they were committed, or may have been."""
        self._rows, self._writers, self._appends = {}, [], []

    def discard(self) -> None:
        """Delete the files. Only if no commit names them, or ever will."""
        runs = [append.run for append in self._appends]
        stores = {broker: store for writer in self._writers for broker, store in writer.stores.items()}
        self.clear()
        discard(runs, stores.__getitem__)


def _to_table(rows: Any, topic: str) -> pa.Table:
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):  # a pandas DataFrame, detected without importing pandas
        return pa.Table.from_pandas(rows, preserve_index=False)
    raise InvalidRecordError(
        f"rows sent to topic {topic!r} are of type {type(rows).__name__}; send a pa.Table, a pa.RecordBatch or a "
        "pandas DataFrame with a column value",
        topic=topic,
    )
