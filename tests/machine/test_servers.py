"""Every server that a suite starts leaves the machine as it found it, also when the process that started it is killed.

Each is started by its program, used once, and ended. Before and after, the machine's state must be the same
(tests/machine/state.py), and nothing may be written outside of the checkout (tests/machine/written.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.servers.common import CHECKOUT, work_folder
from tests.machine.state import adopt_orphans, differences, read_state
from tests.machine.written import Layers, may_mount

END_SECONDS = 60.0
USED = "the server was used"


def program(name: str) -> list[str]:
    return [sys.executable, f"scripts/servers/{name}.py"]


def beside(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.machine.beside", name]


def on_s3(prefix: str) -> str:
    variables = {"ENDPOINT_URL": "ENDPOINT", "ACCESS_KEY_ID": "KEY", "SECRET_ACCESS_KEY": "SECRET"}
    given = " ".join(f"AWS_{name}=${prefix}_{ours}" for name, ours in variables.items())
    return f"AWS_REGION=${{{prefix}_REGION:-any}} {given} {CREATE} s3://${prefix}_BUCKET/log"


def on_spark(master: str) -> str:
    code = f"SparkSession.builder.master('{master}').config('spark.ui.enabled', 'false').getOrCreate().range(9).count()"
    return f'SPARK_LOCAL_IP=127.0.0.1 python -c "from pyspark.sql import SparkSession; {code}"'


CREATE = "sparklog cluster create --bootstrap-server"
ON_HDFS = f"{CREATE} $SPARKLOG_TEST_HDFS_URL/log"
ON_GCS = """python -c "import os, gcsfs
endpoint = os.environ['SPARKLOG_TEST_GCS_ENDPOINT']
gcsfs.GCSFileSystem(endpoint_url=endpoint, token='anon').pipe('sparklog-test/object', b'content')" """
ON_AZURE = """python -c "import os
from azure.storage.blob import BlobServiceClient
BlobServiceClient.from_connection_string(os.environ['SPARKLOG_TEST_AZURE_CONNECTION']).create_container('used')" """
ON_KAFKA = """java -cp "$(echo .servers/kafka-with-tools-*)/*" org.apache.kafka.tools.TopicCommand \
--bootstrap-server $SPARKLOG_BENCH_KAFKA --create --topic used"""
ON_KUBERNETES = """kubectl run used --image sparklog.test/pause:1 --image-pull-policy Never &&
kubectl wait pod/used --for condition=Ready --timeout 60s"""

# marker of the suite, the server's program, what a shell does with the server
SERVERS_OF_SUITES = {
    "s3": ("s3", program("s3"), on_s3("SPARKLOG_TEST_S3")),
    "minio": ("s3", program("minio"), on_s3("SPARKLOG_TEST_MINIO")),
    "hdfs": ("hdfs", program("hdfs"), ON_HDFS),
    "kerberos": ("hdfs", beside("kerberos"), ON_HDFS),
    "gcs": ("gcs", program("gcs"), ON_GCS),
    "azure": ("azure", program("azure"), ON_AZURE),
    "kafka": ("kafka", program("kafka"), ON_KAFKA),
    "standalone": ("standalone", program("standalone"), on_spark("$SPARKLOG_TEST_SPARK_MASTER")),
    "yarn": ("yarn", program("yarn"), on_spark("yarn")),
    "kubernetes": ("k8s", program("kubernetes"), ON_KUBERNETES),
    "chromium": ("ui", beside("chromium"), 'test "$TITLE" = shown'),
}
CASES = [
    pytest.param(command, use, marks=getattr(pytest.mark, mark), id=name)
    for name, (mark, command, use) in SERVERS_OF_SUITES.items()
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is compared is Linux' own")


@pytest.fixture
def layers() -> Iterator[Layers]:
    with work_folder("machine") as home:
        yield Layers(home)


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize(("command", "use"), CASES)
def test_a_server_leaves_the_machine_as_it_found_it(
    layers: Layers, command: Sequence[str], use: str, killed: bool
) -> None:
    prepare(command)
    assert left_behind(layers, command, use, killed) == []


@pytest.mark.skipif(not may_mount(), reason="without root it would change the real machine")
def test_what_a_program_leaves_is_found(layers: Layers) -> None:
    """A process without a parent, a new folder, and files: a new, a changed and a removed one."""
    spare = next(folder for folder in map(Path, ("/tmp", "/opt")) if folder in layers.covered)  # a clone may be in /tmp
    change = f"sleep 600 & mkdir /var/left {spare}/removed; touch {spare}/left; echo >> /etc/hosts; rm /etc/passwd"
    program = ["sh", "-c", f'{change}; rmdir {spare}/removed; exec "$@"', "sh"]
    found = sorted(left_behind(layers, program, "true", killed=False, seconds=1))
    (process, *written) = found
    os.kill(int(process.split()[1].rstrip(":")), signal.SIGKILL)
    assert process.endswith("new, 'sleep 600'")
    assert written == [f"written: {path}" for path in ("/etc/hosts", "/etc/passwd", f"{spare}/left", "/var/left")]


def prepare(command: Sequence[str]) -> None:
    """Install and build what the server needs, which is meant to stay. Skips the test where that cannot be had."""
    done = subprocess.run([*command, "true"], cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, check=False)
    for line in done.stdout.decode().splitlines():
        if line.startswith("skipped: "):
            pytest.skip(line)
    assert done.returncode == 0


def left_behind(
    layers: Layers, command: Sequence[str], use: str, killed: bool, seconds: float = END_SECONDS
) -> list[str]:
    """What a server leaves on the machine once it was used and ended, or the process that started it was killed."""
    with adopt_orphans():
        before = read_state(layers.listed)
        script = f"{{ {use}\n}} >&2 && echo {USED} && cat"
        with subprocess.Popen(
            layers.command([*command, "bash", "-c", script]),
            cwd=CHECKOUT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdin
            assert server.stdout
            assert any(USED in line.decode() for line in server.stdout), f"ended with {server.wait()}"
            if killed:
                server.kill()
            server.stdin.close()
            ended = server.wait()
        assert killed or ended == 0
        deadline = time.monotonic() + seconds
        while found := differences(before, read_state(layers.listed)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
    return [*found, *(f"written: {path}" for path in layers.written())]


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(CHECKOUT)}
