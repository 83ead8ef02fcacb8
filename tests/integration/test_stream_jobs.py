"""The streaming programs of jobs/: in this process with the tests' session, and one in a process that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.coordinator import Coordinator
from sparklog.spark.jobs.batch import SUBMITTED_VARIABLE
from tests.cluster.spark.helpers import write_rows
from tests.integration.processes import clean_environment
from tests.integration.test_jobs import ROOT, load
from tests.integration.test_stream_queries import log, produce, values  # noqa: F401

WAIT_SECONDS = 240


def run(name: str, *arguments: str) -> int:
    program = load(f"jobs/{name}.py")
    return program.job.run(name, lambda: getattr(program, name)(program.parse(list(arguments))))


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the session of the tests as that of spark-submit."""
    monkeypatch.setenv(SUBMITTED_VARIABLE, "1")


def test_stream_copy_copies_the_selected_records_and_commits_offsets_of_the_group(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    produce(spark, log, 10)
    cluster = ["--bootstrap-server", log.store.root, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    topics = [
        "--topic",
        "orders",
        "--to",
        "copies",
        "--value",
        "concat(CAST(value AS STRING), '0')",
        "--group",
        "copier",
    ]
    topics += ["--where", "CAST(CAST(value AS STRING) AS INT) < 5"]
    assert run("stream_copy", *cluster, *topics) == 0
    assert values(spark, log) == [0, 10, 20, 30, 40]
    assert sum(entry.offset for entry in log.refresh().groups["copier"].offsets.values()) == 10
    assert "ended after 10 records" in capsys.readouterr().err


def test_stream_to_table_keeps_a_table_of_parquet_files_up_to_date(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    arguments = ["--bootstrap-server", log.store.root, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    arguments += ["--topic", "orders", "--path", str(tmp_path / "table"), "--value-schema", "id int", "--select", "id"]
    for first in (0, 10):
        rows = spark.range(first, first + 10).selectExpr("to_json(struct(id)) value")
        sparklog.write(rows, log.store.root, "orders")
        assert run("stream_to_table", *arguments) == 0
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "table")).collect()) == list(range(20))


def test_a_failure_is_reported_in_one_line(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = ["--bootstrap-server", log.store.root, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    assert run("stream_copy", *cluster, "--topic", "nothing", "--to", "copies") == 1
    assert "topic 'nothing' does not exist" in capsys.readouterr().err


SUBMIT = [str(Path(sys.executable).parent / "spark-submit")]
SETTINGS = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]


@pytest.mark.programs
@pytest.mark.parametrize("signalled", ["the program", "spark-submit", "all"])
def test_sigterm_stops_a_program_and_the_next_start_continues(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
    signalled: str,
) -> None:
    folder = Path(log.store.root.removeprefix("file://"))
    write_rows(folder, "value string", [{"value": str(number)} for number in range(7)], topic="orders")
    cluster = ["--bootstrap-server", log.store.root, "--checkpoint", str(tmp_path / "checkpoint")]
    topics = ["--topic", "orders", "--to", "copies"]
    program = subprocess.Popen(
        [sys.executable, "jobs/stream_copy.py", *cluster, *topics, *SETTINGS]
        if signalled == "the program"
        else [*SUBMIT, *SETTINGS, "jobs/stream_copy.py", *cluster, *topics],
        cwd=ROOT,
        env=clean_environment(PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit prints what the program prints to stdout
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stdout is not None
        for line in program.stdout:
            if "batch 0: 7 records" in line:
                break
        if signalled == "all":  # as a service manager does: Spark's Python processes, too
            os.killpg(program.pid, signal.SIGTERM)
        else:
            program.send_signal(signal.SIGTERM)
        errors = program.stdout.read()
        assert program.wait(WAIT_SECONDS) == 0, errors
        assert "stopped after 7 records" in errors
        assert signalled == "all" or "\tat " not in errors, errors  # a stack trace of Java's
    finally:
        program.kill()
        assert program.stdout is not None
        program.stdout.close()
        program.wait()
    produce(spark, log, 3, first=7)
    assert run("stream_copy", *cluster, *topics, "--available-now") == 0
    assert values(spark, log) == list(range(10))


QUERY = """
import sys
from pyspark.sql import SparkSession
import sparklog

spark = SparkSession.Builder().getOrCreate()
sparklog.register(spark)
root, folder, checkpoint = sys.argv[1:]
rows = spark.readStream.format("sparklog").option("subscribe", "orders").load(root)
writer = rows.select("value").writeStream.queryName("audit").option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start(folder).awaitTermination()
"""


@pytest.mark.programs
def test_a_program_that_ends_with_its_query_gets_the_last_events_and_prints_no_stack_trace(
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = Path(log.store.root.removeprefix("file://"))
    write_rows(folder, "value string", [{"value": str(number)} for number in range(7)], topic="orders")
    (tmp_path / "query.py").write_text(QUERY)
    paths = [log.store.root, str(tmp_path / "table"), str(tmp_path / "checkpoint")]
    ended = subprocess.run(
        [*SUBMIT, *SETTINGS, str(tmp_path / "query.py"), *paths],
        env=clean_environment(PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    assert "\tat " not in ended.stdout, ended.stdout  # a stack trace of Java's
    assert sum(entry.offset for entry in log.refresh().groups["audit"].offsets.values()) == 7
