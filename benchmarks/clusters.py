"""Clusters to measure on, made without Spark: ten million records in a thousand segments, and a million live segments.

The segments of the second have no files: a commit only names files, and neither committing nor opening a cluster reads
one. Everything else is the ordinary path: typed commits one after another, and checkpoints every hundred of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.limits import CHECKPOINT_INTERVAL_COMMITS
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.commits import Append, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend

START_US = 1_700_000_000_000_000
STEP_US = 1_000
"""Records of ``record_batch`` are a millisecond apart."""

KEY_BYTES, VALUE_BYTES = 8, 92
"""With 8 bytes of timestamp, 108 bytes of data a record."""


def record_batch(rows: int, first: int = 0) -> pa.RecordBatch:
    """Return ``rows`` records of 108 bytes, numbered from ``first``: the number as the key, random bytes as the
    value."""
    numbers = range(first, first + rows)
    keys = pa.array([number.to_bytes(KEY_BYTES, "big") for number in numbers], pa.binary())
    offsets = pa.array(range(0, (rows + 1) * VALUE_BYTES, VALUE_BYTES), pa.int32()).buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(os.urandom(rows * VALUE_BYTES))])
    return pa.RecordBatch.from_pydict({"key": keys, "value": values, "timestamp": timestamps(rows, first)})


def timestamps(rows: int, first: int) -> pa.Array:
    micros = range(START_US + first * STEP_US, START_US + (first + rows) * STEP_US, STEP_US)
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def segment_cluster(folder: Path, segments: int, rows: int, commits: int = 10) -> Coordinator:
    """A cluster with topic ``lookup`` of one partition in ``segments`` segments of ``rows`` records, in ten commits.

    A checkpoint holds all but the last commit's.
    """
    coordinator = create_cluster(str(folder))
    topic_id = coordinator.create_topic("lookup")
    batch = record_batch(rows)
    appends = []
    for number in range(segments):
        first = number * rows
        batch = batch.set_column(2, "timestamp", timestamps(rows, first))
        key = segment_key("lookup", 0, first, coordinator.state.version, coordinator.log.ids.write_id())
        writer = SegmentFileWriter(coordinator.store, key)
        writer.start_run(RunTarget("lookup", topic_id, 0))
        writer.write(batch)
        appends += writer.finish()
        if len(appends) == max(segments // commits, 1):
            if number == segments - 1:
                coordinator.log.write_checkpoint()
            coordinator.append(AppendRequest(appends=appends))
            appends = []
    return coordinator


def named_run(topic: str, partition: int, base_offset: int, records: int = 1000) -> Run:
    """Return a run as a commit names it, of a file that does not exist."""
    key = segment_key(topic, partition, base_offset, 0, "bm0AAAAAAAAAAAAAAAAAAA")
    stamp = START_US + base_offset * STEP_US
    return Run(
        path=key,
        batches=1,
        records=records,
        size_bytes=records * 124,
        min_timestamp_us=stamp,
        max_timestamp_us=stamp + records * STEP_US,
    )


def wide_cluster(folder: Path, segments: int, topics: int = 10, partitions: int = 100, per_commit: int = 4000) -> None:
    """A cluster with that many live segments, spread evenly, and then a tail of small commits."""
    log = create_cluster(str(folder)).log
    coordinator = Coordinator(log)
    places = [(f"topic-{number}", coordinator.create_topic(f"topic-{number}", partitions)) for number in range(topics)]
    ends = {(topic, partition): 0 for topic, _ in places for partition in range(partitions)}
    written = 0
    while written < segments:
        actions = []
        for number in range(written, min(written + per_commit, segments)):
            topic, topic_id = places[number % topics]
            partition = number // topics % partitions
            end = ends[topic, partition]
            run = named_run(topic, partition, end)
            ends[topic, partition] = end + run.records
            actions.append(Append(topic=topic, topic_id=topic_id, partition=partition, base_offset=end, run=run))
        assert log.attempt(actions) is CommitOutcome.WON
        written += len(actions)
    append_tail(coordinator, "topic-0", 4)


def append_tail(coordinator: Coordinator, topic: str, partitions: int) -> None:
    """Add small commits up to a checkpoint, then up to the last one before the next: the longest tail in the ordinary
    case."""
    for last in (0, CHECKPOINT_INTERVAL_COMMITS - 1):
        while coordinator.state.version % CHECKPOINT_INTERVAL_COMMITS != last:
            append_small(coordinator, topic, partitions)


def append_small(coordinator: Coordinator, topic: str, partitions: int = 1) -> None:
    """Make one commit that appends one run to each of that many partitions."""
    state = coordinator.state.topic(topic)
    coordinator.append(
        AppendRequest(
            appends=[
                PartitionAppend(
                    topic=topic,
                    topic_id=state.topic_id,
                    partition=partition,
                    run=named_run(topic, partition, state.partitions[partition].log_end_offset),
                )
                for partition in range(partitions)
            ]
        )
    )
