"""A streaming query of 0.2.0 is continued by this version, and by 0.2.0 again, until the feature level is raised."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest

from sparklog import AdminClient, Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from tests.cluster.upgrades.versions import NEW, OLD
from tests.integration.processes import clean_environment

PROGRAM = Path(__file__).with_name("upgraded_stream.py")
RUN_SECONDS = 480.0


class Version:
    """A process of a version of the package with a Spark of its own, which continues the copy when it is asked to."""

    def __init__(self, version: Path, root: Path, checkpoint: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(root), str(checkpoint)],
            env=clean_environment(PYTHONPATH=str(version), PYTHONWARNINGS="ignore", PYSPARK_PYTHON=sys.executable),
            cwd=root.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(RUN_SECONDS, self._process.kill)
        self._watchdog.start()

    def copy(self) -> str:
        """Return how the copy ended, in a line; nothing if the process died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._watchdog.cancel()


def values(coordinator: Coordinator, topic: str) -> list[bytes | None]:
    state = coordinator.refresh()
    with LogReader(coordinator) as reader:
        return [
            record.value
            for number, partition in enumerate(state.topic(topic).partitions)
            for record in reader.records(topic, number, 0, partition.log_end_offset)
        ]


@pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2), reason="the released 0.2.0 needs Spark 4.2 or newer"
)
@pytest.mark.programs
def test_a_query_is_continued_by_either_version_until_the_level_is_raised(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "root", tmp_path / "checkpoint"
    cluster = create_cluster(str(root), level=2)
    cluster.create_topic("in", 2)
    cluster.create_topic("out")
    with Version(OLD, root, checkpoint) as old, Version(NEW, root, checkpoint) as new:
        for turn, version in enumerate((old, new, old)):
            with Producer(cluster=cluster) as producer:
                for number in range(12):
                    producer.send("in", value=f"{turn}-{number}".encode(), partition=number % 2)
            assert version.copy() == "copied\n"
            assert sorted(map(str, values(cluster, "out"))) == sorted(map(str, values(cluster, "in")))
        with Producer(cluster=cluster) as producer:
            producer.send("in", value=b"last", partition=0)
        AdminClient(cluster=cluster).update_features({"metadata.version": 3})
        before = open_cluster(str(root)).state
        assert "needs sparklog 0.3.0 or newer" in old.copy()
        assert open_cluster(str(root)).state == before
        assert new.copy() == "copied\n"
    assert values(cluster, "out")[-1] == b"last"
    assert len(values(cluster, "out")) == 37
