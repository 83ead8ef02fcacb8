"""``sparklog verifiable-consumer``: Kafka's kafka-verifiable-consumer. Reads in a group and prints events as JSON.

Standard output has one object per line: startup_complete, partitions_assigned, partitions_revoked, records_consumed,
record_data (``--verbose``), offsets_committed, shutdown_requested after SIGTERM or Ctrl-C, shutdown_complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.client_properties import add_properties, client_arguments, java_assignors, read_properties
from sparklog.cli.arguments.parser import CommandParser, UsageError, connect_client, require
from sparklog.cli.arguments.process import OutputError, silence_output
from sparklog.cli.commands.clients.throughput import EventLines, StopRequest
from sparklog.errors import FencedInstanceIdError, SparklogError
from sparklog.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.consumer.records import ConsumerRecord

POLL_MS = 200
"""Longest delay until a stop request takes effect. Polling costs no request: the consumer reads ahead by itself."""
RESETS = ("earliest", "latest", "none")
PROTOCOLS = ("classic", "consumer")


def parser() -> CommandParser:
    options = CommandParser(
        "verifiable-consumer",
        "Read a topic as a member of a group, and print records, rebalances and commits as JSON.",
        "sparklog verifiable-consumer --bootstrap-server /data/log --topic orders --group-id audit --max-messages 1000",
        "--topic TOPIC --group-id GROUP [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to read")
    options.add_value("--group-id", "GROUP", "the group to join")
    options.add_value("--group-instance-id", "ID", "join as a static member with this id")
    options.add_number("--max-messages", "N", "read N records (-1: until stopped)", default=-1)
    options.add_number("--session-timeout", "MS", "time without heartbeats after which it expires")
    options.add_switch("--verbose", "print each record")
    options.add_switch("--enable-autocommit", "commit at intervals, not after each batch")
    options.add_number("--close-timeout", "MS", "timeout of closing the consumer (30000)", default=30_000)
    options.add_value("--reset-policy", "POLICY", "earliest (default), latest, none", default="earliest")
    options.add_value(
        "--assignment-strategy", "CLASS",
        "Kafka's class, such as RoundRobinAssignor, or its name: range, roundrobin, sticky, cooperative-sticky; "
        "or a comma-separated list", default="org.apache.kafka.clients.consumer.RangeAssignor",
    )  # fmt: skip
    options.add_value("--group-protocol", "PROTOCOL", "classic or consumer, without difference here", default="classic")
    add_properties(options, "--consumer.config", "max.poll.records")
    options.add_without_effect("--group-remote-assignor", metavar="NAME")
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "topic", "group-id")
    if options.reset_policy not in RESETS:
        raise UsageError(f"--reset-policy must be one of {', '.join(RESETS)}, not {options.reset_policy!r}")
    if options.group_protocol.lower() not in PROTOCOLS:
        raise UsageError(f"Group protocol must be one of {', '.join(PROTOCOLS)}, not {options.group_protocol!r}")
    properties = read_properties(options)
    cluster = connect_client(options, "Consumer")
    from sparklog.client.consumer.config import DEFAULTS
    from sparklog.client.consumer.consumer import Consumer

    arguments = {**client_arguments(properties, DEFAULTS), **_arguments(options)}
    events = EventLines(cluster.log.clock)
    with StopRequest() as stop:
        consumer = Consumer(cluster=cluster, **arguments)
        reader = _Reader(options, consumer, events)
        autocommit = options.enable_autocommit
        try:
            events.emit("startup_complete")
            reader.read_all(stop)
            if stop:
                events.emit("shutdown_requested")
        except (BrokenPipeError, OutputError):  # what was not printed is not committed
            autocommit = False
            silence_output()
            raise
        finally:
            consumer.close(autocommit=autocommit, timeout_ms=options.close_timeout)
            events.emit("shutdown_complete")
    return stop.exit_code


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "group_id": options.group_id,
        "enable_auto_commit": options.enable_autocommit,
        "auto_offset_reset": options.reset_policy,
        "partition_assignment_strategy": java_assignors(options.assignment_strategy),
    }
    if options.group_instance_id is not None:
        arguments["group_instance_id"] = options.group_instance_id
    if options.session_timeout is not None:
        arguments["session_timeout_ms"] = options.session_timeout
        arguments["heartbeat_interval_ms"] = max(1, min(3000, options.session_timeout // 3))
    return arguments


class _Reader:
    """Reads and prints events; told of rebalances as a ConsumerRebalanceListener. Not thread-safe."""

    def __init__(self, options: argparse.Namespace, consumer: Consumer, events: EventLines) -> None:
        self._options = options
        self._consumer = consumer
        self._events = events
        self._remaining = options.max_messages

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._events.emit("partitions_assigned", partitions=_partitions(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._events.emit("partitions_revoked", partitions=_partitions(revoked))

    on_partitions_lost = on_partitions_revoked

    def read_all(self, stop: StopRequest) -> None:
        self._consumer.subscribe([self._options.topic], listener=self)
        while self._remaining and not stop:
            polled = self._consumer.poll(POLL_MS, max_records=self._remaining if self._remaining > 0 else None)
            if polled:
                self._handle(polled)

    def _handle(self, polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        summaries: list[dict[str, object]] = []
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, records in polled.items():
            first, last = records[0].offset, records[-1].offset
            offsets[partition] = OffsetAndMetadata(last + 1, "", records[-1].leader_epoch)
            summaries.append({**partition._asdict(), "count": len(records), "minOffset": first, "maxOffset": last})
            if self._options.verbose:
                for record in records:
                    self._show(record)
        count = sum(len(records) for records in polled.values())
        self._remaining -= count if self._remaining > 0 else 0
        self._events.emit("records_consumed", count=count, partitions=summaries)
        if not self._options.enable_autocommit:
            self._commit(offsets)

    def _show(self, record: ConsumerRecord) -> None:
        self._events.emit(
            "record_data",
            key=_text(record.key),
            value=_text(record.value),
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit and print the outcome. Raises FencedInstanceIdError if another process has taken over."""
        shown = [{**partition._asdict(), "offset": position.offset} for partition, position in offsets.items()]
        try:
            self._consumer.commit(offsets)
        except FencedInstanceIdError:
            raise
        except SparklogError as error:
            self._events.emit("offsets_committed", offsets=shown, error=str(error), success=False)
        else:
            self._events.emit("offsets_committed", offsets=shown, success=True)


def _partitions(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [partition._asdict() for partition in sorted(partitions)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
