"""Kafka's command-line tools in one Java VM, since starting a VM for each takes two seconds.

A tool is a class with a ``main`` that prints to the VM's standard output and exits through Kafka's ``Exit``, which can
be configured to raise instead. Both are called through Py4J, a dependency of pyspark. One tool runs at a time.

Not for: tools that wait for a signal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, find_jar_path, launch_gateway
from py4j.protocol import Py4JError

CLASSES = {
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
SECONDS_PER_TOOL = 60.0
OUR_EXCEPTION = "An exception was raised by the Python Proxy"
"""Output of tools that catch every exception, including the one that ends them here."""
QUIET = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="off"><Loggers><Root level="off"/></Loggers></Configuration>
"""


class Printed(NamedTuple):
    """The exit code and the output of a tool."""

    code: int
    out: str
    err: str


class _Exited(Exception):
    """Kafka's ``Exit`` was called; the tool must not run on."""


class _ExitProcedure:
    """Called by Kafka's ``Exit`` instead of ending the VM; the first code counts: it would have ended the tool."""

    def __init__(self) -> None:
        self.code: int | None = None

    def execute(self, code: int, message: str | None) -> None:
        if self.code is None:
            self.code = code
        raise _Exited

    class Java:
        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)


class _HookAdder:
    """Collects a tool's shutdown hooks; ``run`` runs them when the tool ends."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    def addShutdownHook(self, name: str, hook: Any) -> None:
        self._hooks.append(hook)

    def run(self) -> None:
        while self._hooks:
            with suppress(Py4JError):
                self._hooks.pop().run()

    class Java:
        implements = ("org.apache.kafka.common.utils.Exit$ShutdownHookAdder",)


class ToolVm:
    """A Java VM that runs Kafka's tools until ``close``. Not thread-safe."""

    def __init__(self, java: str, jars: Path, work: Path) -> None:
        (work / "log4j2-off.xml").write_text(QUIET)
        self._start = {
            "classpath": f"{jars}/*",
            "java_path": java,
            "javaopts": [
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={(work / 'log4j2-off.xml').as_uri()}",
            ],
            "jarpath": find_jar_path(),
            "die_on_exit": True,
            "return_proc": True,
        }
        self._gateway: Any = None
        self._process: Any = None

    def run(self, tool: str, arguments: Sequence[str], stdin: bytes) -> Printed:
        """Run a tool. Raises ``TimeoutError`` after a minute; the next tool then gets a new VM."""
        if self._gateway is not None and self._process.poll() is not None:  # the previous tool ended the VM
            self.close()
        if self._gateway is None:
            self._open()
        answers: list[Printed | BaseException] = []

        def call() -> None:
            try:
                answers.append(self._call(tool, arguments, stdin))
            except BaseException as error:
                answers.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(SECONDS_PER_TOOL)
        if not answers:
            self.close()
            raise TimeoutError(f"Kafka's {tool} runs for more than {SECONDS_PER_TOOL:.0f} s: {' '.join(arguments)}")
        answer = answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        if self._gateway is not None:
            with suppress(Py4JError, OSError):
                self._gateway.shutdown()
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._gateway = None

    def _open(self) -> None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs every object that outlives the VM
        port, self._process = launch_gateway(**self._start)
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        listening = self._gateway.get_callback_server().get_listening_port()
        server = self._gateway.java_gateway_server
        server.resetCallbackClient(server.getCallbackClient().getAddress(), listening)
        self._exit = _ExitProcedure()
        self._gateway.jvm.org.apache.kafka.common.utils.Exit.setExitProcedure(self._exit)
        self._gateway.jvm.org.apache.kafka.common.utils.Exit.setHaltProcedure(self._exit)
        self._hooks = _HookAdder()
        self._gateway.jvm.org.apache.kafka.common.utils.Exit.setShutdownHookAdder(self._hooks)

    def _call(self, tool: str, arguments: Sequence[str], stdin: bytes) -> Printed:
        jvm = self._gateway.jvm
        out, err = jvm.java.io.ByteArrayOutputStream(), jvm.java.io.ByteArrayOutputStream()
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(out, True, "UTF-8"))
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(err, True, "UTF-8"))
        jvm.java.lang.System.setIn(jvm.java.io.ByteArrayInputStream(stdin))
        array = self._gateway.new_array(jvm.java.lang.String, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        self._exit.code = None
        main = jvm.java.lang.Class.forName(CLASSES[tool])
        if tool == "console-consumer":
            self._reset_count(main)
        code = 0
        try:
            self._main(CLASSES[tool])(array)
        except Py4JError as error:  # raised by main(): as a process the tool would exit with 1
            if self._exit.code is None:
                code = 1
                err.write("\n".join(str(error).splitlines()[:3]).encode())
        self._hooks.run()
        jvm.java.lang.System.out.flush()
        complaint = bytes(err.toByteArray()).decode(errors="replace")
        return Printed(
            code if self._exit.code is None else self._exit.code,  # type: ignore[redundant-expr]
            bytes(out.toByteArray()).decode(errors="replace"),
            complaint.partition(OUR_EXCEPTION)[0],
        )

    def _main(self, name: str) -> Any:
        package = self._gateway.jvm
        for part in name.split("."):
            package = getattr(package, part)
        return package.main

    def _reset_count(self, console_consumer: Any) -> None:
        """Reset the static message count of the consumer, which is 0 in a new VM."""
        field = console_consumer.getDeclaredField("messageCount")
        field.setAccessible(True)
        field.setInt(None, 0)
