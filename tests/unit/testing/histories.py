"""Histories of a few operations, one line each, all of topic "t"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.testing.checks import check
from sparklog.testing.findings import Finding
from sparklog.testing.history import History, Operation, Position, Read, Write
from sparklog.types import TopicPartition


class Story:
    """Each call adds one operation that begins after all previous ones have ended, unless ``at`` says otherwise."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, kind: str, process: str, *, at: tuple[float, float] | None = None, **facts: Any) -> Operation:
        number = len(self.operations)
        invoked, completed = at or (10.0 * number, 10.0 * number + 5)
        facts.setdefault("outcome", "ok")
        operation = Operation(
            process=process, number=number, kind=kind, invoked=invoked, completed=completed, order=number, **facts
        )
        self.operations.append(operation)
        return operation

    def send(self, value: str, offset: int = -1, partition: int = 0, process: str = "p", **facts: Any) -> Operation:
        return self.add("send", process, writes=[Write("t", partition, value, offset)], **facts)

    def transaction(self, *writes: tuple[str, int, int], process: str = "tx", **facts: Any) -> Operation:
        """``writes`` are (value, partition, offset); its commit is requested at its beginning."""
        operation = self.add("transaction", process, writes=[Write("t", p, v, o) for v, p, o in writes], **facts)
        if "committing" not in facts:
            operation.committing = operation.invoked
        return operation

    def poll(self, *records: tuple[int, str], partition: int = 0, process: str = "c", **facts: Any) -> Operation:
        return self.add("poll", process, reads=[Read("t", partition, records)], **facts)

    def read(self, *partitions: Sequence[str], start: int = 0, final: bool = True) -> Operation:
        """A read of partitions 0, 1, …, each with these values from ``start`` on."""
        reads = [
            Read(
                "t",
                number,
                [(start + offset, value) for offset, value in enumerate(values)],
                start,
                start + len(values),
            )
            for number, values in enumerate(partitions)
        ]
        return self.add("read", "reader", reads=reads, final=final)

    def assign(self, member: str, generation: int, *partitions: int, **facts: Any) -> Operation:
        partitions_assigned = [TopicPartition("t", partition) for partition in partitions]
        facts.setdefault("group", "g")
        return self.add("assign", member, partitions=partitions_assigned, member=member, generation=generation, **facts)

    def revoke(self, member: str, *partitions: int) -> Operation:
        return self.add("revoke", member, partitions=[TopicPartition("t", partition) for partition in partitions])

    def commit(self, offset: int, partition: int = 0, process: str = "c", **facts: Any) -> Operation:
        facts.setdefault("offsets", [Position("t", partition, offset, "g")])
        return self.add("commit_offsets", process, group="g", **facts)

    def findings(self) -> list[Finding]:
        return check(History(self.operations))

    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings()}
