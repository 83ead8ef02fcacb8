"""`make demo`, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]


def run_demo(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/demo.py"), "--folder", folder.name]
    return subprocess.run(
        command, cwd=folder.parent, env=clean_environment(), capture_output=True, text=True, check=False, timeout=900
    )


@pytest.mark.programs
def test_the_demo_shows_the_main_job_and_replaces_the_cluster_of_the_last_run(tmp_path: Path) -> None:
    folder = tmp_path / "demo-cluster"
    folder.mkdir()
    (folder / "cluster.json").write_text("the cluster of an earlier run")
    finished = run_demo(folder)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stderr == ""
    for text in (
        "Created topic flights.",
        "Produced 336,776 flights with one Spark job, in one commit",
        "Consumed 336,776 flights with another Spark job",
        "PartitionCount: 8",
        "baseOffset: 0 ",
        "publication: tables published 1, files added ",
        "[9/9] Asked the table the same",
        "Try next:",
    ):
        assert text in finished.stdout
    steps, _, _ = finished.stdout.partition("Try next:")
    assert max(map(len, steps.splitlines())) <= 120
    state = open_cluster(str(folder)).state
    assert sum(partition.high_watermark for partition in state.topics["flights"].partitions) == 336_776
    assert state.version == 4, "a cluster, a topic, the job's one commit, its schema, and one of the roll"


def test_the_demo_does_not_touch_a_folder_that_is_not_a_cluster(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    finished = run_demo(tmp_path)
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"demo: failed: {tmp_path.name} exists and is no cluster")
    assert finished.stderr.count("\n") == 1
    assert precious.read_text() == "mine"
