"""jobs/maintain.py and ``sparklog maintain --distributed``: in this process, by spark-submit, and on separate
executors."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.spark.jobs.batch import SUBMITTED_VARIABLE
from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
Job = Callable[..., int]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def maintain(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Run the program in this process; return its exit code."""
    monkeypatch.setenv(SUBMITTED_VARIABLE, "1")
    program = load("jobs/maintain.py")
    return lambda *arguments: program.job.run("maintain", lambda: program.maintain(program.parse(list(arguments))))


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A cluster with the topics orders and refunds, with twenty small files in each of their two partitions."""
    address = str(tmp_path / "log")
    cluster = create_cluster(address)
    for topic in ("orders", "refunds"):
        cluster.create_topic(topic, 2)
        with Producer(bootstrap_servers=address) as producer:
            for number in range(40):
                producer.send(topic, value=f"{topic} {number}".encode(), partition=number % 2).get()
    return address


def values(root: str, topic: str) -> list[list[str]]:
    """Return the values of each partition, in order."""
    with LogReader(open_cluster(root)) as reader:
        ends = [partition.high_watermark for partition in reader.state.topic(topic).partitions]
        return [
            [(record.value or b"").decode() for record in reader.records(topic, number, 0, end)]
            for number, end in enumerate(ends)
        ]


def written(topic: str) -> list[list[str]]:
    return [[f"{topic} {number}" for number in range(40) if number % 2 == partition] for partition in (0, 1)]


def segments(root: str, topic: str) -> list[int]:
    return [partition.segments for partition in open_cluster(root).state.topic(topic).partitions]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=clean_environment(**environment),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_a_pass_runs_every_step_and_prints_the_results(
    maintain: Job, root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert maintain("--bootstrap-server", root) == 0
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "maintain: roll: files rewritten 80, into files 4" in printed.err
    assert " steps done in " in printed.err.splitlines()[-1]
    for topic in ("orders", "refunds"):
        assert segments(root, topic) == [1, 1]
        assert values(root, topic) == written(topic)


def test_steps_and_topics_can_be_selected(maintain: Job, root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert maintain("--bootstrap-server", root, "--only", "roll", "--topic", "ref.*") == 0
    assert "maintain: 1 step done in" in capfd.readouterr().err
    assert segments(root, "orders") == [20, 20]
    assert segments(root, "refunds") == [1, 1]


def test_closed_segments_become_a_table_and_are_compacted_by_tasks(
    maintain: Job, root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = open_cluster(root)
    schema = {"value.format": "json", "value.schema": "number bigint NOT NULL"}
    history = {"history.format": "delta", "segment.ms": "60000", "retention.ms": "-1", **schema}
    configs = {**history, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    cluster.create_topic("payments", 2, configs=configs)
    with Producer(bootstrap_servers=root) as producer:
        for number in range(40):
            producer.send("payments", b'{"number":%d}' % number, b"k%d" % (number % 6), partition=number % 2,
                          timestamp_ms=number * 10_000).get()  # fmt: skip
    before = dict(latest(root, "payments"))

    assert maintain("--bootstrap-server", root, "--topic", "payments", "--only", "roll,compaction,publication") == 0
    printed = capfd.readouterr().err
    for line in (
        "maintain: roll: files rewritten ",
        "maintain: compaction: ",
        "maintain: publication: tables published 1",
    ):
        assert line in printed
    assert "records removed" in printed
    assert dict(latest(root, "payments")) == before

    table = DeltaTable(f"{root}/tables/payments").to_pyarrow_table()
    live = [segment for number in (0, 1) for segment in open_cluster(root).segments("payments").partition(number)]
    assert table.num_rows == sum(segment.records for segment in live if segment.is_history) > 0
    assert table.num_rows < 40
    assert table.column("number").to_pylist() == [
        json.loads(value)["number"] for value in table.column("value").to_pylist()
    ]


def latest(root: str, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the records of a topic as keys and values, by partition and offset."""
    with LogReader(open_cluster(root)) as reader:
        for number, partition in enumerate(reader.state.topic(topic).partitions):
            for record in reader.records(topic, number, 0, partition.high_watermark):
                yield record.key, record.value


def test_a_failure_is_reported_with_its_file_and_the_other_partitions_are_processed(
    maintain: Job, root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = sorted(Path(root, "orders-1").glob("*.log"))[5]
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    assert maintain("--bootstrap-server", root, "--only", "roll") == 1
    lines = capfd.readouterr().err.splitlines()
    (failed,) = [line for line in lines if line.startswith("maintain: roll: failed: ")]
    assert damaged.name in failed
    assert lines[-1].startswith("maintain: failed: 1 problem, see above")
    assert segments(root, "refunds") == [1, 1]
    assert segments(root, "orders") == [1, 20]


def test_a_root_without_a_cluster_is_reported_in_one_line(
    maintain: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert maintain("--bootstrap-server", str(tmp_path / "nothing")) == 1
    assert str(tmp_path / "nothing") in capfd.readouterr().err.splitlines()[-1]


def test_a_topic_pattern_without_a_match_is_reported(
    maintain: Job, root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert maintain("--bootstrap-server", root, "--topic", "oders") == 1
    assert "--topic 'oders' matches no topic of the cluster" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--bootstrap-server is required"),
        (["--bootstrap-server", "r", "--only", "rol"], "unknown step 'rol'; choose from "),
        (["--bootstrap-server", "r", "--topic", "("], "invalid regular expression '('"),
    ],
)
def test_an_invalid_command_line_exits_with_2_and_reports_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    with pytest.raises(SystemExit) as exited:
        load("jobs/maintain.py").parse(arguments)
    assert exited.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_spark_submit_with_separate_executors(root: str) -> None:
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    finished = run([*submit, str(ROOT / "jobs/maintain.py"), "--bootstrap-server", root], PATH=path)
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert (
        "maintain: roll: files rewritten 80, into files 4" in finished.stdout
    )  # spark-submit sends both outputs there
    assert values(root, "orders") == written("orders")
    assert segments(root, "orders") == [1, 1]


@pytest.mark.programs
def test_the_command_line_with_distributed_does_the_same(root: str) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "maintain", "--once", "--distributed", "--master", "local[2]"]
    finished = run([*command, "--bootstrap-server", root, "--only", "roll"])
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert finished.stdout.startswith("roll: files rewritten 80, into files 4")
    assert values(root, "refunds") == written("refunds")


@pytest.mark.programs
@pytest.mark.parametrize("starter", ["python", "spark-submit"])
def test_a_loop_ends_at_sigterm(root: str, tmp_path: Path, starter: str) -> None:
    program, spark = str(ROOT / "jobs/maintain.py"), ["--master", "local[2]"]
    submit = str(Path(sys.executable).parent / "spark-submit")
    command = [sys.executable, program, *spark] if starter == "python" else [submit, *spark, program]
    command += ["--loop", "--only", "roll", "--bootstrap-server", root]
    with (tmp_path / "output").open("w") as output:
        environment = clean_environment(PYSPARK_PYTHON=sys.executable)
        loop = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while "roll: files rewritten 80" not in (tmp_path / "output").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(60) == 0
    lines = (tmp_path / "output").read_text().splitlines()
    assert any("roll: files rewritten 80" in line for line in lines)
    assert "maintain: stopped" in lines
    assert segments(root, "orders") == [1, 1]
