#!/usr/bin/env python3
"""Runs a command beside MinIO, an S3 server with users, policies, temporary credentials and encryption.

    scripts/servers/minio.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_MINIO_ENDPOINT, _KEY, _SECRET, _REGION and _BUCKET (an empty bucket), and MinIO's
own command line in SPARKLOG_TEST_MINIO_MC, set up for the alias ``local``. The first run builds both, which needs Go
and takes some six minutes; without Go the command is not run, and the exit code is 0.
SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import HOST, free_ports, run_beside, running, wait_until, work_folder
from scripts.servers.go import build_programs

MODULES = {
    "github.com/minio/minio": "v0.0.0-20260212201848-7aac2a2c5b7c",
    "github.com/minio/mc": "v0.0.0-20250313080218-cf909e1063a9",
}
BUCKET = "sparklog-test"
KEY, SECRET = "test-root", "test-root-secret"
REGION = "eu-central-1"
ENCRYPTION_KEY = "log-key"
"""The one key of MinIO's built-in key management."""


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running server; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    programs = build_programs("minio", MODULES)
    with work_folder("minio") as home:
        port, console = free_ports(2)
        (home / "data" / BUCKET).mkdir(parents=True)  # to this server a bucket is a folder
        address = ["--address", f"{HOST}:{port}", "--console-address", f"{HOST}:{console}"]
        command = [str(programs["minio"]), "server", "--quiet", *address, str(home / "data")]
        environment = {
            "MINIO_ROOT_USER": KEY,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_SITE_REGION": REGION,
            "MINIO_BROWSER": "off",
            "MINIO_KMS_SECRET_KEY": f"{ENCRYPTION_KEY}:{base64.b64encode(bytes(range(32))).decode()}",
            "HOME": str(home),
        }
        with running({"minio": command}, home, environment):
            wait_until(lambda: is_ready(port), "MinIO", home, seconds=60)
            yield {
                "SPARKLOG_TEST_MINIO_ENDPOINT": f"http://{HOST}:{port}",
                "SPARKLOG_TEST_MINIO_KEY": KEY,
                "SPARKLOG_TEST_MINIO_SECRET": SECRET,
                "SPARKLOG_TEST_MINIO_REGION": REGION,
                "SPARKLOG_TEST_MINIO_BUCKET": BUCKET,
                "SPARKLOG_TEST_MINIO_MC": str(programs["mc"]),
                "MC_HOST_local": f"http://{KEY}:{SECRET}@{HOST}:{port}",
                "MC_CONFIG_DIR": str(home / "mc"),
            }


def is_ready(port: int) -> bool:
    """Whether the server says that it can serve requests, those of users among them."""
    connection = HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/minio/health/ready")
        return connection.getresponse().status == 200
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
