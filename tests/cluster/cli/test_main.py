"""The command as a whole: help, dispatch, connection, errors, and imports at startup."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.commands import COMMANDS
from sparklog.coordinator import Coordinator, open_cluster

from .conftest import Run


def test_help_names_every_command(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", result.out, re.M)


def test_without_a_command_it_prints_the_help_and_fails(run: Run) -> None:
    result = run()
    assert result.code == 1
    assert result.out == run("--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example(run: Run, name: str) -> None:
    result = run(name, "--help")
    assert result.code == 0
    assert result.err == ""
    assert f"usage: sparklog {name} " in result.out
    assert f"sparklog {name} " in result.out.partition("Example:\n")[2]
    assert max(map(len, result.lines)) <= 120


@pytest.mark.parametrize("arguments", [["--version"], *[[name, "--version"] for name in COMMANDS]])
def test_version_is_printed(run: Run, arguments: list[str]) -> None:
    assert run(*arguments) == (0, f"{sparklog.__version__} (sparklog)\n", "")


def test_an_unknown_command_is_refused_with_a_suggestion(run: Run) -> None:
    result = run("topcis", "--list")
    assert result == (1, "", "'topcis' is not a command (`sparklog --help` lists them); did you mean topics?\n")


def test_a_missing_bootstrap_server_is_refused_with_the_ways_to_set_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    result = run("topics", "--list")
    assert result.code == 1
    assert "--bootstrap-server must be specified" in result.err
    assert "SPARKLOG_BOOTSTRAP_SERVER" in result.err


def test_option_overrides_file_and_file_overrides_environment(
    run: Run, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = {name: str(tmp_path / name) for name in ("flag", "file")}
    for path in roots.values():
        assert run("cluster", "create", "--bootstrap-server", path).code == 0
    ids = {name: open_cluster(path).state.cluster_id for name, path in roots.items()}
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={roots['file']}\n")
    command = ["cluster", "cluster-id"]
    assert run(*command).out == f"Cluster ID: {open_cluster(root).state.cluster_id}\n"
    assert run(*command, "--command-config", str(config)).out == f"Cluster ID: {ids['file']}\n"
    both = run(*command, "--command-config", str(config), "--bootstrap-server", roots["flag"])
    assert both.out == f"Cluster ID: {ids['flag']}\n"


def test_the_console_tools_take_the_root_from_a_property(
    run: Run, cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t")
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER")
    root = ["--topic", "t", "--command-property", f"bootstrap.servers={cluster.store.root}"]
    assert run("console-producer", *root, stdin=b"a\n") == (0, "", "")
    read = run("console-consumer", *root, "--from-beginning", "--timeout-ms", "0")
    assert read == (0, "a\n", "Processed a total of 1 messages\n")


def test_a_root_without_a_cluster_is_refused_with_the_command_to_create_one(run: Run, tmp_path: Path) -> None:
    result = run("topics", "--list", "--bootstrap-server", str(tmp_path))
    assert result.code == 1
    assert "is not a sparklog cluster" in result.err
    assert f"sparklog cluster create --bootstrap-server {tmp_path}" in result.err
    assert result.err.count("\n") == 1


def test_unsupported_storage_is_refused(run: Run) -> None:
    result = run("cluster", "create", "--bootstrap-server", "sftp://host/log")
    assert result.code == 1
    assert "sftp" in result.err
    assert result.err.count("\n") == 1


def test_a_newer_cluster_format_is_refused_with_advice_to_upgrade(run: Run, root: str) -> None:
    path = Path(root, "cluster.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    result = run("topics", "--list")
    assert result.code == 1
    assert "format 99" in result.err
    assert "upgrade sparklog" in result.err


def test_a_modified_commit_is_detected(run: Run, root: str) -> None:
    run("topics", "--create", "--topic", "t")
    commit = Path(root, "meta/commits/00000000000000000001.json")
    commit.write_text(commit.read_text().replace('"t"', '"u"'))
    result = run("topics", "--list")
    assert (result.code, result.out) == (1, "")
    assert "00000000000000000001.json is not what was written" in result.err


@pytest.mark.parametrize("option", ["novalue", "=x", "client_kwargs={bad"])
def test_malformed_storage_option_is_refused(run: Run, root: str, option: str) -> None:
    result = run("topics", "--list", "--storage-option", option)
    assert result.code == 1
    assert "--storage-option" in result.err


def test_config_file_that_cannot_be_read_is_named(run: Run, root: str, tmp_path: Path) -> None:
    result = run("topics", "--list", "--command-config", str(tmp_path / "nope.properties"))
    assert result.code == 1
    assert "nope.properties" in result.err


def test_debug_prints_the_traceback_of_an_error(root: str) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "topics", "--debug", "--delete", "--topic", "("]
    plain = [part for part in command if part != "--debug"]
    without = subprocess.run(plain, capture_output=True, text=True, check=False)
    assert (without.returncode, "Traceback" in without.stderr) == (1, False)
    missing = [*command[:5], "--describe", "--bootstrap-server", root + "-nope"]
    failed = subprocess.run(missing, capture_output=True, text=True, check=False)
    assert (failed.returncode, "Traceback" in failed.stderr) == (1, True)


@pytest.mark.parametrize(("value", "shows"), [("1", True), ("YES", True), ("no", False), ("off", False), ("", False)])
def test_debugging_is_switched_by_an_environment_variable(root: str, value: str, shows: bool) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "topics", "--list", "--bootstrap-server", root + "-nope"]
    environment = {**os.environ, "SPARKLOG_DEBUG": value}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 1
    assert ("Traceback" in result.stderr) == shows


@pytest.mark.parametrize("variable", ["SPARKLOG_DEBUG", "SPARKLOG_KAFKA_EXIT_CODES"])
def test_an_invalid_value_of_a_switch_is_refused_with_the_valid_ones(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "maybe")
    message = f"invalid {variable}=maybe: set it to 1, true, yes or on, or to 0, false, no or off\n"
    assert run("topics", "--list") == (1, "", message)


def test_kafkas_options_without_effect_are_accepted_and_logged_at_debug_level(root: str) -> None:
    command = ["topics", "--debug", "--list", "--partition-size-limit-per-response", "10"]
    result = subprocess.run(
        [sys.executable, "-m", "sparklog.cli", *command], capture_output=True, text=True, check=True
    )
    assert "--partition-size-limit-per-response has no effect here" in result.stderr


PRINT_IMPORTED = (
    "import sys; from sparklog.cli.main import main; code = main(); print(code, *sorted(sys.modules), file=sys.stderr)"
)


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a process running the command has imported at its end."""
    result = subprocess.run(
        [sys.executable, "-c", PRINT_IMPORTED, *arguments], capture_output=True, text=True, check=True
    )
    code, *modules = result.stderr.splitlines()[-1].split()
    assert code == "0"
    return {name for name in modules if name != "numpy"}


@pytest.mark.parametrize("arguments", [["--help"], *[[name, "--help"] for name in COMMANDS]])
def test_help_imports_no_libraries(arguments: list[str]) -> None:
    tops = {name.partition(".")[0] for name in imported_by(*arguments)}
    assert not tops & {"pyarrow", "fsspec", "msgspec", "pyspark", "pandas", "numpy"}


def test_commands_import_neither_spark_nor_pandas_nor_numpy(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    for arguments in (
        ["topics", "--list"],
        ["get-offsets"],
        ["console-consumer", "--topic", "t", "--timeout-ms", "0"],
        ["producer-perf-test", "--topic", "t", "--num-records", "9", "--record-size", "9", "--throughput", "-1"],
        ["console-consumer", "--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "9"],
        ["consumer-groups", "--describe", "--group", "g"],
        ["transactions", "list"],
    ):
        modules = imported_by(*arguments)
        assert "pyarrow" in modules
        assert not [name for name in modules if name.partition(".")[0] in ("pyspark", "pandas", "py4j")]
        assert not [name for name in modules if name.startswith("numpy.")]


def test_output_to_a_closed_pipe_exits_with_0(root: str) -> None:
    for number in range(3):
        open_cluster(root).create_topic(f"t{number}")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "sparklog.cli", "topics", "--list"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")
