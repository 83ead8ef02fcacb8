"""``sparklog replica-verification``: Kafka's kafka-replica-verification. Checks that replicas hold the same records.

Kafka's tool follows the replicas until it is stopped; this one reads all existing records once, and its exit code tells
whether the replicas are identical.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandError, CommandParser, complain, connect, say
from sparklog.cli.arguments.patterns import matching_topics
from sparklog.cli.arguments.runners import add_runner_options, check_runner_options, task_runners
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.clock import utc
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.cli.output.documents import ReplicaLag, ReplicaVerification
    from sparklog.coordinator import Coordinator
    from sparklog.maintenance.fsck.kinds import Finding
    from sparklog.maintenance.runner import TaskRunner
    from sparklog.protocol.segments import Segment
    from sparklog.protocol.state import State
    from sparklog.store.base import Store

OUTPUT_IS_OPTIONAL = True
TASK_BYTES = 64 * 1024 * 1024


def parser() -> CommandParser:
    options = CommandParser(
        "replica-verification",
        "Read the records of every replica, compare them with their checksums and with each other, and print the\n"
        "differences and the lag of replicas. Exit code 1 if there are differences.",
        "sparklog replica-verification --bootstrap-server /data/log --topics-include 'orders.*'",
    )
    options.add_value("--broker-list", "ROOT", "same as --bootstrap-server")
    options.add_value("--topics-include", "REGEX", "topics, by a regular expression (all)", default=".*")
    options.add_without_effect("--fetch-size", "--max-wait-ms", "--report-interval-ms", "--time", metavar="N", type=int)
    add_json(options)
    add_runner_options(options)
    return options


def run(options: argparse.Namespace) -> int:
    check_runner_options(options)
    options.bootstrap_server = options.bootstrap_server or options.broker_list
    coordinator = connect(options)
    topics = matching_topics(coordinator.state.topics, options.topics_include, False)
    if not topics:
        raise CommandError(
            f"No topics found. --topics-include {options.topics_include!r}, if specified, is either filtering out all "
            "topics or there is no topic."
        )
    if not options.json:
        _say(coordinator, "verification process is started")
    with task_runners(options, "replica-verification") as runners:
        findings = _differences(coordinator, topics, runners("check of data files"))
    from sparklog.cli.output.documents import ReplicaVerification

    result = ReplicaVerification(differences=findings, partitions=list(_lags(coordinator, topics)))
    if options.json:
        print_json(result)
    else:
        _print(coordinator, result)
    return 1 if findings else 0


def _print(coordinator: Coordinator, result: ReplicaVerification) -> None:
    """Print a line for each difference, and Kafka's line on the largest lag."""
    for finding in result.differences:
        where = f" on replica {finding.broker}" if finding.broker >= 0 else ""
        offset = f" at offset {finding.start_offset}" if finding.start_offset >= 0 else ""
        _say(
            coordinator,
            f"partition {finding.subject}{offset}{where}: {finding.kind}: {finding.path}: {finding.message}",
        )
    worst = max(result.partitions, key=lambda partition: partition.lag)
    _say(
        coordinator,
        f"max lag is {worst.lag} for partition {worst} at offset {worst.offset} among "
        f"{len(result.partitions)} partitions",
    )


def _say(coordinator: Coordinator, text: str) -> None:
    """Print a line with Kafka's timestamp, in UTC."""
    moment = utc(coordinator.log.clock.now_ms())
    say(f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}: {text}")
    sys.stdout.flush()


def _differences(coordinator: Coordinator, topics: Sequence[str], runner: TaskRunner) -> list[Finding]:
    """Return the faults of, and differences between, the in-sync replicas at brokers that are online."""
    from sparklog.maintenance.fsck.file_checks import check_files, plan_tasks
    from sparklog.maintenance.fsck.kinds import in_order
    from sparklog.maintenance.fsck.replica_checks import Copies, offline_brokers, plan_copies

    state = coordinator.state
    stores, unreachable = _stores(coordinator)
    for finding in offline_brokers(state, unreachable):
        complain(f"replica-verification: {finding.message}")
    lists = {name: coordinator.segments(name, state) for name in topics}
    to_check = list(plan_copies(state, lists, stores))
    copies = Copies()
    for results in runner.run(check_files, plan_tasks(to_check, stores, TASK_BYTES)):
        for result in results:
            copies.take(result)
    return in_order(copies.findings())


def _stores(coordinator: Coordinator) -> tuple[dict[int, Store], dict[int, str]]:
    """Return the stores of brokers that are online, and the errors of those that cannot be opened."""
    stores: dict[int, Store] = {}
    unreachable: dict[int, str] = {}
    for number, broker in coordinator.state.brokers.items():
        if broker.online:
            try:
                stores[number] = coordinator.store_of(number)
            except SparklogError as error:
                unreachable[number] = error.message
    return stores, unreachable


def _lags(coordinator: Coordinator, topics: Sequence[str]) -> Iterator[ReplicaLag]:
    """Yield the largest replica lag of each partition; replicas in sync have none."""
    from sparklog.cli.output.documents import ReplicaLag

    state = coordinator.state
    for topic in topics:
        for number, partition in enumerate(state.topic(topic).partitions):
            end_offsets = [partition.log_end_offset]
            out_of_sync = [broker for broker in partition.replicas if broker not in partition.isr]
            if out_of_sync:
                segments = list(coordinator.segments(topic, state).partition(number))
                end_offsets += [_find_end_offset(coordinator, state, broker, segments) for broker in out_of_sync]
            offset = min(end_offsets)
            lag = partition.log_end_offset - offset
            yield ReplicaLag(topic=topic, partition=number, lag=lag, offset=offset)


def _find_end_offset(coordinator: Coordinator, state: State, broker: int, segments: Sequence[Segment]) -> int:
    """Return the offset up to which a broker has the files of all these segments, which are in order."""
    start = segments[0].base_offset if segments else 0
    try:
        store = coordinator.brokers.store_of(state, broker)
        folders = {segment.path.rpartition("/")[0] for segment in segments}
        present = {info.key for folder in folders for info in store.list(f"{folder}/")}
    except SparklogError:
        return start
    for segment in segments:
        if segment.path not in present or segment.index_path not in present:
            return segment.base_offset
    return segments[-1].end_offset if segments else 0
