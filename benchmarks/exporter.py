"""Measure a scrape of ``sparklog metrics`` with 1,000 topics of 10 partitions, 200 groups and 10,000 offsets: over
HTTP, with and without compression, when every topic has changed since the last, and when one has.

The exporter runs in a process of its own, as it does in use; the cluster is in a local folder. The writer commits
between two scrapes, so that each reads new commits. Peak memory is that of the exporter.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.clusters import named_run
from benchmarks.measure import ROOT, Figure, Settings, median, scratch
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.monitoring.exporter.collector import READ_SECONDS
from sparklog.protocol.commits import Action, CommitOffsets, CommittedOffset, CreateTopic, JoinGroup
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.decision import Decision

TOPICS, PARTITIONS, GROUPS = 1_000, 10, 200
OFFSETS = TOPICS * PARTITIONS // GROUPS
LIMIT_MS = 200


def run(settings: Settings) -> list[Figure]:
    rounds = 5 if settings.quick else 15
    with scratch("exporter") as folder:
        coordinator = build(folder)
        with _exporter(folder) as (port, pid):
            _scrape(port)  # reads the commits before the start
            exporter = Exporter(port, pid, rounds)
            everything = exporter.measure(lambda: _append(coordinator, TOPICS))
            one = exporter.measure(lambda: _append(coordinator, 1))
            plain = exporter.measure(lambda: _append(coordinator, 1), compressed=False)
            size, packed = len(_scrape(port, compressed=False)), len(_scrape(port))
            memory = _peak_mib(pid)
    return [
        _figure("scrape, every topic changed", everything),
        _figure("scrape, one topic changed", one),
        _figure("scrape, one topic changed, not compressed", plain),
        Figure("size of the metrics", f"{size / 1e6:.1f} MB", f"compressed {packed / 1e6:.2f} MB"),
        Figure("peak memory of the exporter", f"{memory:,.0f} MiB", target="400 MiB", met=memory <= 400),
    ]


def _figure(name: str, samples: list[tuple[float, float]]) -> Figure:
    seconds, cpu = [each[0] for each in samples], [each[1] for each in samples]
    value = median(seconds) * 1000
    reference = f"CPU {median(cpu) * 1000:,.0f} ms, slowest {max(seconds) * 1000:,.0f} ms"
    sides = {"seconds": seconds, "cpu": cpu}
    return Figure(name, f"{value:,.0f} ms", reference, None, f"{LIMIT_MS} ms", value <= LIMIT_MS, samples=sides)


# -- the cluster


def build(folder: Path) -> Coordinator:
    coordinator = create_cluster(str(folder))
    names = [f"topic-{number:04d}" for number in range(TOPICS)]
    replicas = [[0]] * PARTITIONS
    _commit(coordinator, [CreateTopic(topic=each, topic_id=f"{each}-id", replicas=replicas) for each in names])
    _append(coordinator, TOPICS)
    for group in range(GROUPS):
        offsets = [
            CommittedOffset(topic=names[number // PARTITIONS], topic_id=f"{names[number // PARTITIONS]}-id",
                            partition=number % PARTITIONS, offset=0)
            for number in range(group * OFFSETS, (group + 1) * OFFSETS)
        ]  # fmt: skip
        join = JoinGroup(
            group=f"group-{group}", member="m", client_id="c", host="h", topics=[offsets[0].topic], assignors=["range"],
            session_timeout_ms=45_000, rebalance_timeout_ms=300_000,
        )  # fmt: skip
        _commit(coordinator, [join, CommitOffsets(group=f"group-{group}", offsets=offsets)])
    return coordinator


def _commit(coordinator: Coordinator, actions: list[Action]) -> None:
    coordinator.submit(lambda _: Decision(actions, None))


def _append(coordinator: Coordinator, topics: int) -> None:
    """Append to every partition of that many topics, in one commit."""
    state = coordinator.refresh()
    appends = [
        PartitionAppend(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=number,
            run=named_run(topic.name, number, partition.log_end_offset),
        )
        for topic in state.topics_in_order()[:topics]
        for number, partition in enumerate(topic.partitions)
    ]
    coordinator.append(AppendRequest(appends=appends))


# -- the exporter


@contextmanager
def _exporter(folder: Path) -> Iterator[tuple[int, int]]:
    """Run the command; yields its port and process id."""
    command = [sys.executable, "-m", "sparklog.cli", "metrics", "--listen", "127.0.0.1:0"]
    command += ["--bootstrap-server", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        found = re.search(rb":([0-9]+)/metrics", process.stdout.readline())
        assert found is not None, "the exporter did not start"
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _scrape(port: int, compressed: bool = True) -> bytes:
    """Return the body as it was sent, checked."""
    body = _scrape_raw(port, compressed)
    assert b"\nsparklog_up 1\n" in (gzip.decompress(body) if compressed else body), "the log could not be read"
    return body


def _scrape_raw(port: int, compressed: bool) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"} if compressed else {})
    body = connection.getresponse().read()
    connection.close()
    return body


class Exporter(NamedTuple):
    """A running exporter, and how often to scrape it."""

    port: int
    pid: int
    rounds: int

    def measure(self, change: Callable[[], None], compressed: bool = True) -> list[tuple[float, float]]:
        """Return the seconds of scrapes, and the exporter's CPU time; before each, ``change`` is made."""
        samples = []
        for _ in range(self.rounds):
            change()
            time.sleep(READ_SECONDS * 1.1)  # a scrape within a second of the last gets the same answer
            start, cpu = time.perf_counter(), _cpu_seconds(self.pid)
            body = _scrape_raw(self.port, compressed)
            samples.append((time.perf_counter() - start, _cpu_seconds(self.pid) - cpu))
            assert body
        return samples


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process: fields 14 and 15 of its stat, behind its name."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found is not None
    return int(found[1]) / 1024
