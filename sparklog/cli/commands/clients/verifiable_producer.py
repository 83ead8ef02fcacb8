"""``sparklog verifiable-producer``: Kafka's kafka-verifiable-producer. Sends 0, 1, 2, … and prints each outcome.

Standard output has one JSON object per line; after the last record, or SIGTERM, shutdown_complete and tool_data.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.client_properties import add_properties, client_arguments, read_properties
from sparklog.cli.arguments.parser import CommandParser, UsageError, connect_client, require
from sparklog.cli.commands.clients.throughput import EventLines, RateLimit, StopRequest
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.client.producer.producer import Producer
    from sparklog.clock import Clock

ENDLESS = 2**63 - 1


def parser() -> CommandParser:
    options = CommandParser(
        "verifiable-producer",
        "Send increasing numbers, and print as JSON which of them are committed and at which offset.",
        "sparklog verifiable-producer --bootstrap-server /data/log --topic orders --max-messages 1000",
        "--topic TOPIC [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to send to")
    options.add_number("--max-messages", "N", "send N records (-1: until stopped)", default=-1)
    options.add_number("--throughput", "N", "at most N records per second (-1: no limit)", default=-1)
    options.add_number("--acks", "ACKS", "-1 all replicas in sync, 1 the leader", default=-1, choices=(0, 1, -1))
    options.add_number("--message-create-time", "MS", "timestamps that begin here, in ms since 1970", default=-1)
    options.add_number("--value-prefix", "N", "values are N.0, N.1, …")
    options.add_number("--repeating-keys", "N", "keys are 0 to N-1, over and over")
    add_properties(options, "--producer.config", "linger.ms, batch.size")
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "topic")
    if options.repeating_keys is not None and options.repeating_keys <= 0:
        raise UsageError("--repeating-keys should be greater than zero.")
    properties = read_properties(options)
    cluster = connect_client(options, "Producer")
    from sparklog.client.producer.config import DEFAULTS
    from sparklog.client.producer.producer import Producer

    clock = cluster.log.clock
    arguments = {"acks": options.acks, **client_arguments(properties, DEFAULTS)}
    events = EventLines(clock)
    sender = _Sender(options, Producer(cluster=cluster, **arguments), events, clock)
    with StopRequest() as stop:
        start = clock.monotonic()
        events.emit("startup_complete")
        try:
            sender.send_all(stop)
        finally:
            sender.producer.close()
            events.emit("shutdown_complete")
            elapsed = max(clock.monotonic() - start, 0.001)
            events.emit(
                "tool_data",
                sent=sender.sent,
                acked=sender.acked,
                target_throughput=options.throughput,
                avg_throughput=sender.acked / elapsed,
            )
    return stop.exit_code


class _Sender:
    """Sends records and prints outcomes in the producer's thread. Its counts are read after that has ended."""

    def __init__(self, options: argparse.Namespace, producer: Producer, events: EventLines, clock: Clock) -> None:
        self.producer = producer
        self.sent = self.acked = 0
        self._options = options
        self._events = events
        self._clock = clock

    def send_all(self, stop: StopRequest) -> None:
        throttle = RateLimit(self._clock, self._options.throughput, stop)
        limit = self._options.max_messages
        number = 0
        start_ms = self._clock.now_ms()
        while number < (ENDLESS if limit < 0 else limit) and not stop:
            self._send(number, start_ms)
            number += 1
            throttle.wait(number)

    def _send(self, number: int, start_ms: int) -> None:
        options = self._options
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        key = None if options.repeating_keys is None else str(number % options.repeating_keys)
        created = options.message_create_time
        timestamp = None if created < 0 else created + self._clock.now_ms() - start_ms
        self.sent += 1
        try:
            future = self.producer.send(
                options.topic, value.encode(), None if key is None else key.encode(), timestamp_ms=timestamp
            )
        except SparklogError as error:
            self._on_error(key, value, error)
            return
        future.add_callback(self._on_success, key, value)
        future.add_errback(self._on_error, key, value)

    def _on_success(self, key: str | None, value: str, metadata: Any) -> None:
        self.acked += 1
        self._events.emit(
            "producer_send_success",
            key=key,
            value=value,
            topic=metadata.topic,
            partition=metadata.partition,
            offset=metadata.offset,
        )

    def _on_error(self, key: str | None, value: str, error: BaseException) -> None:
        self._events.emit(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._options.topic,
            exception=f"class {type(error).__module__}.{type(error).__name__}",
            message=str(error),
        )
