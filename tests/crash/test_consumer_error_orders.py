"""Members of a group whose storage refuses some calls for a while, each its own, while their clocks go on.

Whatever fails: no record is skipped, none is returned again whose offset was committed, and a member returns no record
of a partition that another one reads by then.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from functools import partial
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import SparklogError, StoragePermissionError, StorageUnavailableError
from sparklog.protocol.decide.groups import leave_group
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import WRITES, Call, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.sample import chosen

SEEDS = range(100)
PARTITIONS = 3
ROUNDS = 100
WAIT_SECONDS = 60


class Member:
    """A consumer with a storage of its own."""

    def __init__(self, memory: MemoryStore, clock: ManualClock, **more: Any) -> None:
        self.refused: frozenset[str] = frozenset()
        self.error: type[SparklogError] = StorageUnavailableError
        cluster = open_cluster(FaultyStore(memory, before=self._refuse), clock=clock)
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 3}
        self.consumer = Consumer(cluster=cluster, group_id="g", **{**settings, **more})
        self.consumer.subscribe(["orders"])

    def _refuse(self, number: int, call: Call) -> None:
        if call.operation in self.refused:
            raise self.error("refused", path=call.key)


class Group:
    """The members of a seed, what they returned, and what is committed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock, memory = ManualClock(), MemoryStore(uuid.uuid4().hex)
        self.memory = memory
        self.admin = create_cluster(memory, clock=self.clock)
        self.admin.create_topic("orders", PARTITIONS)
        self.members = [self.new_member() for _ in range(3)]
        self.ends = [0] * PARTITIONS
        self.returned: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS
        self.readers: list[tuple[int, Member | None]] = [(-1, None)] * PARTITIONS
        """In which generation who returned the newest records of each partition."""
        self.outcomes: Counter[str] = Counter()

    def new_member(self) -> Member:
        return Member(self.memory, self.clock, heartbeat_interval_ms=self.random.choice([3_000, 14_000]))

    def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        count = self.random.randint(1, 20)
        append_records(self.admin, "orders", [Record(value=b"record", partition=partition)] * count)
        self.ends[partition] += count

    def trouble(self, member: Member) -> None:
        """Let the storage of one refuse its writes, its reads or both, or nothing more."""
        reads = frozenset({"get", "get_range", "info", "list", "open_input", "read_at"})
        writes = WRITES | {"open_output"}
        member.refused = self.random.choice([frozenset(), frozenset(), writes, writes, reads, reads | writes])
        member.error = self.random.choice([StorageUnavailableError, StoragePermissionError])

    def poll(self, member: Member) -> None:
        self.clock.advance(0.2)
        time.sleep(0.002)  # for the thread that reads ahead
        try:
            found = member.consumer.poll()
        except SparklogError as error:
            self.outcomes[type(error).__name__] += 1
            return
        for (_, partition), records in found.items():
            self.check(member, partition, [record.offset for record in records])
            self.outcomes["records"] += len(records)
        if found and self.random.random() < 0.7:
            self.commit(member)

    def check(self, member: Member, partition: int, offsets: list[int]) -> None:
        at, reader = member.consumer.group_metadata().generation_id, self.readers[partition]
        assert at >= reader[0] if member is reader[1] else at > reader[0], (
            f"{partition}: {offsets} returned by a member in generation {at}, after another one read in {reader[0]}"
        )
        self.readers[partition] = at, member
        first = offsets[0]
        assert first >= self.committed[partition], (
            f"{first} is returned again, {self.committed[partition]} was committed"
        )
        assert offsets == list(range(first, first + len(offsets)))
        assert set(range(first)) <= self.returned[partition], f"{first} returned, not all before it"
        self.returned[partition].update(offsets)

    def commit(self, member: Member) -> None:
        consumer = member.consumer
        owned = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        positions = {each.partition: consumer.position(each) for each in owned if each in consumer.assignment()}
        try:
            consumer.commit(
                {TopicPartition("orders", number): OffsetAndMetadata(at, "") for number, at in positions.items()}
            )
        except SparklogError as error:
            self.outcomes[f"commit: {type(error).__name__}"] += 1
        else:
            self.outcomes["commit"] += 1
            self.committed = [max(at, positions.get(number, 0)) for number, at in enumerate(self.committed)]

    def remove(self, member: Member) -> None:
        """Let its lease, which it cannot renew, expire; remove it, and let others go on before it does."""
        self.clock.advance(46)
        found = member.consumer.group_metadata().member_id
        if found in self.admin.refresh().groups["g"].members:
            self.admin.submit(partial(leave_group, group="g", members=[found], reason="its lease expired"))
            self.outcomes["removed"] += 1
        others = [each for each in self.members if each is not member]
        for each in [*others * self.random.randint(0, 5), member]:
            self.poll(each)

    def step(self) -> None:
        member = self.random.choice(self.members)
        drawn = self.random.random()
        if drawn < 0.1:
            self.produce()
        elif drawn < 0.2:
            self.trouble(member)
        elif drawn < 0.24:
            self.clock.advance(self.random.choice([5, 46]))
        elif drawn < 0.28 and member.refused >= WRITES:
            self.remove(member)
        elif drawn < 0.30 and not member.refused:
            member.consumer.close()
            self.members[self.members.index(member)] = self.new_member()
        else:
            self.poll(member)

    def finish(self) -> None:
        """Let everybody read to the end."""
        for member in self.members:
            member.refused = frozenset()
        until = time.monotonic() + WAIT_SECONDS
        while [len(found) for found in self.returned] != self.ends and time.monotonic() < until:
            for member in self.members:
                self.poll(member)
        assert self.returned == [set(range(end)) for end in self.ends], "records are missing"


def consume(seed: int) -> Counter[str]:
    group = Group(seed)
    try:
        for _ in range(ROUNDS):
            group.step()
        group.finish()
    finally:
        for member in group.members:
            member.refused = frozenset()
            member.consumer.close(False, 1_000)
    return group.outcomes


@pytest.mark.sampled
def test_members_whose_storage_refuses_calls_neither_skip_records_nor_share_a_partition() -> None:
    outcomes = sum((consume(seed) for seed in chosen(SEEDS)), Counter[str]())
    assert outcomes["records"]
    assert outcomes["commit"]
