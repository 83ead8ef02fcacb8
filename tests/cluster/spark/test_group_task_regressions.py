"""Regressions: a Spark task as a member of a group, interrupted or overtaken at the worst moments."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.segments import delete_records
from sparklog.spark.group.task import ConsumeContext, ConsumeTask, find_unfinished
from sparklog.types import TopicPartition
from tests.cluster.spark.helpers import values, write_rows
from tests.cluster.spark.test_group_task import DDL, committed, copy, filled, run, settings


def test_a_task_interrupted_after_its_commit_keeps_the_published_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path)
    append = log.append

    def interrupted(request: AppendRequest) -> AppendResult:
        append(request)
        monkeypatch.undo()
        raise KeyboardInterrupt

    task = ConsumeTask(settings(tmp_path, log), copy, 0)
    monkeypatch.setattr(log, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        task.run()
    assert len(values(tmp_path, subscribe="out")) == 10
    run(tmp_path, log, copy)
    assert sorted(map(int, values(tmp_path, subscribe="out"))) == list(range(20))


@pytest.mark.parametrize("sends", [True, False])
def test_a_topic_recreated_during_a_call_is_read_from_its_first_record(tmp_path: Path, sends: bool) -> None:
    log = filled(tmp_path)
    seen: list[bytes] = []
    recreated: list[str] = []

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        if sends:
            copy(records, context)
        if not recreated:
            delete_topic(log, "orders")
            recreated.append(log.create_topic("orders", 2))
            new = [{"value": str(n), "partition": n % 2} for n in range(100, 140)]
            write_rows(tmp_path, DDL, new, topic="orders")
            return
        seen.extend(records.column("value").to_pylist())

    run(tmp_path, log, process)
    assert sorted(map(int, seen)) == list(range(100, 120))  # up to the ends at the start of the run
    assert committed(log) == {0: 10, 1: 10}


def test_a_job_does_not_wait_for_records_that_were_deleted_before_they_were_read(tmp_path: Path) -> None:
    log = filled(tmp_path)
    ends = {TopicPartition("orders", 0): 10}
    assert find_unfinished(log.state, "g", ends) == list(ends)
    log.submit(partial(delete_records, offsets={("orders", 0): 10}))
    assert find_unfinished(log.state, "g", ends) == []


def test_a_job_does_not_wait_for_ends_that_a_recreated_topic_may_never_reach(tmp_path: Path) -> None:
    log = filled(tmp_path)
    ends = {TopicPartition("orders", 0): 10}
    delete_topic(log, "orders")
    log.create_topic("orders", 2)
    assert find_unfinished(log.refresh(), "g", ends) == []
    write_rows(tmp_path, DDL, [{"value": "1", "partition": 0}], topic="orders")
    assert find_unfinished(log.refresh(), "g", ends) == list(ends)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 1})))
    assert find_unfinished(log.refresh(), "g", ends) == []
