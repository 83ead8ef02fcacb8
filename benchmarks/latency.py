"""Measure on a storage that takes 30 ms a request: how long an acknowledgement waits while a checkpoint of many grown
topics is written, and how long a reader that is 1,000 commits behind takes to catch up.

The storage is a store in memory that sleeps before each request, with at most 16 requests in flight, so the figures are
those of the protocol and not of a network.
"""

from __future__ import annotations

import time
import uuid
from functools import partial

from benchmarks.measure import Figure, Settings, median, timed
from sparklog import limits
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.protocol.commits import Action, Append, CreateTopic, Run
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore

REQUEST_SECONDS = 0.03
TOPICS = 1_000
COMMITS_BEHIND = 1_000
MAX_REQUEST_TIMES_BEHIND = 30
MAX_LONGEST_TO_MEDIAN = 2.0


class RemoteStore(FaultyStore):
    """A store whose every request takes ``seconds``; counts requests as any ``FaultyStore`` does."""

    parallel_requests = 16
    is_private = False

    def __init__(self, store: MemoryStore, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(store, before=self._wait)

    def _wait(self, number: int, call: Call) -> None:
        if self.seconds:
            time.sleep(self.seconds)


def run(settings: Settings) -> list[Figure]:
    topics = TOPICS // 10 if settings.quick else TOPICS
    return [acknowledgements_during_a_checkpoint(topics), catching_up(COMMITS_BEHIND)]


def grow_all(coordinator: Coordinator) -> None:
    """One commit that appends to each topic."""

    def appends() -> list[Action]:
        return [_append(coordinator, name) for name in coordinator.state.topics]

    coordinator.submit(lambda state: Decision(appends(), None))


def _append(coordinator: Coordinator, name: str) -> Append:
    topic = coordinator.state.topic(name)
    partition = topic.partitions[0]
    run = Run(
        path=f"{name}-0/{partition.log_end_offset:020d}-v1-{uuid.uuid4().hex}.log",
        batches=1,
        records=1,
        size_bytes=100,
        min_timestamp_us=1,
        max_timestamp_us=1,
    )
    return Append(topic=name, topic_id=topic.topic_id, partition=0, base_offset=partition.log_end_offset, run=run)


def acknowledgements_during_a_checkpoint(topics: int) -> Figure:
    """The longest of the commits made while a checkpoint is written, beside the median of all."""
    store = RemoteStore(MemoryStore(uuid.uuid4().hex), 0)
    coordinator = create_cluster(store)
    created = [
        CreateTopic(topic=f"t{number:05d}", topic_id=f"id-{number:05d}", replicas=[[0]]) for number in range(topics)
    ]
    coordinator.submit(lambda state: Decision(list(created), None))
    for _ in range(40):  # enough segments for files of their own
        grow_all(coordinator)
    while coordinator.state.version % limits.CHECKPOINT_INTERVAL_COMMITS < limits.CHECKPOINT_INTERVAL_COMMITS - 20:
        coordinator.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    grow_all(coordinator)
    coordinator.log.wait_for_checkpoint()
    store.seconds = REQUEST_SECONDS
    seconds = []
    for number in range(60):
        altered = partial(alter_configs, topic="", changes={"num.partitions": str(number + 1)})
        seconds.append(timed(partial(coordinator.submit, altered)))
    began = time.perf_counter()
    coordinator.log.wait_for_checkpoint()
    longest, middle = max(seconds), median(seconds)
    return Figure(
        name=f"longest acknowledgement while a checkpoint of {topics:,} grown topics is written, 30 ms a request",
        value=f"{longest * 1000:.0f} ms",
        reference=f"median {middle * 1000:.0f} ms",
        ratio=longest / middle,
        target=f"at most {MAX_LONGEST_TO_MEDIAN:.0f} times the median",
        met=longest <= MAX_LONGEST_TO_MEDIAN * middle,
        where=f"checkpoint still under way {time.perf_counter() - began:.1f} s after the last of them",
        samples={"seconds": seconds},
    )


def catching_up(commits: int) -> Figure:
    """Return how long a reader that is this number of commits behind takes to catch up."""
    inner = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(inner)
    store = RemoteStore(inner, 0)
    reader = open_cluster(store)
    for number in range(commits):
        writer.submit(partial(alter_configs, topic="", changes={"num.partitions": str(number % 9 + 1)}))
    store.seconds = REQUEST_SECONDS
    seconds = timed(reader.refresh)
    times = seconds / REQUEST_SECONDS
    return Figure(
        name=f"reader {commits:,} commits behind, 30 ms a request",
        value=f"{seconds:.2f} s",
        reference=f"{times:.0f} request times",
        target=f"at most {MAX_REQUEST_TIMES_BEHIND} request times",
        met=times <= MAX_REQUEST_TIMES_BEHIND,
        samples={"seconds": [seconds]},
    )
