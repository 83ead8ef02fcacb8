"""scripts/java.sh on other machines: only PATH is faked, the script is the real one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "java.sh"
TOOLS = ("bash", "dirname", "sed", "uname", "cat", "chmod")  # the tools of a bare machine


class Machine:
    """A PATH with the bare tools and the programs that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is not here"))
        self.put("id", "echo 1000")

    def put(self, name: str, body: str, folder: Path | None = None) -> Path:
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)
        program.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        program.chmod(0o755)
        return program

    def put_java(self, version: str, home: str, folder: Path | None = None) -> None:
        self.put("java", java(version, home), folder)

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT)],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def java(version: str, home: str) -> str:
    return f"echo '    java.home = {home}' >&2; echo '    java.specification.version = {version}' >&2"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_java_home_overrides_path(machine: Machine, tmp_path: Path) -> None:
    machine.put_java("17", "/in/path")
    machine.put_java("21", "/in/java-home", tmp_path / "jdk" / "bin")
    assert machine.run(JAVA_HOME=str(tmp_path / "jdk")).stdout == "/in/java-home\n"


def test_path_is_used_if_java_home_is_too_old(machine: Machine, tmp_path: Path) -> None:
    machine.put_java("17", "/in/path")
    machine.put_java("11", "/in/java-home", tmp_path / "jdk" / "bin")
    run = machine.run(JAVA_HOME=str(tmp_path / "jdk"))
    assert run.stdout == "/in/path\n"
    assert "has no Java 17 or newer" in run.stderr


@pytest.mark.parametrize("version", ["1.8", "11", "", "no java"])
def test_an_old_or_broken_java_is_ignored(machine: Machine, version: str) -> None:
    machine.put_java(version, "/in/path")
    run = machine.run()
    assert (run.returncode, run.stdout) == (1, "")


def test_java_is_installed_for_root_on_debian_with_a_message(machine: Machine) -> None:
    installed = machine.bin / "java"
    machine.put("id", "echo 0")
    machine.put("apt-cache", "[ \"$3\" = '^openjdk-17-jre-headless$' ] && echo openjdk-17-jre-headless; true")
    machine.put(
        "apt-get",
        f'if [ "$1" = install ]; then cat > {installed} <<"END"\n#!{shutil.which("bash")}\n{java("17", "/new")}\nEND\n'
        f"chmod +x {installed}; fi; echo noise",
    )
    run = machine.run()
    assert (run.returncode, run.stdout) == (0, "/new\n")
    assert "installing openjdk-17-jre-headless with apt-get" in run.stderr


def test_newer_debian_without_java_17_gets_21(machine: Machine) -> None:
    machine.put("id", "echo 0")
    machine.put("apt-cache", "[ \"$3\" = '^openjdk-21-jre-headless$' ] && echo openjdk-21-jre-headless; true")
    machine.put("apt-get", "exit 0")
    assert "installing openjdk-21-jre-headless" in machine.run().stderr


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
        ("apk", "sudo apk add openjdk17-jre-headless"),
    ],
)
def test_other_systems_are_shown_their_install_command(machine: Machine, program: str, command: str) -> None:
    machine.put(program, "echo must not run; exit 3")
    run = machine.run()
    assert (run.returncode, run.stdout) == (1, "")
    assert command in run.stderr


def test_mac_is_shown_brew(machine: Machine) -> None:
    machine.put("uname", "echo Darwin")
    assert "brew install openjdk@17" in machine.run().stderr
