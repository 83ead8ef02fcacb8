"""Programs and libraries written for kafka-python, run unchanged with sparklog in its place.

Each runs in its own process, with the Python of ``.venv-thirdparty`` (``make test-thirdparty`` installs it;
``SPARKLOG_TEST_THIRDPARTY_PYTHON`` names another), through ``python -m sparklog.kafka.run``. The programs name brokers
as usual, but no server listens there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.types import OffsetAndMetadata, TopicPartition

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PYTHON = os.environ.get("SPARKLOG_TEST_THIRDPARTY_PYTHON", str(ROOT / ".venv-thirdparty" / "bin" / "python"))
BROKER = "localhost:9092"

pytestmark = [
    pytest.mark.thirdparty,
    pytest.mark.skipif(
        not Path(PYTHON).exists(), reason="not installed: make test-thirdparty installs .venv-thirdparty"
    ),
]

Run = Callable[..., str]


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 2)
    return coordinator


@pytest.fixture
def run(cluster: Coordinator) -> Run:
    """Run a program to its end; return its output."""

    def run_program(*arguments: str, stdin: str = "", code: int = 0) -> str:
        finished = subprocess.run(
            [PYTHON, "-m", "sparklog.kafka.run", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARKLOG_BOOTSTRAP_SERVER": cluster.store.root},
            timeout=60,
        )
        assert finished.returncode == code, finished.stdout + finished.stderr
        return finished.stdout

    return run_program


def printed(run: Run, program: str) -> Any:
    return json.loads(run(str(PROGRAMS / program)).splitlines()[-1])


# -- libraries


def test_opentelemetry_traces_a_send_and_its_receive_together(run: Run) -> None:
    output = printed(run, "opentelemetry_spans.py")
    assert output.pop("partition") in (0, 1)
    assert output == {
        "spans": ["orders send", "orders receive"],
        "one trace": True,
        "headers": ["mine", "traceparent"],
        "destination": "orders",
        "url": [BROKER],
    }


def test_elastic_apm_records_spans_for_sends_and_polls_and_a_transaction_per_record(run: Run) -> None:
    output = printed(run, "elastic_apm_spans.py")
    assert output == {
        "spans": ["Kafka POLL from orders", "Kafka SEND to orders"],
        "transactions": ["produce", "poll", "Kafka RECEIVE from orders"],
        "polled": 1,
        "headers": ["elasticapmtraceparent"],
    }


def test_a_kq_worker_runs_queued_jobs(run: Run) -> None:
    output = printed(run, "kq_jobs.py")
    assert [(status, result) for status, result, _, _ in output["results"]] == [("success", 4), ("success", 6)]
    assert output["hosts"] == [BROKER, BROKER]


def test_a_logging_handler_sends_log_records(run: Run) -> None:
    assert printed(run, "logging_handler.py") == [
        ["WARNING", "low on stock", "orders"],
        ["ERROR", "out of stock", "orders"],
    ]


# -- kafka-python's own command line


def admin(run: Run, *arguments: str, code: int = 0) -> Any:
    """Run ``python -m kafka.admin``; return its JSON output, or the text of a failure."""
    text = run("-m", "kafka.admin", "-b", BROKER, "--format", "json", *arguments, code=code).strip()
    return json.loads(text) if code == 0 else text


def test_the_command_line_producer_writes_and_the_consumer_reads(run: Run, cluster: Coordinator) -> None:
    run("-m", "kafka.producer", "-b", BROKER, "-t", "orders", stdin="one\ntwo\nthree\n")
    settings = ["-C", "auto_offset_reset=earliest", "-C", "consumer_timeout_ms=1000"]
    text = run("-m", "kafka.consumer", "-b", BROKER, "-t", "orders", "-g", "readers", *settings)
    assert sorted(text.split()) == ["one", "three", "two"]
    assert "readers" in cluster.refresh().groups


def test_the_command_line_creates_lists_and_deletes_topics(run: Run, cluster: Coordinator) -> None:
    admin(run, "topics", "create", "-t", "returns", "--num-partitions", "3")
    assert sorted(admin(run, "topics", "list")) == ["orders", "returns"]
    assert len(cluster.refresh().topic("returns").partitions) == 3
    assert "already exists" in admin(run, "topics", "create", "-t", "returns", "--num-partitions", "3", code=1)
    admin(run, "topics", "delete", "-t", "returns")
    assert admin(run, "topics", "list") == ["orders"]


def test_the_command_line_describes_the_cluster_and_refuses_what_needs_a_server(run: Run, cluster: Coordinator) -> None:
    assert admin(run, "cluster", "describe")["cluster_id"] == cluster.state.cluster_id
    assert "there are no servers" in admin(run, "cluster", "api-versions", code=1)
    assert "permissions of the storage" in admin(run, "acls", "describe", code=1)


def test_the_command_line_lists_offsets_and_alters_group_offsets(run: Run, cluster: Coordinator) -> None:
    run("-m", "kafka.producer", "-b", BROKER, "-t", "orders", stdin="one\ntwo\n")
    partition = TopicPartition("orders", 0)
    run("-m", "kafka.producer", "-b", BROKER, "-t", "orders", stdin="three\n")
    shown = admin(run, "partitions", "list-offsets", "-t", "orders", "-s", "latest")["orders"]
    ends = [cluster.refresh().partition("orders", number).log_end_offset for number in range(2)]
    assert sum(ends) == 3
    assert [shown[str(number)]["offset"] for number in range(2)] == ends
    run("-m", "kafka.admin", "-b", BROKER, "groups", "alter-offsets", "-g", "billing", "-o", "orders:0:1")
    with AdminClient(cluster=cluster) as client:
        assert client.list_group_offsets({"billing": None})["billing"] == {partition: OffsetAndMetadata(1)}
    assert "billing" in run("-m", "kafka.admin", "-b", BROKER, "groups", "list")
