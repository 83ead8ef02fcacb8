"""kafka-console-producer: parsing of lines, batching, and invalid lines."""

from __future__ import annotations

import codecs
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import limits
from sparklog.cli.arguments.line_reader import InputLine, LineReader
from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.main import main
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from tests.replicated import brokers

from .conftest import Run

KEYS = ["--reader-property", "parse.key=true"]
HEADERS = ["--reader-property", "parse.headers=true"]
PRODUCER_ID = 1
"""The number of commits that assign a producer its id."""


def records(cluster: Coordinator, topic: str = "t") -> list[ConsumerRecord]:
    state = cluster.refresh()
    with LogReader(cluster) as reader:
        return [
            record
            for number, partition in enumerate(state.topic(topic).partitions)
            for record in reader.records(topic, number, 0, partition.high_watermark)
        ]


def values(cluster: Coordinator, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in records(cluster, topic)]


def test_every_line_is_a_record_without_a_key(run: Run, cluster: Coordinator) -> None:
    assert run("console-producer", "--topic", "t", stdin=b"a\nb\n\nlast") == (0, "", "")
    assert [(record.key, record.value) for record in records(cluster)] == [
        (None, b"a"), (None, b"b"), (None, b""), (None, b"last"),
    ]  # fmt: skip


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_line_ends_are_not_part_of_the_value(run: Run, cluster: Coordinator, ending: bytes) -> None:
    run("console-producer", "--topic", "t", stdin=b"a" + ending + b"b\rc" + ending)
    assert values(cluster) == [b"a", b"b\rc"]


def test_lines_that_are_not_utf8_keep_their_bytes(run: Run, cluster: Coordinator) -> None:
    run("console-producer", "--topic", "t", stdin=b"\xff\x00\xfe\n")
    assert values(cluster) == [b"\xff\x00\xfe"]


def test_no_input_sends_nothing(run: Run, cluster: Coordinator) -> None:
    before = cluster.refresh().version
    assert run("console-producer", "--topic", "t", stdin=b"") == (0, "", "")
    assert cluster.refresh().version == before


def test_key_headers_and_nulls_are_parsed_from_the_line(run: Run, cluster: Coordinator) -> None:
    lines = b"a:1,b:NULL,a:2\tk\tv\nNULL\tNULL\tNULL\n\t\t\n"
    result = run(
        "console-producer", "--topic", "t", *KEYS, *HEADERS, "--reader-property", "null.marker=NULL",
        "--reader-property", "ignore.error=true", stdin=lines,
    )  # fmt: skip
    assert result == (0, "", "")
    headers = {(r.key, r.value): r.headers for r in records(cluster)}
    assert headers == {
        (b"k", b"v"): [("a", b"1"), ("b", None), ("a", b"2")],
        (None, None): [],
        (b"", b""): [("", None)],
    }


def test_separators_are_configurable(run: Run, cluster: Coordinator) -> None:
    settings = ("key.separator=::", "headers.delimiter=|", "headers.separator=;", "headers.key.separator==")
    flags = [part for setting in settings for part in ("--reader-property", setting)]
    assert run("console-producer", "--topic", "t", *KEYS, *HEADERS, *flags, stdin=b"x=1;y=2|k::v::w\n").code == 0
    assert [r[5:8] for r in records(cluster)] == [(b"k", b"v::w", [("x", b"1"), ("y", b"2")])]


@pytest.mark.parametrize(
    ("flags", "line", "message"),
    [
        (KEYS, b"no key", "No key separator found on line number 3: 'no key'"),
        (HEADERS, b"no headers", "No headers delimiter found on line number 3: 'no headers'"),
        (HEADERS, b"h\tv", "No header key separator found in pair 'h' on line number 3"),
    ],
)
def test_an_invalid_line_is_reported_and_the_lines_before_it_are_sent(
    run: Run, cluster: Coordinator, flags: list[str], line: bytes, message: str
) -> None:
    result = run("console-producer", "--topic", "t", *flags, stdin=b"a:1\tb\na:1\tb\n" + line + b"\na:1\tb\n")
    assert result == (1, "", message + "\n")
    assert len(records(cluster)) == 2


def test_parse_errors_can_be_ignored(run: Run, cluster: Coordinator) -> None:
    assert (
        run("console-producer", "--topic", "t", *KEYS, "--reader-property", "ignore.error=true", stdin=b"no key\n").code
        == 0
    )
    assert [(r.key, r.value) for r in records(cluster)] == [(None, b"no key")]


def test_a_line_over_max_message_bytes_is_reported_and_the_lines_before_it_are_sent(
    run: Run, cluster: Coordinator
) -> None:
    cluster.create_topic("t", configs={"max.message.bytes": "100"})
    result = run("console-producer", "--topic", "t", stdin=b"a\nb\n" + b"x" * 200 + b"\nc\n")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("line number 3: ")
    assert "212 bytes, and the topic's max.message.bytes is 100" in result.err
    assert values(cluster) == [b"a", b"b"]


def test_lines_are_batched_into_one_commit_unless_sync(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    before = cluster.refresh().version
    run("console-producer", "--topic", "t", stdin=b"line\n" * 500)
    assert cluster.refresh().version == before + PRODUCER_ID + 1
    run("console-producer", "--topic", "t", "--sync", stdin=b"line\n" * 3)
    assert cluster.refresh().version == before + 2 * PRODUCER_ID + 4


def test_batch_size_limits_the_records_of_a_commit(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    before = cluster.refresh().version
    run("console-producer", "--topic", "t", "--batch-size", "40", stdin=b"0123456789\n" * 12)
    assert cluster.refresh().version == before + PRODUCER_ID + 3
    run("console-producer", "--topic", "t", "--command-property", "batch.size=60", stdin=b"0123456789\n" * 12)
    assert cluster.refresh().version == before + 2 * PRODUCER_ID + 5


@pytest.mark.parametrize(
    ("flags", "codec"),
    [
        ([], b"none"),
        (["--compression-codec"], b"gzip"),
        (["--compression-codec", "zstd"], b"zstd"),
        (["--command-property", "compression.type=lz4"], b"lz4"),
    ],
)
def test_codec_is_chosen_as_in_kafka(run: Run, cluster: Coordinator, flags: list[str], codec: bytes) -> None:
    assert run("console-producer", *flags, "--topic", "t", stdin=b"line\n").code == 0
    (key,) = [info.key for info in cluster.store.list("") if info.key.endswith(".log")]
    assert codec in cluster.store.get(key)


def test_kafkas_other_flags_are_accepted(run: Run, cluster: Coordinator) -> None:
    flags = (
        "--message-send-max-retries 5 --retry-backoff-ms 10 --request-required-acks all --request-timeout-ms 5 "
        "--metadata-expiry-ms 5 --max-block-ms 5 --max-memory-bytes 5 --socket-buffer-size 5 --timeout 10 "
        "--command-property linger.ms=5 --line-reader org.apache.kafka.tools.LineMessageReader"
    )
    assert run("console-producer", "--topic", "t", *flags.split(), stdin=b"line\n") == (0, "", "")
    assert values(cluster) == [b"line"]


def test_a_missing_topic_fails_before_a_line_is_read_if_it_cannot_be_created(run: Run, cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    result = run("console-producer", "--topic", "t", stdin=b"line\n")
    assert result.code == 1
    assert "auto.create.topics.enable is false" in result.err


@pytest.mark.parametrize("name", ["../x", "x" * 250, "тема", "a\nb"])
def test_hostile_topic_name_is_refused(run: Run, cluster: Coordinator, name: str) -> None:
    result = run("console-producer", "--topic", name, stdin=b"line\n")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert not cluster.refresh().topics


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[topic]"'),
        (["--topic", "t", "--compression-codec", "zst"],
         "unknown codec 'zst': must be one of none, gzip, snappy, lz4, zstd; did you mean zstd?"),
        (["--topic", "t", "--reader-property", "parse.key"],
         "--reader-property 'parse.key' is not of the form name=value"),
        (["--topic", "t", "--reader-property", "null.marker=:"],
         "null.marker and headers.key.separator may not be equal"),
        (["--topic", "t", "--reader-property", "headers.separator=:"],
         "headers.separator and headers.key.separator may not be equal"),
        (["--topic", "t", "--reader-property", "key.separator="], "key.separator may not be empty"),
        (["--topic", "t", "--command-property", "linger.ms=soon"], "invalid linger.ms 'soon': must be an integer"),
        (["--topic", "t", "--batch-size", "-1"], "invalid batch.size -1: must be 0 or more"),
        (["--topic", "t", "--line-reader", "MyReader"],
         "unknown line reader 'MyReader': must be LineMessageReader"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported_and_exit_with_1(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("console-producer", *arguments, stdin=b"line\n")
    assert result == (1, "", f"{message}\n`sparklog console-producer --help` lists the options.\n")


def test_reader_properties_are_read_from_a_file(run: Run, cluster: Coordinator, tmp_path: Any) -> None:
    path = tmp_path / "reader.properties"
    path.write_text("parse.key=true\nkey.separator=|\n")
    assert run("console-producer", "--topic", "t", "--reader-config", str(path), stdin=b"k|v\n").code == 0
    assert [(r.key, r.value) for r in records(cluster)] == [(b"k", b"v")]


def test_a_terminal_gets_a_prompt_and_each_line_is_sent_immediately(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "sparklog.cli", "console-producer", "--topic", "t", "--timeout", "60000"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    try:
        for number in range(3):
            assert _read_until(mine, b">").endswith(b">")
            assert len(records(cluster)) == number
            os.write(mine, b"line %d\n" % number)
        _read_until(mine, b">")
        assert values(cluster) == [b"line 0", b"line 1", b"line 2"]
        os.write(mine, b"\x04")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(mine)


def _read_until(descriptor: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        data += os.read(descriptor, 1024)
    return data


def _is_filled(state: State, topic: str) -> bool:
    """Whether `topic` has records; one commit creates the topic, a later one appends to it."""
    return topic in state.topics and any(partition.high_watermark for partition in state.topics[topic].partitions)


def test_slow_input_is_sent_after_the_linger_time(cluster: Coordinator) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "console-producer", "--topic", "t", "--timeout", "20"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        while not _is_filled(cluster.refresh(), "t"):
            process.poll()
        assert values(cluster) == [b"first"]
        process.stdin.write(b"second\nthi")
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    assert values(cluster) == [b"first", b"second", b"thi"]


def test_a_line_over_the_record_limit_is_reported_and_the_lines_before_it_are_sent(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limits, "MAX_RECORD_BYTES", 1000)
    reader, writer = os.pipe()
    os.write(writer, b"a\nb\n" + b"x" * 1500)
    with open(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["console-producer", "--topic", "t"]) == 1
    os.close(writer)
    assert capsys.readouterr().err == (
        "line number 3: this line and those after it were not sent: it has over 1,000 bytes, more than a record "
        "may have\n"
    )
    assert values(cluster) == [b"a", b"b"]


Text = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t,:"), max_size=8)


@given(
    key=st.one_of(st.none(), Text),
    value=st.one_of(st.none(), Text),
    headers=st.lists(st.tuples(Text, Text), min_size=1),
)
def test_a_formatted_line_parses_to_the_same_record(
    key: str | None, value: str | None, headers: list[tuple[str, str]]
) -> None:
    reader = LineReader({"parse.key": "true", "parse.headers": "true", "null.marker": "\\N"})
    shown = ["\\N" if text is None else text for text in (key, value)]
    line = ",".join(f"{name}:{text}" for name, text in headers) + f"\t{shown[0]}\t{shown[1]}"
    if any(text == "\\N" for pair in headers for text in pair) or "\\N" in (key, value):
        return
    assert reader.record(line.encode(), 1) == InputLine(
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        [(name, text.encode()) for name, text in headers],
    )


def test_line_reader_refuses_equal_separators() -> None:
    for first, second in (("headers.delimiter", "headers.separator"), ("null.marker", "key.separator")):
        with pytest.raises(UsageError, match=f"{first} and {second} may not be equal"):
            LineReader({first: "#", second: "#"})


def test_a_compacted_topic_refuses_lines_from_the_first_one_without_a_key(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("c", configs={"cleanup.policy": "compact"})
    code, _, err = run("console-producer", "--topic", "c", *KEYS, stdin=b"k\ta\nk\tb\n")
    assert (code, err) == (0, "")
    code, _, err = run("console-producer", "--topic", "c", stdin=b"a\n")
    assert code == 1
    assert "line number 1" in err
    assert "compacted" in err
    marked = [*KEYS, "--reader-property", "null.marker=NULL"]
    code, _, err = run("console-producer", "--topic", "c", *marked, stdin=b"k\tc\nNULL\td\nk\te\n")
    assert code == 1
    assert "line number 2" in err
    assert values(cluster, "c") == [b"a", b"b", b"c"]


def test_acks_determines_the_replicas_that_are_written(run: Run, tmp_path: Path) -> None:
    with brokers(tmp_path / "replicas", min_insync_replicas="2") as replicated:
        address = ["--bootstrap-server", replicated.root]
        assert run("console-producer", *address, "--topic", "t", stdin=b"a\n")[0] == 0
        assert replicated.values(0) == replicated.values(1) == [b"a"]
        leader = ["--request-required-acks", "1"]
        assert run("console-producer", *address, *leader, "--topic", "t", stdin=b"b\n")[0] == 0
        assert replicated.partition().isr == (0,)
        code, _, err = run("console-producer", *address, "--topic", "t", "--retry-backoff-ms", "0", stdin=b"c\n")
        assert code == 1
        assert "WARN: sending line number 1 failed, retrying: " in err
        assert "line number 1: this line and those after it were not sent: " in err
        assert "min.insync.replicas" in err
        again = ["--command-property", "acks=0"]
        assert run("console-producer", *address, *again, "--topic", "t", stdin=b"d\n")[0] == 0
        assert replicated.values(0) == [b"a", b"b", b"d"]


def test_an_invalid_value_of_acks_is_refused(run: Run, cluster: Coordinator) -> None:
    code, _, err = run("console-producer", "--topic", "t", "--request-required-acks", "2", stdin=b"a\n")
    assert code != 0
    assert "invalid acks '2'" in err


def test_a_byte_order_mark_at_the_start_of_the_input_is_no_part_of_a_record(run: Run, cluster: Coordinator) -> None:
    mark = codecs.BOM_UTF8
    run("console-producer", "--topic", "t", *KEYS, stdin=mark + b"k\tv\n" + mark + b"l\tw\n")
    assert [(record.key, record.value) for record in records(cluster)] == [(b"k", b"v"), (mark + b"l", b"w")]
