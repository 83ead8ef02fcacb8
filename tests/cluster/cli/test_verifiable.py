"""kafka-verifiable-producer and kafka-verifiable-consumer: events, one JSON object per line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.records import Record, append_records

from .conftest import SPARKLOG, Result, Run

PRODUCE = ("verifiable-producer", "--topic", "t")
CONSUME = ("verifiable-consumer", "--topic", "t", "--group-id", "g")


@pytest.fixture
def topic(cluster: Coordinator) -> Coordinator:
    cluster.create_topic("t")
    return cluster


@pytest.fixture
def filled(topic: Coordinator) -> Coordinator:
    """Five records, the third without a key."""
    keys = (b"a", b"b", None, b"d", b"e")
    append_records(topic, "t", [Record(key, b"v%d" % number) for number, key in enumerate(keys)])
    return topic


def events(result: Result) -> list[dict[str, Any]]:
    """Return the events without their timestamps, which come first, before the name."""
    parsed = [json.loads(line) for line in result.lines]
    assert all(list(event)[:2] == ["timestamp", "name"] and event.pop("timestamp") > 0 for event in parsed)
    return parsed


def names(result: Result) -> list[str]:
    return [event["name"] for event in events(result)]


# -- producer


def test_each_acknowledged_record_is_an_event_and_the_last_event_has_the_totals(run: Run, topic: Coordinator) -> None:
    result = run(*PRODUCE, "--max-messages", "3")
    assert (result.code, result.err) == (0, "")
    parsed = events(result)
    assert [event["name"] for event in parsed] == [
        "startup_complete", *["producer_send_success"] * 3, "shutdown_complete", "tool_data",
    ]  # fmt: skip
    assert parsed[2] == {
        "name": "producer_send_success",
        "key": None,
        "value": "1",
        "topic": "t",
        "partition": 0,
        "offset": 1,
    }
    assert parsed[-1].pop("avg_throughput") > 0
    assert parsed[-1] == {"name": "tool_data", "sent": 3, "acked": 3, "target_throughput": -1}


def test_values_keys_and_timestamps_follow_the_options(run: Run, topic: Coordinator) -> None:
    flags = ["--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "1000", "--throughput", "1000"]
    result = run(*PRODUCE, "--max-messages", "3", *flags)
    assert [(event["key"], event["value"]) for event in events(result)[1:4]] == [
        ("0", "7.0"),
        ("1", "7.1"),
        ("0", "7.2"),
    ]
    with LogReader(topic) as reader:
        reader.refresh()
        stored = list(reader.records("t", 0, 0, 3))
    assert [(record.key, record.value) for record in stored] == [(b"0", b"7.0"), (b"1", b"7.1"), (b"0", b"7.2")]
    assert all(1_000_000 <= record.timestamp_us < 60_000_000 for record in stored)


def test_a_record_that_cannot_be_sent_is_an_event(run: Run, topic: Coordinator) -> None:
    topic.submit(partial(alter_configs, topic="t", changes={"max.message.bytes": "0"}))
    result = run(*PRODUCE, "--max-messages", "1")
    failed = events(result)[1]
    assert (failed["name"], failed["key"], failed["value"], failed["topic"]) == ("producer_send_error", None, "0", "t")
    assert failed["exception"] == "class sparklog.errors.MessageSizeTooLargeError"
    assert "max.message.bytes" in failed["message"]
    assert events(result)[-1]["acked"] == 0


def read_to_end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read standard output and error to their ends; ``communicate`` would lose lines that are already buffered."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        return process.stdout.read(), process.stderr.read()


def test_the_producer_sends_until_it_is_terminated(topic: Coordinator, root: str) -> None:
    command = [sys.executable, "-m", "sparklog.cli", *PRODUCE, "--throughput", "100"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    remaining, err = read_to_end(process)
    assert (process.returncode, err) == (143, "")
    parsed = [json.loads(line) for line in [*lines, *remaining.splitlines()]]
    assert [event["name"] for event in parsed[-2:]] == ["shutdown_complete", "tool_data"]
    assert (
        parsed[-1]["sent"] == parsed[-1]["acked"] == len(parsed) - 3 == topic.refresh().partition("t", 0).high_watermark
    )


# -- consumer


def test_records_and_commits_are_events(run: Run, filled: Coordinator) -> None:
    result = run(*CONSUME, "--max-messages", "4", "--verbose")
    assert (result.code, result.err) == (0, "")
    parsed = events(result)
    partition = {"topic": "t", "partition": 0}
    assert parsed[:2] == [{"name": "startup_complete"}, {"name": "partitions_assigned", "partitions": [partition]}]
    assert [event for event in parsed if event["name"] == "record_data"][2] == {
        "name": "record_data", "key": None, "value": "v2", **partition, "offset": 2,
    }  # fmt: skip
    assert [event for event in parsed if event["name"] == "records_consumed"] == [
        {
            "name": "records_consumed",
            "count": 4,
            "partitions": [{**partition, "count": 4, "minOffset": 0, "maxOffset": 3}],
        }
    ]
    assert {"name": "offsets_committed", "offsets": [{**partition, "offset": 4}], "success": True} in parsed
    assert parsed[-2:] == [{"name": "partitions_revoked", "partitions": [partition]}, {"name": "shutdown_complete"}]


def test_the_group_resumes_at_its_committed_offset(run: Run, filled: Coordinator) -> None:
    run(*CONSUME, "--max-messages", "3")
    second = [event for event in events(run(*CONSUME, "--max-messages", "2")) if event["name"] == "records_consumed"]
    assert second[0]["partitions"][0]["minOffset"] == 3


def test_auto_commits_are_not_events(run: Run, filled: Coordinator) -> None:
    result = run(*CONSUME, "--max-messages", "5", "--enable-autocommit")
    assert "offsets_committed" not in names(result)
    (offset,) = filled.refresh().groups["g"].offsets.values()
    assert offset.offset == 5


def test_settings_are_passed_to_the_member_and_a_signal_ends_it(filled: Coordinator, root: str) -> None:
    flags = ["--group-instance-id", "shelf", "--session-timeout", "10000", "--assignment-strategy",
             "org.apache.kafka.clients.consumer.RoundRobinAssignor", "--group-protocol", "CONSUMER"]  # fmt: skip
    command = [sys.executable, "-m", "sparklog.cli", *CONSUME, *flags, "--command-property", "client.id=me"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = ""
    while "offsets_committed" not in line:
        line = process.stdout.readline()
    (member,) = filled.refresh().groups["g"].members.values()
    process.send_signal(signal.SIGINT)
    remaining, err = read_to_end(process)
    assert (member.instance_id, member.session_timeout_ms, member.assignors) == ("shelf", 10_000, ("roundrobin",))
    assert member.client_id == "me"
    assert (process.returncode, err) == (130, "")
    ended = [json.loads(line)["name"] for line in remaining.splitlines()]
    assert [name for name in ended if name != "partitions_revoked"] == ["shutdown_requested", "shutdown_complete"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["verifiable-producer"], 'Missing required argument "[topic]"'),
        (["verifiable-producer", "--topic", "t", "--acks", "2"], "invalid choice: 2"),
        (["verifiable-producer", "--topic", "t", "--repeating-keys", "0"], "--repeating-keys should be greater than"),
        (["verifiable-consumer", "--topic", "t"], 'Missing required argument "[group-id]"'),
        ([*CONSUME, "--reset-policy", "soonest"], "--reset-policy must be one of earliest, latest, none"),
        ([*CONSUME, "--group-protocol", "gossip"], "Group protocol must be one of classic, consumer"),
        ([*CONSUME, "--assignment-strategy", "RackAssignor"], "partition_assignment_strategy='RackAssignor'"),
        ([*CONSUME, "--max-messages", "x"], "invalid int value: 'x'"),
    ],
)
def test_usage_errors_are_reported(run: Run, filled: Coordinator, arguments: list[str], complaint: str) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (1, "")
    assert complaint in result.err


def test_what_a_closed_pipe_did_not_take_is_not_committed(topic: Coordinator) -> None:
    append_records(topic, "t", [Record(value=b"%d" % number) for number in range(5000)])
    command = [*SPARKLOG, *CONSUME, "--enable-autocommit", "--verbose"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        while "record_data" not in consumer.stdout.readline():
            pass
        consumer.stdout.close()  # all records do not fit into the pipe
        errors = consumer.stderr.read()
    assert (consumer.returncode, errors) == (0, "")
    group = topic.refresh().groups.get("g")
    assert group is None or [at.offset for at in group.offsets.values() if at.offset] == []
