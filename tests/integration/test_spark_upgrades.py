"""A streaming query of 0.2.0 is continued by this version, and by 0.2.0 again, until the feature level is raised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sparklog import AdminClient, Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from tests.cluster.upgrades.versions import NEW, OLD

PROGRAM = Path(__file__).with_name("upgraded_stream.py")


def copy(version: Path, root: Path, checkpoint: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(root), str(checkpoint)],
        env={**os.environ, "PYTHONPATH": str(version), "PYTHONWARNINGS": "ignore"},
        cwd=root.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def values(coordinator: Coordinator, topic: str) -> list[bytes | None]:
    state = coordinator.refresh()
    with LogReader(coordinator) as reader:
        return [
            record.value
            for number, partition in enumerate(state.topic(topic).partitions)
            for record in reader.records(topic, number, 0, partition.log_end_offset)
        ]


def test_a_query_is_continued_by_either_version_until_the_level_is_raised(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "root", tmp_path / "checkpoint"
    cluster = create_cluster(str(root), level=2)
    cluster.create_topic("in", 2)
    cluster.create_topic("out")
    for turn, version in enumerate((OLD, NEW, OLD)):
        with Producer(cluster=cluster) as producer:
            for number in range(12):
                producer.send("in", value=f"{turn}-{number}".encode(), partition=number % 2)
        finished = copy(version, root, checkpoint)
        assert finished.returncode == 0, finished.stderr[-4000:]
        assert sorted(map(str, values(cluster, "out"))) == sorted(map(str, values(cluster, "in")))
    with Producer(cluster=cluster) as producer:
        producer.send("in", value=b"last", partition=0)
    AdminClient(cluster=cluster).update_features({"metadata.version": 3})
    before = open_cluster(str(root)).state
    refused = copy(OLD, root, checkpoint)
    assert refused.returncode != 0
    assert "needs sparklog 0.3.0 or newer" in refused.stderr
    assert open_cluster(str(root)).state == before
    assert copy(NEW, root, checkpoint).returncode == 0
    assert values(cluster, "out")[-1] == b"last"
    assert len(values(cluster, "out")) == 37
