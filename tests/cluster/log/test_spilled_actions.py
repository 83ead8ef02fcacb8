"""A commit with too many actions for one object spills them to another one, which it names."""

from __future__ import annotations

import contextlib
import uuid

import pytest

from sparklog import limits
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import CorruptMetadataError, StorageError
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.settings import LogSettings
from sparklog.protocol.commits import AlterConfig, Append, Run, commit_key
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore, SimulatedCrash, every_crash

TASKS, PARTITIONS = 200, 200


def job(coordinator: Coordinator, tasks: int = TASKS, partitions: int = PARTITIONS) -> AppendRequest:
    """The append of a keyed Spark job: one file per task, with a run for each partition."""
    topic_id = coordinator.state.topic("wide").topic_id
    return AppendRequest(
        appends=[
            PartitionAppend(
                topic="wide",
                topic_id=topic_id,
                partition=partition,
                run=Run(
                    path=f"wide-0/{0:020d}-v1-{task:022d}.log",
                    first_batch=partition,
                    batches=1,
                    first_row=partition,
                    records=1,
                    size_bytes=100,
                    min_timestamp_us=1,
                    max_timestamp_us=2,
                ),
            )
            for task in range(tasks)
            for partition in range(partitions)
        ]
    )


def wide(store: Store, partitions: int = PARTITIONS) -> Coordinator:
    coordinator = create_cluster(store)
    coordinator.create_topic("wide", partitions=partitions)
    return coordinator


def spilled(store: Store) -> list[str]:
    return [info.key for info in store.list("meta/actions/")]


def test_a_job_of_200_tasks_on_200_partitions_is_one_commit() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = wide(store)
    before = coordinator.state.version
    coordinator.append(job(coordinator))
    assert coordinator.state.version == before + 1
    assert len(store.get(commit_key(before + 1))) < limits.MAX_INLINE_ACTIONS_BYTES
    opened = open_cluster(store)
    assert opened.state == coordinator.state
    assert [p.log_end_offset for p in opened.state.topic("wide").partitions] == [TASKS] * PARTITIONS
    assert len(opened.segments("wide").partition(7)) == TASKS
    actions = read_commit(store, before + 1).commit.actions
    assert len(actions) == TASKS * PARTITIONS
    assert isinstance(actions[0], Append)


def test_a_crash_at_any_step_commits_everything_or_nothing() -> None:
    def run(store: Store) -> Coordinator:
        coordinator = open_cluster(store)
        coordinator.append(job(coordinator, 30, PARTITIONS))
        return coordinator

    inner = MemoryStore(uuid.uuid4().hex)
    wide(inner)
    counting = FaultyStore(inner)
    run(counting)
    outcomes = set()
    for fault in every_crash(counting.calls):
        inner = MemoryStore(uuid.uuid4().hex)
        wide(inner)
        store = FaultyStore(inner, [fault])
        with contextlib.suppress(SimulatedCrash, StorageError):
            run(store)
        ends = {p.log_end_offset for p in open_cluster(inner).state.topic("wide").partitions}
        assert ends in ({0}, {30})
        outcomes |= ends
    assert outcomes == {0, 30}


def test_the_loser_of_a_race_leaves_no_object() -> None:
    store, settings = MemoryStore(uuid.uuid4().hex), LogSettings(max_inline_actions=0)
    first = create_cluster(store, settings=settings)
    second = open_cluster(store, settings=settings)
    before = spilled(store)
    first.create_topic("a")
    assert second.log.attempt([AlterConfig(set={"num.partitions": "3"})]) is CommitOutcome.LOST
    assert len(spilled(store)) == len(before) + 1
    second.create_topic("b")
    assert sorted(first.refresh().topics) == ["a", "b"]


@pytest.mark.parametrize("harm", ["delete", "change", "shorten"])
def test_changed_or_missing_spilled_actions_are_damage(harm: str) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = wide(store)
    coordinator.append(job(coordinator, 30, PARTITIONS))
    (key,) = spilled(store)
    data = store.get(key)
    if harm == "delete":
        store.delete(key)
    else:
        store.put(key, data[:-1] if harm == "shorten" else data.replace(b'"records":1', b'"records":2', 1))
    with pytest.raises(CorruptMetadataError, match="meta/actions/"):
        open_cluster(store)
