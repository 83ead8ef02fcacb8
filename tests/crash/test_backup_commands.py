"""The commands of docs/backup.md, word for word, while two producers write."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.log.checkpoints.checkpoint import LATEST_KEY

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"(?:^    \S.*\n)+", (ROOT / "docs" / "backup.md").read_text(), re.MULTILINE)
SUBSTITUTE = Path(__file__).with_name("rsync_substitute.py")


def commands(containing: str) -> str:
    """Return the document's commands that contain a text."""
    (block,) = (block for block in BLOCKS if containing in block)
    return block


def run(script: str, programs: Path, **paths: Path) -> str:
    for name, path in paths.items():
        script = re.sub(rf"(?<![A-Z-]){name.replace('_', '-')}(?![A-Z-])", str(path), script)
    search = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": search},
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for the PATH that has rsync if the machine has not."""
    folder = tmp_path / "programs"
    folder.mkdir()
    if shutil.which("rsync") is None:
        (folder / "rsync").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SUBSTITUTE}" "$@"\n')
        (folder / "rsync").chmod(0o755)
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    """The root, and a broker with a location of its own; both hold replicas."""
    cluster = create_cluster(str(tmp_path / "root"))
    add_broker(cluster, str(tmp_path / "location"))
    for topic in ("t", ".tmp-u"):
        cluster.create_topic(topic, 1, 2)
    return cluster


@pytest.fixture
def producers(cluster: Coordinator) -> Iterator[list[subprocess.Popen[str]]]:
    worker = [sys.executable, str(Path(__file__).with_name("producer_worker.py"))]
    started = [
        subprocess.Popen([*worker, mode, str(cluster.store.root), mode, "600"], stdout=subprocess.PIPE, text=True)
        for mode in ("records", "transactions")
    ]
    yield started
    for producer in started:
        producer.kill()
        producer.communicate()


def acknowledge(producer: subprocess.Popen[str], records: int) -> int:
    """Wait until this many records are acknowledged; return the highest offset in topic t."""
    assert producer.stdout is not None
    return max(int(producer.stdout.readline().split()[1]) for _ in range(records))


def offsets(root: Path, topic: str) -> list[int]:
    cluster = open_cluster(str(root))
    end = cluster.state.partition(topic, 0).log_end_offset
    with LogReader(cluster) as reader:
        return [record.offset for record in reader.records(topic, 0, 0, end)]


def test_copy_and_restore_have_what_was_acknowledged_before(
    tmp_path: Path,
    programs: Path,
    cluster: Coordinator,
    producers: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, copy, restored = (tmp_path / name for name in ("root", "copy", "restored"))
    places = {"LOCATION": tmp_path / "location", "COPY_OF_LOCATION": tmp_path / "copied"}
    for again in range(2):  # the second time into the same copy
        end = max(acknowledge(producer, 30) for producer in producers)
        cluster.refresh()
        cluster.log.write_checkpoint()
        removed = root / "meta" / "removed-meanwhile"
        removed.touch()
        monkeypatch.setenv("RSYNC_VANISHES", str(removed))
        assert "Clean" in run(commands("ROOT/cluster.json COPY/"), programs, ROOT=root, COPY=copy, **places)
        assert set(range(end + 1)) <= set(offsets(copy, "t")), again
    assert not list(copy.rglob(".tmp-*"))
    assert not (copy / "leases").exists()
    assert (root / LATEST_KEY).exists()
    assert not (copy / LATEST_KEY).exists(), "it may name a checkpoint that was written during the copy"
    run(commands("COPY/cluster.json ROOT/"), programs, ROOT=restored, COPY=copy)
    assert offsets(restored, "t") == offsets(copy, "t")
    in_use = tmp_path / "in-use"
    in_use.mkdir()
    with pytest.raises(AssertionError, match="File exists"):
        run(commands("COPY/cluster.json ROOT/"), programs, ROOT=in_use, COPY=copy)
    assert list(in_use.iterdir()) == []
    copied = {file.relative_to(places["COPY_OF_LOCATION"]) for file in places["COPY_OF_LOCATION"].rglob("*.log")}
    assert {file.relative_to(copy) for file in copy.rglob("*.log")} & copied


def test_every_command_of_the_document_is_tried() -> None:
    assert [block for block in BLOCKS if "rsync" in block] == [
        commands("ROOT/cluster.json COPY/"), commands("COPY/cluster.json ROOT/")]  # fmt: skip
