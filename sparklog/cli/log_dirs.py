"""``sparklog log-dirs``: Kafka's kafka-log-dirs. How many bytes of which partitions each broker holds, as JSON."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from sparklog.cli.common import CommandParser, UsageError, bootstrap_server, require
from sparklog.cli.json_output import add_json, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparklog.cli.documents import LogDir, LogDirBroker

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
"""What Kafka's tool names as the error of a location that is offline."""


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
    root, storage_options = bootstrap_server(options)
    from sparklog.client.admin import AdminClient

    with AdminClient(bootstrap_servers=root, storage_options=storage_options, request_timeout_ms=math.inf) as admin:
        known = sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])
        missing = [number for number in wanted if number not in known]
        if missing:
            raise UsageError(
                f"ERROR: The given brokers do not exist from --broker-list: {_text(missing)}. Current existent "
                f"brokers: {_text(known)}",
                prefixed=True,
            )
        if not options.json:
            print("Querying brokers for log directories information")
        found = admin.describe_log_dirs(brokers=wanted or known)
        if not options.json:
            print(f"Received log directory information from brokers {_text(wanted or known)}")
    from sparklog.cli.documents import LogDirDescription

    print_json(LogDirDescription(version=1, brokers=[_broker(one, topics) for one in found]))
    return 0


def _broker_ids(text: str) -> list[int]:
    """In order, each once. Raises UsageError."""
    try:
        return sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(f"--broker-list: {text!r} is not a list of broker ids such as 0,1,2") from None


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _broker(found: dict[str, Any], topics: set[str]) -> LogDirBroker:
    from sparklog.cli.documents import LogDirBroker

    return LogDirBroker(broker=found["broker"], log_dirs=[_log_dir(one, topics) for one in found["log_dirs"]])


def _log_dir(found: dict[str, Any], topics: set[str]) -> LogDir:
    from sparklog.cli.documents import LogDir, LogDirPartition

    partitions = [
        LogDirPartition(
            partition=f"{topic['name']}-{one['partition_index']}",
            size=one["partition_size"],
            offset_lag=one["offset_lag"],
            is_future=one["is_future_key"],
        )
        for topic in found["topics"]
        if not topics or topic["name"] in topics
        for one in topic["partitions"]
    ]
    return LogDir(log_dir=found["log_dir"], error=STORAGE_ERROR if found["error_code"] else None, partitions=partitions)
