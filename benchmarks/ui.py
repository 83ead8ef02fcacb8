"""How fast the web page is: 1,000 topics of 10 partitions, 200 groups and 100,000 commits of a day, in a process of its
own, through HTTP.

.venv/bin/python benchmarks/run.py --only ui

The first page is measured from the start of the process. A page is the median of its requests, each at a new version of
the cluster, so that nothing that was kept for the last viewer is of use.

Rules: segments have no files, as in ``monitoring``, but those of the topic whose records are shown.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from pathlib import Path

import sparklog
from benchmarks import monitoring
from benchmarks.measure import ROOT, Figure, Settings, median, milliseconds, scratch
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.protocol.commits import CommitOffsets

FIRST_SECONDS, PAGE_SECONDS, MEMORY_MIB = 2.0, 0.2, 400

PAGES = {
    "clusters": "/",
    "cluster": "/log",
    "topics": "/log/topics",
    "topics by size": "/log/topics?sort=-bytes",
    "topics found": "/log/topics?q=topic-0005",
    "topic": "/log/topics/topic-000500",
    "segments": "/log/topics/topic-000500/segments",
    "configs of a topic": "/log/topics/topic-000500/configs?show=all",
    "records": "/log/topics/records/records",
    "groups": "/log/groups",
    "group": "/log/group?name=GROUP",
    "brokers": "/log/brokers",
    "transactions": "/log/transactions",
    "commits": "/log/commits",
    "maintenance": "/log/maintenance",
    "configs": "/log/configs?show=all",
}


def run(settings: Settings) -> list[Figure]:
    """Return the figures: the first page, each page, and the memory of the process."""
    with scratch("ui") as folder:
        root = folder / "log"
        monitoring.build(root, monitoring.QUICK if settings.quick else monitoring.LARGE)
        cluster = open_cluster(str(root))
        with sparklog.Producer(cluster=cluster) as producer:
            for number in range(1000):
                producer.send("records", b'{"number": %d}' % number)
        return _measure(root, cluster, settings)


def _measure(root: Path, cluster: Coordinator, settings: Settings) -> list[Figure]:
    command = [sys.executable, "-m", "sparklog.cli", "ui", str(root), "--listen", "127.0.0.1:0"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
            assert found is not None
            port = int(found[1])
            _get(port, "/log")
            first = time.perf_counter() - started
            figures = [_figure("first page after the start", first, FIRST_SECONDS)]
            while b"are being read" in _get(port, "/log"):
                time.sleep(0.1)
            complete = time.perf_counter() - started
            figures.append(Figure("first page with its plots", milliseconds(complete)))
            group = sorted(cluster.state.groups)[0]
            for name, path in PAGES.items():
                place = path.replace("GROUP", group)
                while b"are being read" in _get(port, place):
                    time.sleep(0.1)
                seconds = []
                for _ in range(settings.runs):
                    _change(cluster)
                    seconds.append(_timed_get(port, place))
                figures.append(_figure(f"page: {name}", median(seconds), PAGE_SECONDS))
            memory = _peak_mib(server.pid)
        finally:
            server.terminate()
    is_met = memory <= MEMORY_MIB
    return [*figures, Figure("memory", f"{memory:.0f} MiB", target=f"at most {MEMORY_MIB} MiB", met=is_met)]


def _change(cluster: Coordinator) -> None:
    """Make a new version, which the page reads within a second."""
    cluster.refresh()
    assert cluster.log.attempt([CommitOffsets(group="another", offsets=[])]) is CommitOutcome.WON
    time.sleep(1.2)


def _figure(name: str, seconds: float, target: float) -> Figure:
    is_met = seconds <= target
    return Figure(name, milliseconds(seconds), target=f"at most {milliseconds(target)}", met=is_met)


def _timed_get(port: int, path: str) -> float:
    started = time.perf_counter()
    _get(port, path)
    return time.perf_counter() - started


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:500])
        return body
    finally:
        connection.close()


def _peak_mib(process: int) -> float:
    """Return the largest resident memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024
