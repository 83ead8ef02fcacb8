"""Executors in separate processes: one is killed while it writes, or lacks the package."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogWriter

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 4)
    return coordinator


def run(program: str, log: Coordinator, scratch: Path, *arguments: str, **environment: str) -> str:
    """Run a program; return what it prints."""
    command = [sys.executable, "-m", "tests.integration.spark_programs", program, log.store.root, str(scratch)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def write_records(log: Coordinator) -> None:
    """Write a record to read, without Spark."""
    schema = StructType([StructField("value", StringType())])
    job = SparklogWriter(sink_options({"path": log.store.root, "topic": "orders"}), schema)
    job.commit([job.write(iter([pa.record_batch([pa.array(["v"])], names=["value"])]))])


def hide_package(scratch: Path) -> None:
    """Create a folder that hides the installed sparklog from executors, but not one in a zip."""
    hidden = scratch / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        zips = [one for one in sys.path if 'sparklog' in one and one.endswith('.zip')]\n"
        "        if name == 'sparklog' and not zips:\n"
        "            raise ModuleNotFoundError(\"No module named 'sparklog'\", name=name)\n"
        "if 'SPARK_EXECUTOR_DIRS' in os.environ:\n"
        "    sys.meta_path.insert(0, Hide())\n"
    )


@pytest.mark.slow  # test_jobs.py covers the same with spark-submit
def test_every_record_is_written_once_when_an_executor_is_killed_while_writing(
    log: Coordinator, tmp_path: Path
) -> None:
    before = log.refresh().version
    marker = tmp_path / "killed"
    printed = run("produce_with_a_kill", log, tmp_path, SPARKLOG_TEST_MARKER=str(marker))
    assert marker.exists()
    assert printed.split() == ["records", "100000", "distinct", "100000"]
    assert log.refresh().version == before + 1


@pytest.mark.programs
def test_every_record_is_written_once_when_a_retried_task_left_files_behind(log: Coordinator, tmp_path: Path) -> None:
    log.submit(partial(alter_configs, topic="orders", changes={"segment.bytes": "1048576"}))
    before = log.refresh().version
    marker = tmp_path / "died"
    printed = run("produce_with_a_retry", log, tmp_path, SPARKLOG_TEST_MARKER=str(marker))
    orphans = int(marker.read_text())
    assert orphans > 0
    assert printed.split() == ["records", "64000", "distinct", "64000"]
    assert log.refresh().version == before + 1
    committed = {segment.path for segment in log.segments("orders").partition(3)}
    assert len(list(Path(log.store.root).glob("orders-3/*.log"))) == len(committed) + orphans


@pytest.mark.slow  # test_jobs.py covers the same with spark-submit
def test_executors_without_the_package_fail_with_instructions(log: Coordinator, tmp_path: Path) -> None:
    write_records(log)
    hide_package(tmp_path)
    before = log.refresh().version
    printed = run("produce_without_the_package", log, tmp_path)
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines] == ["write", "read"]
    for line in lines:
        assert "lacks sparklog" in line
        assert "pip install 'sparklog[spark]'" in line
        assert "--py-files dist/sparklog-<version>-py.zip" in line
    assert log.refresh().version == before


@pytest.mark.slow  # test_jobs.py covers the same with spark-submit
def test_executors_without_the_package_work_with_the_zip(log: Coordinator, tmp_path: Path) -> None:
    hide_package(tmp_path)
    packed = tmp_path / "sparklog-0-py.zip"
    package = Path(sparklog.__file__).parent
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            archive.write(path, path.relative_to(package.parent))
    assert run("produce_with_the_zip", log, tmp_path, str(packed)).split() == ["records", "10"]
