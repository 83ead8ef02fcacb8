"""What a cluster manager costs: produce and scan rates on standalone, YARN and Kubernetes, beside ``local[2]`` and
beside Parquet on the same storage. Prints a table and writes JSON below artifacts/benchmarks/.

make bench-clusters CLUSTERS="standalone yarn"       on the usual storage of each
.venv/bin/python benchmarks/managers.py yarn:hdfs yarn:s3 --quick

A ratio is that of sparklog's rate to Parquet's, in the same application. Its target is 0.8 of the ratio that local[2]
has on the same storage, from an application just before. What starts a cluster is that of ``tests/deployment``; where
that is skipped, so is this. Checkpoints and tables of Spark on S3 need hadoop-aws, which Spark fetches once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Figure, Settings, median, print_table, rate, speed_ratio
from benchmarks.run import write_json
from scripts.servers.common import CHECKOUT, SERVERS, Skipped
from sparklog.coordinator import create_cluster
from tests.deployment.clusters import QUICK, Root, SparkCluster
from tests.deployment.conftest import CLUSTERS

JOB = "benchmarks/managers_job.py"
TARGET = 0.8
JOB_SECONDS = 1200.0
SPREAD = {"spark.locality.wait": "0"}
"""A task runs on whichever core is free. Otherwise most may wait for the executor that has the rows in memory."""
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"


def measure(cluster: SparkCluster, root: Root, settings: Settings, local: bool) -> dict[str, list[float]]:
    """Run the job, on the cluster or with local[2], and return the seconds of each side."""
    create_cluster(root.url, storage_options=dict(root.options))
    folder = re.sub(r"^s3://", "s3a://", root.url) + "-parquet"
    conf = {**dict.fromkeys(QUICK, ""), **s3a(root), **SPREAD, **({"spark.master": "local[2]"} if local else {})}
    arguments = [root.url, folder, str(settings.rows), str(settings.runs), "0" if local else str(cluster.executors)]
    compiled = {"SPARK_SUBMIT_OPTS": ""}  # the suites leave optimising compilation out
    job = cluster.submit(JOB, *arguments, mode="client", package="archive", root=root, conf=conf, environment=compiled)
    try:
        done = job.wait(JOB_SECONDS)
    finally:
        job.close()
    found = re.search(r"^SAMPLES (.*)$", done.output, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the job failed:\n{done.output[-6000:]}")
    samples: dict[str, list[float]] = json.loads(found.group(1))
    return samples


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
    figures = []
    for ours, reference in (("produce", "write Parquet"), ("scan", "scan Parquet")):
        before, after = (speed_ratio(samples, ours, reference) for samples in (on_local, on_cluster))
        figures.append(
            Figure(
                f"{ours} on {name}, {storage or 'its usual storage'}",
                rate(settings.rows, median(on_cluster[ours])),
                f"local[2] {rate(settings.rows, median(on_local[ours]))}",
                after / before,
                f">= {TARGET}",
                after / before >= TARGET,
                f"of Parquet's rate: {after:.2f}, with local[2] {before:.2f}",
                {**{f"{side} on {name}": on_cluster[side] for side in on_cluster}, **on_local},
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
