"""The first checkpoint imports no pandas: 44 MB, and up to seconds on a busy machine."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from sparklog.log import lists
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.store.memory import MemoryStore
from sparklog.protocol.commits import Run
from sparklog.protocol.decide import AppendRequest, PartitionAppend

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
