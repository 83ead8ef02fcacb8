"""What the Delta table of a topic lists: the files of its history at a version of the log, where the log has them.

Rules: pure but for the lists of segments, which the caller reads. Not for: how a table is made equal to it
(``publication``), and which files a query of Spark's reads (``spark.history.files``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow.compute as pc

from sparklog.config.topic_configs import DELTA, TopicConfig
from sparklog.delta.actions import TableSnapshot
from sparklog.delta.publication import Offsets, TopicTable, listed_offsets, may_list, path_in_table
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.segments import TopicSegments
from sparklog.protocol.file_names import HISTORY_EXTENSION, is_history, topic_in
from sparklog.protocol.history import history_of
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State


def has_table(state: State, topic: str, list_segments: Callable[[str], TopicSegments]) -> bool:
    """Return whether a topic has a table to publish: by its ``history.format``, or since it has history from before.
    Only for the latter its segments are listed."""
    found = state.topic(topic)
    if TopicConfig.resolve(found.configs, state.configs).history_format == DELTA:
        return True
    used = [number for number, partition in enumerate(found.partitions) if partition.segments]
    listed = list_segments(topic) if used else None
    tables = (table for number in used if listed for table in listed.partition(number).tables())
    return any(pc.any(pc.ends_with(table.column("path"), HISTORY_EXTENSION)).as_py() for table in tables)


def tables_of(paths: Iterable[str]) -> list[str]:
    """Return the topics in whose tables these files may be."""
    return sorted({topic_in(path) for path in paths if is_history(path)})


def find_table(state: State, topic: str, listed: TopicSegments | None, snapshot: TableSnapshot) -> TopicTable:
    """Return what a topic's table, which is ``snapshot`` now, has to show; that of a topic without a list, which does
    not exist, is empty."""
    if listed is None:
        return TopicTable(state.cluster_id, topic, "", state.version, state.timestamp_ms, {})
    found = state.topic(topic)
    files, inexact = find_files(state, topic, listed, listed_offsets(snapshot, found.topic_id))
    schema = TopicConfig.resolve(found.configs, state.configs).typed_schema
    return TopicTable(
        state.cluster_id, topic, found.topic_id, state.version, state.timestamp_ms, files, schema, tuple(inexact)
    )


def find_files(
    state: State, topic: str, listed: TopicSegments, shown: Mapping[int, Offsets]
) -> tuple[dict[str, Segment], list[int]]:
    """Return the files that a topic's table has to list, by path in the table, and the partitions of which one has
    records below the log start offset. ``shown``: the offsets that the table has of each partition now."""
    files: dict[str, Segment] = {}
    inexact: list[int] = []
    for number, partition in enumerate(state.topic(topic).partitions):
        start = partition.log_start_offset
        for segment in history_of(listed.partition(number), start):
            if segment.begins_before(start):
                inexact.append(number)
            if may_list(segment, start, shown.get(number)):
                files[path_in_table(topic, segment.path, _location(state, partition, segment))] = segment
    return files, inexact


def _location(state: State, partition: PartitionState, segment: Segment) -> str:
    """Return the address of a location that has the file; the root if that has it."""
    brokers = replicas_in_sync(partition) or (segment.broker,)
    urls = [state.brokers[broker].url for broker in brokers if broker in state.brokers]
    return "" if "" in urls or not urls else urls[0]
