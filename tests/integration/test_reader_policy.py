"""A user who may only read, by the policy ``reader``, reads everything with Spark and with the tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.clock import SystemClock
from sparklog.store.process_local import start_over
from sparklog.store.s3 import S3Store
from tests.cluster.test_least_privilege import fill
from tests.minio import Credentials, Minio, minio_server

__all__ = ["minio_server"]  # a fixture

pytestmark = pytest.mark.s3

FOLDER = "read-only"


@pytest.fixture(scope="module")
def reader(minio_server: Minio) -> Iterator[Credentials]:
    store = S3Store(f"s3://{minio_server.bucket}/{FOLDER}", minio_server.options())
    fill(store, SystemClock())
    user = minio_server.create_user("reader", FOLDER, "reader")
    before = [(info.key, info.modified_ms) for info in store.list()]
    start_over()
    yield user
    assert [(info.key, info.modified_ms) for info in store.list()] == before  # nothing was written


def spark_options(server: Minio, user: Credentials) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"s3://{server.bucket}/{FOLDER}",
        "storage.endpoint_url": server.endpoint,
        "storage.client_kwargs": f'{{"region_name": "{server.region}"}}',
        "storage.key": user.key,
        "storage.secret": user.secret,
        "startingOffsets": "earliest",
    }


@pytest.mark.parametrize("topic", ["orders", "events"])  # the second has history
def test_batch_and_stream_read_everything(
    topic: str, spark: SparkSession, minio_server: Minio, reader: Credentials, tmp_path: Path
) -> None:
    options = {**spark_options(minio_server, reader), "subscribe": topic}
    batch = spark.read.format("sparklog").options(**options).load()
    assert sorted(bytes(row.value) for row in batch.select("value").collect()) == [b"0", b"1", b"2"]
    stream = spark.readStream.format("sparklog").options(**options).load().select("value")
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    copied = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.value) for row in copied) == [b"0", b"1", b"2"]


READING = [
    ["cluster", "describe"],
    ["topics", "--list"],
    ["topics", "--describe", "--topic", "orders"],
    ["get-offsets", "--topic", "orders"],
    ["console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "3"],
    ["consumer-groups", "--list"],
]


def run(server: Minio, user: Credentials, command: list[str]) -> subprocess.CompletedProcess[str]:
    arguments = [*command, "--bootstrap-server", f"s3://{server.bucket}/{FOLDER}"]
    return subprocess.run(
        [sys.executable, "-m", "sparklog.cli", *arguments],
        env={**os.environ, **server.environment(user)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_tools_that_read_work(command: list[str], minio_server: Minio, reader: Credentials) -> None:
    done = run(minio_server, reader, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AccessDenied" not in done.stdout + done.stderr


def test_fsck_finds_no_error(minio_server: Minio, reader: Credentials) -> None:
    done = run(minio_server, reader, ["fsck"])
    assert "0 errors, 1 warning" in done.stdout  # the location that is in the memory of another process
    assert "AccessDenied" not in done.stdout + done.stderr


def test_a_command_that_writes_names_the_right_in_one_line(minio_server: Minio, reader: Credentials) -> None:
    done = run(minio_server, reader, ["topics", "--create", "--topic", "new"])
    assert done.returncode != 0
    assert "the credentials lack s3:PutObject on it; conf/policies/s3" in done.stderr
    assert "Traceback" not in done.stderr
