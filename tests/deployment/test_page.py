"""The commands of docs/deployment.md work as they are; only addresses, folders and sizes are replaced."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from scripts.servers.common import CHECKOUT
from tests.deployment.clusters import QUICK, SparkCluster, on_clusters, tagged
from tests.deployment.records import values_of

HEADINGS = {"standalone": "Spark standalone", "yarn": "YARN", "k8s": "Kubernetes"}
MOST_COMMANDS = 10
SECONDS = 500.0


def commands(heading: str) -> list[str]:
    """Return the commands of a section of the page."""
    section = (CHECKOUT / "docs" / "deployment.md").read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(block).splitlines()


@on_clusters(*HEADINGS)
def test_the_commands_of_the_page_run_in_order(cluster: SparkCluster, tmp_path: Path) -> None:
    lines = commands(HEADINGS[cluster.name])
    assert len(lines) <= MOST_COMMANDS
    root = cluster.root()
    flights = tmp_path / "flights.csv"
    with flights.open("w", newline="") as file:
        csv.writer(file).writerows([["carrier", "flight"], *(["AA", number] for number in range(5000))])
    environment = {**tagged(), **root.environment}
    settings = {**QUICK, **cluster.overrides("cluster"), **cluster.variables(environment, "cluster")}
    master = settings.pop("spark.master", "")
    sizes = " ".join(f"--conf '{name}={value}'" for name, value in settings.items())
    replaced = {
        "make dist-env": "true",  # the session has built it
        **cluster.page_replacements(root, tmp_path),
        "spark-submit ": f"spark-submit {sizes} ",
        "spark://master.example.com:7077": master,
        "/etc/hadoop/conf": cluster.environment().get("HADOOP_CONF_DIR", ""),
        "hdfs://namenode.example.com:8020/log": root.url,
        "/data/log": root.url,
        "/data/flights.csv": cluster.upload(flights),
        "/data/checkpoints/flights": cluster.folder(),
        "/data/flights": cluster.folder(),
    }
    script = "\n".join(lines)
    for shown, used in replaced.items():
        script = script.replace(shown, used)
    job = cluster.start(["bash", "-euxc", script], environment)
    done = job.wait(SECONDS)
    assert done.code == 0, done.output[-12_000:]
    assert len(values_of(root, "flights")) == 5000
    assert "PartitionCount: 4" in done.output
