"""A cluster in memory whose time stands still unless a test advances it, with rules that are evaluated on it."""

from __future__ import annotations

import itertools
from typing import Any

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.monitoring.alerts.measures import View, measure
from sparklog.monitoring.alerts.rules import Rule, read_rules
from sparklog.monitoring.system_tables import SystemTables
from sparklog.protocol.commits import (
    Action,
    ApplicationWrite,
    ChangePartition,
    CommitOffsets,
    CommittedOffset,
    RemoveFiles,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records

_NUMBERS = itertools.count()


class QuietCluster:
    """A cluster with the topic ``orders`` of two partitions."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = MemoryStore(f"alerts-{next(_NUMBERS)}", self.clock)
        self.coordinator: Coordinator = create_cluster(store, clock=self.clock)
        self.coordinator.create_topic("orders", 2)
        self.tables = SystemTables(self.coordinator)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def commit(self, *actions: Action) -> None:
        """Commit actions without the checks of a decision."""
        self.coordinator.submit(lambda _: Decision(list(actions), None))

    def append(self, records: int, partition: int = 0, topic: str = "orders") -> None:
        append_records(self.coordinator, topic, [Record(value=b"v", partition=partition)] * records)

    def commit_offset(self, offset: int, group: str = "billing", partition: int = 0, topic: str = "orders") -> None:
        topic_id = self.coordinator.refresh().topic(topic).topic_id
        committed = CommittedOffset(topic=topic, topic_id=topic_id, partition=partition, offset=offset)
        self.commit(CommitOffsets(group=group, offsets=[committed]))

    def write_as(self, application: str, number: int) -> None:
        self.commit(ApplicationWrite(application=application, application_version=number))

    def retire(self, files: int, delay_ms: int) -> None:
        """Commit that files are retired; nobody reads their listing."""
        listing = f"meta/removed/{next(_NUMBERS):020d}-x.arrow"
        self.commit(RemoveFiles(listing=listing, files=files, size_bytes=100 * files, delay_ms=delay_ms))

    def change_partition(self, partition: int, leader: int, isr: list[int], replicas: list[int]) -> None:
        topic = self.coordinator.refresh().topic("orders")
        self.commit(
            ChangePartition(
                topic="orders",
                topic_id=topic.topic_id,
                partition=partition,
                leader=leader,
                leader_epoch=topic.partitions[partition].leader_epoch,
                isr=isr,
                replicas=replicas,
            )
        )

    def measured(self, **rule: Any) -> dict[str, int]:
        """Return what a rule measures, by the names of its subjects; commits of one moment are some ms apart."""
        view = View(self.coordinator, self.tables, self.clock.now_ms(), self.coordinator.refresh())
        found = measure(make_rule(**rule), view)
        return {" ".join(name for _, name in subject): round(seen.value) for subject, seen in found.items()}


def make_rule(**rule: Any) -> Rule:
    (read,) = read_rules({"rule": [{"name": "rule", **rule}]}, {}).rules
    return read
