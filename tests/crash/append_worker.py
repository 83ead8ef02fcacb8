"""Append records to partition 0 of a topic for a number of seconds, and print what was acknowledged.

    python append_worker.py ROOT TOPIC NAME SECONDS

Each record's value is ``NAME-number``. One line per acknowledged append: base offset, first number, count.
"""

from __future__ import annotations

import sys
import time

import pyarrow as pa

from sparklog.coordinator import open_cluster
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest


def main(root: str, topic: str, name: str, seconds: float) -> None:
    coordinator = open_cluster(root)
    topic_id = coordinator.state.topic(topic).topic_id
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        count = 1 + number % 7
        values = pa.array([b"%s-%d" % (name.encode(), number + i) for i in range(count)], pa.binary())
        stamps = pa.array([number] * count, pa.timestamp("us", tz="UTC"))
        key = segment_key(
            topic,
            0,
            coordinator.state.partition(topic, 0).log_end_offset,
            coordinator.state.version,
            coordinator.log.ids.write_id(),
        )
        writer = SegmentFileWriter(coordinator.store, key, has_key=False)
        writer.start_run(RunTarget(topic, topic_id, 0))
        writer.write(pa.RecordBatch.from_arrays([values, stamps], names=["value", "timestamp"]))
        result = coordinator.append(AppendRequest(appends=writer.finish()))
        print(result.appended[0].base_offset, number, count, flush=True)
        number += count


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
