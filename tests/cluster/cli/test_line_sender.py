"""console-producer loses no line that it has read: signals, storage failures, retries and error messages."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.cli.arguments.line_reader import InputLine
from sparklog.cli.commands.clients.line_sender import LineSender, Retries
from sparklog.cli.main import main
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import StorageError, StorageFullError, StoragePermissionError
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faults import KINDS as KNOWN
from sparklog.testing.faults import Call, Fault, possible
from sparklog.testing.faulty_store import FaultyStore

from .conftest import SPARKLOG

RETRIES = Retries(number=None, backoff_ms=100, delivery_timeout_ms=120_000)


def values(cluster: Coordinator, topic: str = "t") -> list[bytes | None]:
    state = cluster.refresh()
    with LogReader(cluster) as reader:
        return [
            record.value
            for number, partition in enumerate(state.topic(topic).partitions)
            for record in reader.records(topic, number, 0, partition.high_watermark)
        ]


@contextmanager
def running_producer(root: str, *flags: str, timeout: str = "60000") -> Iterator[subprocess.Popen[bytes]]:
    """A console-producer that lingers for a minute before it sends by default."""
    command = [*SPARKLOG, "console-producer", "--topic", "t", "--bootstrap-server", root, "--timeout", timeout, *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write these bytes to its input, and return once it has read them."""
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()
    unread = array.array("i", [1])
    while unread[0] and process.poll() is None:
        fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, unread)


def send(process: subprocess.Popen[bytes], cluster: Coordinator, line: bytes, then: bytes) -> None:
    """Write a line and the beginning of the next, and return once the line is acknowledged.

    With ``--sync`` it reads on only after the acknowledgement, which is later than the commit.
    """
    write(process, line + b"\n")
    while values(cluster) != [line]:
        pass
    write(process, then)


# -- signals


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_it_after_every_complete_line_is_sent(cluster: Coordinator, number: str, code: int) -> None:
    cluster.create_topic("t")
    with running_producer(cluster.store.root) as process:
        write(process, b"first\nsecond\nhalf of the th")
        process.send_signal(getattr(signal, number))
        assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == code
    assert values(cluster) == [b"first", b"second"]


def test_the_last_line_is_sent_at_the_end_of_the_input(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    with running_producer(cluster.store.root) as process:
        write(process, b"first\nlast without end")
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert values(cluster) == [b"first", b"last without end"]


def test_an_ignored_sighup_does_not_end_it(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    command = ["nohup", sys.executable, "-m", "sparklog.cli", "console-producer", "--topic", "t", "--timeout", "60000"]
    command += ["--bootstrap-server", cluster.store.root]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        write(process, b"first\n")
        process.send_signal(signal.SIGHUP)
        write(process, b"second\n")
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert values(cluster) == [b"first", b"second"]


def test_a_closed_standard_input_is_an_empty_input(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    command = (
        f"exec {sys.executable} -m sparklog.cli console-producer --topic t --bootstrap-server {cluster.store.root}"
    )
    result = subprocess.run(["sh", "-c", f"{command} <&-"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


# -- storage failures


def test_no_line_is_lost_while_the_root_is_unavailable(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    root = Path(cluster.store.root)
    away = root.with_name("away")
    with running_producer(str(root), "--sync") as process:
        assert process.stderr is not None
        send(process, cluster, b"first", then=b"sec")
        root.rename(away)
        write(process, b"ond\nthird\n")
        warning = process.stderr.readline().decode()
        assert warning.startswith("WARN: sending line number 2 failed, retrying: ")
        assert not root.exists()
        away.rename(root)
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert values(cluster) == [b"first", b"second", b"third"]


def test_a_second_signal_stops_retrying_and_names_the_line(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    root = Path(cluster.store.root)
    with running_producer(str(root), "--sync", "--retry-backoff-ms", "60000") as process:
        assert process.stderr is not None
        send(process, cluster, b"first", then=b"sec")
        root.rename(root.with_name("away"))
        write(process, b"ond\n")
        assert process.stderr.readline().startswith(b"WARN: sending line number 2 failed, retrying: ")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # not SIGTERM again: two of the same signal may be merged
        assert b"line number 2: interrupted" in process.communicate(timeout=60)[1]
        assert process.returncode in (130, 143)


class FaultyCluster:
    """A cluster in memory, and a sender whose store fails on request."""

    def __init__(self, name: str, faults: Iterable[Fault] = (), retries: Retries = RETRIES) -> None:
        self.clock = ManualClock()
        self.inner = MemoryStore(name, self.clock)
        self.failure: Exception | None = None
        self.fails_from = ""
        create_cluster(self.inner, clock=self.clock).create_topic("t", 2)
        self.store = FaultyStore(self.inner, faults, before=self.fail)
        self.cluster = open_cluster(self.store, clock=self.clock)
        self.opened = len(self.store.calls)
        self.sender = LineSender(self.cluster, "t", "none", -1, retries)

    def fail(self, step: int, call: Call) -> None:
        if self.fails_from == call.operation:
            self.failure = StorageError("away")
        if self.failure is not None:
            raise self.failure

    def values(self) -> list[bytes | None]:
        return sorted(values(open_cluster(self.inner, clock=self.clock)))  # type: ignore[type-var]


@pytest.fixture
def space(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a memory store of this test."""
    name = request.node.name.translate({ord(mark): "-" for mark in "[]+*"})
    yield name
    forget_space(name)


LINES = [InputLine(key=b"a", value=b"1"), InputLine(value=b"2"), InputLine(key=b"b", value=b"3")]
KINDS = ["unavailable", "error", "lost_answer", "outage", "late2+unavailable", "late12+unavailable", "full"]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_stored_exactly_once_if_any_request_fails(kind: str, space: str) -> None:
    faulty = FaultyCluster(space)
    faulty.sender.send(LINES)
    steps = range(faulty.opened, len(faulty.store.calls))
    assert len(steps) > 5
    for step in steps:
        forget_space(space)
        faulty = FaultyCluster(space, [Fault(step, kind)] if possible_at(faulty, step, kind) else ())
        faulty.sender.send(LINES)
        faulty.sender.send([InputLine(value=b"4")])
        faulty.store.settle()
        assert faulty.values() == [b"1", b"2", b"3", b"4"], step
        assert faulty.sender.sent_lines == 4


def possible_at(faulty: FaultyCluster, step: int, kind: str) -> bool:
    return possible(KNOWN[kind], faulty.store.calls[step].operation)


@pytest.mark.parametrize(
    ("failure", "retries", "seconds"),
    [
        (StorageError("away"), RETRIES, 120),
        (StorageError("away"), Retries(2, 100, 120_000), 0.3),
        (StorageError("away"), Retries(0, 100, 120_000), 0),
        (StorageError("away"), Retries(None, 100, 5_000), 5),
        (StorageFullError("no space"), RETRIES, 0.7),
        (StoragePermissionError("denied"), RETRIES, 0),
    ],
)
def test_it_retries_as_configured_and_names_the_line(
    space: str, failure: StorageError, retries: Retries, seconds: float
) -> None:
    faulty = FaultyCluster(space, retries=retries)
    faulty.sender.send(LINES)
    began = faulty.clock.monotonic()
    faulty.failure = failure
    with pytest.raises(type(failure), match=f"line number 4: this line and those after it were not sent: .*{failure}"):
        faulty.sender.send(LINES)
    assert seconds <= faulty.clock.monotonic() - began <= seconds * 1.5
    assert faulty.values() == [b"1", b"2", b"3"]


def test_an_unknown_outcome_is_reported_with_the_lines(space: str) -> None:
    faulty = FaultyCluster(space, retries=Retries(1, 100, 120_000))
    faulty.sender.send(LINES)

    faulty.fails_from = "put_if_absent"
    with pytest.raises(StorageError, match="line number 4: it is unknown whether lines 4 to 6 are in the log"):
        faulty.sender.send(LINES)


def test_lines_read_before_an_input_error_are_sent(
    root: str, cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t")
    chunks = iter([b"1\n2\nhal"])

    def read_once(*_: object) -> bytes:
        for chunk in chunks:
            return chunk
        raise OSError(errno.EIO, "the terminal is gone")

    monkeypatch.setattr(os, "read", read_once)
    with open(os.devnull, "rb") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["console-producer", "--topic", "t", "--timeout", "60000"]) == 1
    assert values(cluster) == [b"1", b"2"]


@pytest.mark.parametrize("longest", [2**63 - 1, 10**30])
def test_very_long_timeouts_are_accepted(root: str, cluster: Coordinator, longest: int) -> None:
    cluster.create_topic("t")
    with running_producer(root, "--retry-backoff-ms", str(longest), timeout=str(longest)) as process:
        write(process, b"1\n")
        assert process.communicate(b"2\n")[1] == b""
        assert process.returncode == 0
    assert values(cluster) == [b"1", b"2"]


def test_the_retry_backoff_is_limited_to_the_longest_possible_wait() -> None:
    assert Retries(None, 10**30, 0).pause_seconds(1) <= threading.TIMEOUT_MAX
