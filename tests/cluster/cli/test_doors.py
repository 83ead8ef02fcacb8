"""What comes in at the command line, and goes out: bytes, blanks, marks of files, and full streams."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.arguments.process import argument_bytes, not_text
from sparklog.coordinator import Coordinator
from tests.cluster.maintenance.logs import Written, records
from tests.cluster.maintenance.logs import append as append_written

from .conftest import Run

SPARKLOG = [sys.executable, "-m", "sparklog.cli"]
MARK = "\ufeff"


def program(
    *arguments: str | bytes, out: str = "", err: str = "", data: bytes = b"", **environment: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a program, with standard output or standard error into a file."""
    with (
        open(out, "wb", 0) if out else open(os.devnull) as output,
        open(err, "wb", 0) if err else open(os.devnull) as errors,
    ):
        return subprocess.run(
            [*SPARKLOG, *arguments],
            input=data,
            stdout=output if out else subprocess.PIPE,
            stderr=errors if err else subprocess.PIPE,
            env={**os.environ, **environment},
            timeout=120,
            check=False,
        )


def append(cluster: Coordinator, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    append_written(cluster, topic, [Written(None, value) for value in values], partition=partition)


# -- standard streams


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 1),
        ("--version", 1),
        ("topics --help", 1),
        ("get-offsets --topic t", 1),
        ("console-consumer --topic t --from-beginning --max-messages 1", 1),
        ("topics --list", 1),
        ("fsck", 2),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_full_disk_is_a_failure_in_one_line(
    cluster: Coordinator, arguments: str, code: int, unbuffered: str
) -> None:
    cluster.create_topic("t", 1)
    append(cluster, "t", [b"v"])
    result = program(*arguments.split(), out="/dev/full", PYTHONUNBUFFERED=unbuffered)
    lines = [line for line in result.stderr.decode().splitlines() if not line.startswith("Processed a total")]
    assert (result.returncode, lines) == (code, ["standard output cannot be written: No space left on device"])


def test_a_consumer_whose_output_is_full_commits_nothing(cluster: Coordinator) -> None:
    cluster.create_topic("t", 1)
    append(cluster, "t", [b"v" * 100] * 2000)
    consume = ("console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "500", "--group", "g")
    settings = ("--command-property", "auto.commit.interval.ms=0")
    assert program(*consume, *settings, out="/dev/full").returncode == 1
    group = cluster.refresh().groups.get("g")
    assert group is None or {at.offset for at in group.offsets.values()} <= {0}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_pipe_that_does_not_block_loses_no_record(cluster: Coordinator, unbuffered: str) -> None:
    """Another process that has the same pipe, such as a shell's, may have made it non-blocking."""
    cluster.create_topic("t", 1)
    values = [b"%06d" % number for number in range(20_000)]
    append(cluster, "t", values)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [*SPARKLOG, "console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "20000"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, env=environment) as consumer:
        while consumer.poll() is None and select.select([], [writing], [], 0)[1]:
            time.sleep(0.01)  # until the pipe is full
        os.close(writing)
        with open(reading, "rb", 0) as pipe:
            printed = b""
            while part := pipe.read(1000):
                printed += part
                time.sleep(0.001)  # slower than the consumer
        assert consumer.stderr is not None
        assert (consumer.stderr.read(), consumer.wait(60)) == (b"Processed a total of 20000 messages\n", 0)
    assert printed.splitlines() == values


def test_errors_that_cannot_be_printed_change_no_exit_code(cluster: Coordinator) -> None:
    assert program("topics", "--create", "--topic", "t", err="/dev/full").returncode == 0
    assert "t" in cluster.refresh().topics
    assert program("topics", "--describe", "--topic", "none", err="/dev/full").returncode == 1
    assert program("get-offsets", "--topic", "t", out="/dev/full", err="/dev/full").returncode == 1
    deprecated = ("console-consumer", "--topic", "t", "--timeout-ms", "0", "--property", "print.key=true")
    assert program(*deprecated, err="/dev/full").returncode == 0


# -- arguments


@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_arguments_are_utf_8_in_every_locale(cluster: Coordinator, tmp_path: Path, environment: dict[str, Any]) -> None:
    cluster.create_topic("t", 1)
    folder = tmp_path / "für"
    folder.mkdir()
    (folder / "reader").write_text("parse.key=true\n")
    reader = ("--reader-property", "key.separator=ü", "--reader-config", str(folder / "reader"))
    result = program("console-producer", "--topic", "t", *reader, data="k\u00fcv\n".encode(), **environment)
    assert (result.returncode, result.stderr) == (0, b"")
    assert [(record.key, record.value) for record in records(cluster, "t")] == [(b"k", b"v")]
    result = program("console-consumer", "--topic", "t", "--group", "grü", "--max-messages", "1", "--from-beginning",
                     **environment)  # fmt: skip
    assert result.returncode == 0
    assert "grü" in cluster.refresh().groups


def test_bytes_that_are_not_utf_8_are_taken_as_separators_and_refused_as_text(cluster: Coordinator) -> None:
    cluster.create_topic("t", 1)
    reader = ("--reader-property", "parse.key=true", "--reader-property", b"key.separator=\xff")
    assert program("console-producer", "--topic", "t", *reader, data=b"k\xffv\n").returncode == 0
    assert [(record.key, record.value) for record in records(cluster, "t")] == [(b"k", b"v")]
    shown = program("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "1",
                    "--formatter-property", b"line.separator=\xfe")  # fmt: skip
    assert shown.stdout == b"v\xfe"
    for arguments in (
        ("console-producer", "--topic", "t", "--command-property", b"client.id=\xff"),
        ("consumer-groups", "--describe", "--group", b"g\xff"),
        ("brokers", "add", "--location", b"/nowhere/\xff"),
        ("topics", "--create", "--topic", "u", "--config", b"value.schema=\xff"),
    ):
        result = program(*arguments)
        assert (result.returncode, b"the byte 0xff is not UTF-8" in result.stderr) == (1, True), arguments
        assert b"unexpected" not in result.stderr


def test_only_surrogates_of_single_bytes_are_not_text() -> None:
    assert [not_text(text) for text in ("", "ü", "\ud800", "a\udcffb", "\udc80")] == ["", "", "", "0xff", "0x80"]
    assert argument_bytes("ü\udcff") == b"\xc3\xbc\xff"


# -- files


def test_blanks_around_settings_are_trimmed_as_kafkas_parser_does(
    run: Run, root: str, cluster: Coordinator, tmp_path: Path
) -> None:
    cluster.create_topic("t", 1)
    file = tmp_path / "client.properties"
    settings = {"acks": "all ", "linger.ms": "\t5 ", "client.id": " c ", "compression.type": "zstd\f"}
    lines = [*(f"{name}={value}" for name, value in settings.items()), f"bootstrap.servers={root} \t"]
    file.write_text("".join(f"{line}\r\n" for line in lines))
    result = run("verifiable-producer", "--topic", "t", "--max-messages", "1", "--command-config", str(file))
    assert (result.code, result.err) == (0, "")
    pairs = [part for name, value in settings.items() for part in ("--command-property", f"{name}={value}")]
    result = run("verifiable-producer", "--topic", "t", "--max-messages", "1", *pairs, "--bootstrap-server", root)
    assert (result.code, result.err) == (0, "")

    file.write_text("cleanup.policy=compact, delete \nretention.ms= 5 \nmessage.timestamp.type=LogAppendTime \n")
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config-file", str(file))
    assert run(*alter, "--bootstrap-server", root).code == 0
    assert cluster.refresh().topic("t").configs == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5",
        "message.timestamp.type": "LogAppendTime",
    }
    cluster.create_topic("u", 1, configs={"compression.type": "zstd \n", "value.format": "\tjson"})
    assert cluster.refresh().topic("u").configs == {"compression.type": "zstd", "value.format": "json"}


def test_a_separator_may_be_a_blank(run: Run, root: str, tmp_path: Path) -> None:
    file = tmp_path / "reader.properties"
    file.write_text("parse.key = true \nkey.separator=\\ \n")
    produce = [*SPARKLOG, "console-producer", "--topic", "t", "--reader-config", str(file), "--bootstrap-server", root]
    subprocess.run(produce, input=b"a b\n", check=True, timeout=60)
    shown = run("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "1", "--formatter-property",
                "print.key=true", "--formatter-property", "key.separator= ", "--bootstrap-server", root)  # fmt: skip
    assert shown.out == "a b\n"


def test_a_byte_order_mark_is_not_part_of_a_file(run: Run, root: str, cluster: Coordinator, tmp_path: Path) -> None:
    cluster.create_topic("t", 2)
    for partition in (0, 1):
        append(cluster, "t", [b"v"] * 3, partition)
    file = tmp_path / "file"

    def write(text: str) -> str:
        file.write_bytes((MARK + text).encode())
        return str(file)

    reset = ("consumer-groups", "--reset-offsets", "--execute", "--bootstrap-server", root, "--from-file")
    result = run(*reset, write("g,t,0,1\r\ng,t,1,2\r\nother,t,0,0\r\n"), "--group", "g")
    assert result.code == 0
    assert result.err.splitlines()[0].endswith("has rows of groups that are not named, which are ignored: other")
    offsets = {at.partition: at.offset for at in cluster.refresh().groups["g"].offsets.values()}
    assert offsets == {0: 1, 1: 2}
    result = run(*reset, write('"t",0,0\n'), "--group", "g")
    offsets = {at.partition: at.offset for at in cluster.refresh().groups["g"].offsets.values()}
    assert (result.code, offsets) == (0, {0: 0, 1: 2})

    offset = json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 2}]})
    assert run("delete-records", "--offset-json-file", write(offset), "--bootstrap-server", root).code == 0
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", "t", "--bootstrap-server", root)
    assert run(*alter, "--add-config-file", write("retention.ms=5\n")).code == 0
    assert cluster.refresh().topic("t").configs["retention.ms"] == "5"
    schema = MARK + json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    cluster.create_topic("typed", 1, configs={"value.format": "json", "value.schema": schema})
    assert cluster.refresh().topic("typed").configs["value.schema"].startswith("{")
    perf = ("producer-perf-test", "--topic", "t", "--num-records", "1", "--throughput", "-1")
    assert run(*perf, "--payload-file", write("payload\n"), "--bootstrap-server", root).code == 0
    values = {record.value for number in (0, 1) for record in records(cluster, "t", number)}
    assert values == {b"v", b"payload"}
    rule = '[[rule]]\nname = "r"\nkind = "lag_seconds"\ngroup = ["*"]\nabove = "1m"\n'
    assert run("alerts", "--rules", write(rule), "--check").code == 0
