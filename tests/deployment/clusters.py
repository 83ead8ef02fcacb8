"""What the suites of deployments share: a cluster of Spark on which the shipped programs run, and what can be killed.

The scenarios (``test_*.py`` of this folder) are written once, against ``SparkCluster``; each environment is a subclass:
``standalone_cluster``, ``yarn_cluster``, ``kubernetes_cluster``. A suite does what an operator does: it submits
``jobs/*.py`` from the folder of the checkout, with the shipped file of ``conf/`` and what ``make dist`` builds, and
overrides only addresses and sizes.

    job = cluster.submit("produce", "--bootstrap-server", root.url, ..., mode="cluster", package="archive")
    job.kill("executor")                     # waits until one runs a task; also "python worker", "driver"
    done = job.wait()                        # done.code, done.output: of spark-submit and of the driver
    cluster.kill_node(); cluster.start_node()    # a worker of standalone, a NodeManager, a pod's node

A subclass has: ``name``, ``conf`` (the shipped file), ``modes`` (deploy modes), ``packages`` (how executors get the
package: "zip", "archive", "image"), ``executors_have_pandas``, ``executors`` (how many a job has), ``overrides``
(addresses and sizes), ``variables`` (how a variable of the environment is given to driver and executors),
``exit_code``, ``driver_log``, ``root`` (where a log may lie), ``other_storage`` (than the root's usual), ``upload`` and
``folder`` (files that Spark itself reads and writes: input, checkpoints), ``kill_node`` and ``start_node``.

Rules: a process is found by the variable JOB_VARIABLE of its environment, which a job's processes have on every
manager, and killed by its id. Tests wait for states: a kill waits until the process exists.
Not for: starting servers (``scripts/servers``), scenarios.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from scripts.servers.common import CHECKOUT, HOST
from sparklog.coordinator import Coordinator, open_cluster
from tests import quick_jvm

JOB_VARIABLE = "SPARKLOG_TEST_JOB"
WAIT_SECONDS = 240.0
QUICK = {**quick_jvm.EXECUTORS, "spark.driver.extraJavaOptions": quick_jvm.OPTIONS}
DRIVERS = ("deploy.SparkSubmit", "yarn.ApplicationMaster", "deploy.k8s", "deploy.worker.DriverWrapper")


def on_clusters(*names: str) -> pytest.MarkDecorator:
    """Run a test on these clusters instead of all of them; their names are those of the markers."""
    chosen = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in names]
    return pytest.mark.parametrize("every_cluster", chosen, indirect=True)


class Root(NamedTuple):
    """Where a log lies: its URL, and the storage options by which this process opens it. Jobs get them by
    ``environment``."""

    url: str
    options: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}

    def open(self) -> Coordinator:
        return open_cluster(self.url, dict(self.options))


class Finished(NamedTuple):
    """How a job ended: the exit code of spark-submit, and what it and the driver printed."""

    code: int
    output: str


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


class Job:
    """A submitted job. ``close`` kills what is left of it, also containers that lost their node."""

    def __init__(
        self, cluster: SparkCluster, tag: str, process: subprocess.Popen[bytes], log: Path, mode: str = "client"
    ) -> None:
        self.cluster = cluster
        self.tag = tag
        self._process = process
        self._log = log
        self.mode = mode

    @property
    def printed(self) -> str:
        """What spark-submit has printed so far: in client mode also the driver's output."""
        return self._log.read_text(errors="replace")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float = WAIT_SECONDS) -> Finished:
        """Wait until spark-submit ends. Raises TimeoutError, with what was printed, if that takes too long."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            output = self.output()
            self.close()
            raise TimeoutError(f"the job did not end in {seconds:.0f} s:\n{output[-8000:]}") from None
        return Finished(self.cluster.exit_code(self, code), self.output())

    def output(self) -> str:
        return self.printed + self.cluster.driver_log(self)

    def stop(self) -> Finished:
        """Ask the driver to end, as an operator does with SIGTERM in client mode."""
        for process in self.processes("python driver") or self.processes("driver"):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        return self.wait()

    def kill(self, kind: str, seconds: float = 120.0) -> Process:
        """Kill a process of this kind as soon as there is one; return it. Raises TimeoutError."""
        process = self.await_process(kind, seconds)
        if kind == "driver" and process.pid == self._process.pid:
            os.killpg(process.pid, signal.SIGKILL)  # client mode: the machine of the driver is gone
        else:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return process

    def await_process(self, kind: str, seconds: float = 120.0) -> Process:
        """Return a process of this kind as soon as there is one. Raises TimeoutError, with the job's output."""
        await_until(lambda: bool(self.processes(kind)) or not self.is_running(), f"a {kind}", seconds, self.output)
        found = self.processes(kind)
        if not found:
            raise TimeoutError(f"the job ended before it had a {kind}:\n{self.output()[-8000:]}")
        return found[-1]

    def processes(self, kind: str) -> list[Process]:
        """Return the job's processes of a kind: "driver", "python driver", "executor" (only those that run Python
        tasks), "any executor", "python worker"."""
        every = {process.pid: process for process in tagged_processes(self.tag)}
        if kind == "driver":
            named = [each for each in every.values() if any(name in each.command for name in DRIVERS)]
            launcher = {self._process.pid} if self.mode == "cluster" else set()
            return [each for each in named if "java" in each.command.split(" ", 1)[0] and each.pid not in launcher]
        if kind == "python driver":
            drivers = {each.pid for each in self.processes("driver")}
            return [each for each in every.values() if each.parent in drivers and "daemon" not in each.command]
        executors = {each.pid for each in every.values() if is_executor(each)}
        if kind == "any executor":
            return [every[pid] for pid in sorted(executors)]
        workers = [each for each in every.values() if is_worker(each, every, executors)]
        if kind == "python worker":
            return workers
        if kind == "executor":
            busy = {every[each.parent].parent for each in workers}
            return [every[pid] for pid in sorted(busy)]
        raise ValueError(f"unknown kind of process: {kind}")

    def close(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.cluster.forget(self)
        for process in tagged_processes(self.tag):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


class SparkCluster(ABC):
    """A running cluster of Spark. See the module."""

    name: ClassVar[str]
    conf: ClassVar[str]
    modes: ClassVar[tuple[str, ...]] = ("client", "cluster")
    packages: ClassVar[tuple[str, ...]] = ("zip", "archive")
    kinds: ClassVar[tuple[str, ...]] = ("executor", "python worker", "driver", "node")
    other_storage: ClassVar[str] = "s3"
    executors_have_pandas: ClassVar[bool] = False
    executors: ClassVar[int] = 2

    def __init__(self, work: Path) -> None:
        self.work = work
        self._jobs: list[Job] = []

    @abstractmethod
    def overrides(self, mode: str) -> Mapping[str, str]:
        """Settings that the file in conf/ leaves to the operator: addresses and sizes."""

    @abstractmethod
    def variables(self, environment: Mapping[str, str], mode: str) -> Mapping[str, str]:
        """Settings that give these variables to the executors, and in cluster mode to the driver."""

    @abstractmethod
    def package_arguments(self, package: str, mode: str) -> Sequence[str]:
        """Options of spark-submit by which the executors get the package."""

    @abstractmethod
    def root(self, storage: str = "") -> Root:
        """A root that no other test uses on this storage ("hdfs", "s3", "local"), by default the most usual."""

    @abstractmethod
    def upload(self, path: Path) -> str:
        """Put a file where Spark's executors read it under the returned URL."""

    @abstractmethod
    def folder(self) -> str:
        """The URL of a folder that does not exist yet, for checkpoints and tables that Spark writes."""

    @abstractmethod
    def kill_node(self) -> None:
        """Kill the daemon of a node and wait until the cluster has given the node up."""

    @abstractmethod
    def start_node(self) -> None:
        """Start the killed daemon again, and wait until the node takes work."""

    def exit_code(self, job: Job, code: int) -> int:
        """How the job ended, given the exit code of its spark-submit: that code, unless it does not tell."""
        return code

    def driver_log(self, job: Job) -> str:
        """What the driver printed, where spark-submit does not show it."""
        return ""

    def forget(self, job: Job) -> None:  # noqa: B027
        """End a job whose spark-submit was killed, so that it does not start processes again."""

    def environment(self) -> Mapping[str, str]:
        """Variables that spark-submit needs."""
        return {}

    def page_replacements(self, root: Root, work: Path) -> Mapping[str, str]:
        """What of this environment's commands in docs/deployment.md is an operator's own, and what stands for it."""
        return {}

    def submit(
        self,
        program: str,
        *arguments: str,
        mode: str = "client",
        package: str = "",
        conf: Mapping[str, str] | None = None,
        root: Root | None = None,
        files: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit a program of ``jobs/`` (or any file), and return the job, which is running.

        ``root`` gives the job the credentials of its storage; ``files`` are further ones of --py-files.
        """
        path = program if program.endswith(".py") else f"jobs/{program}.py"
        given = {**tagged(), **(root.environment if root else {}), **(environment or {})}
        settings = {**QUICK, **self.overrides(mode), **self.variables(given, mode), **(conf or {})}
        command = [str(Path(sys.executable).with_name("spark-submit")), "--properties-file", self.conf]
        command += ["--deploy-mode", mode]
        command += self.package_arguments(package or self.packages[0], mode)
        if files:
            command += ["--files", ",".join(files)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return self.start([*command, path, *arguments], given, mode)

    def start(self, command: Sequence[str], environment: Mapping[str, str], mode: str = "client") -> Job:
        """Start a program that may submit jobs itself. JOB_VARIABLE must be in the environment, and in that of its jobs
        (``variables``)."""
        tag = environment[JOB_VARIABLE]
        log = self.work / f"job-{tag}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env={**self.shell_environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        job = Job(self, tag, process, log, mode)
        self._jobs.append(job)
        return job

    def shell_environment(self) -> dict[str, str]:
        """The environment of an operator's shell, with what programs of this cluster need."""
        return {**operator_environment(), **self.environment()}

    def distributed_arguments(self, environment: Mapping[str, str]) -> list[str]:
        """Arguments by which a command of sparklog runs its tasks on this cluster: the file in conf/, as options."""
        lines = (CHECKOUT / self.conf).read_text().splitlines()
        shipped = dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
        shipped.pop("spark.submit.deployMode", None)
        settings = {**shipped, **QUICK, **self.overrides("client"), **self.variables(environment, "client")}
        master = settings.pop("spark.master")
        options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value.strip()}")]
        return ["--distributed", "--master", master.strip(), *options]

    def run(self, program: str, *arguments: str, **options: Any) -> Finished:
        """Submit a program and wait for its end; nothing is left of it then."""
        job = self.submit(program, *arguments, **options)
        try:
            return job.wait()
        finally:
            job.close()

    def close_jobs(self) -> None:
        for job in self._jobs:
            job.close()
        self._jobs.clear()


def tagged() -> dict[str, str]:
    """The variable of a new job: all processes that have it belong to the job."""
    return {JOB_VARIABLE: uuid.uuid4().hex}


def operator_environment() -> dict[str, str]:
    """The environment of a shell with the virtual environment activated, and with nothing of Spark's or Python's."""
    left_out = re.compile(r"PYSPARK_|SPARK_|PYTHON|SPARKLOG_|HADOOP_|AWS_|COV_|PYTEST_")
    inherited = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    here = str(Path(sys.executable).parent)
    return {
        **inherited,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        **quick_jvm.LAUNCHERS,
        "SPARK_LOCAL_IP": HOST,
    }


def bare_python(work: Path) -> Path:
    """The folder with a python3 that has no packages: what nodes have. For the start of their PATH."""
    home = work / "bare"
    if not home.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
    return home / "bin"


# -- processes


def tagged_processes(tag: str) -> list[Process]:
    """Return the processes of this machine whose environment has the job's variable, by process id."""
    wanted = f"{JOB_VARIABLE}={tag}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    status = (folder / "stat").read_text().rpartition(")")[2].split()
                    if status[0] != "Z":
                        found.append(Process(int(folder.name), int(status[1]), command))
    return sorted(found)


def is_executor(process: Process) -> bool:
    return "ExecutorBackend" in process.command and "java" in process.command.split(" ", 1)[0]


def is_worker(process: Process, every: Mapping[int, Process], executors: set[int]) -> bool:
    """Whether this is a forked Python worker: its parent is the daemon of an executor."""
    daemon = every.get(process.parent)
    return daemon is not None and "pyspark.daemon" in daemon.command and daemon.parent in executors


def await_until(
    is_true: Callable[[], bool], what: str, seconds: float, describe: Callable[[], str] = lambda: ""
) -> None:
    """Ask until it is true. Raises TimeoutError with ``describe``."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come in {seconds:.0f} s:\n{describe()[-8000:]}")
        time.sleep(0.05)
