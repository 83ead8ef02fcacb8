"""The programs of jobs/: by python, by spark-submit, and on separate executors, one of which is killed while it writes.

Tests that need no separate process run the program in this one, with the tests' session, as under spark-submit.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.spark.jobs import attempts
from sparklog.spark.jobs.batch import SUBMITTED_VARIABLE
from tests import quick_jvm
from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
CITIES = ("Ulm", "Oslo", "Lima", "Bonn", "")
Job = Callable[..., int]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def produce(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Run jobs/produce.py in this process; return its exit code."""
    monkeypatch.setenv(SUBMITTED_VARIABLE, "1")
    program = load("jobs/produce.py")
    return lambda *arguments: program.job.run("produce", lambda: program.produce(program.parse(list(arguments))))


@pytest.fixture
def consume(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Run jobs/consume.py in this process; return its exit code."""
    monkeypatch.setenv(SUBMITTED_VARIABLE, "1")
    program = load("jobs/consume.py")
    return lambda *arguments: program.job.run("consume", lambda: program.consume(program.parse(list(arguments))))


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A cluster with the topic trips, which has four partitions."""
    address = str(tmp_path / "log")
    create_cluster(address).create_topic("trips", 4)
    return address


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """1,000 rows of CSV; every fifth has no city."""
    path = tmp_path / "trips.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "city", "at"])
        writer.writerows([n, CITIES[n % 5], f"2026-01-01 00:{n // 60:02}:{n % 60:02}"] for n in range(1000))
    return path


def from_csv(root: str, path: Path, *more: str) -> list[str]:
    options = ["--bootstrap-server", root, "--topic", "trips", "--format", "csv", "--path", str(path)]
    return [*options, "--option", "header=true", *more]


def records(root: str, topic: str = "trips") -> list[ConsumerRecord]:
    """Return every record of a topic, read without Spark."""
    with LogReader(open_cluster(root)) as reader:
        ends = [partition.high_watermark for partition in reader.state.topics[topic].partitions]
        return [record for partition, end in enumerate(ends) for record in reader.records(topic, partition, 0, end)]


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=clean_environment(**environment), capture_output=True, text=True, check=False, timeout=300
    )


def last_line(finished: subprocess.CompletedProcess[str]) -> str:
    return finished.stderr.strip().splitlines()[-1]


def failure_in(errors: str) -> str:
    """Return the one line with the reason; Spark's JVM prints other lines."""
    (line_of_failure,) = [
        line for line in errors.splitlines() if line.startswith(("produce: failed: ", "consume: failed: "))
    ]
    return line_of_failure


# -- produce


@pytest.mark.programs
def test_a_csv_file_becomes_records_partitioned_by_key_as_in_kafka(root: str, trips: Path) -> None:
    job = [sys.executable, str(ROOT / "jobs/produce.py"), "--master", "local[2]"]
    finished = run([*job, *from_csv(root, trips, "--key", "city", "--timestamp", "at")])
    assert finished.returncode == 0, finished.stderr
    assert "produce: 1,000 records written to topic trips in " in last_line(finished)
    assert finished.stdout == ""
    stored = records(root)
    assert sorted(int(json.loads(record.value or b"")["id"]) for record in stored) == list(range(1000))
    for record in stored:
        row = json.loads(record.value or b"")
        assert (record.key or b"").decode() == row.get("city", "")
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 4)
        assert record.timestamp_us == (1767225600 + int(row["id"])) * 1_000_000


@pytest.mark.programs
def test_a_rerun_of_a_job_by_spark_submit_writes_no_duplicates(
    produce: Job, root: str, trips: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The rerun is another application with a driver of its own: this process."""
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    arguments = from_csv(root, trips, "--txn-app-id", "daily", "--txn-version", "7")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    first = run([*submit, str(ROOT / "jobs/produce.py"), *arguments], PATH=path)
    assert first.returncode == 0, first.stderr
    assert "produce: 1,000 records written to topic trips in " in first.stdout, (
        "spark-submit sends both outputs of a program to its own stdout"
    )
    assert produce(*arguments) == 0
    assert "version 7 of daily was written before: nothing to do" in capfd.readouterr().err
    assert len(records(root)) == 1000


def test_a_second_attempt_of_an_application_writes_no_duplicates(
    produce: Job, root: str, trips: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """YARN cannot run here: the session only reports it as master, and keeps its application id."""

    def settings_on_yarn(spark: SparkSession) -> attempts.Settings:
        yarn_settings = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
        return lambda name, default: yarn_settings.get(name) or spark.conf.get(name, default) or ""

    monkeypatch.setattr(attempts, "settings_of", settings_on_yarn)
    assert produce(*from_csv(root, trips, "--value", "id")) == 0
    assert produce(*from_csv(root, trips, "--value", "id")) == 0
    assert "was written before: nothing to do" in capfd.readouterr().err
    assert sorted(int(record.value or b"") for record in records(root)) == list(range(1000))
    (application,) = open_cluster(root).state.applications
    assert application.startswith("spark:local-")


def test_run_dates_may_come_in_any_order_and_each_is_written_once(produce: Job, root: str, trips: Path) -> None:
    for date in ("2026-11-20", "2026-11-18", "2026-11-20"):
        assert produce(*from_csv(root, trips, "--txn-app-id", "daily", "--run-date", date)) == 0
    assert len(records(root)) == 2000


def test_expressions_define_value_partition_and_headers(produce: Job, root: str, trips: Path) -> None:
    expressions = ["--value", "id", "--partition", "CAST(id AS INT) % 2"]
    headers = ["--headers", "array(named_struct('key', 'from', 'value', CAST(city AS BINARY)))"]
    assert produce(*from_csv(root, trips, *expressions, *headers)) == 0
    stored = records(root)
    assert len(stored) == 1000
    assert all(record.partition == int(record.value or b"-1") % 2 for record in stored)
    assert {tuple(record.headers) for record in stored} == {
        (("from", (city or None) and city.encode()),) for city in CITIES
    }


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_keep_all_their_digits_into_a_topic_and_out_of_it(
    produce: Job, consume: Job, spark: SparkSession, root: str, tmp_path: Path, zone: str
) -> None:
    schema = "at timestamp, local timestamp_ntz, day date, price decimal(20,7), x double, raw binary"
    typed_schema = {"value.format": "json", "value.schema": "at timestamp, price decimal(20,7), raw binary"}
    open_cluster(root).create_topic("typed", 1, configs=typed_schema)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql(
            "SELECT timestamp_micros(1767225600123456) AS at, timestamp_ntz'2026-01-01 00:00:00.123456' AS local,"
            " date'2026-01-01' AS day, 1234567890123.1234567BD AS price, 0.1D AS x, X'00FF' AS raw"
            " UNION ALL SELECT timestamp_micros(-3786825538999999), NULL, NULL, NULL, NULL, NULL"
        ).coalesce(1)
        given = str(tmp_path / "given")
        rows.write.parquet(given)
        arguments = ("--bootstrap-server", root, "--topic", "typed")
        assert produce(*arguments, "--format", "parquet", "--path", given) == 0
        first, second = [json.loads(record.value or b"", parse_float=str) for record in records(root, "typed")]
        assert first["local"] == "2026-01-01T00:00:00.123456"
        assert (first["price"], first["x"], first["raw"]) == ("1234567890123.1234567", "0.1", "AP8=")
        typed = sparklog.scan("typed", root, columns=["at", "price", "_unfit"]).to_arrow().to_pylist()
        micros = [(row["at"] - EPOCH) // timedelta(microseconds=1) for row in typed]
        assert micros == [1767225600123456, -3786825538999999], (first, second)
        assert [row["_unfit"] for row in typed] == [False, False]
        for name in ("csv", "json"):
            out = str(tmp_path / name)
            assert consume(*arguments, "--format", name, "--path", out, "--value-schema", schema) == 0
            read = spark.read.schema("at timestamp").format(name)
            read = read.option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX") if name == "csv" else read
            found = {row[0] for row in read.load(out).selectExpr("unix_micros(at)").collect()}
            assert found == set(micros), name
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_rows_go_to_the_topics_they_name_if_no_topic_is_given(produce: Job, root: str, tmp_path: Path) -> None:
    create = open_cluster(root)
    create.create_topic("other")
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps({"topic": ("trips", "other")[n % 2], "n": n}) + "\n" for n in range(10)))
    assert produce("--bootstrap-server", root, "--format", "json", "--path", str(path), "--value", "n") == 0
    assert sorted(int(record.value or b"") for record in records(root)) == [0, 2, 4, 6, 8]
    assert sorted(int(record.value or b"") for record in records(root, "other")) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--path", "missing.csv"], "PATH_NOT_FOUND"),
        (["--value", "nothing"], "UNRESOLVED_COLUMN"),
        (["--partition", "99"], "partitions 0 to 3, not 99"),
        (["--value", "repeat(city, 1000000)"], "max.message.bytes"),
        (["--partitioner", "no_such_module:f"], "no_such_module"),
    ],
)
def test_a_failed_write_is_reported_in_one_line_and_changes_nothing(
    produce: Job, root: str, trips: Path, capfd: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert produce(*from_csv(root, trips, *more)) == 1
    failure = failure_in(capfd.readouterr().err)
    assert message in failure
    assert "Traceback" not in failure
    assert records(root) == []


def test_a_root_without_a_cluster_is_reported_in_one_line(
    produce: Job, trips: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert produce(*from_csv(str(tmp_path / "nothing"), trips)) == 1
    assert str(tmp_path / "nothing") in failure_in(capfd.readouterr().err)


# -- consume


@pytest.fixture
def filled(produce: Job, root: str, trips: Path) -> str:
    assert produce(*from_csv(root, trips, "--key", "city", "--timestamp", "at")) == 0
    return root


def test_records_become_text_columns_with_partition_and_offset(
    consume: Job, spark: SparkSession, filled: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "out.parquet")
    read = ["--bootstrap-server", filled, "--topic", "trips", "--format", "parquet", "--path", target]
    assert consume(*read) == 0
    rows = spark.read.parquet(target)
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp"]
    by_offset = {(record.partition, record.offset): record for record in records(filled)}
    for row in rows.collect():
        record = by_offset.pop((row.partition, row.offset))
        assert row.key == (None if record.key is None else record.key.decode())
        assert row.value == (record.value or b"").decode()
    assert by_offset == {}


def test_json_values_become_columns(consume: Job, spark: SparkSession, filled: str, tmp_path: Path) -> None:
    target = str(tmp_path / "out.csv")
    read = ["--bootstrap-server", filled, "--include", "^tri", "--format", "csv", "--path", target]
    assert consume(*read, "--value-schema", "id string, city string", "--select", "id", "--select", "upper(city)") == 0
    rows = {(int(row[0]), row[1]) for row in spark.read.csv(target).collect()}
    assert rows == {(n, CITIES[n % 5].upper() or None) for n in range(1000)}


def test_a_value_that_does_not_match_the_schema_is_an_error_and_not_null(
    consume: Job, filled: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    read = ["--bootstrap-server", filled, "--topic", "trips", "--format", "csv", "--path", str(tmp_path / "out")]
    assert consume(*read, "--value-schema", "id int, city string", "--select", "id") == 1
    assert "MALFORMED_RECORD_IN_PARSING" in failure_in(capfd.readouterr().err)


def test_offsets_and_partitions_limit_the_records_read(
    consume: Job, spark: SparkSession, filled: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "out.json")
    read = ["--bootstrap-server", filled, "--topic", "trips", "--format", "json", "--path", target, "--partition"]
    busy = max({record.partition for record in records(filled)}, key=lambda p: p)
    start, end = (json.dumps({"trips": {str(busy): offset}}) for offset in (5, 8))
    assert consume(*read, str(busy), "--starting-offsets", start, "--ending-offsets", end) == 0
    assert sorted(row.offset for row in spark.read.json(target).collect()) == [5, 6, 7]


def test_an_existing_target_is_overwritten_only_on_request(
    consume: Job, filled: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    read = ["--bootstrap-server", filled, "--topic", "trips", "--format", "parquet", "--path", str(target)]
    assert consume(*read) == 0
    capfd.readouterr()
    assert consume(*read) == 1
    assert "already exists" in failure_in(capfd.readouterr().err)
    assert consume(*read, "--mode", "overwrite") == 0


def on_yarn(name: str, default: str) -> str:
    settings = {"spark.master": "yarn", "spark.submit.deployMode": "cluster", "spark.app.id": "application_1_7"}
    return settings.get(name, default)


def test_a_table_write_has_a_number_if_its_format_supports_that_and_else_warns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = load("jobs/consume.py")
    read = ["--bootstrap-server", "r", "--topic", "trips", "--path", "/t", "--mode", "append", "--format"]
    assert program.number_options(program.parse([*read, "delta"]), on_yarn) == {
        "txnAppId": "spark:application_1_7",
        "txnVersion": "0",
    }
    assert capsys.readouterr().err == ""
    assert program.number_options(program.parse([*read, "parquet"]), on_yarn) == {}
    assert "a second attempt (YARN, since spark.yarn.maxAppAttempts is not 1) appends" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        program.parse([*read, "parquet", "--txn-app-id", "daily", "--txn-version", "1"])


# -- command lines


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        ("produce", ["--topic", "t", "--format", "csv"], "--bootstrap-server is required"),
        ("produce", ["--bootstrap-server", "r", "--topic", "t"], "--format"),
        ("produce", ["--bootstrap-server", "r", "--format", "csv", "--txn-version", "1"], "belong together"),
        ("produce", ["--bootstrap-server", "r", "--format", "csv", "--option", "header"], "not of the form NAME=VALUE"),
        ("consume", ["--bootstrap-server", "r", "--format", "csv"], "--topic"),
        ("consume", ["--bootstrap-server", "r", "--format", "csv", "--topic", "a,b", "--partition", "1"], "one topic"),
        ("consume", ["--bootstrap-server", "r", "--format", "csv", "--topic", "a", "--mode", "new"], "--mode"),
    ],
)
def test_an_invalid_command_line_exits_with_2_and_reports_why(
    program: str,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    with pytest.raises(SystemExit) as exited:
        load(f"jobs/{program}.py").parse(arguments)
    assert exited.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("program", ["produce", "consume"])
def test_help_shows_examples(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        load(f"jobs/{program}.py").parse(["--help"])
    assert exited.value.code == 0
    assert f"spark-submit jobs/{program}.py" in capsys.readouterr().out


def test_the_option_master_is_refused_under_spark_submit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SUBMITTED_VARIABLE, "1")
    with pytest.raises(SystemExit) as exited:
        load("jobs/produce.py").parse(["--bootstrap-server", "r", "--format", "csv", "--master", "yarn"])
    assert exited.value.code == 2
    assert "before the name of the program" in capsys.readouterr().err


# -- separate executor processes

CLUSTER = "local-cluster[2,1,1024]"
pytestmark_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds processes through /proc")


def parents() -> dict[int, int]:
    """Return parent process ids by process id."""
    parent_ids = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parent_ids[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    return parent_ids


def ancestors(process: int, tree: dict[int, int]) -> Iterator[int]:
    while process in tree:
        process = tree[process]
        yield process


def is_executor(process: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def writing_executor(job: int, folder: str) -> int | None:
    """Return an executor of this job with a Python worker that has an unfinished file open below the folder."""
    if not any(Path(folder).glob("*/.tmp-*")):
        return None
    tree = parents()
    for process in tree:
        above = list(ancestors(process, tree))
        if job not in above:
            continue
        try:
            opened = [os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()]
        except OSError:
            continue
        if any(name.startswith(folder) and "/.tmp-" in name for name in opened):
            return next((ancestor for ancestor in above if is_executor(ancestor)), None)
    return None


@pytestmark_proc
@pytest.mark.stress
def test_every_record_is_written_once_when_an_executor_is_killed_while_writing(tmp_path: Path) -> None:
    root, ids = tmp_path / "log", tmp_path / "ids"
    create_cluster(str(root)).create_topic("numbers", 2)
    ids.mkdir()
    for part in range(8):
        (ids / f"{part}.csv").write_text("".join(f"{part * 50_000 + n}\n" for n in range(50_000)))
    command = [sys.executable, str(ROOT / "jobs/produce.py"), "--master", CLUSTER, "--log-level", "WARN"]
    command += ["--conf", "spark.sql.files.maxPartitionBytes=350000", "--conf", "spark.executor.memory=1g"]
    command += [word for name, value in quick_jvm.EXECUTORS.items() for word in ("--conf", f"{name}={value}")]
    command += ["--bootstrap-server", str(root), "--topic", "numbers", "--format", "csv", "--path", str(ids)]
    command += ["--schema", "id bigint", "--key", "id", "--value", "concat(id, repeat('.', 500))"]
    with (tmp_path / "output").open("w") as output:
        job = subprocess.Popen(command, env=clean_environment(), stdout=output, stderr=output)
        killed = None
        deadline = time.monotonic() + 240
        while killed is None and job.poll() is None and time.monotonic() < deadline:
            killed = writing_executor(job.pid, str(root))
            if killed is None:
                time.sleep(0.01)
            else:
                os.kill(killed, signal.SIGKILL)
        assert job.wait(240) == 0, (tmp_path / "output").read_text()[-5000:]
    assert killed is not None, "no executor was seen writing"
    printed = (tmp_path / "output").read_text()
    assert "Lost executor" in printed
    assert "400,000 records written to topic numbers" in printed
    stored = records(str(root), "numbers")
    assert sorted(int((record.value or b"").rstrip(b".")) for record in stored) == list(range(400_000))
    for partition in (0, 1):
        offsets = [record.offset for record in stored if record.partition == partition]
        assert offsets == list(range(len(offsets)))


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ``python3`` with all packages of this environment except sparklog."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bare = home / "lib" / version / "site-packages"
    for package in (Path(sys.prefix) / "lib" / version / "site-packages").iterdir():
        if "sparklog" not in package.name:
            (bare / package.name).symlink_to(package)
    return home / "bin"


def produce_on_bare_executors(
    root: str, trips: Path, bare_python: Path, *submit: str
) -> subprocess.CompletedProcess[str]:
    """Submit jobs/produce.py with sparklog installed on the driver but not on the executors."""
    driver = str(Path(sys.executable).parent)
    command = [f"{driver}/spark-submit", "--master", CLUSTER, *submit]
    command += ["--conf", f"spark.executorEnv.PATH={bare_python}:/usr/bin:/bin", "--conf", "spark.task.maxFailures=1"]
    command += [str(ROOT / "jobs/produce.py"), *from_csv(root, trips, "--key", "city")]
    path = f"{driver}{os.pathsep}{os.environ['PATH']}"
    return run(command, PATH=path, PYSPARK_PYTHON="python3", PYSPARK_DRIVER_PYTHON=sys.executable)


@pytest.mark.slow
def test_executors_without_the_package_fail_with_instructions(root: str, trips: Path, bare_python: Path) -> None:
    finished = produce_on_bare_executors(root, trips, bare_python)
    assert finished.returncode == 1
    failure = failure_in(finished.stdout)
    assert "lacks sparklog" in failure
    assert "--py-files" in failure
    assert records(root) == []


@pytest.mark.slow
def test_executors_without_the_package_import_it_from_the_zip(
    root: str, trips: Path, bare_python: Path, tmp_path: Path
) -> None:
    dist: Any = load("scripts/dist.py")
    dist.DIST = tmp_path
    seconds = dist.commit_seconds()
    archive = dist.zip_for_executors(dist.build_wheel(seconds), tmp_path, seconds)
    finished = produce_on_bare_executors(root, trips, bare_python, "--py-files", str(archive))
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert len(records(root)) == 1000
