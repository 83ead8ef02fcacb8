"""The few methods of a consumer that a soak run uses, on a group member and a reader, without threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator
from sparklog.coordinator.membership import GroupMember
from sparklog.errors import SparklogError
from sparklog.types import TopicPartition


class Metadata(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Consumer:
    def __init__(self, *, cluster: Coordinator, group_id: str, group_instance_id: str | None, **configs: Any) -> None:
        self.cluster = cluster
        self.group = group_id
        self.limit = configs["max_poll_records"]
        self.member = GroupMember(
            cluster,
            group_id,
            instance_id=group_instance_id or "",
            session_timeout_ms=configs["session_timeout_ms"],
            assignors=("cooperative-sticky",),
        )
        self.instance = group_instance_id
        self.reader = LogReader(cluster)
        self.positions: dict[TopicPartition, int] = {}
        self.beaten = -1e9

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        self.topics, self.listener = topics, listener

    def group_metadata(self) -> Metadata:
        return Metadata(self.group, self.member.generation, self.member.member_id, self.instance)

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        clock = self.cluster.log.clock
        if not self.member.joined:
            self.member.join(self.topics)
        if clock.monotonic() - self.beaten > 1 or self.member.overdue:
            self.member.beat()
            self.beaten = clock.monotonic()
        self.cluster.refresh()
        change = self.member.reconcile()
        if change.lost:
            self.listener.on_partitions_lost(change.lost)
        if change.revoked:
            self.listener.on_partitions_revoked(change.revoked)
        for place in change.lost | change.revoked:
            self.positions.pop(place, None)
        if change.to_acknowledge:
            self.member.acknowledge({})
        if change.assigned or change.completed:
            for place in change.assigned:
                self.positions[place] = self.committed_at_last(place)
            self.listener.on_partitions_assigned(change.assigned)
        return self.fetch()

    def fetch(self) -> dict[TopicPartition, list[Any]]:
        found: dict[TopicPartition, list[Any]] = {}
        state = self.cluster.state
        for place, position in self.positions.items():
            end = min(state.partition(*place).log_end_offset, position + self.limit)
            records = list(self.reader.records(*place, position, end, state)) if end > position else []
            if records:
                found[place] = records
        for place in found:
            self.positions[place] = found[place][-1].offset + 1
        return found

    def committed_at_last(self, place: TopicPartition) -> int:
        while True:
            with suppress(SparklogError):
                return self.committed(place) or 0

    def committed(self, place: TopicPartition) -> int | None:
        state = self.cluster.refresh()
        group = state.groups.get(self.group)
        known = group.offsets.get(f"{state.topic(place.topic).topic_id}:{place.partition}") if group else None
        return known.offset if known else None

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place] = offset

    def commit(self, offsets: dict[TopicPartition, Any]) -> None:
        self.member.commit(offsets)

    def close(self, autocommit: bool = True) -> None:
        for _ in range(10):
            try:
                self.member.leave()
            except SparklogError:
                continue
            break
        self.reader.close()
