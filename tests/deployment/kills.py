"""Kill the processes of a running stream copy at random points, and compare what it wrote.

    python -m tests.deployment.kills yarn --kills 20          # make test-killed-copy CLUSTER=yarn KILLS=20

A producer appends to the source topic all the time, without Spark. The copy is submitted again, with the same
checkpoint, when it ended, as a supervisor does. After the kills it runs to the end of the source: the copy must have
each record exactly once, and after a vacuum fsck must find nothing.

Rules: a kill waits until the copy has made progress since the last, so that every kill meets a working query; the point
is random, from a printed seed. Not for: which processes a kind names (``clusters``).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.servers.common import SERVERS, Skipped
from sparklog import Producer
from tests.deployment.clusters import Job, Root, SparkCluster, await_until
from tests.deployment.records import create, damage_and_orphans, values_of

PROGRESS_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 3.0


class KilledCopy:
    """A copy of the topic "source" to the topic "copy" while a producer appends and processes are killed."""

    def __init__(
        self,
        cluster: SparkCluster,
        root: Root,
        seed: int,
        package: str = "archive",
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.cluster = cluster
        self.root = create(root, {"source": 2, "copy": 2})
        self._coordinator = self.root.open()
        self.kills: Counter[str] = Counter()
        self.submissions = 0
        self._random = random.Random(seed)
        self._package = package
        self._log = log
        self._checkpoint = cluster.folder()
        self._job: Job | None = None
        self._ending = threading.Event()
        self._written: list[bytes] = []

    def run(self, kinds: list[str], kills: int) -> list[str]:
        """Kill each kind so often, in random order; return what is wrong at the end: nothing, if all is well."""
        producer = threading.Thread(target=self._produce, name="producer", daemon=True)
        producer.start()
        order = kinds * kills
        self._random.shuffle(order)
        try:
            for kind in order:
                started = time.monotonic()
                self._await_progress()
                progressed = time.monotonic()
                time.sleep(self._random.uniform(0, LONGEST_PAUSE_SECONDS))
                self._kill(kind)
                self._log(
                    f"{sum(self.kills.values())}/{len(order)} {kind}: progress after {progressed - started:.1f} s, "
                    f"killed after {time.monotonic() - started:.1f} s, submissions {self.submissions}"
                )
        finally:
            self._ending.set()
            producer.join()
        self._finish()
        return self._differences()

    def _produce(self) -> None:
        with Producer(bootstrap_servers=self.root.url, storage_options=dict(self.root.options)) as producer:
            while not self._ending.wait(0.2):
                for _ in range(50):
                    value = str(len(self._written)).encode()
                    producer.send("source", value)
                    self._written.append(value)
                producer.flush()

    def _running(self) -> Job:
        """The running job; submitted again if it ended."""
        if self._job is None or not self._job.is_running():
            if self._job is not None:
                self._job.close()
            self._job = self._submit("--interval", "1 second")
        return self._job

    def _submit(self, *pace: str) -> Job:
        self.submissions += 1
        return self.cluster.submit(
            "stream_copy",
            *["--bootstrap-server", self.root.url, "--topic", "source", "--to", "copy"],
            *["--checkpoint", self._checkpoint, *pace],
            mode=self.cluster.modes[-1],
            package=self._package,
            root=self.root,
        )

    def _await_progress(self) -> None:
        start = self._copied()

        def progressed() -> bool:
            self._running()
            time.sleep(0.3)
            return self._copied() > start

        await_until(progressed, "progress of the copy", PROGRESS_SECONDS, lambda: self._running().output())

    def _kill(self, kind: str) -> None:
        if kind == "node":
            self.cluster.kill_node()
            self.cluster.start_node()
            self.kills[kind] += 1
            return
        try:
            self._running().kill(kind)
        except TimeoutError:
            if self._running().is_running():
                raise
            return self._kill(kind)  # the job ended because of the kill before
        self.kills[kind] += 1
        return None

    def _copied(self) -> int:
        topic = self._coordinator.refresh().topics["copy"]
        return sum(partition.high_watermark for partition in topic.partitions)

    def _finish(self) -> None:
        """Stop what is running, then copy the rest."""
        if self._job is not None:
            self._job.close()
        for _ in range(3):
            job = self._submit("--available-now")
            done = job.wait(PROGRESS_SECONDS)
            job.close()
            if done.code == 0:
                return
        raise AssertionError(f"the copy does not end:\n{done.output[-8000:]}")

    def _differences(self) -> list[str]:
        copies = Counter(values_of(self.root, "copy"))
        written = Counter(self._written)
        wrong = [f"{value!r}: written {written[value]} times, copied {copies[value]}" for value in {*written, *copies}
                 if written[value] != copies[value]]  # fmt: skip
        return [*wrong, *damage_and_orphans(self.root)]

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {number}" for kind, number in sorted(self.kills.items()))
        return f"{len(self._written):,} records copied in {self.submissions} submissions; killed: {kills}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the processes of a stream copy at random points, and compare.")
    parser.add_argument("cluster")
    parser.add_argument("--kills", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--kinds", help="comma-separated (all of the cluster)")
    parser.add_argument("--storage", default="", help="hdfs, s3 or local (the most usual of the cluster)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    from tests.deployment.conftest import CLUSTERS

    SERVERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kills-", dir=SERVERS) as work:
        try:
            with CLUSTERS[options.cluster](Path(work)) as cluster:
                print(f"seed {options.seed}", flush=True)
                copy = KilledCopy(cluster, cluster.root(options.storage), options.seed, log=partial(print, flush=True))
                started = time.monotonic()
                try:
                    wrong = copy.run((options.kinds or ",".join(cluster.kinds)).split(","), options.kills)
                finally:
                    print(f"{copy}; {time.monotonic() - started:.0f} s", flush=True)
                    cluster.close_jobs()
        except Skipped as reason:
            print(f"skipped: {reason}")
            return 0
    print("\n".join(wrong) or "each record was copied exactly once, and nothing is left behind")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
