"""Neither checkpoints nor records import pandas, which takes 44 MB and up to seconds on a busy machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from sparklog.log.checkpoints import lists
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.store.memory import MemoryStore
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend

lists.TAIL_SEGMENTS = {tail}
store = MemoryStore("m")
c = create_cluster(store)
topic_id = c.create_topic("t")
run = Run(path="t-0/x.log", batches=1, records=3, size_bytes=9, min_timestamp_us=1, max_timestamp_us=2)
for _ in range(3):
    c.append(AppendRequest(appends=[PartitionAppend(topic="t", topic_id=topic_id, partition=0, run=run)]))
    c.log.write_checkpoint()
assert len(list(open_cluster(store).segments("t").partition(0))) == 3
sys.exit(1 if "pandas" in sys.modules else 0)
"""


def test_writing_and_reading_checkpoints_imports_no_pandas() -> None:
    for tail in (0, 32):
        assert subprocess.run([sys.executable, "-c", PROGRAM.format(tail=tail)], check=False).returncode == 0


RECORDS = """
import os
import sys
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.testing.records import Record, append_records
from sparklog.coordinator import create_cluster
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition


class Watch:
    # pyarrow asks for pandas at its first conversion of a list; whether it is installed does not matter here
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            print("pandas is imported", file=sys.stderr, flush=True)
            os._exit(9)  # also from a producer's thread


sys.meta_path.insert(0, Watch())
cluster = create_cluster(MemoryStore("m"))
cluster.create_topic("t")
headers = [("a", b"1"), ("b", None), ("\u00e4", b"")]
with Producer(cluster=cluster, compression_type={codec!r}) as producer:
    producer.send("t", b"v", key=b"k", headers=headers)
    producer.send("t", b"v", headers=[])
    producer.send("t", None, key=b"k")
    producer.flush()
append_records(cluster, "t", [Record(key=b"k", value=b"v", headers=tuple(headers)), Record(value=b"v")])
with Consumer("t", cluster=cluster, group_id="g", auto_offset_reset="earliest") as consumer:
    received = []
    while len(received) < 5:
        received += [record for records in consumer.poll(100).values() for record in records]
    consumer.commit()
assert [record.headers for record in received] == [headers, [], [], headers, []], received
assert [record.key for record in received] == [b"k", None, b"k", b"k", None], received
assert [record.value for record in received] == [b"v", b"v", None, b"v", b"v"], received
offsets = Consumer(cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=1000)
offsets.assign([TopicPartition("__consumer_offsets", number) for number in range(50)])
assert next(offsets).key
"""


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_writing_and_reading_records_with_headers_and_offsets_imports_no_pandas(codec: str | None) -> None:
    program = RECORDS.format(codec=codec)
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
