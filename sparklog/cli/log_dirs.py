"""``sparklog log-dirs``: Kafka's kafka-log-dirs. How many bytes of which partitions each broker holds, as JSON."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.broker_conditions import complain_of, conditions_of
from sparklog.cli.common import CommandParser, UsageError, connect, require
from sparklog.cli.json_output import add_json, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparklog.cli.broker_conditions import Condition
    from sparklog.cli.documents import LogDir
    from sparklog.coordinator import Coordinator

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
"""What Kafka's tool names as the error of a location that is offline, or does not answer."""
UNKNOWN_LAG = -1
"""Of a replica that is not in sync: only a listing of the location could tell."""


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
    wanted = _broker_ids(options.broker_list)
    coordinator = connect(options)
    known = sorted(coordinator.state.brokers)
    missing = [number for number in wanted if number not in known]
    if missing:
        raise UsageError(
            f"ERROR: The given brokers do not exist from --broker-list: {_text(missing)}. Current existent "
            f"brokers: {_text(known)}",
            prefixed=True,
        )
    shown = wanted or known
    if not options.json:
        print("Querying brokers for log directories information")
    conditions = {number: found for number, found in conditions_of(coordinator).items() if number in shown}
    if not options.json:
        print(f"Received log directory information from brokers {_text(shown)}")
    from sparklog.cli.documents import LogDirBroker, LogDirDescription

    brokers = [
        LogDirBroker(broker=number, log_dirs=[_log_dir(coordinator, number, topics, condition)])
        for number, condition in conditions.items()
    ]
    print_json(LogDirDescription(version=1, brokers=brokers))
    complain_of(conditions)
    return 0


def _broker_ids(text: str) -> list[int]:
    """In order, each once. Raises UsageError."""
    try:
        return sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(f"--broker-list: {text!r} is not a list of broker ids such as 0,1,2") from None


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _log_dir(coordinator: Coordinator, broker: int, topics: set[str], condition: Condition) -> LogDir:
    """The one log dir of a broker. Of one that is not there nobody can tell what it holds."""
    from sparklog.cli.documents import LogDir, LogDirPartition

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
