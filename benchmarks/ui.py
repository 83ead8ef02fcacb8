"""How fast the web page is: 1,000 topics of 10 partitions, 200 groups, in a process of its own, through HTTP.

.venv/bin/python benchmarks/run.py --only ui

The first page is measured from the start of the process; a page is the median of its requests, each at a new version
of the cluster, so that nothing that was kept for the last viewer is of use.

Rules: segments have no files, as in ``clusters``; the page of records has a topic with files of its own.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from pathlib import Path

import sparklog
from benchmarks.clusters import named_run
from benchmarks.measure import ROOT, Figure, Settings, median, milliseconds, scratch
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.log.commits.commit_attempt import Outcome
from sparklog.protocol.commits import Action, Append, CommitOffsets, CommittedOffset, CreateTopic

TOPICS, PARTITIONS, GROUPS = 1000, 10, 200
COMMITS = 100_000
FIRST_SECONDS, PAGE_SECONDS, MEMORY_MIB = 2.0, 0.2, 400

PAGES = {
    "clusters": "/",
    "cluster": "/log",
    "topics": "/log/topics",
    "topics by size": "/log/topics?sort=-bytes",
    "topics found": "/log/topics?q=topic-05",
    "topic": "/log/topics/topic-0500",
    "segments": "/log/topics/topic-0500/segments",
    "configs of a topic": "/log/topics/topic-0500/configs?show=all",
    "records": "/log/topics/records/records",
    "groups": "/log/groups",
    "group": "/log/group?name=group-100",
    "brokers": "/log/brokers",
    "transactions": "/log/transactions",
    "commits": "/log/commits",
    "maintenance": "/log/maintenance",
    "configs": "/log/configs?show=all",
}


def run(settings: Settings) -> list[Figure]:
    """Return the figures: the first page, each page, and the memory of the process."""
    topics, groups, commits = (100, 20, 2000) if settings.quick else (TOPICS, GROUPS, COMMITS)
    with scratch("ui") as folder:
        root = folder / "log"
        cluster = build(root, topics, groups, commits)
        return _measure(root, cluster, settings, topics)


def build(root: Path, topics: int, groups: int, commits: int) -> Coordinator:
    """Make the cluster: topics, a group for each five topics, and then appends and commits of offsets in turn."""
    cluster = create_cluster(str(root))
    names = [f"topic-{number:04d}" for number in range(topics)]
    _commit(cluster, [_create(name) for name in names])
    with sparklog.Producer(cluster=cluster) as producer:
        for number in range(1000):
            producer.send("records", b'{"number": %d}' % number)
    ends: dict[tuple[str, int], int] = {}
    for number in range(commits):
        name = names[number * 7 % topics]
        if number % 2:
            group = number * 7 % topics * groups // topics
            offsets = [
                CommittedOffset(topic=name, topic_id=_topic_id(name), partition=each, offset=ends.get((name, each), 0))
                for each in range(PARTITIONS)
            ]
            _commit(cluster, [CommitOffsets(group=f"group-{group:03d}", offsets=offsets)])
        else:
            partition = number // 2 % PARTITIONS
            base = ends.get((name, partition), 0)
            ends[name, partition] = base + 100
            run = named_run(name, partition, base, 100)
            _commit(
                cluster,
                [Append(topic=name, topic_id=_topic_id(name), partition=partition, base_offset=base, run=run)],
            )
    return cluster


def _topic_id(name: str) -> str:
    return f"id-{name}"


def _create(name: str) -> Action:
    return CreateTopic(topic=name, topic_id=_topic_id(name), replicas=[[0]] * PARTITIONS)


def _commit(cluster: Coordinator, actions: list[Action]) -> None:
    assert cluster.log.attempt(actions) is Outcome.WON


def _measure(root: Path, cluster: Coordinator, settings: Settings, topics: int) -> list[Figure]:
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
            for name, path in PAGES.items():
                place = path.replace("0500", f"{topics // 2:04d}").replace("group-100", "group-000")
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
    _commit(cluster, [CommitOffsets(group="another", offsets=[])])
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
