"""What is shipped for Kubernetes beside Spark's settings: the chart and its manifests, admitted by the real API server
and run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from scripts.servers.common import CHECKOUT
from tests.deployment.clusters import Root, SparkCluster, await_until, on_clusters
from tests.deployment.kubernetes_cluster import Kubectl, KubernetesCluster, forwarded, upgrade
from tests.deployment.records import create, fill, values_of

pytestmark = on_clusters("k8s")
MANIFESTS = CHECKOUT / "conf" / "kubernetes" / "manifests"
DEFINITIONS = os.environ.get("SPARKLOG_OPERATOR_CRDS", "")
"""A folder with the Spark operator's CustomResourceDefinitions, charts/spark-operator-chart/crds of its repository."""


@pytest.fixture(scope="module")
def kubectl(every_cluster: SparkCluster) -> Kubectl:
    assert isinstance(every_cluster, KubernetesCluster)
    return every_cluster.kubectl


@pytest.fixture(scope="module")
def root(every_cluster: SparkCluster, kubectl: Kubectl) -> Root:
    """A log of which the installed release knows, with a topic for each test."""
    made = create(every_cluster.root(), {"maintained": 2, "exported": 2})
    upgrade(kubectl, made)
    return made


def test_manifests_are_those_of_the_chart_and_admitted(kubectl: Kubectl) -> None:
    kubectl.run("bash", "scripts/manifests.sh", "--check")
    kubectl.run("kubectl", "apply", "--dry-run=server", "--filename", str(MANIFESTS))


@pytest.mark.skipif(not DEFINITIONS, reason="SPARKLOG_OPERATOR_CRDS names no folder")
def test_applications_are_admitted_by_the_definitions_of_the_spark_operator(kubectl: Kubectl) -> None:
    applications = MANIFESTS / "operator" / "applications.yaml"
    submit = ("kubectl", "apply", "--dry-run=server", "--validate=strict", "--filename", "-")
    definitions = [f"--filename={path}" for path in sorted(Path(DEFINITIONS).glob("*.yaml"))]
    kubectl.run("kubectl", "apply", "--server-side", *definitions)
    try:
        kubectl.run("kubectl", "wait", "--for=condition=established", *definitions, "--timeout=60s")
        assert kubectl.run(*submit, stdin=applications.read_text()).count("created (server dry run)") == 2
        with pytest.raises(AssertionError, match="unknown field"):
            kubectl.run(*submit, stdin=applications.read_text().replace("mainApplicationFile", "mainFile"))
    finally:
        kubectl.run("kubectl", "delete", "--wait=false", *definitions)


def test_a_pod_with_more_rights_is_refused(kubectl: Kubectl) -> None:
    """So the namespace really enforces what the others keep."""
    container = {"name": "more", "image": "more"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "more"}, "spec": {"containers": [container]}}
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        kubectl("create", "--filename", "-", stdin=json.dumps(pod))


def test_the_schedule_maintains_the_log(kubectl: Kubectl, root: Root) -> None:
    written = fill(root, "maintained", 1000, batches=10)
    kubectl("create", "job", "--from=cronjob/sparklog-maintenance", "once")
    try:
        kubectl("wait", "--for=condition=complete", "job/once", "--timeout=120s")
        assert "roll: files rewritten" in kubectl("logs", "job/once")
    finally:
        kubectl("delete", "job", "once")
    assert sorted(values_of(root, "maintained")) == sorted(written)


def test_the_exporter_is_scraped(kubectl: Kubectl, root: Root) -> None:
    fill(root, "exported", 1000)
    with forwarded(kubectl, "sparklog-metrics", 9308) as url:
        await_until(lambda: exported_records(url) == 1000, "the topic's end", 60, lambda: scrape(url))


def scrape(url: str) -> str:
    with urlopen(f"{url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def exported_records(url: str) -> float:
    ends = re.findall(
        r'^kafka_topic_partition_current_offset\{.*topic="exported".*\} (\S+)$', scrape(url), re.MULTILINE
    )
    return sum(map(float, ends))


def test_the_page_asks_for_the_token_of_the_secret(kubectl: Kubectl, root: Root) -> None:
    token = kubectl("get", "secret", "sparklog-ui", "--output", "go-template={{.data.token | base64decode}}")
    with forwarded(kubectl, "sparklog-ui", 8484) as url:
        with urlopen(f"{url}/login", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{url}/", headers={"Authorization": "Bearer wrong"}), timeout=30)
        refused.value.close()
        assert refused.value.code in (401, 403)
        with urlopen(Request(f"{url}/", headers={"Authorization": f"Bearer {token}"}), timeout=30) as answer:
            assert root.url.rpartition("/")[2] in answer.read().decode()
