"""A minimal cluster without faults: its histories have no finding, for any of its random choices.

Every operation takes effect at one moment between its beginning and its end, concurrently with others; answers get
lost; members join, leave and stall.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sparklog.clock import ManualClock
from sparklog.testing.history import (
    ASSIGN,
    COMMIT_OFFSETS,
    COMMITTED,
    INIT_PRODUCER,
    OFFSET_LOG,
    POLL,
    READ,
    REVOKE,
    SEND,
    TRANSACTION,
    History,
    OperationLog,
    Pending,
    Position,
    Read,
    Write,
)
from sparklog.types import TopicPartition

PARTITIONS = 3


class Ideal:
    """The log, one group and its members. All random choices come from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.log: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.offsets: dict[int, int] = {}
        self.offset_log: list[Position] = []
        self.generation = 0
        self.owned: dict[str, dict[int, int]] = {}
        self.knows: dict[str, int] = {}
        self.logs: dict[str, OperationLog] = {}
        self.fenced: dict[str, int] = defaultdict(int)
        self.next = 0

    def run(self, steps: int) -> History:
        for _ in range(steps):
            act = self.random.choice([self.send, self.transact, self.rebalance, self.poll, self.poll, self.commit])
            act()
        self.finish()
        return History.collect(self.logs.values())

    def process(self, name: str) -> OperationLog:
        return self.logs.setdefault(name, OperationLog(name, clock=self.clock))

    def invoke(self, process: str, kind: str, **facts: Any) -> Pending:
        self.clock.advance(1)
        return self.process(process).invoke(kind, **facts)

    def value(self) -> str:
        self.next += 1
        return f"v{self.next}"

    def answer(self, pending: Pending, **facts: Any) -> None:
        """Return the result to the caller, unless the answer is lost."""
        self.clock.advance(1)
        if self.random.random() < 0.8:
            pending.ok(**facts)
        elif self.random.random() < 0.5:
            pending.info("lost")

    def write(self, partition: int, value: str) -> Write:
        self.log[partition].append(value)
        return Write("t", partition, value, len(self.log[partition]) - 1)

    def send(self) -> None:
        partition, value = self.random.randrange(PARTITIONS), self.value()
        pending = self.invoke("producer", SEND, writes=[Write("t", partition, value)])
        if self.random.random() < 0.1:
            pending.fail("refused")
            return
        self.answer(pending, writes=[self.write(partition, value)])

    def transact(self) -> None:
        """The newest instance of a transactional id can commit; older ones are refused."""
        process = self.random.choice(["tx-1", "tx-2"])
        if self.fenced.get(process) is None or self.random.random() < 0.2:
            pending = self.invoke(process, INIT_PRODUCER, transactional_id="x")
            self.fenced = defaultdict(int, {process: 1})
            self.clock.advance(1)
            pending.ok()
        pending = self.invoke(process, TRANSACTION, transactional_id="x", group="g")
        writes = [Write("t", partition, self.value()) for partition in range(self.random.randint(1, PARTITIONS))]
        pending.note(writes=writes)
        if self.random.random() < 0.2:
            return  # killed before it requested the commit
        self.clock.advance(1)
        pending.committing()
        if process not in self.fenced or self.random.random() < 0.2:
            pending.fail("fenced or aborted")
            return
        self.answer(pending, writes=[self.write(write.partition, write.value) for write in writes])

    def rebalance(self) -> None:
        """Members join or leave; some of the others learn of it immediately, the rest when they resume."""
        self.generation += 1
        members = self.random.sample(["m1", "m2", "m3"], self.random.randint(1, 3))
        for member in list(self.owned):
            if member in members or self.random.random() < 0.7:  # the others stall, and resume unaware
                pending = self.invoke(member, REVOKE, partitions=self.places(self.owned.pop(member)))
                pending.ok()
        for number, member in enumerate(members):
            self.owned[member] = {p: self.offsets.get(p, 0) for p in range(PARTITIONS) if p % len(members) == number}
            self.knows[member] = self.generation
            positions = [Position("t", p, offset) for p, offset in self.owned[member].items()]
            pending = self.invoke(
                member,
                ASSIGN,
                group="g",
                member=member,
                generation=self.generation,
                partitions=self.places(self.owned[member]),
                positions=positions if self.random.random() < 0.5 else [],
                reset="earliest",
            )
            pending.ok()

    def places(self, partitions: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition("t", partition) for partition in partitions]

    def poll(self) -> None:
        if not self.owned:
            return
        member = self.random.choice(sorted(self.owned))
        pending = self.invoke(member, POLL, group="g", member=member)
        reads = []
        for partition, position in self.owned[member].items():
            end = min(len(self.log[partition]), position + self.random.randint(0, 4))
            reads.append(Read("t", partition, [(o, self.log[partition][o]) for o in range(position, end)]))
            self.owned[member][partition] = end
        self.clock.advance(1)
        pending.ok(reads=reads)

    def commit(self) -> None:
        if not self.owned:
            return
        member = self.random.choice(sorted(self.owned))
        generation = self.knows[member]
        positions = [Position("t", p, offset, "g") for p, offset in self.owned[member].items()]
        facts = {"group": "g", "member": member, "generation": generation, "offsets": positions}
        pending = self.invoke(member, COMMIT_OFFSETS, **facts)
        if generation < self.generation:
            pending.fail("illegal generation")
            return
        self.offsets.update({position.partition: position.offset for position in positions})
        self.offset_log += positions
        self.answer(pending)

    def finish(self) -> None:
        pending = self.invoke("reader", READ, final=True)
        pending.ok(reads=[Read("t", p, list(enumerate(values)), 0, len(values)) for p, values in enumerate(self.log)])
        offsets = [Position("t", partition, offset, "g") for partition, offset in self.offsets.items()]
        self.invoke("reader", COMMITTED, offsets=offsets, final=True).ok()
        self.invoke("reader", OFFSET_LOG, offsets=self.offset_log).ok()
