"""Completion: the scripts are generated from the parsers and work in bash and zsh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sparklog.cli.commands import COMMANDS

from .conftest import Run

needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")


@pytest.fixture
def complete_in_bash(run: Run, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Return the completions that bash offers after the given words."""
    script = tmp_path / "sparklog.bash"
    script.write_text(run("completion", "bash").out)

    def complete(*words: str) -> list[str]:
        lines = (
            f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _sparklog; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        command = ["bash", "-c", lines, "bash", "sparklog", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()

    return complete


def test_bash_completes_commands_actions_options_and_values(complete_in_bash, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert complete_in_bash("topi") == ["topics"]
    assert set(COMMANDS) <= set(complete_in_bash(""))
    assert complete_in_bash("topics", "--repl") == ["--replication-factor", "--replica-assignment"]
    assert complete_in_bash("cluster", "pro") == ["promote"]
    assert complete_in_bash("jobs", "pro") == ["produce"]
    assert complete_in_bash("help", "verifiable-p") == ["verifiable-producer"]
    assert complete_in_bash("producer-perf-test", "--key-distribution", "r") == ["range", "random"]
    assert complete_in_bash("topics", "--topic", "") == []
    (tmp_path / "client.properties").touch()
    assert complete_in_bash("topics", "--command-config", "cli") == ["client.properties"]


@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=needs_zsh)])
def test_the_scripts_parse_and_contain_every_command(run: Run, tmp_path: Path, shell: str) -> None:
    script = tmp_path / "script"
    script.write_text(run("completion", shell).out)
    subprocess.run([shell, "-n", str(script)], check=True)
    for name in COMMANDS:
        assert f"        {name})" in script.read_text()


@needs_zsh
def test_zsh_defines_a_completion(run: Run, tmp_path: Path) -> None:
    (tmp_path / "_sparklog").write_text(run("completion", "zsh").out)
    lines = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; print -r -- $_comps[sparklog]"
    result = subprocess.run(["zsh", "-f", "-c", lines], capture_output=True, text=True, check=True)
    assert result.stdout == "_sparklog\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing shell: bash or zsh"),
        (["fish"], "unsupported shell 'fish': bash or zsh"),
    ],
)
def test_unsupported_shells_are_refused(run: Run, arguments: list[str], message: str) -> None:
    assert run("completion", *arguments).err.startswith(message)
