"""A cluster in a local folder, and the command, run in this process as a user would type it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparklog.cli.main import main
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.protocol.commits import Action, ChangePartition, RegisterBroker
from sparklog.protocol.decide.decision import Decision

_PROGRAM = """
import runpy, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
runpy.run_module("sparklog.cli", run_name="__main__")
"""
SPARKLOG = [sys.executable, "-c", _PROGRAM]
"""The command line as a program that a hang-up ends, also where the tests run under nohup, which programs inherit."""


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


def commit(cluster: Coordinator, *actions: Action) -> None:
    """Commit these actions without the checks of a decision."""
    cluster.submit(lambda _: Decision(list(actions), None))


def add_brokers(cluster: Coordinator, *numbers: int) -> None:
    """Register brokers in folders beside the root: ``<root>-<id>``."""
    commit(cluster, *(RegisterBroker(broker=number, url=f"{cluster.store.root}-{number}") for number in numbers))


def change_partition(cluster: Coordinator, topic: str, partition: int, **changes: Any) -> None:
    """Change fields of a partition (leader, isr, replicas, adding, removing)."""
    state = cluster.refresh().partition(topic, partition)
    fields = {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "replicas": list(state.replicas),
        **changes,
    }
    topic_id = cluster.state.topic(topic).topic_id
    commit(cluster, ChangePartition(topic=topic, topic_id=topic_id, partition=partition, **fields))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The root of a new cluster; SPARKLOG_BOOTSTRAP_SERVER names it."""
    path = str(tmp_path / "cluster")
    create_cluster(path)
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", path)
    monkeypatch.delenv("SPARKLOG_DEBUG", raising=False)
    return path


@pytest.fixture
def cluster(root: str) -> Coordinator:
    return open_cluster(root)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("topics", "--list")`` returns the exit code, standard output and standard error."""

    def run_command(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main(list(arguments))
        captured = capfdbinary.readouterr()
        return Result(code, captured.out.decode("utf-8", "replace"), captured.err.decode())

    return run_command
