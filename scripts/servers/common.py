"""Shared parts of the test servers: start processes, wait until they answer, run a command with them, stop them.

Everything is in ``.servers`` of the checkout, which git ignores. A process is stopped by its id, and by the kernel if
this one dies first. Standard library only: these scripts run with any Python 3.10.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SERVERS = CHECKOUT / ".servers"
LOWEST_PORT, FIRST_NODE_PORT = 12_000, 30_000
"""of those that servers are started at; the latter is the first that Kubernetes gives to a service"""
HOST = "127.0.0.1"
STOP_SECONDS = 15.0
WORK = ".work"
"""ends the name of a folder that is removed with its process"""


class Skipped(Exception):
    """This machine lacks what the server needs; the message says what, and how to get it."""


class ServerFailed(Exception):
    """The server did not come up; the message ends with its log."""


def run_beside(server: Callable[[], AbstractContextManager[Mapping[str, str]]], usage: str) -> int:
    """The main program of each script: run the command line's command beside the server, return its exit code."""
    command = sys.argv[1:]
    if not command or command[0] in ("-h", "--help"):
        print(usage, file=sys.stderr)
        return 0 if command else 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    seconds = float(os.environ.get("SPARKLOG_SERVERS_TIMEOUT", "1800"))
    try:
        with server() as environment:
            return _run(command, environment, seconds)
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 0
    except ServerFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> int:
    for name, value in environment.items():
        print(f"{name}={value}", flush=True)
    try:
        return subprocess.run(command, env={**os.environ, **environment}, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"failed: {command[0]} took more than {seconds:.0f} s (SPARKLOG_SERVERS_TIMEOUT)", file=sys.stderr)
        return 124


@contextmanager
def running(commands: Mapping[str, Sequence[str]], logs: Path, environment: Mapping[str, str]) -> Iterator[Daemons]:
    """These processes, each with a log of its name; stopped at the end of the block."""
    daemons = Daemons(logs, environment)
    try:
        for name, command in commands.items():
            daemons.start(name, command)
        yield daemons
    finally:
        daemons.stop()


class Daemons:
    """Processes by name, each with a log of its name; ``wait_until`` fails when one of them ends by itself."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.logs = logs
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> int:
        """Start a process; its id. A name may be used again once its process was killed."""
        process = start(command, self.logs / f"{name}.log", self._environment)
        self._processes[name] = _processes[name] = process
        return process.pid

    def kill(self, name: str) -> int:
        """Kill a process without warning; its id."""
        process = self._processes.pop(name)
        _processes.pop(name, None)
        process.kill()
        process.wait()
        return process.pid

    def stop(self) -> None:
        """Ask all to end, then wait for them, all together for at most STOP_SECONDS."""
        for name, process in self._processes.items():
            _processes.pop(name, None)
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes.values():
            _stop(process, deadline)
        self._processes.clear()


_processes: dict[str, subprocess.Popen[bytes]] = {}


def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process in a session of its own, so that Ctrl-C reaches it through its parent only.

    The kernel stops it when this one dies. ``setpriv`` says so to the kernel without running Python in the forked
    process, which hangs there if the storage's client has threads.
    """
    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    with open(log, "ab") as output:
        return subprocess.Popen(
            [*prefix, *command],
            env={**os.environ, **environment},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" and not setpriv else None,
        )


def wait_until(ready: Callable[[], bool], what: str, logs: Path, seconds: float = 300.0) -> None:
    """Ask until ``ready`` is true. Raises ``ServerFailed`` if it takes too long or one of the processes ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, LookupError):
            if ready():
                return
        for name, process in _processes.items():
            if process.poll() is not None:
                raise ServerFailed(f"{name} ended with {process.returncode}:\n{tail(logs / f'{name}.log')}")
        time.sleep(0.1)
    raise ServerFailed(f"{what} is not ready after {seconds:.0f} s; see {logs}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that the kernel gives nobody meanwhile: it gives out those of a range, for each
    outgoing connection, and this takes lower ones. Raises ServerFailed if there are none."""
    chosen: list[int] = []
    below = _first_given_port()
    ports = range(LOWEST_PORT, below if below > LOWEST_PORT else FIRST_NODE_PORT)
    for port in random.sample(ports, k=len(ports)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise ServerFailed(f"there are no {count} free ports from {LOWEST_PORT} on")


def _first_given_port() -> int:
    """Return the first port that the kernel gives to a program that asks for any."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):  # not Linux
        return FIRST_NODE_PORT
    return min(first, FIRST_NODE_PORT)


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Among all processes of this checkout, one at a time: two test workers must not build the same program."""
    SERVERS.mkdir(exist_ok=True)
    with open(SERVERS / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def work_folder(kind: str) -> Iterator[Path]:
    """A folder in SERVERS, for as long as the block lasts. Folders of processes that were killed are removed first."""
    with only_one("work"):
        for folder in SERVERS.glob(f"*{WORK}"):
            with suppress(OSError), _locked(folder):
                shutil.rmtree(folder)
        work = Path(tempfile.mkdtemp(prefix=f"{kind}-", suffix=WORK, dir=SERVERS))
        lock = ExitStack()
        lock.enter_context(_locked(work))
    with lock:
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError if another process has it locked, which the kernel ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def tail(log: Path, characters: int = 3000) -> str:
    with suppress(OSError):
        return log.read_text(errors="replace")[-characters:]
    return "(no log)"


def _stop(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
