"""The two targets of a case: Kafka with kafka-python and its tools, and sparklog.

A case sees a ``Workspace``: the modules (``w.kafka``, ``w.errors`` …), connected clients that are closed at
the end of the case, and ``w.tool`` for a command line. The names of topics and groups are the same on both targets,
so answers need no renaming.
"""

from __future__ import annotations

import importlib
import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from sparklog.cli.main import main
from tests.differential.tool_vm import Printed, ToolVm

SECONDS = 20
"""How long a case waits for an expected result."""


class Target:
    """The address and the package of clients, and a function that runs a tool."""

    def __init__(
        self, name: str, package: str, address: str, tool: Callable[[str, Sequence[str], bytes], Printed]
    ) -> None:
        self.name = name
        self.package = package
        self.address = address
        self.run_tool = tool

    def module(self, path: str) -> ModuleType:
        """Return the target's module for one of kafka-python, such as ``kafka.errors``."""
        return importlib.import_module(self.package + path.removeprefix("kafka"))


def kafka_target(address: str, vm: ToolVm) -> Target:
    return Target("Kafka", "kafka", address, vm.run)


def sparklog_target(root: str) -> Target:
    return Target("sparklog", "sparklog.kafka", root, run_sparklog)


def run_sparklog(tool: str, arguments: Sequence[str], stdin: bytes) -> Printed:
    """Run the command ``sparklog`` in this process, with Kafka's exit codes."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    os.environ["SPARKLOG_KAFKA_EXIT_CODES"] = "1"
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([tool, *arguments])
    finally:
        del os.environ["SPARKLOG_KAFKA_EXIT_CODES"]
        sys.stdin = before
    out.flush()
    err.flush()
    return Printed(
        code,
        out.buffer.getvalue().decode(errors="replace"),
        err.buffer.getvalue().decode(errors="replace"),
    )


class Workspace:
    """The clients and names of a case; ``close`` closes the clients that it opened."""

    def __init__(self, target: Target, case: str, folder: Path) -> None:
        self.target = target
        self.prefix = case
        self.folder = folder
        self.address = target.address
        self._clients: list[Any] = []

    # -- modules

    @property
    def kafka(self) -> Any:
        return self.target.module("kafka")

    @property
    def errors(self) -> Any:
        return self.target.module("kafka.errors")

    @property
    def structs(self) -> Any:
        return self.target.module("kafka.structs")

    @property
    def admins(self) -> Any:
        return self.target.module("kafka.admin")

    def module(self, path: str) -> Any:
        return self.target.module(path)

    # -- clients

    def producer(self, **settings: Any) -> Any:
        return self._opened(self.kafka.KafkaProducer(**{"bootstrap_servers": self.address, **settings}))

    def consumer(self, *topics: str, **settings: Any) -> Any:
        return self._opened(self.kafka.KafkaConsumer(*topics, **{"bootstrap_servers": self.address, **settings}))

    def reader(self, *topics: str, **settings: Any) -> Any:
        """Return a consumer from the beginning, without a group, whose iteration ends 2 s after the last record."""
        return self.consumer(*topics, **{"auto_offset_reset": "earliest", "consumer_timeout_ms": 2000, **settings})

    def admin(self, **settings: Any) -> Any:
        return self._opened(self.kafka.KafkaAdminClient(**{"bootstrap_servers": self.address, **settings}))

    def _opened(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in reversed(self._clients):
            with suppress(Exception):
                client.close()

    # -- short forms

    def topic(self, suffix: str = "", partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """Create a topic of this case."""
        name = self.prefix + suffix
        spec = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        self.admin().create_topics({name: spec}, wait_for_metadata=True)
        return name

    def filled(self, *values: bytes | None, suffix: str = "", partitions: int = 1, **configs: str) -> str:
        """Create a topic with these values in partition 0."""
        name = self.topic(suffix, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        self.send(name, *values)
        return name

    def send(self, topic: str, *values: bytes | None, **arguments: Any) -> None:
        producer = self.producer()
        for value in values:
            producer.send(topic, value, **{"partition": 0, **arguments}).get(SECONDS)
        producer.close()

    def partition(self, topic: str, number: int = 0) -> Any:
        return self.kafka.TopicPartition(topic, number)

    def poll(self, consumer: Any, count: int, seconds: float = SECONDS) -> list[Any]:
        """Return the next records, at least ``count`` unless the timeout expires."""
        records: list[Any] = []
        end = time.monotonic() + seconds
        while len(records) < count and time.monotonic() < end:
            for batch in consumer.poll(timeout_ms=1000).values():
                records.extend(batch)
        return records

    def values(self, topic: str, count: int = 0, **settings: Any) -> list[Any]:
        """Return all values of a topic up to its end, and at least ``count`` unless the timeout expires."""
        consumer = self.reader(**settings)
        partitions = [self.partition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        records: list[Any] = self.poll(consumer, count)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                records.extend(batch)
        return [record.value for record in records]

    def attempt(self, call: Callable[[], Any]) -> Any:
        """Return the result of ``call``, or the exception that it raises, as a value of the answer."""
        try:
            return call()
        except Exception as error:
            return error

    # -- tools

    def tool(self, line: str, stdin: bytes = b"") -> Printed:
        """Run a command line such as ``topics --list``; ``--bootstrap-server`` is added."""
        words = shlex.split(line)
        tool, arguments = words[0], words[1:]
        if "--bootstrap-server" not in arguments and tool != "dump-log":
            arguments = ["--bootstrap-server", self.address, *arguments]
        result = self.target.run_tool(tool, arguments, stdin)
        if tool == "topics" and "--create" in arguments and result.code == 0:
            self._wait_until_known(arguments[arguments.index("--topic") + 1])
        return result

    def _wait_until_known(self, topic: str) -> None:
        """Kafka's tool returns once the controller has the topic, which the broker's clients may see a moment later."""
        admin = self.admin()
        end = time.monotonic() + SECONDS
        while admin.describe_topics([topic])[0]["error_code"] != 0 and time.monotonic() < end:
            time.sleep(0.05)
