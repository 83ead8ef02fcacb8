"""Kubernetes of one node, with the chart of conf/kubernetes installed. Roots: S3 and HDFS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import fsspec

from scripts.servers import hdfs, kubernetes, s3
from scripts.servers.common import CHECKOUT, SERVERS
from scripts.servers.image import build_image
from tests import quick_jvm
from tests.deployment.clusters import JOB_VARIABLE, Job, Root, SparkCluster
from tests.deployment.storages import Storages, build_zip

NAMESPACE = "sparklog"
PAGE_NAMESPACE = "page"
IMAGE = "registry.example.com/sparklog:0.3.0"
WITHOUT_PACKAGE = "registry.example.com/spark-dependencies:0.3.0"
IMAGE_ARCHIVE, DEPENDENCIES_ARCHIVE = SERVERS / "sparklog.tar", SERVERS / "dependencies.tar"
CHART = CHECKOUT / "conf" / "kubernetes" / "chart"
EVERYTHING = ("--set=metrics.enabled=true", "--set=ui.enabled=true", "--set=networkPolicy.enabled=true")
SECRET = "sparklog-storage"
JOB_LABEL = "sparklog-test-job"
TEMPLATE = "conf/kubernetes/pod-template.yaml"
SIZES = {
    "spark.driver.memory": "800m",
    "spark.executor.memory": "700m",
    "spark.driver.memoryOverhead": "600m",
    "spark.executor.memoryOverhead": "600m",
    "spark.executor.cores": "1",
    "spark.executor.instances": "1",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
}


class Kubectl:
    """Runs kubectl and helm with the rights of an operator."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def run(self, *command: str, stdin: str = "", seconds: float = 180) -> str:
        """What a command prints. Raises AssertionError with its errors if it fails."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            cwd=CHECKOUT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        return self.run("kubectl", "--namespace", NAMESPACE, *arguments, stdin=stdin)

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "--output", "json"))


class KubernetesCluster(SparkCluster):
    """See ``SparkCluster``. Drivers of client mode run on this machine, outside of the pods."""

    name = "k8s"
    conf = "conf/spark-kubernetes.conf"
    packages = ("image", "zip")
    kinds = ("executor", "python worker", "driver")
    other_storage = "hdfs"
    executors = 1
    executors_have_pandas = True  # the image has Spark's own packages

    def __init__(
        self, work: Path, kubectl: Kubectl, storages: Storages, start: Callable[[str], Mapping[str, str]]
    ) -> None:
        super().__init__(work)
        self.kubectl = kubectl
        self._storages = storages
        self._start = start

    def environment(self) -> Mapping[str, str]:
        given = self.kubectl.environment
        path = f"{Path(sys.executable).parent}{os.pathsep}{given['PATH']}"
        return {"KUBECONFIG": given["KUBECONFIG"], "PATH": path, "HADOOP_USER_NAME": "sparklog"}

    def page_replacements(self, root: Root, work: Path) -> Mapping[str, str]:
        """The page's own namespace, since the release of the other tests has the usual one; images are there."""
        secret = work / "storage.env"
        secret.write_text("".join(f"{name}={value}\n" for name, value in root.environment.items()))
        settings = f"--properties-file {self.conf}"
        chosen = f"--master k8s://{self.kubectl.environment['SPARKLOG_TEST_K8S_API']}"
        chosen += f" --conf spark.kubernetes.namespace={PAGE_NAMESPACE}"
        return {
            "make dist\n": "true\n",
            "docker buildx build": "true",
            "s3a://bucket/flights.csv": "/data/flights.csv",
            "s3://bucket/log": root.url,
            "storage.env": str(secret),
            "namespace sparklog": f"namespace {PAGE_NAMESPACE}",
            settings: f"{settings} {chosen}",
            "maintenance now": f"maintenance now && kubectl -n {PAGE_NAMESPACE} wait --for=condition=complete job/now",
        }

    def overrides(self, mode: str) -> Mapping[str, str]:
        api = self.kubectl.environment["SPARKLOG_TEST_K8S_API"]
        given = {
            "spark.master": f"k8s://{api}",
            "spark.kubernetes.container.image": IMAGE,
            "spark.kubernetes.driver.master": api,
            "spark.kubernetes.executor.useDriverPodIP": "true",
            "spark.executor.extraJavaOptions": quick_jvm.WITHOUT_ARCHIVE,
            **SIZES,
        }
        if mode == "cluster":
            given["spark.driver.extraJavaOptions"] = quick_jvm.WITHOUT_ARCHIVE
        else:
            address = kubernetes.ADDRESS
            given |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
        return given

    def variables(self, environment: Mapping[str, str], mode: str) -> Mapping[str, str]:
        """Credentials by reference to the secret, as conf/spark-kubernetes.conf says; the rest as it is."""
        settings = {}
        for name, value in {**environment, "HADOOP_USER_NAME": "sparklog"}.items():
            if name.startswith("AWS_"):
                for role in ("driver", "executor"):
                    settings[f"spark.kubernetes.{role}.secretKeyRef.{name}"] = f"{SECRET}:{name}"
            else:
                settings[f"spark.kubernetes.driverEnv.{name}"] = value
                settings[f"spark.executorEnv.{name}"] = value
        for role in ("driver", "executor"):
            settings[f"spark.kubernetes.{role}.label.{JOB_LABEL}"] = environment.get(JOB_VARIABLE, "none")
        return settings

    def package_arguments(self, package: str, mode: str) -> Sequence[str]:
        """Pods whose image has the package, or pods without it that get the zip, uploaded through HDFS."""
        if package != "zip":
            return []
        uploads = f"{self._hdfs()}/uploads"
        return [
            *("--py-files", str(build_zip())),
            *("--conf", f"spark.kubernetes.container.image={WITHOUT_PACKAGE}"),
            *("--conf", f"spark.kubernetes.file.upload.path={uploads}"),
        ]

    def submit(self, program: str, *arguments: str, **options: Any) -> Job:
        """In cluster mode the programs are those of the image, unless the image has none."""
        in_image = options.get("mode", "client") == "cluster" and options.get("package") != "zip"
        if in_image and not program.endswith(".py"):
            program = f"local:///opt/sparklog/jobs/{program}.py"
        return super().submit(program, *arguments, **options)

    def _hdfs(self) -> str:
        """Where Spark's own files lie. This process is root, whom HDFS lets write no more than anybody."""
        os.environ["HADOOP_USER_NAME"] = "sparklog"
        return self._start("hdfs")["SPARKLOG_TEST_HDFS_URL"]

    def root(self, storage: str = "") -> Root:
        return self._storages.root(storage or "s3")

    def upload(self, path: Path) -> str:
        url = f"{self._hdfs()}/input/{uuid.uuid4().hex}/{path.name}"
        system, target = fsspec.core.url_to_fs(url, user="sparklog")
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        with system.open(target, "wb") as file:
            file.write(path.read_bytes())
        return url

    def folder(self) -> str:
        return f"{self._hdfs()}/{uuid.uuid4().hex}"

    def kill_node(self) -> None:
        raise NotImplementedError("the cluster has one node")

    def start_node(self) -> None:
        raise NotImplementedError("the cluster has one node")

    def exit_code(self, job: Job, code: int) -> int:
        """In cluster mode spark-submit ends with 0 whatever became of the driver: its pod tells."""
        if job.mode == "client" or code:
            return code
        pods = self.kubectl.get("pods", "--selector", f"{JOB_LABEL}={job.tag},spark-role=driver")["items"]
        return 0 if [pod["status"]["phase"] for pod in pods] == ["Succeeded"] else 1

    def driver_log(self, job: Job) -> str:
        """The output of the driver's pod, in cluster mode."""
        try:
            return self.kubectl("logs", "--selector", f"{JOB_LABEL}={job.tag},spark-role=driver", "--tail=-1")
        except AssertionError as error:
            return str(error)  # not started, or removed

    def forget(self, job: Job) -> None:
        selector = f"{JOB_LABEL}={job.tag}"
        self.kubectl("delete", "pods", "--selector", selector, "--grace-period=0", "--force", "--ignore-not-found")

    def delete_pod(self, job: Job, role: str) -> str:
        """Delete a running pod of the job without grace, as a lost node does; return its name."""
        selector = f"{JOB_LABEL}={job.tag},spark-role={role}"
        pods = self.kubectl.get("pods", "--selector", selector, "--field-selector=status.phase=Running")["items"]
        name = str(pods[-1]["metadata"]["name"])
        self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        return name


def prepare() -> None:
    """Fetch and build all that the cluster needs from the network. Raises ``Skipped`` or ``ServerFailed``."""
    kubernetes.prepare()
    s3.build()
    hdfs.fetch()
    build_zip()
    build_image(WITHOUT_PACKAGE, DEPENDENCIES_ARCHIVE, target="dependencies")
    build_image(IMAGE, IMAGE_ARCHIVE)


@contextmanager
def kubernetes_cluster(work: Path) -> Iterator[KubernetesCluster]:
    """The node with both images, storages that its pods reach, and the chart, installed as docs/deployment.md says.
    In namespaces with what ``prepare`` fetches (tests/deployment/isolated.py). Raises ``Skipped`` elsewhere."""
    with kubernetes.server() as environment, ExitStack() as stack:
        start = _storages_on(stack)
        for image in (DEPENDENCIES_ARCHIVE, IMAGE_ARCHIVE):
            kubernetes.import_image(environment["SPARKLOG_TEST_K8S_CONTAINERD"], image)
        kubectl = Kubectl(environment)
        storages = Storages(work, start)
        root = storages.root("s3")
        install(kubectl, root)
        yield KubernetesCluster(work, kubectl, storages, start)


def install(kubectl: Kubectl, root: Root) -> None:
    """The namespace, which admits only restricted pods, the secrets and the rights."""
    kubectl.run("kubectl", "create", "namespace", NAMESPACE)
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    kubectl.run("kubectl", "label", "namespace", NAMESPACE, enforced)
    literals = [f"--from-literal={name}={value}" for name, value in root.environment.items()]
    kubectl("create", "secret", "generic", SECRET, *literals)
    kubectl("create", "secret", "generic", "sparklog-ui", f"--from-literal=token={uuid.uuid4().hex}")
    helm(kubectl, "install", root)


def helm(kubectl: Kubectl, verb: str, root: Root, *options: str) -> str:
    """Install or upgrade the release with a root of a test."""
    values = [f"--set=root={root.url}", f"--set=image.name={IMAGE}", *options]
    return kubectl.run("helm", verb, "sparklog", str(CHART), "--namespace", NAMESPACE, *values)


def upgrade(kubectl: Kubectl, root: Root) -> None:
    """Let the release serve this root with everything that the chart has; returns when its pods are replaced."""
    helm(kubectl, "upgrade", root, *EVERYTHING, "--wait", "--timeout=120s")
    for deployment in ("sparklog-metrics", "sparklog-ui"):
        # Helm does not wait for the end of the old pod, to which a port could be forwarded then.
        kubectl("rollout", "status", f"deployment/{deployment}", "--timeout=120s")


@contextmanager
def forwarded(kubectl: Kubectl, service: str, port: int) -> Iterator[str]:
    """The address of a service on this machine."""
    command = ["kubectl", "--namespace", NAMESPACE, "port-forward", f"service/{service}", f":{port}"]
    process = subprocess.Popen(command, env={**os.environ, **kubectl.environment}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found
        yield f"http://localhost:{found.group(1)}"
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _storages_on(stack: ExitStack) -> Callable[[str], Mapping[str, str]]:
    """A function that starts a storage on the node's address when it is asked for first, and keeps it."""
    available: Mapping[str, Callable[[], AbstractContextManager[Mapping[str, str]]]] = {
        "s3": lambda: s3.server(kubernetes.ADDRESS),
        "hdfs": lambda: hdfs.server(kubernetes.ADDRESS),
    }
    started: dict[str, Mapping[str, str]] = {}

    def start(name: str) -> Mapping[str, str]:
        if name not in started:
            started[name] = stack.enter_context(available[name]())
        return started[name]

    return start
