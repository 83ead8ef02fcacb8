#!/usr/bin/env python3
"""Runs a command beside an emulator of Google Cloud Storage (fake-gcs-server), and stops it afterwards.

    scripts/servers/gcs.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_GCS_ENDPOINT and _BUCKET (an empty bucket). The first run builds the emulator,
which needs Go and takes a minute or two; without Go the command is not run, and the exit code is 0.
SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import HOST, free_ports, run_beside, running, wait_until, work_folder
from scripts.servers.go import build_programs

MODULES = {"github.com/fsouza/fake-gcs-server": "v1.56.1"}
BUCKET = "sparklog-test"


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running emulator; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    program = build_programs("gcs", MODULES)["fake-gcs-server"]
    with work_folder("gcs") as home:
        (port,) = free_ports(1)
        endpoint = f"http://{HOST}:{port}"
        command = [str(program), "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-external-url", endpoint, "-public-host", f"{HOST}:{port}", "-log-level", "error"]
        with running({"fake-gcs-server": command}, home, {}):
            wait_until(lambda: request(port, "GET", "/_internal/healthcheck") == 200, "fake-gcs-server", home, 30)
            created = request(port, "POST", "/storage/v1/b?project=test", f'{{"name": "{BUCKET}"}}')
            assert created == 200, f"no bucket: {created}"
            yield {"SPARKLOG_TEST_GCS_ENDPOINT": endpoint, "SPARKLOG_TEST_GCS_BUCKET": BUCKET}


def request(port: int, method: str, path: str, body: str | None = None) -> int:
    """The status of one request."""
    connection = HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
