"""``sparklog leader-election``: Kafka's kafka-leader-election. Elects preferred replicas or replicas out of sync."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

from sparklog.cli.arguments.parser import CommandParser, UsageError, connect, given, require, say
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.cli.output.documents import ElectionOutcome, ElectionResult
    from sparklog.coordinator import Coordinator
    from sparklog.errors import SparklogError

    Outcome = dict[TopicPartition, SparklogError | None]

FILE_FLAG = "--path-to-json-file"
SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")
PREFERRED: Literal["PREFERRED"] = "PREFERRED"
UNCLEAN: Literal["UNCLEAN"] = "UNCLEAN"


def parser() -> CommandParser:
    options = CommandParser(
        "leader-election",
        "Elect leaders of partitions:\n"
        "  preferred  the first of the replica list, if it is in sync and not the leader\n"
        "  unclean    a replica that is out of sync, if none in sync can lead: the records that it lacks are lost",
        "sparklog leader-election --bootstrap-server /data/log --election-type preferred --all-topic-partitions",
    )
    options.add_connection()
    options.add_argument("--election-type", metavar="TYPE", help="preferred or unclean")
    options.add_argument("--topic", metavar="TOPIC", help="the topic, with --partition")
    options.add_argument("--partition", metavar="N", type=int, help="the partition")
    options.add_argument("--all-topic-partitions", action="store_true", help="every partition that needs it")
    options.add_argument(FILE_FLAG, metavar="FILE", help='a file: {"partitions":[{"topic":"orders","partition":0}]}')
    options.add_deprecated("--admin.config", "--command-config", metavar="FILE")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    kind = _check(options)
    partitions = _read_partitions(options)
    coordinator = connect(options)
    elect = _elect_preferred if kind == PREFERRED else _elect_unclean
    return _report(kind, elect(coordinator, partitions), options.json)


def _check(options: argparse.Namespace) -> Literal["PREFERRED", "UNCLEAN"]:
    require(options, "election-type")
    kind = options.election_type.upper()
    if kind not in (PREFERRED, UNCLEAN):
        raise UsageError(f"invalid --election-type {options.election_type}: must be preferred or unclean")
    if sum(given(options, name) for name in SCOPES) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(SCOPES)}")
    if options.topic is not None and options.partition is None:
        raise UsageError("Missing required option(s): partition")
    if options.topic is None and options.partition is not None:
        raise UsageError("Option partition is only allowed if topic is used")
    return PREFERRED if kind == PREFERRED else UNCLEAN


def _read_partitions(options: argparse.Namespace) -> list[TopicPartition] | None:
    """Return the partitions that the options name; None for all. Raises UsageError."""
    if options.topic is not None:
        return [TopicPartition(options.topic, options.partition)]
    if options.path_to_json_file is None:
        return None
    from sparklog.cli.arguments.json_files import ElectionFile, join_duplicates, read_json

    file = read_json(options.path_to_json_file, FILE_FLAG, ElectionFile)
    partitions = [TopicPartition(entry.topic, entry.partition) for entry in file.partitions]
    duplicates = join_duplicates(partitions)
    if duplicates:
        raise UsageError(f"Replica election data contains duplicate partitions: {duplicates}", prefixed=True)
    if not partitions:
        raise UsageError("Replica election data is empty", prefixed=True)
    return partitions


def _elect_preferred(coordinator: Coordinator, partitions: list[TopicPartition] | None) -> Outcome:
    from sparklog.protocol.decide.elections import elect_preferred

    outcome: Outcome = coordinator.submit(partial(elect_preferred, partitions=partitions))
    return outcome


def _elect_unclean(coordinator: Coordinator, partitions: list[TopicPartition] | None) -> Outcome:
    """Inspect the replicas and elect the one that lacks the fewest records, whatever the topic's settings."""
    from sparklog.coordinator.unclean_election import find_unclean_leader
    from sparklog.errors import ElectionNotNeededError, SparklogError
    from sparklog.protocol.decide.elections import elect_unclean, every_partition

    state = coordinator.state
    outcome: Outcome = {}
    elections = []
    for topic_partition in every_partition(state) if partitions is None else partitions:
        try:
            partition = state.partition(*topic_partition)
            if partition.leader < 0:
                elections.append(find_unclean_leader(coordinator, state, *topic_partition))
            elif partitions is not None:
                outcome[topic_partition] = ElectionNotNeededError(
                    f"broker {partition.leader} leads {topic_partition}",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                )
        except SparklogError as error:
            outcome[topic_partition] = error
    if elections:
        outcome.update(coordinator.submit(partial(elect_unclean, elections=elections)))
    return outcome


def _report(kind: Literal["PREFERRED", "UNCLEAN"], outcome: Outcome, as_json: bool) -> int:
    from sparklog.cli.output.documents import ElectionOutcome, ElectionResult
    from sparklog.errors import ElectionNotNeededError

    result = ElectionResult(
        election_type=kind,
        partitions=[
            ElectionOutcome(
                topic=partition.topic,
                partition=partition.partition,
                outcome="elected" if error is None
                else "not-needed" if isinstance(error, ElectionNotNeededError)
                else "failed",
                error=None if error is None else str(error),
            )
            for partition, error in sorted(outcome.items(), key=lambda item: item[0])
        ],
    )  # fmt: skip
    if as_json:
        print_json(result)
    else:
        _print(result)
    failed = sum(partition.outcome == "failed" for partition in result.partitions)
    if failed:
        raise UsageError(f"{failed} replica(s) could not be elected", prefixed=True)
    return 0


def _print(result: ElectionResult) -> None:
    """Print the lines of Kafka's tool."""
    kind = result.election_type
    elected = [outcome for outcome in result.partitions if outcome.outcome == "elected"]
    not_needed = [outcome for outcome in result.partitions if outcome.outcome == "not-needed"]
    if elected:
        say(f"Successfully completed leader election ({kind}) for partitions {_join(elected)}")
    if not_needed:
        say(f"Valid replica already elected for partitions {_join(not_needed)}")
    for outcome in result.partitions:
        if outcome.outcome == "failed":
            partition = f"{outcome.topic}-{outcome.partition}"
            say(f"Error completing leader election ({kind}) for partition: {partition}: {outcome.error}")


def _join(outcomes: Iterable[ElectionOutcome]) -> str:
    return ", ".join(f"{outcome.topic}-{outcome.partition}" for outcome in outcomes)
