"""kafka-producer-perf-test and kafka-consumer-perf-test: the records sent and read, and the output."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.commands.clients.consumer_perf_test import DETAILED_HEADER, HEADER, DateFormat
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.records import Record, append_records

from .conftest import Run

SEND = ("producer-perf-test", "--topic", "t", "--throughput", "-1")
TOTAL = re.compile(
    r"(\d+)( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW = re.compile(
    r"(\d+) records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
SUMMARY = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, ){2}\d+\.\d{4}, \d+\.\d{4}, (\d+), \d+\.\d{4}, \d+, \d+, .*"
)


@pytest.fixture
def topic(cluster: Coordinator) -> Coordinator:
    cluster.create_topic("t", partitions=2)
    return cluster


def records(cluster: Coordinator) -> list[ConsumerRecord]:
    """All records of topic t, partition by partition."""
    state = cluster.refresh()
    with LogReader(cluster) as reader:
        return [
            record
            for number, partition in enumerate(state.topics["t"].partitions)
            for record in reader.records("t", number, 0, partition.high_watermark)
        ]


# -- producer


def test_records_of_the_given_size_are_sent_and_counted(run: Run, topic: Coordinator) -> None:
    result = run(*SEND, "--num-records", "250", "--record-size", "30")
    assert (result.code, result.err) == (0, "")
    (line,) = result.lines
    total = TOTAL.fullmatch(line)
    assert total is not None
    assert total[1] == "250"
    sent = records(topic)
    assert len({record.value for record in sent}) == 250
    assert all(re.fullmatch(rb"[A-Z]{30}", record.value or b"") for record in sent)
    assert all(record.key is None for record in sent)


def test_the_same_seed_sends_the_same_records(run: Run, topic: Coordinator) -> None:
    for seed in ("0", "0", "7"):
        run(*SEND, "--num-records", "20", "--record-size", "8", "--random-seed", seed)
    values = [record.value for record in records(topic)]
    assert sorted(map(values.count, set(values))) == [1] * 20 + [2] * 20


def test_payloads_are_read_from_a_file_or_increasing_numbers(run: Run, topic: Coordinator, tmp_path: Path) -> None:
    file = tmp_path / "payloads.txt"
    file.write_text("one|two|thrée|")
    result = run(*SEND, "--num-records", "50", "--payload-file", str(file), "--payload-delimiter", "|")
    assert result.lines[:2] == [f"Reading payloads from: {file}", "Number of records read: 3"]
    assert {record.value for record in records(topic)} == {b"one", b"two", "thrée".encode()}
    run(*SEND, "--num-records", "3", "--payload-monotonic")
    assert {b"0", b"1", b"2"} <= {record.value for record in records(topic)}


def test_keys_follow_the_distribution(run: Run, topic: Coordinator) -> None:
    run(*SEND, "--num-records", "6", "--payload-monotonic", "--key-distribution", "range", "--record-key-range", "3")
    assert sorted(record.key or b"" for record in records(topic)) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    run(*SEND, "--num-records", "40", "--payload-monotonic", "--key-distribution", "random", "--record-key-range", "2")
    assert {record.key for record in records(topic)} == {b"0", b"1", b"2"}


def test_settings_and_transactions_are_passed_to_the_producer(run: Run, topic: Coordinator, tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("linger.ms=1\nkey.serializer=org.apache.kafka.common.serialization.ByteArraySerializer\n")
    flags = ["--command-config", str(config), "--command-property", "batch.size=65536", "transactional.id=perf"]
    result = run(*SEND, "--num-records", "5", "--record-size", "8", *flags)
    assert (result.code, result.err) == (0, "")
    assert len(records(topic)) == 5
    (producer,) = topic.refresh().producers.values()
    assert producer.transactional_id == "perf"
    assert producer.committed_epoch >= 0
    run(*SEND, "--num-records", "5", "--record-size", "8", "--transaction-duration-ms", "1000")
    assert any(
        state.transactional_id.startswith("performance-producer-") for state in topic.refresh().producers.values()
    )


def test_warm_up_is_reported_separately_and_metrics_are_printed(run: Run, topic: Coordinator) -> None:
    flags = ["--num-records", "30", "--record-size", "8", "--warmup-records", "10", "--print-metrics"]
    result = run(*SEND, *flags, "--command-property", "client.id=me")
    assert result.lines[0] == (
        "Warmup first 10 records. Steady state results will print after the complete test summary."
    )
    totals = [total for total in map(TOTAL.fullmatch, result.lines) if total]
    assert [(total[1], total[2]) for total in totals] == [("30", None), ("20", " steady state")]
    assert any(re.match(r"Metric Name +Value", line) for line in result.lines)
    assert any(re.match(r"producer-metrics:record-send-total:\{client-id=me\} +: 30$", line) for line in result.lines)


def test_the_throughput_is_limited_and_reported_by_interval(run: Run, topic: Coordinator) -> None:
    command = ["producer-perf-test", "--topic", "t", "--throughput", "200", "--reporting-interval", "50"]
    result = run(*command, "--num-records", "60", "--record-size", "8")
    assert sum(WINDOW.fullmatch(line) is not None for line in result.lines) >= 1
    rate = float(result.lines[-1].split()[3])
    assert rate <= 220


def test_records_that_cannot_be_sent_are_an_error(run: Run, topic: Coordinator) -> None:
    topic.submit(partial(alter_configs, topic="t", changes={"max.message.bytes": "100"}))
    result = run(*SEND, "--num-records", "5", "--record-size", "1000")
    assert result.code == 1
    assert "max.message.bytes" in result.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--num-records", "5"], 'Missing required argument "[throughput]"'),
        (["--num-records", "0", "--throughput", "-1"], "--num-records should be greater than zero."),
        (["--num-records", "5", "--throughput", "0"], "invalid --throughput 0: must be positive"),
        (["--num-records", "5", "--throughput", "1", "--payload-monotonic"],
         "exactly one of --record-size, --payload-file and --payload-monotonic is required"),
        (["--num-records", "5", "--throughput", "1", "--warmup-records", "5"],
         "The value for --warmup-records must be strictly fewer"),
        (["--num-records", "5", "--throughput", "1", "--key-distribution", "range"],
         "--record-key-range is required when --key-distribution is 'range' or 'random'."),
        (["--num-records", "5", "--throughput", "1", "--record-key-range", "2"],
         "--key-distribution must be 'range' or 'random' when --record-key-range is specified."),
        (["--num-records", "5", "--throughput", "1", "--command-config", "a", "--producer.config", "b"],
         "Options --producer.config and --command-config cannot be specified together."),
        (["--num-records", "5", "--throughput", "1", "--command-property", "linger.ms=soon"], "linger_ms='soon'"),
        (["--num-records", "5", "--throughput", "1", "--transaction-duration-ms", "0"],
         "--transaction-duration-ms should be greater than zero."),
    ],
)  # fmt: skip
def test_usage_errors_of_the_producer_are_refused(
    run: Run, topic: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run("producer-perf-test", "--topic", "t", "--record-size", "8", *arguments)
    assert result.code == 1
    assert complaint in result.err
    assert records(topic) == []


def test_an_unknown_setting_gets_a_warning_but_java_settings_do_not(run: Run, topic: Coordinator) -> None:
    flags = ["--num-records", "1", "--record-size", "8", "--command-property", "linger.sm=5", "interceptor.classes=x"]
    result = run(*SEND, *flags)
    assert result.code == 0
    assert result.err == (
        "WARN: These configurations '[linger.sm; did you mean linger_ms?]' were supplied but are not used here.\n"
    )


# -- consumer


@pytest.fixture
def filled(topic: Coordinator) -> Coordinator:
    """300 records of 2 and 10 bytes."""
    append_records(topic, "t", [Record(b"%02d" % (number % 100), b"v" * 10) for number in range(300)])
    return topic


def test_records_are_read_and_counted(run: Run, filled: Coordinator) -> None:
    result = run("consumer-perf-test", "--topic", "t", "--num-records", "300", "--group", "g")
    assert (result.code, result.err) == (0, "")
    header, line = result.lines
    assert header == HEADER
    summary = SUMMARY.fullmatch(line)
    assert summary is not None
    assert summary[2] == "300"
    assert float(line.split(", ")[2]) == round(300 * 12 / 1024 / 1024, 4)
    assert sum(offset.offset for offset in filled.refresh().groups["g"].offsets.values()) == 300


def test_without_a_group_it_generates_one(run: Run, filled: Coordinator) -> None:
    run("consumer-perf-test", "--include", "t|u", "--num-records", "300", "--hide-header")
    (group,) = filled.refresh().groups
    assert re.fullmatch(r"perf-consumer-\d{1,5}", group)


def test_the_consumer_stops_after_the_timeout(run: Run, filled: Coordinator) -> None:
    command = ["consumer-perf-test", "--topic", "t", "--num-records", "301", "--timeout", "200", "--hide-header"]
    result = run(*command)
    assert (result.code, len(result.lines)) == (0, 1)
    assert "WARNING: Exiting before consuming the expected number of records: timeout (200 ms) exceeded. " in result.err
    latest = run(*command, "--from-latest")
    assert latest.lines[0].split(", ")[4] == "0"


def test_details_are_printed_for_each_interval(run: Run, filled: Coordinator) -> None:
    flags = ["--show-detailed-stats", "--reporting-interval", "1", "--timeout", "1500", "--date-format", "'at' HH:mm"]
    result = run("consumer-perf-test", "--topic", "t", "--messages", "301", *flags, "--print-metrics")
    assert "Warning: --messages is deprecated. Use --num-records instead." in result.err
    assert result.lines[0] == DETAILED_HEADER
    assert re.fullmatch(r"at \d\d:\d\d, 0, (\d+\.\d{4}, ){2}\d+, \d+\.\d{4}, \d+, -?\d+, \d+\.\d{4}, \d+\.\d{4}",
                        result.lines[1])  # fmt: skip
    assert any("records-consumed-total" in line for line in result.lines)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--num-records", "5"], 'Exactly one of the following arguments is required: "[topic]", "[include]"'),
        (["--topic", "t"], 'Exactly one of the following arguments is required: "[messages]", "[num-records]"'),
        (["--topic", "t", "--num-records", "5", "--reporting-interval", "0"],
         "Reporting interval must be greater than 0."),
        (["--topic", "t", "--num-records", "5", "--date-format", "QQ"], "Illegal pattern character 'Q'"),
        (["--include", "(", "--num-records", "5"], "'(' is an invalid regex"),
    ],
)  # fmt: skip
def test_usage_errors_of_the_consumer_are_refused(
    run: Run, filled: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run("consumer-perf-test", *arguments)
    assert result.code == 1
    assert complaint in result.err


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d:007"),
        ("yy/D S", r"\d\d/\d{3} 7"),
        ("'o''clock' ''", r"o'clock '"),
        ("HH%mm", r"\d\d%\d\d"),
    ],
)
def test_times_are_formatted_as_in_java(pattern: str, shown: str) -> None:
    assert re.fullmatch(shown, DateFormat(pattern)(1_800_000_000_007))


def test_a_date_format_with_an_open_quote_is_refused() -> None:
    with pytest.raises(UsageError, match="unclosed quote"):
        DateFormat("HH 'h")
