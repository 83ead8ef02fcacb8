"""Acknowledgements do not wait for checkpoints."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.log.background import BackgroundTask
from sparklog.log.checkpoints import checkpoint
from sparklog.log.settings import LogSettings
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import Call, FaultyStore


def test_commits_continue_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    root = LocalStore(str(tmp_path))
    create_cluster(root)
    begun, go_on = threading.Event(), threading.Event()

    def hold_checkpoints(number: int, call: Call) -> None:
        if call.operation == "open_output" and call.key.startswith("meta/checkpoints/"):
            begun.set()
            assert go_on.wait(60)

    coordinator = open_cluster(
        FaultyStore(root, before=hold_checkpoints), settings=LogSettings(checkpoint_interval_commits=5)
    )
    try:
        for number in range(6):
            coordinator.create_topic(f"t{number}")
        assert begun.wait(60)
        coordinator.create_topic("while-it-is-written")  # neither the lock of this log nor the one on disk is held
        assert "while-it-is-written" in open_cluster(root).refresh().topics
    finally:
        go_on.set()
    coordinator.log.wait_for_checkpoint()
    written = checkpoint.read_newest(root)
    assert written is not None
    assert written.version >= 5
    assert open_cluster(root).state == coordinator.refresh()


def test_a_process_writes_its_due_checkpoint_before_it_exits(tmp_path: Path) -> None:
    program = f"""
from sparklog.coordinator import create_cluster
from sparklog.log.settings import LogSettings
cluster = create_cluster({str(tmp_path)!r}, settings=LogSettings(checkpoint_interval_commits=3))
for number in range(3):
    cluster.create_topic(f"t{{number}}")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    written = checkpoint.read_newest(LocalStore(str(tmp_path)))
    assert written is not None
    assert written.version == 3


def test_requests_during_a_run_cause_one_more_run() -> None:
    runs: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        runs.append(len(runs))
        begun.set()
        assert go_on.wait(60)

    task = BackgroundTask("test", work)
    task.request()
    assert begun.wait(60)
    for _ in range(5):
        task.request()
    go_on.set()
    task.wait()
    assert runs == [0, 1]
