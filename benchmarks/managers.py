"""What a cluster manager costs: produce and scan rates on standalone, YARN and Kubernetes, beside ``local[2]`` and
beside Parquet on the same storage. Prints a table and writes JSON below artifacts/benchmarks/.

make bench-clusters CLUSTERS="standalone yarn:s3"    on the usual storage of each, or on another
make bench-clusters CLUSTERS=k8s                     in namespaces of its own, as root

A ratio is that of sparklog's rate to Parquet's, in the same application, once its JVMs have compiled what they run: the
first WARM rounds are not counted, and the seconds of the very first are given beside. Its target is 0.8 of the ratio
that local[2] has on the same storage, from an application just before. What starts a cluster is that of
``tests/deployment``; where that is skipped, so is this. Checkpoints and tables of Spark on S3 need hadoop-aws, which
Spark fetches once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Figure, Settings, median, print_table, rate, speed_ratio, spread
from benchmarks.run import write_json
from scripts.servers.common import CHECKOUT, SERVERS, Skipped
from sparklog.coordinator import create_cluster
from tests.deployment.clusters import QUICK, Root, SparkCluster
from tests.deployment.conftest import CLUSTERS

JOB = "benchmarks/managers_job.py"
TARGET = 0.8
JOB_SECONDS = 1200.0
WARM = 6
"""rounds. Each executor compiles for itself, and sees only its share of the tasks: produce and Parquet become faster
for about as many."""
SPREAD = {"spark.locality.wait": "0"}
"""A task runs on whichever core is free. Otherwise most may wait for the executor that has the rows in memory."""
ROOM = {"spark.executor.memoryOverhead": "2g"}
"""The suites' executors are of a size for small jobs, which Kubernetes enforces: rows in memory take more."""
PRINTED = re.compile(r"^(SAMPLES|STAGES|PARTS) (.*)$", re.MULTILINE)
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"


class Measured(NamedTuple):
    """What the job prints: seconds of each round after the first ones, and of the first, by side; times of its stages
    by side; what a task needs besides its rows."""

    samples: dict[str, list[float]]
    first: dict[str, float]
    stages: dict[str, dict[str, float]]
    parts: dict[str, float]

    def describe(self, side: str) -> str:
        """Return where the time of a side goes."""
        few, stages = median(self.samples[f"{side} of few"]), self.stages[side]
        return (
            f"{median(self.samples[side]):.2f} s, of which {few:.2f} without rows, first {self.first[side]:.2f}; last: "
            f"stages {stages['stages']:.2f}, tasks {stages['tasks']:.2f}, of these JVM {stages['jvm cpu']:.2f}"
        )

    def describe_parts(self) -> str:
        return ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in self.parts.items())


def measure(cluster: SparkCluster, root: Root, settings: Settings, local: bool) -> Measured:
    """Run the job, on the cluster or with local[2]."""
    create_cluster(root.url, storage_options=dict(root.options))
    folder = re.sub(r"^s3://", "s3a://", root.url) + "-parquet"
    conf = {
        **dict.fromkeys(QUICK, ""),
        **s3a(root),
        **SPREAD,
        **ROOM,
        **({"spark.master": "local[2]"} if local else {}),
    }
    arguments = [
        root.url,
        folder,
        str(settings.rows),
        str(WARM + settings.runs),
        "0" if local else str(cluster.executors),
    ]
    compiled = {"SPARK_SUBMIT_OPTS": ""}  # the suites leave optimising compilation out
    job = cluster.submit(JOB, *arguments, mode="client", package="archive", root=root, conf=conf, environment=compiled)
    try:
        done = job.wait(JOB_SECONDS)
    finally:
        job.close()
    printed = {name: json.loads(text) for name, text in PRINTED.findall(done.output)}
    if "PARTS" not in printed:
        raise SystemExit(f"the job failed:\n{done.output[-6000:]}")
    rounds: dict[str, list[float]] = printed["SAMPLES"]
    samples = {side: seconds[WARM:] for side, seconds in rounds.items()}
    first = {side: seconds[0] for side, seconds in rounds.items()}
    return Measured(samples, first, printed["STAGES"], printed["PARTS"])


def s3a(root: Root) -> Mapping[str, str]:
    """Spark's settings for Parquet on the server of the root."""
    if not root.url.startswith("s3://"):
        return {}
    return {
        "spark.jars.packages": HADOOP_AWS,
        "spark.jars.ivySettings": str(CHECKOUT / "conf" / "ivysettings.xml"),
        "spark.hadoop.fs.s3a.endpoint": root.environment["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": root.environment["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def compare(name: str, storage: str, cluster: SparkCluster, settings: Settings) -> list[Figure]:
    on_local = measure(cluster, cluster.root(storage), settings, local=True)
    on_cluster = measure(cluster, cluster.root(storage), settings, local=False)
    sides = {"local[2]": on_local, name: on_cluster}
    figures = []
    for ours, reference in (("produce", "write Parquet"), ("scan", "scan Parquet")):
        before, after = (speed_ratio(side.samples, ours, reference) for side in sides.values())
        where = [
            f"of Parquet's rate: {after:.2f} ({spread(on_cluster.samples, ours, reference)}), local[2] {before:.2f}"
        ]
        where += [f"{side} on {at}: {sides[at].describe(side)}" for side in (ours, reference) for at in sides]
        if ours == "produce":
            where += [f"a task on {at}: {side.describe_parts()}" for at, side in sides.items()]
        figures.append(
            Figure(
                f"{ours} on {name}, {storage or 'its usual storage'}",
                rate(settings.rows, median(on_cluster.samples[ours])),
                f"local[2] {rate(settings.rows, median(on_local.samples[ours]))}",
                after / before,
                f">= {TARGET}",
                after / before >= TARGET,
                "\n    ".join(where),
                {f"{side} on {at}": sides[at].samples[side] for at in sides for side in sides[at].samples},
            )
        )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clusters", nargs="*", default=list(CLUSTERS), metavar="CLUSTER[:STORAGE]")
    parser.add_argument("--quick", action="store_true", help="fewer records and runs")
    options = parser.parse_args()
    settings = Settings(rows=200_000, runs=2, quick=True) if options.quick else Settings(rows=1_000_000, runs=5)
    SERVERS.mkdir(exist_ok=True)
    figures: list[Figure] = []
    for chosen in options.clusters:
        name, _, storage = chosen.partition(":")
        with tempfile.TemporaryDirectory(prefix="bench-", dir=SERVERS) as work:
            try:
                with CLUSTERS[name](Path(work)) as cluster:
                    figures += compare(name, storage, cluster, settings)
            except Skipped as reason:
                print(f"{chosen}: skipped: {reason}")
    print_table(figures)
    print(f"\nwritten to {write_json(figures, settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
