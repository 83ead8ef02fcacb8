"""What all commands share with Kafka's tools: repeated and deprecated options, properties, exit codes, signals."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.arguments.client_properties import client_arguments
from sparklog.cli.arguments.parser import CommandParser, UsageError
from sparklog.cli.commands import COMMANDS, load_command
from sparklog.client.consumer.config import DEFAULTS
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets

from .conftest import SPARKLOG, Run, add_brokers


def parser_of(command: str) -> CommandParser:
    parser: CommandParser = load_command(command).parser()
    return parser


REPEATABLE = type(argparse.ArgumentParser().add_argument("--option", action="append"))


def single_valued(command: str) -> list[argparse.Action]:
    actions = parser_of(command).optional_actions()
    return [action for action in actions if action.nargs != 0 and not isinstance(action, REPEATABLE)]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_marks_repeatable_options(command: str) -> None:
    parser = parser_of(command)
    help_text = " ".join(parser.format_help().split())
    repeatable = [action for action in parser.optional_actions() if isinstance(action, REPEATABLE)]
    assert len(re.findall(r"[;,] (?:repeatable|may be repeated)", help_text)) == len(repeatable)


@pytest.mark.parametrize("command", COMMANDS)
def test_repeating_a_single_valued_option_is_refused(command: str) -> None:
    for action in single_valued(command):
        value = str(next(iter(action.choices))) if action.choices else "1"
        for flag in action.option_strings:
            name = flag.lstrip("-")
            parser_of(command).parse([flag, value])
            expected = f"Found multiple arguments for option {name}, but you asked for only one"
            for second in (value, "2" if not action.choices else value):
                with pytest.raises(UsageError, match=expected):
                    parser_of(command).parse([flag, value, f"{flag}={second}"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--create", "--topic", "a", "--topic", "b"],
        ["topics", "--delete", "--topic", "t", "--topic", "u"],
        ["configs", "--alter", "--topic", "t", "--add-config", "retention.ms=1", "--add-config", "max.message.bytes=9"],
    ],
)
def test_a_refused_repetition_changes_nothing(run: Run, cluster: Coordinator, arguments: list[str]) -> None:
    for name in ("t", "u"):
        cluster.create_topic(name)
    before = cluster.refresh().version
    result = run(*arguments)
    assert result.code == 1
    assert result.err.startswith("Found multiple arguments for option ")
    assert cluster.refresh().version == before


def test_switches_and_repeatable_options_may_be_repeated(run: Run, cluster: Coordinator) -> None:
    flags = ["--config", "retention.ms=5", "--config", "segment.bytes=2000000"]
    assert run("topics", "--create", "--create", "--topic", "t", *flags).code == 0
    assert len(cluster.refresh().topic("t").configs) == 2


DEPRECATED = [
    ("console-producer", "--property", "--reader-property", "ignore.error=true"),
    ("console-producer", "--producer-property", "--command-property", "linger.ms=1"),
    ("console-producer", "--producer.config", "--command-config", "FILE"),
    ("console-producer", "--max-partition-memory-bytes", "--batch-size", "1000"),
    ("console-consumer", "--property", "--formatter-property", "print.key=true"),
    ("console-consumer", "--consumer-property", "--command-property", "auto.offset.reset=earliest"),
    ("console-consumer", "--consumer.config", "--command-config", "FILE"),
    ("producer-perf-test", "--producer-props", "--command-property", "linger.ms=1"),
    ("producer-perf-test", "--producer.config", "--command-config", "FILE"),
    ("consumer-perf-test", "--messages", "--num-records", "0"),
    ("consumer-perf-test", "--consumer.config", "--command-config", "FILE"),
    ("verifiable-producer", "--producer.config", "--command-config", "FILE"),
    ("verifiable-consumer", "--consumer.config", "--command-config", "FILE"),
]
SMALL = {
    "console-producer": [],
    "console-consumer": ["--timeout-ms", "0"],
    "producer-perf-test": ["--num-records", "1", "--throughput", "-1", "--record-size", "1"],
    "consumer-perf-test": ["--num-records", "0"],
    "verifiable-producer": ["--max-messages", "0"],
    "verifiable-consumer": ["--group-id", "g", "--max-messages", "0"],
}


@pytest.mark.parametrize(("command", "old", "new", "value"), DEPRECATED)
def test_deprecated_options_work_and_name_their_replacement(
    run: Run, cluster: Coordinator, tmp_path: Path, command: str, old: str, new: str, value: str
) -> None:
    cluster.create_topic("t")
    (tmp_path / "p").touch()
    value = value.replace("FILE", str(tmp_path / "p"))
    small = SMALL[command] if old != "--messages" else []
    result = run(command, "--topic", "t", *small, old, value)
    assert result.code == 0
    assert f"Warning: {old} is deprecated. Use {new} instead.\n" in result.err
    assert "deprecated" not in run(command, "--topic", "t", *small, new, value).err.replace("(deprecated", "")
    if old not in ("--max-partition-memory-bytes", "--messages"):
        both = run(command, "--topic", "t", *small, old, value, new, value)
        assert both.code == 1
        assert f"Options {old} and {new} cannot be specified together." in both.err


def test_the_deprecated_config_option_of_leader_election_works(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    (tmp_path / "p").touch()
    elect = ["--election-type", "preferred", "--all-topic-partitions", "--admin.config", str(tmp_path / "p")]
    result = run("leader-election", *elect)
    assert (result.code, result.err) == (0, "Warning: --admin.config is deprecated. Use --command-config instead.\n")


@pytest.mark.parametrize(
    ("command", "flag", "hint"),
    [
        (
            "console-producer",
            "--reader-property",
            "ignoring unknown property 'parse.kye' of the line reader; did",
        ),
        ("console-consumer", "--formatter-property", "ignoring unknown property 'parse.kye' of the formatter"),
    ],
)
def test_unknown_properties_are_ignored_with_a_warning(
    run: Run, cluster: Coordinator, command: str, flag: str, hint: str
) -> None:
    cluster.create_topic("t")
    result = run(command, "--topic", "t", *SMALL[command], flag, "parse.kye=true")
    assert result.code == 0
    assert f"WARN: {hint}" in result.err


@pytest.mark.parametrize(
    "root",
    ["localhost:9092", "127.0.0.1:9092", "a.example:9092,b.example:9093", "[::1]:9092", "kafka_1:9092", "SSL://a:1"],
)
def test_an_address_of_kafka_brokers_is_refused_with_a_hint(run: Run, root: str) -> None:
    result = run("topics", "--list", "--bootstrap-server", root)
    assert result.code == 1
    assert f"{root!r} looks like the address of Kafka brokers: give the root of the cluster" in result.err
    assert "there is no server with a port" in result.err


def test_an_unknown_storage_option_is_named(run: Run, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3 = ["--bootstrap-server", "s3://bucket/log", "--storage-option", "foo=bar"]
    result = run("topics", "--list", *s3)
    assert result.code == 1
    assert "the storage client has no option 'foo'" in result.err
    assert "TypeError" not in result.err
    # a local store ignores it: options are also for the stores of other brokers
    assert run("topics", "--list", "--storage-option", "foo=bar") == (0, "", "")


@pytest.mark.parametrize("arguments", [["help", "topics"], ["topics", "-h"], ["topics", "--help"]])
def test_help_of_a_command_is_available_in_three_ways(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("usage: sparklog topics ")


def test_help_of_an_unknown_command_suggests_a_similar_one(run: Run) -> None:
    assert (
        run("help", "topcis").err == "'topcis' is not a command (`sparklog --help` lists them); did you mean topics?\n"
    )
    assert run("kafka-topics.sh", "--list").err.endswith("; did you mean topics?\n")
    assert "did you mean" not in run("metrics").err


def test_version_begins_with_a_number(run: Run) -> None:
    assert run("topics", "--version").out.split(" ")[0] == sparklog.__version__


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["console-producer", "--broker-list", "x", "--topic", "t"], "did you mean --bootstrap-server?"),
        (["console-consumer", "--whitelist", "x"], "did you mean --include?"),
        (["topics", "--create", "orders"], "'orders' does not belong to any option; did you mean --topic orders?"),
    ],
)
def test_options_of_older_tools_get_a_suggestion(run: Run, root: str, arguments: list[str], hint: str) -> None:
    result = run(*arguments)
    assert result.code == 1
    assert hint in result.err


REFUSALS = [
    (["topics", "--create", "--topic", "t"], "Topic 't' already exists"),
    (["topics", "--create", "--topic", "a b"], "Topic name is invalid: 'a b'"),
    (["topics", "--create", "--topic", "t_2"], "collides with existing topic"),
    (["topics", "--create", "--topic", "z", "--config", "nope=1"], "Unknown topic config name: nope"),
    (
        ["topics", "--create", "--topic", "z", "--config", "retention.ms=x"],
        "Invalid value x for configuration retention.ms",
    ),
    (["topics", "--create", "--topic", "z", "--partitions", "0"], "The partitions must be greater than 0"),
    (["topics", "--create", "--topic", "z", "--replication-factor", "3"], "`sparklog brokers add"),
    (["topics", "--alter", "--topic", "t", "--partitions", "3"], "already has 3 partition(s)"),
    (["topics", "--alter", "--topic", "t", "--partitions", "2"], "currently has 3 partition(s)"),
    (
        ["topics", "--alter", "--topic", "t", "--partitions", "0"],
        "currently has 3 partition(s); 0 would not be an increase",
    ),
    (["topics", "--delete", "--topic", "z"], "Topic 'z' does not exist as expected"),
    (["configs", "--alter", "--topic", "t", "--add-config", "nope=1"], "Unknown topic config name: nope"),
    (["consumer-groups", "--reset-offsets", "--group", "g", "--topic", "z", "--to-earliest", "--execute"], "Error: "),
    (["consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t:9", "--to-earliest", "--execute"], "Error: "),
    (["consumer-groups", "--describe", "--group", "z"], "Error: Consumer group 'z' does not exist: Group z not found."),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSALS)
def test_errors_contain_the_messages_that_scripts_search_for(
    run: Run, cluster: Coordinator, arguments: list[str], words: str
) -> None:
    cluster.create_topic("t", 3)
    cluster.create_topic("t.2")
    result = run(*arguments)
    assert result.code == 1
    assert words.lower() in result.err.lower()
    if arguments[0] == "topics":
        assert result.err.startswith("Error while executing topic command : ")


# -- exit codes


def offsets_past_the_end(tmp_path: Path) -> str:
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 99}], "version": 1}))
    return str(path)


SUCCEED_IN_KAFKA = [
    ["consumer-groups", "--describe", "--group", "z"],
    ["consumer-groups", "--delete", "--group", "z"],
    ["consumer-groups", "--delete-offsets", "--group", "z", "--topic", "t"],
    ["consumer-groups", "--delete-offsets", "--group", "g", "--topic", "z"],
    ["consumer-groups", "--reset-offsets", "--group", "g", "--topic", "z", "--to-earliest", "--execute"],
    ["consumer-groups", "--validate-regex", "("],
    ["delete-records", "--offset-json-file", "FILE"],
    ["configs", "--describe", "--group", "g"],
    ["dump-log", "--files", "notes.txt"],
]


@pytest.mark.parametrize("arguments", SUCCEED_IN_KAFKA)
def test_kafkas_exit_codes_can_be_enabled(
    run: Run, cluster: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    cluster.create_topic("t")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("t", 0): 0})))
    arguments = [argument.replace("FILE", offsets_past_the_end(tmp_path)) for argument in arguments]
    monkeypatch.delenv("SPARKLOG_KAFKA_EXIT_CODES", raising=False)
    assert run(*arguments).code == 1
    assert run(*arguments, "--kafka-exit-codes").code == 0
    monkeypatch.setenv("SPARKLOG_KAFKA_EXIT_CODES", "1")
    assert run(*arguments).code == 0
    monkeypatch.setenv("SPARKLOG_KAFKA_EXIT_CODES", "0")
    assert run(*arguments).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--describe", "--topic", "z"],
        ["consumer-groups", "--describe"],
        ["consumer-groups", "--reset-offsets", "--group", "g", "--to-earliest", "--execute"],
        ["topics", "--list", "--nope"],
    ],
)
def test_commands_that_fail_in_kafka_fail_with_kafkas_exit_codes_too(
    run: Run, root: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("SPARKLOG_KAFKA_EXIT_CODES", "1")
    assert run(*arguments).code == 1


# -- closed streams and signals


def test_commands_succeed_with_closed_standard_output(cluster: Coordinator) -> None:
    for command in (
        "topics --create --topic t",
        "topics --list",
        "topics --help",
        "console-consumer --topic t --timeout-ms 0",
    ):
        line = f"exec {sys.executable} -m sparklog.cli {command} >&-"
        result = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        assert result.returncode == 0
        assert "AttributeError" not in result.stderr
        assert "Traceback" not in result.stderr
    assert "t" in cluster.refresh().topics


LONG_RUNNING = [
    ["console-consumer", "--topic", "t"],
    ["console-consumer", "--topic", "t", "--group", "g"],
    ["consumer-perf-test", "--topic", "t", "--num-records", "9", "--timeout", "600000", "--group", "g"],
    ["verifiable-consumer", "--topic", "t", "--group-id", "g"],
    ["verifiable-producer", "--topic", "u", "--throughput", "1"],
    ["maintain", "--loop"],
]


@pytest.mark.parametrize("arguments", LONG_RUNNING)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_sighup_and_sigterm_stop_long_running_commands(
    cluster: Coordinator, arguments: list[str], number: signal.Signals, code: int
) -> None:
    cluster.create_topic("t")
    with subprocess.Popen([*SPARKLOG, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not is_caught(process.pid, number) or ("g" in arguments and not has_member(cluster)):
            assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == (0 if arguments[0] == "maintain" else code)
    assert b"Traceback" not in err
    if "g" in arguments:
        assert cluster.refresh().groups["g"].members == {}


def is_caught(process: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    text = Path(f"/proc/{process}/status").read_text()
    (caught,) = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


def has_member(cluster: Coordinator) -> bool:
    group = cluster.refresh().groups.get("g")
    return group is not None and bool(group.members)


JAVAS_DEFAULT = (
    "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
)


@pytest.mark.parametrize("strategy", [JAVAS_DEFAULT, "range, cooperative-sticky", "cooperative-sticky,sticky"])
def test_lists_of_assignors_are_accepted_as_by_the_java_consumer(
    run: Run, cluster: Coordinator, tmp_path: Path, strategy: str
) -> None:
    cluster.create_topic("t")
    assert run("console-producer", "--topic", "t", stdin=b"a\n").code == 0
    config = tmp_path / "consumer.properties"
    config.write_text(f"partition.assignment.strategy={strategy}\nauto.offset.reset=earliest\n")
    one_message = ("--topic", "t", "--max-messages", "1")
    consumed = run("console-consumer", *one_message, "--group", "g", "--command-config", str(config))
    assert (consumed.code, consumed.out) == (0, "a\n"), consumed.err
    verified = run("verifiable-consumer", *one_message, "--group-id", "v", "--assignment-strategy", strategy)
    assert (verified.code, '"count":1' in verified.out) == (0, True), verified.err


def test_members_with_javas_default_assignors_can_join_a_group_of_either_assignor(root: str) -> None:
    from sparklog.client.consumer.consumer import Consumer

    cluster = open_cluster(root)
    cluster.create_topic("t", 2)
    for assignor in ("range", "cooperative-sticky"):
        arguments = client_arguments({"partition.assignment.strategy": JAVAS_DEFAULT}, DEFAULTS)
        with (
            Consumer("t", cluster=cluster, group_id=assignor, **arguments) as first,
            Consumer("t", cluster=cluster, group_id=assignor, partition_assignment_strategy=assignor) as second,
        ):
            while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                first.poll(10)
                second.poll(10)
            assert cluster.refresh().groups[assignor].assignor == assignor


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_exit_code_is_kept_when_the_output_pipe_is_closed(root: str, cluster: Coordinator, unbuffered: str) -> None:
    add_brokers(cluster, 1)
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "sparklog.cli", "brokers", "list", "--exit-code"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=60, check=False, env=environment)
    os.close(write_end)
    assert (result.returncode, b"Traceback" in result.stderr) == (2, False)


def test_properties_of_javas_clients_are_ignored_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    javas = ("security.protocol", "client.dns.lookup", "connections.max.idle.ms", "internal.leave.group.on.close")
    assert client_arguments(dict.fromkeys(javas, "1"), DEFAULTS) == {}
    assert capsys.readouterr().err == ""
    assert client_arguments({"max.in.flight.requests.per.connection": "5"}, {}) == {}
    assert capsys.readouterr().err == ""


def test_an_invalid_value_of_an_option_without_effect_is_refused(run: Run, root: str) -> None:
    for command, flag in (("consumer-groups", "--timeout"), ("console-producer", "--max-block-ms")):
        result = run(command, flag, "soon")
        assert result.code == 1
        assert f"{flag}: invalid int value: 'soon'" in result.err
