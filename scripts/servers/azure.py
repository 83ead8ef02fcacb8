#!/usr/bin/env python3
"""Runs a command beside an emulator of Azure's blob storage (Azurite), and stops it afterwards.

    scripts/servers/azure.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_AZURE_CONNECTION (a connection string) and _CONTAINER (a container, which the
tests create). The first run installs the emulator with npm; without npm the command is not run, and the exit code is 0.
SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import (
    HOST,
    SERVERS,
    ServerFailed,
    Skipped,
    free_ports,
    only_one,
    run_beside,
    running,
    tail,
    wait_until,
    work_folder,
)

PACKAGE, VERSION = "azurite", "3.35.0"
CONTAINER = "sparklog-test"
ACCOUNT, KEY = "testaccount", "dGVzdC1rZXk="
INSTALL_SECONDS = 600


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running emulator; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    program = install()
    with work_folder("azure") as home:
        (port,) = free_ports(1)
        command = [str(program), "--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence"]
        command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        connection = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=http://{HOST}:{port}/{ACCOUNT};"
        with running({"azurite": command}, home, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}):
            wait_until(lambda: answers(port), "azurite", home, seconds=60)
            yield {
                "SPARKLOG_TEST_AZURE_CONNECTION": f"DefaultEndpointsProtocol=http;{connection}",
                "SPARKLOG_TEST_AZURE_CONTAINER": CONTAINER,
            }


def install() -> Path:
    """The emulator's program, installed unless it is there (190 MB)."""
    folder = SERVERS / f"{PACKAGE}-{VERSION}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None:
        raise Skipped("azurite is installed with npm, and there is no `npm` in PATH; install Node.js 20 or newer")
    with only_one("install-azure"):
        if not program.exists():
            _install(npm, folder)
    return program


def _install(npm: str, folder: Path) -> None:
    with work_folder("npm") as work:
        log = SERVERS / "install-azure.log"
        print(f"installing {PACKAGE}@{VERSION}, once", file=sys.stderr, flush=True)
        environment = {**os.environ, "npm_config_cache": str(work / ".cache")}
        command = [npm, "install", "--prefix", str(work), "--no-audit", "--no-fund", f"{PACKAGE}@{VERSION}"]
        try:
            with open(log, "wb") as output:
                done = subprocess.run(
                    command,
                    cwd=work,
                    env=environment,
                    stdout=output,
                    stderr=output,
                    timeout=INSTALL_SECONDS,
                    check=False,
                )
            if done.returncode:
                raise ServerFailed(f"npm install {PACKAGE}@{VERSION} ended with {done.returncode}:\n{tail(log)}")
            shutil.rmtree(work / ".cache", ignore_errors=True)
            os.replace(work, folder)
        except subprocess.TimeoutExpired as error:
            raise ServerFailed(f"npm install {PACKAGE} took more than {INSTALL_SECONDS} s; see {log}") from error


def answers(port: int) -> bool:
    """Whether there is an HTTP answer: to a request without a signature it is a refusal."""
    connection = HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", f"/{ACCOUNT}?comp=list")
        return connection.getresponse().status < 500
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
