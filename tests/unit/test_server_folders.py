"""Folders of test servers and their builds are removed with the process that uses them, also if that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.servers import common

PROGRAM = """
import sys
from pathlib import Path
from scripts.servers import common

common.SERVERS = Path(sys.argv[1])
with common.work_folder("hdfs") as folder:
    (folder / "data").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(common, "SERVERS", tmp_path)
    return tmp_path


def test_a_folder_lasts_as_long_as_its_process(servers: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(servers)]
    with subprocess.Popen(
        command, cwd=common.CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        folder = Path(other.stdout.readline().strip())
        with common.work_folder("hdfs") as mine:
            assert folder.is_dir()  # another process uses it
        assert not mine.exists()
        other.kill()
    assert (folder / "data").is_dir()  # nobody removed it
    with common.work_folder("s3") as mine:
        assert mine.is_dir()
        assert not folder.exists()


def test_what_is_not_such_a_folder_stays(servers: Path) -> None:
    (servers / "bin").mkdir()
    with common.work_folder("s3"), common.work_folder("hdfs") as inner:
        assert inner.is_dir()  # the inner one did not take the outer one, nor itself
        assert len(list(servers.glob("s3-*"))) == 1
    assert (servers / "bin").is_dir()
