"""A process that suspends itself (SIGSTOP) at a chosen step, so that a vacuum can run in between.

    python vacuum_worker.py produce ROOT       sends ten records, suspended before its first commit
    python vacuum_worker.py append ROOT        writes a file, is suspended, and commits it; prints the outcome
    python vacuum_worker.py unfinished ROOT    is suspended within a file, finishes and commits it; prints the outcome
    python vacuum_worker.py consume ROOT       reads one record, is suspended, and reads the rest
    python vacuum_worker.py scan ROOT          the same with the segment list from before it was suspended

Prints a line for each record that was acknowledged or read: offset and value.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import SparklogError
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.types import TopicPartition


def stop() -> None:
    """Suspend this process until it gets SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def produce(root: str) -> None:
    coordinator = open_cluster(root)
    stopped: list[bool] = []
    commit = coordinator.append

    def stop_before_the_first(request: AppendRequest, *arguments: Any, **more: Any) -> AppendResult:
        if not stopped:
            stopped.append(True)
            stop()
        return commit(request, *arguments, **more)

    coordinator.append = stop_before_the_first  # type: ignore[method-assign]
    with Producer(cluster=coordinator) as producer:
        futures = [(producer.send("t", b"late-%d" % number), number) for number in range(10)]
        producer.flush()
        for future, number in futures:
            print(future.get(0).offset, f"late-{number}", flush=True)


def _writer(coordinator: Coordinator) -> SegmentFileWriter:
    key = segment_key("t", 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    writer.start_run(RunTarget("t", coordinator.state.topic("t").topic_id, 0))
    columns = [pa.array([b"late"], pa.binary()), pa.array([0], pa.timestamp("us", tz="UTC"))]
    writer.write(pa.RecordBatch.from_arrays(columns, names=["value", "timestamp"]))
    return writer


def append(root: str, unfinished: bool = False) -> None:
    coordinator = open_cluster(root)
    writer = _writer(coordinator)
    try:
        if unfinished:
            stop()
            appends = writer.finish()
        else:
            appends = writer.finish()
            stop()
        result = coordinator.append(AppendRequest(appends=appends))
    except SparklogError as error:
        print("refused", type(error).__name__, flush=True)
    else:
        print(result.appended[0].base_offset, "late", flush=True)


def consume(root: str) -> None:
    with Consumer(bootstrap_servers=root, auto_offset_reset="earliest", max_poll_records=1) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        end = consumer.end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)]
        while consumer.position(TopicPartition("t", 0)) < end:
            for records in consumer.poll(1000).values():
                for record in records:
                    print(record.offset, (record.value or b"").decode(), flush=True)
                    if record.offset == 0:
                        stop()


def scan(root: str) -> None:
    """Read as a task of a batch job does: with the segment list from before the suspension."""
    with LogReader(open_cluster(root)) as reader:
        end = reader.state.partition("t", 0).log_end_offset
        for record in reader.records("t", 0, 0, end):
            print(record.offset, (record.value or b"").decode(), flush=True)
            if record.offset == 0:
                stop()


if __name__ == "__main__":
    modes = {
        "produce": produce,
        "append": append,
        "unfinished": lambda root: append(root, unfinished=True),
        "consume": consume,
        "scan": scan,
    }
    modes[sys.argv[1]](sys.argv[2])
