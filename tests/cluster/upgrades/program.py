"""A process that uses a cluster as asked, one request after the other: run by two versions of the package at a time.

    PYTHONPATH=sparklog-0.2.0-py.zip python program.py

A request is a line of JSON on standard input, ``[name, arguments]``; the answer a line on standard output,
``{"result": …}`` or ``{"error": [class, message]}``. ``stall`` makes the next call of a method of the store wait: the
request that runs into it answers ``{"stalled": …}``, and goes on when the next line arrives, whatever that says.

Rules: it uses only what the oldest version in ``tests/golden/releases`` has. One thread asks for all that is done.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import sparklog
from sparklog import AdminClient, Consumer, NewTopic, Producer
from sparklog.coordinator import open_cluster
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.store.local import LocalStore


class Program:
    """The clients of one process; each is kept until it is closed, as in a job that runs for days."""

    def __init__(self) -> None:
        self.producers: dict[str, Producer] = {}
        self.consumers: dict[str, Consumer] = {}

    def open(self, root: str) -> list[Any]:
        """Open a cluster, which the other requests are about."""
        self.producers, self.consumers = {}, {}
        self.root = root
        self.cluster = open_cluster(root)
        return self.version()

    def version(self) -> list[Any]:
        return [sparklog.__version__, self.cluster.refresh().level]

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        with AdminClient(cluster=self.cluster) as admin:
            admin.create_topics([NewTopic(name, partitions, topic_configs=configs)])

    def produce(self, topic: str, partition: int, values: list[str], transaction: str = "", abort: bool = False) -> int:
        """Send values, in a transaction if it has a name; return the first offset, -1 after an abort."""
        if transaction not in self.producers:
            named = {"transactional_id": transaction} if transaction else {"enable_idempotence": True}
            self.producers[transaction] = Producer(cluster=self.cluster, **named)
            if transaction:
                self.producers[transaction].init_transactions()
        producer = self.producers[transaction]
        if transaction:
            producer.begin_transaction()
        futures = [producer.send(topic, value=value.encode(), key=b"k", partition=partition) for value in values]
        if abort:
            producer.abort_transaction()
            return -1
        if transaction:
            producer.commit_transaction()
        producer.flush(30)
        return int(futures[0].get(30).offset)

    def consume(self, group: str, topic: str) -> list[list[Any]]:
        """Poll once as a member of a group, and commit what was read."""
        if group not in self.consumers:
            self.consumers[group] = Consumer(
                topic, cluster=self.cluster, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                heartbeat_interval_ms=100, session_timeout_ms=30_000, max_poll_records=7,
            )  # fmt: skip
        consumer = self.consumers[group]
        polled = consumer.poll(timeout_ms=300)
        consumer.commit()
        return [
            [partition.partition, record.offset, record.value.decode()]
            for partition, records in polled.items()
            for record in records
        ]

    def maintain(self, names: list[str]) -> list[str]:
        """Run these steps of maintenance once; return their problems."""
        context = MaintenanceContext(self.cluster, lambda description: InProcess())
        reports = Loop(steps(context, names), self.cluster.log.clock).once()
        return [str(problem) for report in reports for problem in report.problems]

    def checkpoint(self) -> int:
        return int(self.cluster.log.write_checkpoint().version)

    def fsck(self) -> list[str]:
        report = check_cluster(self.root).report
        return [f"{each.kind} {each.path}" for each in report.findings if each.severity != "info"]

    def upgrade(self, level: int) -> dict[str, str]:
        with AdminClient(cluster=self.cluster) as admin:
            return dict(admin.update_features({"metadata.version": level}))

    def close(self) -> None:
        clients: list[Producer | Consumer] = [*self.producers.values(), *self.consumers.values()]
        for client in clients:
            client.close()
        self.producers, self.consumers = {}, {}

    def stall(self, method: str, part: str) -> None:
        """Make the next call of this method of the store, with a key that has this part, wait for a line."""
        real: Callable[..., Any] = getattr(LocalStore, method)
        waiting = threading.Lock()

        def stalled(store: LocalStore, key: str, *arguments: Any, **named: Any) -> Any:
            if part in key and waiting.acquire(blocking=False):
                setattr(LocalStore, method, real)
                answer({"stalled": key})
                sys.stdin.readline()
            return real(store, key, *arguments, **named)

        setattr(LocalStore, method, stalled)


def answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    program = Program()
    while line := sys.stdin.readline():
        name, arguments = json.loads(line)
        try:
            answer({"result": getattr(program, name)(*arguments)})
        except Exception as error:
            answer({"error": [type(error).__name__, str(error)]})


if __name__ == "__main__":
    main()
