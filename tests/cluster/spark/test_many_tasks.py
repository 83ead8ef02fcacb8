"""Spark's default number of shuffle tasks, each with rows for every partition of a wide topic, make one commit."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.spark.helpers import across, batches, cluster, values, writer

TASKS = 200
"""the default of ``spark.sql.shuffle.partitions``."""
PARTITIONS = 200
DDL = "value string, partition int"


def test_two_hundred_tasks_write_to_two_hundred_partitions_in_one_commit_and_one_file_each(tmp_path: Path) -> None:
    log = cluster(tmp_path, wide=PARTITIONS)
    job = writer(tmp_path, DDL, topic="wide")
    rows = [[{"value": str(task), "partition": partition} for partition in range(PARTITIONS)] for task in range(TASKS)]
    messages = [across(across(job).write(iter(batches(DDL, task)))) for task in rows]
    before = log.refresh().version
    across(job).commit(messages)
    state = log.refresh()
    assert state.version == before + 1
    assert [one.high_watermark for one in state.topic("wide").partitions] == [TASKS] * PARTITIONS
    assert len(list(tmp_path.rglob("*.log"))) == TASKS
    for partition in (0, PARTITIONS - 1):
        found = values(tmp_path, assign=f'{{"wide":[{partition}]}}')
        assert sorted(int(value) for value in found) == list(range(TASKS))
