"""kafka-console-consumer: start offsets, output format, groups and exit codes."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import Coordinator
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.topics import create_partitions
from sparklog.testing.records import Record, append_records

from .conftest import Run

PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
NOW = ["--timeout-ms", "0"]
"""Print the existing records and exit."""
ALL = ["--from-beginning", *NOW]


def print_flags(*names: str) -> list[str]:
    return [part for name in names for part in ("--formatter-property", f"print.{name}=true")]


@pytest.fixture
def filled(cluster: Coordinator) -> Coordinator:
    """Topic t with records 0, 1, 2 in partition 0 and 3 in partition 1."""
    cluster.create_topic("t", partitions=2)
    for number, partition in ((0, 0), (1, 0), (2, 0), (3, 1)):
        record = Record(b"k%d" % number, b"v%d" % number, timestamp_us=number * 1000 + 999, partition=partition)
        append_records(cluster, "t", [record])
    return cluster


@pytest.mark.usefixtures("filled")
def test_a_log_that_cannot_be_read_at_the_timeout_is_an_error_and_not_its_end(run: Run, root: str) -> None:
    gone = threading.Timer(0.5, lambda: os.rename(root, root + "-away"))
    gone.start()
    result = run("console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "3000")
    gone.join()
    assert result.code == 1, result


@pytest.mark.usefixtures("filled")
def test_settings_of_group_members_are_ignored_without_a_group(run: Run) -> None:
    result = run("console-consumer", "--topic", "t", *ALL, "--command-property", "group.instance.id=x")
    assert (result.code, len(result.lines)) == (0, 4)


def test_values_are_printed_and_counted(run: Run, filled: Coordinator) -> None:
    result = run("console-consumer", "--topic", "t", *ALL)
    assert (result.code, result.err) == (0, "Processed a total of 4 messages\n")
    assert sorted(result.lines) == ["v0", "v1", "v2", "v3"]  # partitions have no order among themselves
    assert [line for line in result.lines if line != "v3"] == ["v0", "v1", "v2"]


def test_without_from_beginning_only_new_records_are_printed(run: Run, filled: Coordinator) -> None:
    assert run("console-consumer", "--topic", "t", *NOW) == (0, "", "Processed a total of 0 messages\n")


@pytest.mark.parametrize(
    ("flags", "out"),
    [
        (["--partition", "0", "--offset", "1"], "v1\nv2\n"),
        (["--partition", "0", "--offset", "earliest"], "v0\nv1\nv2\n"),
        (["--partition", "0", "--offset", "LATEST"], ""),
        (["--partition", "0", "--offset", "3"], ""),
        (["--partition", "0"], ""),
        (["--partition", "1", "--from-beginning"], "v3\n"),
        (["--partition", "0", "--from-beginning", "--max-messages", "2"], "v0\nv1\n"),
        (["--from-beginning", "--max-messages", "0"], ""),
        (["--partition", "0", "--command-property", "auto.offset.reset=earliest"], "v0\nv1\nv2\n"),
    ],
)
def test_start_and_end_are_chosen_by_flags(run: Run, filled: Coordinator, flags: list[str], out: str) -> None:
    result = run("console-consumer", "--topic", "t", *flags, *NOW)
    assert result == (0, out, f"Processed a total of {out.count('v')} messages\n")


def test_topics_are_chosen_by_expression(run: Run, cluster: Coordinator) -> None:
    for name in ("a1", "a2", "b"):
        append_records(cluster, name, [Record(value=name.encode())])
    assert run("console-consumer", "--include", "a.", *ALL).lines == ["a1", "a2"]


def test_record_fields_are_printed_in_kafkas_order(run: Run, cluster: Coordinator) -> None:
    headers = [("h", b"1"), ("h", None), ("", b"")]
    append_records(cluster, "t", [Record(b"k", b"v", headers, timestamp_us=1_690_000_000_000_999), Record(None, None)])
    names = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    lines = run("console-consumer", "--topic", "t", *ALL, *print_flags(*names)).lines
    assert lines[0] == (
        "CreateTime:1690000000000\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:0\th:1,h:null,:\tk\tv"
    )
    assert lines[1].split("\t")[5:] == ["NO_HEADERS", "null", "null"]


def test_log_append_time_is_the_time_of_the_commit(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_records(cluster, "t", [Record(value=b"v", timestamp_us=1)])
    out = run("console-consumer", "--topic", "t", *ALL, *print_flags("timestamp")).out
    assert out == f"LogAppendTime:{cluster.refresh().timestamp_ms}\tv\n"


def test_separators_and_null_literal_are_configurable(run: Run, cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(b"k", None, [("a", b"1"), ("b", b"2")])])
    settings = ["key.separator=|", "line.separator=;", "headers.separator=&", "null.literal=-", "print.value=true"]
    flags = [part for setting in settings for part in ("--formatter-property", setting)]
    assert run("console-consumer", "--topic", "t", *ALL, *print_flags("headers", "key"), *flags).out == "a:1&b:2|k|-;"


def test_the_value_can_be_omitted(run: Run, filled: Coordinator) -> None:
    flags = ["--partition", "0", "--formatter-property", "print.value=false"]
    assert run("console-consumer", "--topic", "t", *ALL, *flags, *print_flags("offset")).lines == [
        "Offset:0",
        "Offset:1",
        "Offset:2",
    ]
    assert run("console-consumer", "--topic", "t", *ALL, *flags) == (0, "", "Processed a total of 3 messages\n")


def test_values_are_printed_byte_for_byte(
    run: Run, cluster: Coordinator, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    append_records(cluster, "t", [Record(value=b"\xff\x00\xfe"), Record(value="grün".encode())])
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "t", *ALL]
    result = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"})
    assert result.stdout == b"\xff\x00\xfe\n" + "grün\n".encode()


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("StringDeserializer", "grün".encode(), "grün"),
        ("org.apache.kafka.common.serialization.IntegerDeserializer", struct.pack(">i", -7), "-7"),
        ("LongDeserializer", struct.pack(">q", 2**40), "1099511627776"),
        ("ShortDeserializer", struct.pack(">h", -2), "-2"),
        ("FloatDeserializer", struct.pack(">f", 0.5), "0.5"),
        ("DoubleDeserializer", struct.pack(">d", -1.25), "-1.25"),
        ("BooleanDeserializer", b"\x01", "true"),
        ("BytesDeserializer", b"a\x00\\", "a\\x00\\x5C"),
        ("ByteArrayDeserializer", b"raw", "raw"),
        ("UUIDDeserializer", b"123E4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_keys_and_values_are_deserialized_by_kafkas_class_names(
    run: Run, cluster: Coordinator, name: str, data: bytes, text: str
) -> None:
    append_records(cluster, "t", [Record(data, data), Record(None, None)])
    result = run(
        "console-consumer",
        "--topic",
        "t",
        *ALL,
        *print_flags("key"),
        "--value-deserializer",
        name,
        "--key-deserializer",
        name,
    )
    assert sorted(result.lines) == sorted([f"{text}\t{text}", "null\tnull"])


def test_an_undecodable_value_fails_with_its_offset_unless_skipped(run: Run, cluster: Coordinator) -> None:
    good = struct.pack(">i", 1)
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=good), Record(value=b"text!"), Record(value=good)])
    flags = ["--topic", "t", *ALL, "--value-deserializer", "IntegerDeserializer"]
    failed = run("console-consumer", *flags)
    assert (failed.code, failed.out) == (1, "1\n")
    assert "t-0 offset 1: Size of data received by IntegerDeserializer is not 4: it has 5 bytes" in failed.err
    skipped = run("console-consumer", *flags, "--skip-message-on-error")
    assert (skipped.code, skipped.out) == (0, "1\n1\n")
    assert "skipping t-0 offset 1" in skipped.err


def test_an_offset_out_of_range_is_reported_and_reset(run: Run, filled: Coordinator) -> None:
    flags = ["--topic", "t", "--partition", "0", "--offset", "100", *NOW]
    latest = run("console-consumer", *flags)
    assert latest.out == ""
    assert "offset 100 of t-0 is out of range: it has 0 to 3; continuing at latest" in latest.err
    earliest = run("console-consumer", *flags, "--command-property", "auto.offset.reset=earliest")
    assert earliest.out == "v0\nv1\nv2\n"
    none = run("console-consumer", *flags, "--command-property", "auto.offset.reset=none")
    assert none.code == 1
    assert "auto.offset.reset is none" in none.err


def test_it_waits_for_a_missing_topic(run: Run, cluster: Coordinator) -> None:
    writer = threading.Timer(0.2, append_records, (cluster, "later", [Record(value=b"v")]))
    writer.start()
    result = run("console-consumer", "--topic", "later", "--max-messages", "1", "--timeout-ms", "30000")
    writer.join()
    assert (result.code, result.out) == (0, "v\n")
    assert result.err == (
        "topic 'later' does not exist in this cluster yet; waiting for it (Ctrl-C stops)\n"
        "Processed a total of 1 messages\n"
    )


def test_partitions_added_later_are_read_from_the_beginning(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    with consumer("--topic", "t", "--max-messages", "2") as process:
        append_until_printed(cluster, process)
        cluster.submit(partial(create_partitions, topic="t", total=2))
        append_records(cluster, "t", [Record(value=b"new", partition=1)])
        assert process.stdout is not None
        remaining = process.stdout.read()
        assert process.wait(timeout=30) == 0
    assert remaining in (b"new\n", b"first\n")


def consumer(*flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def append_until_printed(cluster: Coordinator, process: subprocess.Popen[bytes]) -> None:
    """Append records until the consumer, which starts at the end of the log, prints the first of them."""
    printed = threading.Event()
    assert process.stdout is not None
    stdout = process.stdout
    watcher = threading.Thread(target=lambda: (stdout.readline(), printed.set()))
    watcher.start()
    append_records(cluster, "t", [Record(value=b"first", partition=0)])
    while not printed.wait(0.2):
        append_records(cluster, "t", [Record(value=b"first", partition=0)])
    watcher.join()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_consumer_prints_its_count_and_exits_with_kafkas_code(
    filled: Coordinator, number: signal.Signals, code: int
) -> None:
    with consumer("--topic", "t", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(4):
            process.stdout.readline()
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert process.stderr.read() == b"Processed a total of 4 messages\n"


def test_a_closed_pipe_ends_the_consumer_with_exit_code_0(filled: Coordinator) -> None:
    append_records(filled, "t", [Record(value=b"x" * 100)] * 20_000)
    with consumer("--topic", "t", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 0
        err = process.stderr.read().decode()
    assert err.startswith("Unable to write to standard out, closing consumer.\nProcessed a total of ")
    assert err.count("\n") == 2


def test_a_damaged_segment_fails_with_its_file_and_checksums(run: Run, filled: Coordinator, root: str) -> None:
    path = sorted(Path(root, "t-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[data.index(b"v1")] ^= 1
    path.write_bytes(data)
    result = run("console-consumer", "--topic", "t", "--partition", "0", *ALL)
    assert (result.code, result.out) == (1, "v0\n")
    assert str(path) in result.err
    assert "checksum" in result.err
    assert "Processed a total of 1 messages" in result.err


def damage(root: str, folder: str, value: bytes) -> None:
    """Flip a bit of a value in the one file that has it."""
    for path in Path(root, folder).glob("*.log"):
        data = bytearray(path.read_bytes())
        if value in data:
            data[data.index(value)] ^= 1
            path.write_bytes(data)


@pytest.mark.parametrize("end", [["--timeout-ms", "0"], [], ["--max-messages", "3"]], ids=["timeout", "none", "limit"])
@pytest.mark.parametrize("group", [[], ["--group", "g"]], ids=["log", "group"])
def test_other_partitions_are_printed_before_the_error_of_a_damaged_one(
    run: Run, filled: Coordinator, root: str, end: list[str], group: list[str]
) -> None:
    if group and end[:1] == ["--timeout-ms"]:
        end = ["--timeout-ms", "3000"]  # a member joins first
    damage(root, "t-0", b"v1")
    result = run("console-consumer", "--topic", "t", "--from-beginning", *end, *group)
    assert (result.code, sorted(result.lines)) == (1, ["v0", "v3"])
    assert "checksum" in result.err
    assert "t-0 cannot be read from offset 1 on; reading the other partitions first" in result.err
    if group:
        assert committed(filled) == {0: 1, 1: 1}


def test_the_errors_of_all_damaged_partitions_are_reported(run: Run, filled: Coordinator, root: str) -> None:
    damage(root, "t-0", b"v0")
    damage(root, "t-1", b"v3")
    result = run("console-consumer", "--topic", "t", "--from-beginning")
    assert (result.code, result.lines) == (1, [])
    assert (str(Path(root, "t-0")) in result.err, str(Path(root, "t-1")) in result.err) == (True, True)


GROUP = ["--topic", "t", "--group", "g", "--from-beginning"]


def committed(cluster: Coordinator, group: str = "g") -> dict[int, int]:
    return {offset.partition: offset.offset for offset in cluster.refresh().groups[group].offsets.values()}


def test_a_group_resumes_at_its_commit_and_commits_only_printed_records(run: Run, filled: Coordinator) -> None:
    first = run("console-consumer", *GROUP, "--max-messages", "3", "--formatter-property", "print.partition=true")
    assert (first.code, len(first.lines), first.err) == (0, 3, "Processed a total of 3 messages\n")
    assert sum(committed(filled).values()) == 3
    second = run("console-consumer", *GROUP, "--max-messages", "1", "--formatter-property", "print.partition=true")
    assert sorted(first.lines + second.lines) == [
        "Partition:0\tv0",
        "Partition:0\tv1",
        "Partition:0\tv2",
        "Partition:1\tv3",
    ]
    assert committed(filled) == {0: 3, 1: 1}
    assert filled.refresh().groups["g"].members == {}


def test_a_group_named_by_a_property_can_read_a_pattern(run: Run, filled: Coordinator, tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.write_text("group.id=g\nauto.offset.reset=earliest\nmax.poll.records=1\n")
    flags = ["--include", "t|u", "--command-config", str(config), "--max-messages", "4"]
    result = run("console-consumer", *flags)
    assert (sorted(result.lines), result.err) == (["v0", "v1", "v2", "v3"], "Processed a total of 4 messages\n")


def test_a_group_stops_after_the_timeout_and_prints_key_and_time(run: Run, filled: Coordinator) -> None:
    result = run("console-consumer", *GROUP, "--timeout-ms", "1500", *print_flags("timestamp", "offset", "key"))
    assert (result.code, len(result.lines)) == (0, 4)
    assert "CreateTime:1\tOffset:1\tk1\tv1" in result.lines


def test_a_group_without_auto_commit_commits_nothing(run: Run, filled: Coordinator) -> None:
    flags = ["--max-messages", "2", "--command-property", "enable.auto.commit=false"]
    assert len(run("console-consumer", *GROUP, *flags).lines) == 2
    assert committed(filled) == {}


def test_a_record_that_could_not_be_printed_is_not_committed(run: Run, filled: Coordinator) -> None:
    deserializer = "value.deserializer=IntegerDeserializer"
    result = run("console-consumer", *GROUP, "--max-messages", "4", "--formatter-property", deserializer)
    assert result.code == 1
    assert "offset 0" in result.err
    assert committed(filled) == {}


def test_a_terminated_member_commits_and_leaves_its_group(filled: Coordinator, root: str) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", *GROUP]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        filled.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("t", 0): 0, ("t", 1): 0})))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(4)) == [b"v0\n", b"v1\n", b"v2\n", b"v3\n"]
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        # on a slow machine the consumer says before that joining takes long
        assert (process.returncode, err.splitlines()[-1]) == (code, b"Processed a total of 4 messages")
        assert committed(filled) == {0: 3, 1: 1}
        assert filled.refresh().groups["g"].members == {}


def test_kafkas_other_flags_are_accepted(run: Run, filled: Coordinator) -> None:
    flags = "--isolation-level read_committed --enable-systest-events --command-property fetch.min.bytes=1"
    result = run(
        "console-consumer", "--topic", "t", *ALL, *flags.split(), "--formatter", "kafka.tools.NoOpMessageFormatter"
    )
    assert result == (0, "shutdown_complete\n", "Processed a total of 4 messages\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Exactly one of the following arguments is required: "[topic]", "[include]"'),
        (["--topic", "t", "--include", "t"],
         'Exactly one of the following arguments is required: "[topic]", "[include]"'),
        (["--include", "t", "--partition", "0"], "The topic is required when partition is specified."),
        (["--topic", "t", "--offset", "1"], "The partition is required when offset is specified."),
        (["--topic", "t", "--partition", "0", "--offset", "1", "--from-beginning"],
         "Options from-beginning and offset cannot be specified together."),
        *[(["--topic", "t", "--partition", "0", f"--offset={offset}"],
           f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
           "non-negative long.") for offset in ("-1", "soon", str(2**63), "1.5", "٣", "")],
        (["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
         "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option"),
        (["--topic", "t", "--command-property", "auto.offset.reset=soonest"],
         "invalid auto.offset.reset 'soonest': must be earliest, latest or none"),
        (["--topic", "t", "--isolation-level", "read_comitted"],
         "Invalid value read_comitted for --isolation-level: choose read_committed or read_uncommitted"),
        (["--topic", "t", "--command-property", "isolation.level=x"],
         "Invalid value x for isolation.level: choose read_committed or read_uncommitted"),
        (["--topic", "t", "--formatter", "DefaultFormatter"],
         "unknown formatter 'DefaultFormatter': must be one of DefaultMessageFormatter, LoggingMessageFormatter, "
         "NoOpMessageFormatter, OffsetsMessageFormatter, GroupMetadataMessageFormatter; did you mean "
         "DefaultMessageFormatter?"),
        (["--topic", "t", "--group", "a", "--command-property", "group.id=b"],
         "The group ids provided in different places (directly using '--group', via '--command-property', or via "
         "'--command-config') do not match. Detected group ids: 'a', 'b'"),
        (["--topic", "t", "--group", "a", "--partition", "0"],
         "Options group and partition cannot be specified together."),
        (["--include", "("], "'(' is an invalid regex: missing ), unterminated subpattern at position 0"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported_and_exit_with_1(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("console-consumer", *arguments, *NOW)
    assert result == (1, "", f"{message}\n`sparklog console-consumer --help` lists the options.\n")


@pytest.mark.parametrize("name", ["com.example.AvroDeserializer", "LongDeserialiser", "Long", "", "os.Integer"])
def test_an_unknown_deserializer_is_refused_with_the_valid_names(run: Run, root: str, name: str) -> None:
    result = run("console-consumer", "--topic", "t", *NOW, "--formatter-property", f"value.deserializer={name}")
    assert result.code == (1 if name else 0)
    assert name == "" or "StringDeserializer, IntegerDeserializer" in result.err


def test_a_topic_that_is_created_again_is_read_from_its_beginning(filled: Coordinator) -> None:
    with consumer("--topic", "t", "--max-messages", "3") as process:
        append_until_printed(filled, process)
        delete_topic(filled, "t")
        filled.create_topic("t")
        append_records(filled, "t", [Record(value=b"again 1"), Record(value=b"again 2")])
        assert process.stdout is not None
        remaining = process.stdout.read().splitlines()
        assert process.wait(timeout=60) == 0
    assert remaining in ([b"again 1", b"again 2"], [b"first", b"again 1"], [b"first", b"first"])


def test_it_waits_for_a_missing_partition(run: Run, filled: Coordinator) -> None:
    result = run("console-consumer", "--topic", "t", "--partition", "2", *NOW)
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        "topic 't' has partitions 0 to 1, and no partition 2 yet; waiting for it (Ctrl-C stops)\n"
        "Processed a total of 0 messages\n"
    )


def test_a_partition_created_later_is_read_from_the_beginning(filled: Coordinator) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "t", "--partition", "2"]
    with subprocess.Popen([*command, "--max-messages", "1"], **PIPES) as consumer:
        assert consumer.stderr is not None
        assert "waiting for it" in consumer.stderr.readline()
        filled.submit(partial(create_partitions, topic="t", total=3))
        append_records(filled, "t", [Record(value=b"first", partition=2)])
        out, _ = consumer.communicate(timeout=60)
    assert out == "first\n"


def test_negative_partition_is_refused(run: Run, filled: Coordinator) -> None:
    result = run("console-consumer", "--topic", "t", "--partition", "-1", *NOW)
    assert result.code == 1
    assert "invalid --partition -1: must be 0 or more" in result.err
