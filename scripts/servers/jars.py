"""Shared parts of servers on the Java VM: find a Java, and fetch a server's jars with Maven, once, into
``.servers``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.servers.common import ServerFailed, Skipped, only_one, work_folder

FETCH_SECONDS = 900
OLDEST_JAVA = 17


def find_java(server: str) -> str:
    """The path of a Java that runs ``server``, which the message of ``Skipped`` names."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        raise Skipped(f"{server} needs Java {OLDEST_JAVA} or newer, in JAVA_HOME or PATH")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    if java_version(answer) < OLDEST_JAVA:
        raise Skipped(f"{server} needs Java {OLDEST_JAVA} or newer, and {java} is: {answer.splitlines()[:1]}")
    return java


def java_version(answer: str) -> int:
    """The major version in what ``java -version`` says, 8 for 1.8; 0 where there is none."""
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found.group(1)) if found else 0


def fetch_jars(server: str, pom: Path, jars: Path, megabytes: int) -> Path:
    """The folder ``jars`` with what ``pom`` depends on, fetched unless it is there.

    Maven's own repository stays inside ``.servers`` too, and is removed.
    """
    if jars.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Skipped(
            f"the jars of {server} are fetched with Maven, and there is no `mvn` in PATH; install Maven 3.8 or newer"
        )
    with only_one(f"fetch-{jars.name}"):
        if not jars.exists():
            print(f"fetching {server}, once, about {megabytes} MB", file=sys.stderr, flush=True)
            _copy_dependencies(maven, pom, jars)
    return jars


def _copy_dependencies(maven: str, pom: Path, jars: Path) -> None:
    with work_folder("maven") as work:
        command = [maven, "-q", "-B", "-f", str(pom), f"-Dmaven.repo.local={work / 'repository'}"]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
            if done.returncode:
                raise ServerFailed(f"mvn ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
            os.replace(work / "jars", jars)
        except subprocess.TimeoutExpired as error:
            raise ServerFailed(f"mvn took more than {FETCH_SECONDS} s") from error
