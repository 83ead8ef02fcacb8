"""``sparklog log-dirs``: Kafka's kafka-log-dirs. Prints the bytes of each partition at each broker, as JSON."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, connect, require
from sparklog.cli.output.broker_conditions import complain_of, conditions_of
from sparklog.cli.output.json_output import add_json, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparklog.cli.output.broker_conditions import Condition
    from sparklog.cli.output.documents import LogDir
    from sparklog.coordinator import Coordinator

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
"""The error that Kafka's tool prints for a log dir that is offline; here for a broker that does not answer, too."""
UNKNOWN_LAG = -1
"""The lag of a replica that is not in sync: only a listing of its location could tell it."""


def parser() -> CommandParser:
    options = CommandParser(
        "log-dirs",
        "Print the bytes of the live segments by broker and partition, as JSON. A broker is a storage location.",
        "sparklog log-dirs --bootstrap-server /data/log --describe --topic-list orders,refunds",
    )
    options.add_connection()
    options.add_argument("--describe", action="store_true", help="describe the brokers")
    options.add_argument("--topic-list", metavar="TOPICS", default="", help="comma-separated topics (default: all)")
    options.add_argument("--broker-list", metavar="IDS", default="", help="comma-separated broker ids (default: all)")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "describe")
    topics = {name for name in options.topic_list.split(",") if name}
    requested = _parse_broker_ids(options.broker_list)
    coordinator = connect(options)
    existing = sorted(coordinator.state.brokers)
    missing = [broker for broker in requested if broker not in existing]
    if missing:
        raise UsageError(
            f"ERROR: The given brokers do not exist from --broker-list: {_join(missing)}. Current existent "
            f"brokers: {_join(existing)}",
            prefixed=True,
        )
    selected = requested or existing
    if not options.json:
        print("Querying brokers for log directories information")
    conditions = {broker: condition for broker, condition in conditions_of(coordinator).items() if broker in selected}
    if not options.json:
        print(f"Received log directory information from brokers {_join(selected)}")
    from sparklog.cli.output.documents import LogDirBroker, LogDirDescription

    brokers = [
        LogDirBroker(broker=broker, log_dirs=[_log_dir(coordinator, broker, topics, condition)])
        for broker, condition in conditions.items()
    ]
    print_json(LogDirDescription(version=1, brokers=brokers))
    complain_of(conditions)
    return 0


def _parse_broker_ids(text: str) -> list[int]:
    """Return the sorted ids without duplicates. Raises UsageError."""
    try:
        return sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(
            f"invalid --broker-list {text!r}: must be a comma-separated list of broker ids, such as 0,1,2"
        ) from None


def _join(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _log_dir(coordinator: Coordinator, broker: int, topics: set[str], condition: Condition) -> LogDir:
    """Return the single log dir of a broker; without partitions if it does not answer, since its files are unknown."""
    from sparklog.cli.output.documents import LogDir, LogDirPartition

    state = coordinator.state
    log_dir = state.brokers[broker].url or coordinator.store.root
    if condition.word != "online":
        return LogDir(log_dir=log_dir, error=STORAGE_ERROR, partitions=[])
    partitions = [
        LogDirPartition(
            partition=f"{name}-{number}",
            size=partition.size_bytes,
            offset_lag=0 if broker in partition.isr else UNKNOWN_LAG,
            is_future=broker in partition.adding,
        )
        for name in sorted(state.topics)
        if not topics or name in topics
        for number, partition in enumerate(state.topics[name].partitions)
        if broker in partition.replicas
    ]
    return LogDir(log_dir=log_dir, error=None, partitions=partitions)
