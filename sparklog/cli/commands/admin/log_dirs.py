"""``sparklog log-dirs``: Kafka's kafka-log-dirs. Prints the bytes of each partition at each broker, as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    complain_of,
    connect_admin,
    join,
    parse_broker_ids,
    require,
)
from sparklog.cli.output.json_output import add_json, print_json

if TYPE_CHECKING:
    from sparklog.cli.output.documents import LogDir

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
"""The error that Kafka's tool prints for a log dir that is offline; here for a broker that does not answer, too."""


def parser() -> CommandParser:
    options = CommandParser(
        "log-dirs",
        "Print the bytes of the live segments by broker and partition, as JSON. A broker is a storage location.",
        "sparklog log-dirs --bootstrap-server /data/log --describe --topic-list orders,refunds",
    )
    options.add_switch("--describe", "describe the brokers")
    options.add_value("--topic-list", "TOPICS", "comma-separated topics (default: all)", default="")
    options.add_value("--broker-list", "IDS", "comma-separated broker ids (default: all)", default="")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "describe")
    topics = {name for name in options.topic_list.split(",") if name}
    requested = sorted(set(parse_broker_ids(options.broker_list, skip_empty=True)))
    with connect_admin(options) as admin:
        existing = sorted(admin.read_state().brokers)
        missing = [broker for broker in requested if broker not in existing]
        if missing:
            raise CommandError(
                f"ERROR: The given brokers do not exist from --broker-list: {join(missing)}. Current existent "
                f"brokers: {join(existing)}"
            )
        selected = requested or existing
        if not options.json:
            print("Querying brokers for log directories information")
        described = admin.describe_log_dirs(brokers=selected)
    if not options.json:
        print(f"Received log directory information from brokers {join(selected)}")
    from sparklog.cli.output.documents import LogDirBroker, LogDirDescription

    brokers = [
        LogDirBroker(broker=broker["broker"], log_dirs=[_log_dir(log_dir, topics) for log_dir in broker["log_dirs"]])
        for broker in described
    ]
    print_json(LogDirDescription(version=1, brokers=brokers))
    complain_of({broker["broker"]: log_dir["error_message"] for broker in described for log_dir in broker["log_dirs"]})
    return 0


def _log_dir(log_dir: Mapping[str, Any], topics: Collection[str]) -> LogDir:
    from sparklog.cli.output.documents import LogDir, LogDirPartition

    partitions = [
        LogDirPartition(
            partition=f"{topic['name']}-{partition['partition_index']}",
            size=partition["partition_size"],
            offset_lag=partition["offset_lag"],
            is_future=partition["is_future_key"],
        )
        for topic in log_dir["topics"]
        if not topics or topic["name"] in topics
        for partition in topic["partitions"]
    ]
    error = STORAGE_ERROR if log_dir["error_code"] else None
    return LogDir(log_dir=log_dir["log_dir"], error=error, partitions=partitions)
