"""``sparklog e2e-latency``: Kafka's kafka-e2e-latency. Sends records one by one and times each until it is read.

A record is sent after the previous one was read, so that a latency is that of a single write and read: the commit, and
the time until a reader sees it. Reading back a record other than the one sent is an error.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparklog.cli.arguments.client_properties import client_arguments
from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect_client,
    read_command_config,
    require,
)
from sparklog.cli.commands.clients.throughput import StopRequest, letters, percentiles
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.errors import DataLossError, TopicAlreadyExistsError
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.producer.producer import Producer
    from sparklog.clock import Clock

TIMEOUT_SECONDS = 60.0
"""Timeout after which a record counts as lost, as in Kafka."""
POLL_MS = 200
PRINTED_EVERY = 1000


def parser() -> CommandParser:
    options = CommandParser(
        "e2e-latency",
        "Send records one by one, read each back, and print the latencies.",
        "sparklog e2e-latency --bootstrap-server /data/log --topic pings --num-records 1000 --producer-acks all \\\n"
        "      --record-size 100",
        "--topic TOPIC --num-records N --producer-acks 1|all --record-size BYTES [OPTIONS]",
    )
    options.add_argument("positionals", nargs="*", help=argparse.SUPPRESS)
    options.add_value("--topic", "TOPIC", "the topic, created with one partition if it does not exist")
    options.add_number("--num-records", "N", "how many records")
    options.add_value("--producer-acks", "ACKS", "1 (the leader), or all replicas in sync (all, -1)")
    options.add_number("--record-size", "BYTES", "length of the values")
    for flag, meaning in (
        ("--record-key-size", "length of the keys"),
        ("--num-headers", "number of headers"),
        ("--record-header-key-size", "length of the header keys"),
        ("--record-header-size", "length of the header values"),
    ):
        options.add_number(flag, "N", f"{meaning} (0)", default=0)
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    _take_positionals(options)
    _check(options)
    cluster = connect_client(options, "Producer")
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.consumer import config as consumer_config
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.producer import config as producer_config
    from sparklog.client.producer.producer import Producer

    with AdminClient(cluster=cluster, request_timeout_ms=math.inf) as admin:
        _create_topic(admin, options.topic)
    defaults = {**consumer_config.DEFAULTS, **producer_config.DEFAULTS}
    arguments = client_arguments(read_command_config(options), defaults)
    reading = {name: value for name, value in arguments.items() if name in consumer_config.DEFAULTS}
    sending = {name: value for name, value in arguments.items() if name in producer_config.DEFAULTS}
    reading |= {"group_id": None, "auto_offset_reset": "latest", "fetch_max_wait_ms": 0}
    sending |= {"acks": "all" if options.producer_acks in ("all", "-1") else 1, "linger_ms": 0}
    with (
        StopRequest() as stop,
        Consumer(cluster=cluster, **reading) as consumer,
        Producer(cluster=cluster, **sending) as producer,
    ):
        partitions = [
            TopicPartition(options.topic, number)
            for number in sorted(consumer.partitions_for_topic(options.topic) or ())
        ]
        consumer.assign(partitions)
        consumer.seek_to_end()
        for partition in partitions:
            consumer.position(partition)
        latencies = _measure(options, producer, consumer, cluster.log.clock, stop)
        if latencies:
            _print_summary(latencies, options.json)
    return stop.exit_code


def _take_positionals(options: argparse.Namespace) -> None:
    """Set the options from positional arguments, as Kafka's tool took them before 4.2. Raises UsageError."""
    if not options.positionals:
        return
    names = ("bootstrap_server", "topic", "num_records", "producer_acks", "record_size", "command_config")
    if len(options.positionals) not in (5, 6):
        raise UsageError(f"{options.positionals[0]!r} does not belong to any option")
    complain("Warning: arguments without names are deprecated. Use --bootstrap-server, --topic and the other options.")
    for name, text in zip(names, options.positionals, strict=False):
        try:
            setattr(options, name, int(text) if name in ("num_records", "record_size") else text)
        except ValueError:
            raise UsageError(f"invalid {name.replace('_', '-')} {text!r}: must be an integer") from None


def _check(options: argparse.Namespace) -> None:
    require(options, "topic", "num-records", "producer-acks", "record-size")
    if options.num_records <= 0:
        raise UsageError("Value for --num-records must be a positive integer.")
    if options.producer_acks not in ("1", "all", "-1"):
        raise UsageError(
            "Invalid value for --producer-acks: must be 1 or all, since only acknowledged records are measured."
        )
    for name in ("record-size", "record-key-size", "num-headers", "record-header-key-size", "record-header-size"):
        if getattr(options, name.replace("-", "_")) < 0:
            raise UsageError(f"Value for --{name} must be a non-negative integer.")


def _create_topic(admin: AdminClient, topic: str) -> None:
    from sparklog.client.admin.types import NewTopic
    from sparklog.config.cluster_configs import ClusterConfig

    state = admin.read_state()
    if topic in state.topics:
        return
    factor = ClusterConfig.resolve(state.configs).default_replication_factor
    complain(f'Topic "{topic}" does not exist. Creating it with 1 partition and replication factor {factor}.')
    with suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1)])


def _measure(
    options: argparse.Namespace, producer: Producer, consumer: Consumer, clock: Clock, stop: StopRequest
) -> list[float]:
    """Return the latency of each record in milliseconds; fewer after a stop request."""
    latencies: list[float] = []
    for number in range(options.num_records):
        value = letters(b"v%d" % number, options.record_size)
        key = letters(b"k%d" % number, options.record_key_size) if options.record_key_size else None
        start = clock.monotonic()
        producer.send(options.topic, value, key, headers=_headers(options, number)).get(TIMEOUT_SECONDS)
        if not _is_read(consumer, clock, value, key, stop):
            return latencies
        elapsed_ms = (clock.monotonic() - start) * 1000
        if number % PRINTED_EVERY == 0:
            print(f"{number}\t{elapsed_ms:.6f}", file=sys.stderr if options.json else sys.stdout, flush=True)
        latencies.append(elapsed_ms)
    return latencies


def _headers(options: argparse.Namespace, number: int) -> list[tuple[str, bytes]]:
    return [
        (
            letters(b"h%d-%d" % (number, header), options.record_header_key_size).decode(),
            letters(b"H%d-%d" % (number, header), options.record_header_size),
        )
        for header in range(options.num_headers)
    ]


def _is_read(consumer: Consumer, clock: Clock, value: bytes, key: bytes | None, stop: StopRequest) -> bool:
    """Wait for the record; return False on a stop request. Raises DataLossError."""
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not stop:
        records = [record for batch in consumer.poll(POLL_MS).values() for record in batch]
        if records:
            if len(records) != 1 or records[0].value != value or records[0].key != key:
                raise DataLossError(
                    f"read {len(records)} records instead of the one that was sent, or another record: is another "
                    "producer writing to the topic?"
                )
            return True
        if clock.monotonic() > deadline:
            raise DataLossError(f"an acknowledged record was not read within {TIMEOUT_SECONDS:.0f} s")
    return False


def _print_summary(latencies: Sequence[float], as_json: bool) -> None:
    from sparklog.cli.output.documents import EndToEndLatency

    ordered = sorted(int(latency) for latency in latencies)
    p50, p99, p999 = percentiles(ordered, 0.5, 0.99, 0.999)
    avg = sum(latencies) / len(latencies)
    if as_json:
        print_json(EndToEndLatency(records=len(ordered), avg_ms=avg, p50_ms=p50, p99_ms=p99, p999_ms=p999))
        return
    print(f"Avg latency: {avg:.4f} ms")
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
