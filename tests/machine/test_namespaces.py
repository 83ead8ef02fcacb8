"""What a command finds in the namespaces of a Kubernetes node, and what it leaves (scripts/servers/namespaces.py)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.servers import kubernetes, namespaces
from scripts.servers.common import CHECKOUT, SERVERS, Skipped
from tests.machine.state import adopt_orphans, differences, read_state

PROGRAM = [sys.executable, str(CHECKOUT / "scripts" / "servers" / "namespaces.py")]
try:
    namespaces.require_namespaces()
    REASON = ""
except Skipped as reason:
    REASON = str(reason)

in_namespaces = pytest.mark.skipif(bool(REASON), reason=REASON)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@in_namespaces
def test_the_exit_code_is_that_of_the_command_or_its_signal() -> None:
    assert run("exit 7").returncode == 7
    assert run("kill -9 $$").returncode == 128 + signal.SIGKILL


@in_namespaces
def test_files_outside_of_the_checkout_are_those_of_the_machine_and_changes_are_gone() -> None:
    done = run("cat /etc/hosts; echo new >> /etc/hosts; touch /tmp/left-in-namespaces; tail -n 1 /etc/hosts")
    assert done.stdout == Path("/etc/hosts").read_text() + "new\n"
    assert not Path("/tmp/left-in-namespaces").exists()
    assert "new" not in Path("/etc/hosts").read_text().split()


@in_namespaces
def test_files_of_the_checkout_are_kept(tmp_path: Path) -> None:
    file = SERVERS / f"kept-{tmp_path.name}"
    run(f"touch {file}")
    file.unlink()


@in_namespaces
def test_only_settings_of_the_network_can_be_changed() -> None:
    before = Path("/proc/sys/vm/swappiness").read_text(), Path("/proc/sys/net/ipv4/ip_forward").read_text()
    assert "Read-only" in run("echo 1 > /proc/sys/vm/swappiness").stderr
    assert run("echo 1 > /proc/sys/net/ipv4/ip_forward").returncode == 0
    assert before == (Path("/proc/sys/vm/swappiness").read_text(), Path("/proc/sys/net/ipv4/ip_forward").read_text())


def ends(caller: subprocess.Popen[bytes]) -> int:
    """Return the exit code; the caller does not outlive a failure."""
    try:
        return caller.wait(timeout=30)
    finally:
        caller.kill()


@in_namespaces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_processes_and_groups_end_with_the_caller(number: signal.Signals) -> None:
    with adopt_orphans():
        before = read_state([])
        script = "setsid sleep 600 & mkdir /sys/fs/cgroup/*/deeper; echo ready; exec sleep 600"
        with subprocess.Popen([*PROGRAM, "sh", "-c", script], stdout=subprocess.PIPE) as caller:
            assert caller.stdout
            assert caller.stdout.readline() == b"ready\n"
            caller.send_signal(number)
            assert ends(caller) in (-number, 128 + number)
        deadline = time.monotonic() + 30
        while differences(before, read_state([])) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert differences(before, read_state([])) == []
    assert not (SERVERS / f"node-{caller.pid}").exists()


@in_namespaces
@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.45])
def test_a_signal_before_the_command_starts_ends_the_caller(seconds: float) -> None:
    with adopt_orphans(), subprocess.Popen([*PROGRAM, "sleep", "600"]) as caller:
        time.sleep(seconds)
        caller.terminate()
        assert ends(caller) in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_node_is_not_started_outside() -> None:
    with pytest.raises(Skipped, match="namespaces of its own"), kubernetes.server():
        pass
