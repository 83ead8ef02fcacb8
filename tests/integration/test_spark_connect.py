"""Sessions of Spark Connect: a server, and clients in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from tests.cluster.maintenance.logs import Written, append
from tests.integration.processes import clean_environment

for name in ("grpc", "zstandard"):  # clients of storages bring the first alone
    pytest.importorskip(name, reason=f"Spark Connect needs {name}: pip install 'sparklog[connect]'")

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
START_SECONDS = 120
RUN_SECONDS = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on this machine with two slots."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(BIN / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2]", "--name", "connect"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = clean_environment(
        PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable
    )
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(port, process, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server accepts connections. Fails if it ends, or after ``START_SECONDS``."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()[-3000:]}")


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 4)
    return coordinator


def run(server: str, program: str, *arguments: str) -> list[str]:
    """Run a program of connect_programs.py and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.connect_programs", program, *arguments],
        cwd=ROOT,
        env=clean_environment(PYTHONPATH=str(ROOT), SPARK_REMOTE=server),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout.splitlines()


def produce(log: Coordinator, count: int = 120) -> None:
    append(log, "orders", [Written(b"k%d" % (number % 10), b"v%d" % number) for number in range(count)])


def test_batch_queries_read_and_write(server: str, log: Coordinator) -> None:
    """Once for each transaction, anew in each query, and by the version of a snapshot."""
    lines = run(server, "batch", log.store.root)
    assert lines == ["read 120 100", "again 121", "system ['orders']", "snapshot 121"]


def test_tables_in_sql_keep_their_options(server: str, log: Coordinator) -> None:
    assert run(server, "sql", log.store.root) == ["sql 1"]


def test_a_topics_table_has_its_history_and_the_records_after_it(server: str, log: Coordinator) -> None:
    configs = {"history.format": "delta", "segment.ms": "180000", "min.cleanable.dirty.ratio": "0"}
    typed = {"value.format": "json", "value.schema": "n long"}
    log.create_topic("history", 2, configs={**configs, **typed})
    for minute in range(14):
        records = [Written(b"k", b'{"n": %d}' % minute, minute)]
        append(log, "history", records)
        append(log, "history", records, partition=1)
    roll(log, InProcess())
    assert run(server, "table", log.store.root) == [
        "columns partition,offset,timestamp,key,value,headers,n,_unfit",
        "rows 28 28",
        "partition 1 14 typed 8",
        "same True",
        "view 10",
    ]


def test_a_stream_copies_once_and_reports_its_lag(server: str, log: Coordinator, tmp_path: Path) -> None:
    produce(log)
    assert run(server, "stream", log.store.root, str(tmp_path / "checkpoint")) == ["copied 120", "reported True 0"]
    state = log.refresh()
    committed = [state.committed("copier", "orders", number) for number in range(4)]
    assert sum(position.offset for position in committed if position is not None) == 120


def test_foreach_batch_writes_once_under_the_name_that_it_gives(server: str, log: Coordinator, tmp_path: Path) -> None:
    """A second checkpoint under the same name holds the same first batch, which is in the log already."""
    produce(log)
    first, again, second, forgetful = run(server, "for_each_batch", log.store.root, str(tmp_path))
    assert [first, again, second] == ["handle first 120", "handle first 120", "handle second 120"]
    assert "pass query_id" in forgetful


def test_a_group_consumes_and_sends_in_tasks(server: str, log: Coordinator) -> None:
    """As many tasks as the server has slots."""
    produce(log)
    assert run(server, "group", log.store.root) == [
        "consumed 120 by 2",
        "grouped 120",
        "nothing left []",
        "failed True False",
    ]
