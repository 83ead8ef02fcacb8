"""Measure what the pods of the chart and of a Spark job use, on the node of ``kubernetes_cluster``.

    python -m tests.deployment.usage          # make measure-pods

Prints for each kind of container the most memory that it used (the working set, as the kubelet counts it: what cannot
be dropped) and its processor time: on average of the one that was seen for longest, and in the busiest ten seconds, as
Kubernetes writes it (1000m is one core). The figures come from the containers' control groups, read twice a second.

The log has one topic of PARTITIONS partitions with RECORDS records, in many small segments. The exporter is scraped and
the page is read every second; the maintenance runs once, from the CronJob; a batch is produced and a stream copied in
cluster mode with one executor of one core.

Not for: limits of larger logs. Memory of executors grows with ``spark.executor.memory`` and their cores.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from scripts.servers.common import SERVERS, Skipped
from tests.deployment.clusters import Root
from tests.deployment.kubernetes_cluster import Kubectl, KubernetesCluster, forwarded, kubernetes_cluster, upgrade
from tests.deployment.records import create, fill
from tests.deployment.test_jobs import on, succeeded, trips

PARTITIONS, RECORDS, BATCHES = 12, 120_000, 60
ROWS = 500_000
INTERVAL_SECONDS = 0.5
BUSY_SECONDS = 10.0
WATCHED_SECONDS = 60.0
MIB = 2**20
KINDS = ("app.kubernetes.io/component", "spark-role")
"""Labels of pods that say what they are."""


class Sample(NamedTuple):
    """At a time, in seconds: memory in bytes, and processor time since the start in seconds."""

    at: float
    memory: int
    cpu: float


class Used(NamedTuple):
    """Memory in MiB, processor time in thousandths of a core, and for how many seconds the container was seen."""

    memory: int
    average: int
    busiest: int
    seconds: float


def container_samples() -> Iterator[tuple[str, Sample]]:
    """Yield a sample of each container of the node, by its id; of either version of control groups."""
    top = Path("/sys/fs/cgroup")
    first = top / "memory" / "kubepods"
    for stat in (first if first.exists() else top / "kubepods").rglob("memory.stat"):
        folder = stat.parent
        if len(folder.name) == 64:
            with suppress(OSError, KeyError):  # ended meanwhile
                yield folder.name, sample(folder, stat)


def sample(folder: Path, stat: Path) -> Sample:
    counts = dict(line.split() for line in stat.read_text().splitlines())
    if (folder / "memory.current").exists():
        used = int((folder / "memory.current").read_text()) - int(counts["inactive_file"])
        cpu = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        return Sample(time.monotonic(), used, int(cpu["usage_usec"]) / 1e6)
    used = int((folder / "memory.usage_in_bytes").read_text()) - int(counts["total_inactive_file"])
    nanoseconds = Path(str(folder).replace("/memory/", "/cpuacct/", 1), "cpuacct.usage").read_text()
    return Sample(time.monotonic(), used, int(nanoseconds) / 1e9)


def used(samples: list[Sample]) -> Used:
    """Summarize the samples of one container, in order of time."""
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    average = last.cpu / seconds if seconds else 0.0
    busiest = average
    for start in samples:
        ends = (each for each in samples if each.at >= start.at + BUSY_SECONDS)
        end = next(ends, None)
        if end is not None:
            busiest = max(busiest, (end.cpu - start.cpu) / (end.at - start.at))
    return Used(max(each.memory for each in samples) // MIB, round(average * 1000), round(busiest * 1000), seconds)


class Watch:
    """Samples all containers in a thread, and remembers what the pods' labels call them."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        self._kinds: dict[str, str] = {}
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._sample, self._name)]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _sample(self) -> None:
        while not self._ending.wait(INTERVAL_SECONDS):
            for container, taken in container_samples():
                self._samples[container].append(taken)

    def _name(self) -> None:
        while not self._ending.wait(2.0):
            for pod in self._kubectl.get("pods")["items"]:
                labels = pod["metadata"]["labels"]
                kind = next((labels[name] for name in KINDS if name in labels), "")
                for status in pod["status"].get("containerStatuses", []):
                    self._kinds[status.get("containerID", "").rpartition("/")[2]] = kind

    def by_kind(self) -> Mapping[str, list[Used]]:
        found: dict[str, list[Used]] = defaultdict(list)
        for container, kind in self._kinds.items():
            if len(self._samples.get(container, [])) > 1:
                found[kind].append(used(self._samples[container]))
        return found


def work(cluster: KubernetesCluster, folder: Path) -> None:
    """What the module's docstring says the pods do."""
    root = create(cluster.root(), {"orders": PARTITIONS, "trips": 4, "copy": 4})
    fill(root, "orders", RECORDS, BATCHES)
    work_of_chart(cluster.kubectl, root)
    rows = trips(cluster, folder, ROWS)
    succeeded(cluster.run("produce", *on(root, "trips"), *rows, mode="cluster", root=root))
    copy = ["--to", "copy", "--checkpoint", cluster.folder(), "--available-now", "--max-offsets-per-trigger", "50000"]
    succeeded(cluster.run("stream_copy", *on(root, "trips"), *copy, mode="cluster", root=root))


def work_of_chart(kubectl: Kubectl, root: Root) -> None:
    upgrade(kubectl, root)
    token = kubectl("get", "secret", "sparklog-ui", "--output", "go-template={{.data.token | base64decode}}")
    with forwarded(kubectl, "sparklog-metrics", 9308) as metrics, forwarded(kubectl, "sparklog-ui", 8484) as page:
        bearer = {"Authorization": f"Bearer {token}"}
        topic = f"{page}/{root.url.rpartition('/')[2]}/topics/orders"
        asked = {f"{metrics}/metrics": {}, f"{page}/": bearer, topic: bearer}
        for_a_while(lambda: [get(url, headers) for url, headers in asked.items()])
    kubectl("create", "job", "--from=cronjob/sparklog-maintenance", "usage")
    kubectl("wait", "--for=condition=complete", "job/usage", "--timeout=170s")
    kubectl("delete", "job", "usage")


def for_a_while(once: Callable[[], object]) -> None:
    deadline = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < deadline:
        once()
        time.sleep(1.0)


def get(url: str, headers: Mapping[str, str]) -> int:
    with urlopen(Request(url, headers=dict(headers)), timeout=30) as answer:
        return len(answer.read())


def print_table(watch: Watch) -> None:
    print(f"{'container':<14} {'memory':>10} {'processor':>10} {'busiest':>9} {'seen':>7}")
    for kind, containers in sorted(watch.by_kind().items()):
        longest = max(containers, key=lambda each: each.seconds)
        memory, busiest = max(each.memory for each in containers), max(each.busiest for each in containers)
        print(f"{kind:<14} {memory:>6} MiB {longest.average:>9}m {busiest:>8}m {longest.seconds:>5.0f} s")


def main() -> int:
    SERVERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="usage-", dir=SERVERS) as name:
        try:
            with kubernetes_cluster(Path(name)) as cluster:
                with Watch(cluster.kubectl) as watch:
                    work(cluster, Path(name))
                cluster.close_jobs()
        except Skipped as reason:
            print(f"skipped: {reason}")
            return 0
    print_table(watch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
