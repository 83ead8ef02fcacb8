"""Random histories of a cluster, with what each version would have said of the lag of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from sparklog.cli.output.group_listing import describe
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.protocol.commits import (
    Action,
    Append,
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    DeleteRecords,
    GroupPartition,
    Run,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import delete_group, expire_offsets
from sparklog.protocol.decide.topics import create_partitions, delete_topic
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore

TOPICS = ("a", "b", "c")
GROUPS = ("g", "h", "i")
DAYS_MS = 8 * 86_400_000

Lag = tuple[str, str, int, int, int, int, float | None]
"""Group, topic, partition, offset, log end offset, lag, and seconds behind."""


class Moment(NamedTuple):
    """A version of the cluster, and its lag as ``consumer-groups --describe`` stated it."""

    version: int
    time_ms: int
    lag: list[tuple[str, str, int, int, int, int]]


def append(state: State, topic: str, partition: int, records: int = 1, replicas: Sequence[int] = ()) -> Append:
    """An append at the end of a partition, of records that nobody wrote: its file is never read."""
    run = Run(
        path=f"{topic}-{partition}/00000000000000000000-x.log",
        replicas=list(replicas) if len(replicas) > 1 else [],
        broker=replicas[0] if replicas else 0,
        batches=1,
        records=records,
        size_bytes=100 * records,
        min_timestamp_us=state.timestamp_ms * 1000,
        max_timestamp_us=state.timestamp_ms * 1000,
    )
    return Append(
        topic=topic,
        topic_id=state.topic(topic).topic_id,
        partition=partition,
        base_offset=state.partition(topic, partition).log_end_offset,
        leader_epoch=state.partition(topic, partition).leader_epoch,
        run=run,
    )


class RandomHistory:
    """A cluster that changes at random; ``moments`` are its versions so far."""

    def __init__(self, seed: int, settings: LogSettings = DEFAULTS) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.coordinator: Coordinator = create_cluster(
            MemoryStore(f"history-{seed}-{id(self)}", self.clock), clock=self.clock, settings=settings
        )
        self.moments: list[Moment] = []
        self.appended: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._note()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.advance(self.random.choice((0, 0.001, 0.5, 7)))
            self.random.choice(
                [
                    self._create,
                    self._append,
                    self._append,
                    self._append,
                    self._commit,
                    self._commit,
                    self._commit,
                    self._append_and_commit,
                    self._add_partitions,
                    self._delete_offsets,
                    self._delete_records,
                    *[self._delete_topic, self._delete_group, self._expire][: self.random.choice((0, 0, 1, 2, 2, 3))],
                ]
            )()
            self._note()

    def lag_at(self, time_ms: int) -> list[Lag]:
        """What the newest version at a time stated, with the seconds since the first unread record was committed."""
        past = [moment for moment in self.moments if moment.time_ms <= time_ms]
        if not past:
            return []
        return [(*row, self._seconds(past[-1], row, time_ms)) for row in past[-1].lag]

    def _seconds(self, moment: Moment, row: tuple[Any, ...], time_ms: int) -> float:
        _, topic, partition, offset, _, lag = row
        if lag <= 0:
            return 0.0
        topic_id = self._ids[moment.version][topic]
        return next((time_ms - at) / 1000 for end, at in self.appended[topic_id, partition] if end > offset)

    _ids: dict[int, dict[str, str]]

    def _note(self) -> None:
        state = self.coordinator.refresh()
        if self.moments and self.moments[-1].version == state.version:
            return
        if not self.moments:
            self._ids = {}
        self._ids[state.version] = {topic.name: topic.topic_id for topic in state.topics.values()}
        for topic in state.topics.values():
            for number, part in enumerate(topic.partitions):
                ends = self.appended.setdefault((topic.topic_id, number), [])
                if part.log_end_offset > (ends[-1][0] if ends else 0):
                    ends.append((part.log_end_offset, state.timestamp_ms))
        lag = [
            (name, each.topic, each.partition, each.current_offset, each.log_end_offset, each.lag)
            for name, group in state.groups.items()
            for each in describe(state, name, group, True, False).offsets or ()
            if each.current_offset is not None and each.lag is not None
        ]
        self.moments.append(Moment(state.version, state.timestamp_ms, sorted(lag)))

    def commit(self, *actions: Action) -> None:
        self.coordinator.submit(lambda _: Decision(list(actions), None))

    def _partition(self) -> tuple[str, int] | None:
        state = self.coordinator.state
        if not state.topics:
            return None
        topic = self.random.choice(sorted(state.topics))
        return topic, self.random.randrange(len(state.topic(topic).partitions))

    def _create(self) -> None:
        free = [name for name in TOPICS if name not in self.coordinator.state.topics]
        if free:
            self.coordinator.create_topic(self.random.choice(free), self.random.randint(1, 3))

    def _appends(self) -> list[Append]:
        state = self.coordinator.state
        chosen = {place for place in (self._partition() for _ in range(self.random.randint(1, 3))) if place}
        return [append(state, *place, records=self.random.randint(1, 9)) for place in sorted(chosen)]

    def _append(self) -> None:
        if appends := self._appends():
            self.commit(*appends)

    def _offsets(self) -> CommitOffsets:
        state = self.coordinator.state
        chosen = {place for place in (self._partition() for _ in range(self.random.randint(1, 3))) if place}
        return CommitOffsets(
            group=self.random.choice(GROUPS),
            offsets=[
                CommittedOffset(
                    topic=topic,
                    topic_id=state.topic(topic).topic_id,
                    partition=number,
                    offset=self.random.randint(0, state.partition(topic, number).log_end_offset + 2),
                )
                for topic, number in sorted(chosen)
            ],
        )

    def _commit(self) -> None:
        if (offsets := self._offsets()).offsets:
            self.commit(offsets)

    def _append_and_commit(self) -> None:
        """What a transaction that consumes and produces is."""
        if appends := self._appends():
            self.commit(*appends, self._offsets())

    def _add_partitions(self) -> None:
        if place := self._partition():
            count = len(self.coordinator.state.topic(place[0]).partitions)
            self.coordinator.submit(partial(create_partitions, topic=place[0], total=count + 1))

    def _delete_offsets(self) -> None:
        groups = {name: group for name, group in self.coordinator.state.groups.items() if group.offsets}
        if groups:
            name = self.random.choice(sorted(groups))
            offset = self.random.choice([each for _, each in sorted(groups[name].offsets.items())])
            deleted = GroupPartition(topic=offset.topic, topic_id=offset.topic_id, partition=offset.partition)
            self.commit(DeleteOffsets(group=name, partitions=[deleted]))

    def _delete_records(self) -> None:
        if place := self._partition():
            state = self.coordinator.state
            start = state.partition(*place).log_end_offset
            topic_id = state.topic(place[0]).topic_id
            self.commit(DeleteRecords(topic=place[0], topic_id=topic_id, partition=place[1], log_start_offset=start))

    def _delete_topic(self) -> None:
        if place := self._partition():
            self.coordinator.submit(partial(delete_topic, topic=place[0]))

    def _delete_group(self) -> None:
        if groups := sorted(self.coordinator.state.groups):
            self.coordinator.submit(partial(delete_group, group=self.random.choice(groups)))

    def _expire(self) -> None:
        state = self.coordinator.state
        self.coordinator.submit(partial(expire_offsets, now_ms=state.timestamp_ms + DAYS_MS))
