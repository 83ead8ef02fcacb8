#!/usr/bin/env python3
"""Runs a command beside a real S3 server (versitygw on a folder), and stops the server afterwards.

    scripts/servers/s3.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_S3_ENDPOINT, _KEY, _SECRET and _BUCKET (an empty bucket). The first run builds the
server, which needs Go and takes some minutes; without Go the command is not run, and the exit code is 0.
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

MODULES = {"github.com/versity/versitygw/cmd/versitygw": "v1.8.0"}
BUCKET = "sparklog-test"
KEY, SECRET = "test-key", "test-secret"


@contextmanager
def server(host: str = HOST) -> Iterator[dict[str, str]]:
    """A running server; yields the environment by which tests find it. ``host`` is the address that all clients reach;
    containers with a network of their own need another than the default. Raises ``Skipped`` or ``ServerFailed``."""
    program = build()
    with work_folder("s3") as home:
        (port,) = free_ports(1)
        data = home / "data"
        (data / BUCKET).mkdir(parents=True)  # to this server a bucket is a folder
        command = [str(program), "--port", f"{host}:{port}", "--quiet", "posix", str(data)]
        with running({"versitygw": command}, home, {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}):
            wait_until(lambda: answers(port, host), "versitygw", home, seconds=30)
            yield {
                "SPARKLOG_TEST_S3_ENDPOINT": f"http://{host}:{port}",
                "SPARKLOG_TEST_S3_KEY": KEY,
                "SPARKLOG_TEST_S3_SECRET": SECRET,
                "SPARKLOG_TEST_S3_BUCKET": BUCKET,
            }


def build() -> Path:
    """The server's program, built unless it is there."""
    return build_programs("s3", MODULES)["versitygw"]


def answers(port: int, host: str = HOST) -> bool:
    """Whether there is an HTTP answer: to a request without a signature it is a refusal."""
    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
