"""``sparklog metrics``: the server, one scrape into a file, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparklog.cli.arguments.listen import parse_listen
from sparklog.cli.commands.monitoring.metrics import MAX_LOOKBACK
from sparklog.coordinator import Coordinator
from sparklog.monitoring.exporter.cluster_metrics import MAX_NEW_COMMITS
from sparklog.monitoring.listen_address import is_loopback, url_of
from sparklog.protocol.commits import CommitOffsets, CommittedOffset

from .conftest import SPARKLOG, Run, commit

ROOT = Path(__file__).resolve().parents[3]


def values(text: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def test_the_server_answers_until_it_is_stopped(cluster: Coordinator) -> None:
    cluster.create_topic("orders", 3)
    command = [*SPARKLOG, "metrics", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        found = re.fullmatch(r"the metrics of (.*) are at (http://127\.0\.0\.1:\d+/metrics)\n", line)
        assert found is not None, line
        assert found[1] == cluster.store.root
        with urllib.request.urlopen(found[2], timeout=30) as answer:
            scraped = values(answer.read().decode())
    finally:
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=30)
    assert (scraped["sparklog_up"], scraped["kafka_topic_partitions"]) == (1, 3)
    assert scraped["process_resident_memory_bytes"] > 0
    assert (server.returncode, err) == (0, "stopped\n")


def test_once_prints_the_metrics_without_counters_of_the_process(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("orders", 3)
    result = run("metrics", "--once", "--label", 'cluster=e"u', "--topic.filter", "^ord", "--lookback", "5")
    assert (result.code, result.err) == (0, "")
    printed = values(result.out)
    assert (printed["sparklog_up"], printed["kafka_topic_partitions"]) == (1, 3)
    assert all('cluster="e\\"u"' in line for line in result.lines if not line.startswith("#"))
    assert "_total" not in result.out.replace("sparklog_commits_total", "").replace("sparklog_commit_bytes_total", "")
    assert "kafka_topic" not in run("metrics", "--once", "--topic.exclude", "orders").out


def test_a_file_is_replaced_as_a_whole_and_kept_if_the_cluster_cannot_be_read(
    run: Run, root: str, tmp_path: Path
) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    path = folder / "sparklog.prom"
    path.write_text("old\n")
    result = run("metrics", "--once", "--output", str(path), "--bootstrap-server", str(tmp_path / "none"))
    assert (result.code, path.read_text()) == (1, "old\n")
    assert run("metrics", "--once", "--output", str(path)).code == 0
    assert values(path.read_text())["sparklog_up"] == 1
    assert os.listdir(folder) == ["sparklog.prom"]
    result = run("metrics", "--once", "--output", str(folder))
    assert result.code == 1
    assert result.err.startswith(f"--output: {folder} cannot be written: ")
    assert sorted(os.listdir(tmp_path)) == ["cluster", "textfile"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "9308"], "invalid --listen '9308': give HOST:PORT, such as 127.0.0.1:9308 or [::1]:9308"),
        (["--listen", "127.0.0.1:70000"], "invalid --listen '127.0.0.1:70000': give HOST:PORT"),
        (["--listen", ":9308"], "--listen :9308: other machines could read the metrics, without password or TLS"),
        (["--listen", "[::]:9308"], "--listen [::]:9308: other machines could read the metrics"),
        (["--listen", "example.org:9308"], "--listen example.org:9308: other machines could read the metrics"),
        (["--once", "--listen", "127.0.0.1:0"], "--listen is for the server, which --once does not start"),
        (["--once", "--allow-remote"], "--allow-remote is for the server"),
        (["--output", "f"], "--output requires --once"),
        (["--once", "--topic.filter", "["], "--topic.filter '[' is an invalid regex: "),
        (["--once", "--group.exclude", "("], "--group.exclude '(' is an invalid regex: "),
        (["--once", "--label", "topic=t"], "invalid --label 'topic': metrics have a label of this name"),
        (["--once", "--label", "a-b=c"], "invalid --label 'a-b': must be letters, digits and underscores"),
        (["--once", "--label", "__name__=c"], "invalid --label '__name__': "),
        (["--once", "--label", "cluster=\udcff"], "--label 'cluster=\\udcff': the byte 0xff is not UTF-8"),
        (["--once", "--lookback", "-1"], "invalid --lookback -1: must be at least 0"),
        (["--once", "--lookback", "5001"], "invalid --lookback 5001: must be at least 0, and at most 5000"),
    ],
)  # fmt: skip
def test_what_is_invalid_is_refused(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("metrics", *arguments)
    assert result.code == 1
    assert result.err.startswith(message)


def test_a_port_that_is_taken_is_refused(run: Run, root: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("metrics", "--listen", f"127.0.0.1:{port}")
    assert result.code == 1
    assert result.err.startswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use; give another")


def test_addresses_are_parsed_and_loopback_is_known() -> None:
    assert [parse_listen(text) for text in ("127.0.0.1:1", "[::1]:2", ":3", "localhost:4")] == [
        ("127.0.0.1", 1), ("::1", 2), ("0.0.0.0", 3), ("localhost", 4),
    ]  # fmt: skip
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example.org")] == [False] * 4
    assert url_of("::1", 9308, "/metrics") == "http://[::1]:9308/metrics"


@pytest.mark.go
def test_prometheus_parses_the_metrics_the_rules_and_the_expressions_of_the_dashboard(
    run: Run, cluster: Coordinator, tmp_path: Path
) -> None:
    topic_id = cluster.create_topic("orders", 2)
    committed = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=0)
    commit(cluster, CommitOffsets(group='a\\"\n\x07\u202eb', offsets=[committed]))
    path = tmp_path / "sparklog.prom"
    assert run("metrics", "--once", "--output", str(path)).code == 0
    dashboard = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    lines = "\n".join(re.sub(r"\$__rate_interval", "5m", expression) for expression in expressions)
    folder = ROOT / "tests" / "promcheck"
    if shutil.which("go") is None or subprocess.run(["go", "mod", "download"], cwd=folder, check=False).returncode:
        pytest.skip("Go is not installed, or cannot fetch modules")
    command = ["go", "run", ".", str(ROOT / "conf" / "prometheus-alerts.yml"), str(path)]
    checked = subprocess.run(command, cwd=folder, input=lines, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert int(checked.stdout.split()[0]) > 30


def test_as_many_commits_can_be_looked_back_at_as_are_read_at_once() -> None:
    assert MAX_LOOKBACK == MAX_NEW_COMMITS
