"""Where the logs of these suites lie (a local folder, HDFS, S3), and what ``make dist`` builds."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path

from scripts.servers import hdfs, s3
from scripts.servers.common import CHECKOUT
from tests.deployment.clusters import Root

BUILD_SECONDS = 300


class Storages:
    """The storages of a session; those that are not there yet are started when a test asks for one."""

    def __init__(self, work: Path, start: Callable[[str], Mapping[str, str]], hdfs_url: str = "") -> None:
        self._work = work
        self._start = start
        self._hdfs_url = hdfs_url

    def root(self, storage: str) -> Root:
        """A root that no other test uses."""
        name = f"log-{uuid.uuid4().hex[:12]}"
        if storage == "local":
            return Root(str(self._work / name))
        if storage == "hdfs":
            url = self._hdfs_url or self._start("hdfs")["SPARKLOG_TEST_HDFS_URL"]
            os.environ["HADOOP_USER_NAME"] = "sparklog"
            return Root(f"{url}/{name}", environment={"HADOOP_USER_NAME": "sparklog"})
        if storage != "s3":
            raise ValueError(f"unknown storage: {storage}")
        return s3_root(self._start("s3"), name)

    def package_arguments(self, package: str) -> Sequence[str]:
        """Options of spark-submit: the zip for Pythons that have what the package needs, or the archive with all."""
        built = build()
        if package == "archive":
            return []  # the files in conf/ name it
        return ["--py-files", str(built["zip"]), "--conf", f"spark.pyspark.python={sys.executable}"]


def s3_root(environment: Mapping[str, str], name: str) -> Root:
    """A root in the bucket of a test server; jobs find the server and their credentials in AWS' variables."""
    endpoint, key = environment["SPARKLOG_TEST_S3_ENDPOINT"], environment["SPARKLOG_TEST_S3_KEY"]
    secret = environment["SPARKLOG_TEST_S3_SECRET"]
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
    }
    options = {"endpoint_url": endpoint, "key": key, "secret": secret}
    return Root(f"s3://{environment['SPARKLOG_TEST_S3_BUCKET']}/{name}", options, variables)


@cache
def build() -> dict[str, Path]:
    """What ``make dist-env`` builds, once in a session: the zip for --py-files, and the archive with all packages."""
    packed = build_zip()
    _run_script("scripts/pack_environment.py")
    return {"zip": packed, "archive": CHECKOUT / "dist" / "env.tar.gz"}


@cache
def build_zip() -> Path:
    """What ``make dist`` builds, once in a session: the zip for --py-files, which it returns, and the wheel."""
    _run_script("scripts/dist.py")
    (packed,) = (CHECKOUT / "dist").glob("sparklog-*-py.zip")
    return packed


def _run_script(script: str) -> None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, script], cwd=CHECKOUT, env=environment, check=True, timeout=BUILD_SECONDS)


@contextmanager
def servers(stack: ExitStack) -> Iterator[Callable[[str], Mapping[str, str]]]:
    """Return a function that starts a server when it is asked for first, and keeps it."""
    started: dict[str, Mapping[str, str]] = {}
    available: Mapping[str, Callable[[], AbstractContextManager[Mapping[str, str]]]] = {
        "s3": s3.server,
        "hdfs": hdfs.server,
    }

    def start(name: str) -> Mapping[str, str]:
        if name not in started:
            started[name] = stack.enter_context(available[name]())
        return started[name]

    yield start
