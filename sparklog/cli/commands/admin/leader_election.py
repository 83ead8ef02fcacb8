"""``sparklog leader-election``: Kafka's kafka-leader-election. Elects preferred replicas or replicas out of sync."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sparklog.cli.arguments.parser import CommandError, CommandParser, UsageError, connect_admin, given, require
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.errors import ElectionNotNeededError
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import ElectionOutcome, ElectionResult

FILE_FLAG = "--path-to-json-file"
SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")
ElectionKind = Literal["PREFERRED", "UNCLEAN"]
KINDS: Mapping[str, ElectionKind] = {"preferred": "PREFERRED", "unclean": "UNCLEAN"}


def parser() -> CommandParser:
    options = CommandParser(
        "leader-election",
        "Elect leaders of partitions:\n"
        "  preferred  the first of the replica list, if it is in sync and not the leader\n"
        "  unclean    a replica that is out of sync, if none in sync can lead: the records that it lacks are lost",
        "sparklog leader-election --bootstrap-server /data/log --election-type preferred --all-topic-partitions",
    )
    options.add_value("--election-type", "TYPE", "preferred or unclean")
    options.add_value("--topic", "TOPIC", "the topic, with --partition")
    options.add_number("--partition", "N", "the partition")
    options.add_switch("--all-topic-partitions", "every partition that needs it")
    options.add_value(FILE_FLAG, "FILE", 'a file: {"partitions":[{"topic":"orders","partition":0}]}')
    options.add_deprecated("--admin.config", "--command-config", metavar="FILE")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    kind = _check(options)
    partitions = _read_partitions(options)
    with connect_admin(options) as admin:
        response = admin.elect_leaders(kind, partitions, raise_errors=False)
    outcomes = [
        outcome
        for topic in response["replica_election_results"]
        for outcome in map(partial(_outcome, topic["topic"]), topic["partition_result"])
        if partitions is not None or outcome.outcome != "not-needed"
    ]
    from sparklog.cli.output.documents import ElectionResult

    result = ElectionResult(election_type=kind, partitions=outcomes)
    print_document(result, options.json, map(printable, _lines(result)))
    if failed := sum(partition.outcome == "failed" for partition in outcomes):
        raise CommandError(f"{failed} replica(s) could not be elected")
    return 0


def _check(options: argparse.Namespace) -> ElectionKind:
    require(options, "election-type")
    kind = KINDS.get(options.election_type.lower())
    if kind is None:
        raise UsageError(f"invalid --election-type {options.election_type}: must be preferred or unclean")
    if sum(given(options, name) for name in SCOPES) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(SCOPES)}")
    if options.topic is not None and options.partition is None:
        raise UsageError("Missing required option(s): partition")
    if options.topic is None and options.partition is not None:
        raise UsageError("Option partition is only allowed if topic is used")
    return kind


def _read_partitions(options: argparse.Namespace) -> dict[str, list[int]] | None:
    """Return the partitions that the options name, by topic; None for all. Raises UsageError."""
    if options.topic is not None:
        return {options.topic: [options.partition]}
    if options.path_to_json_file is None:
        return None
    from sparklog.cli.arguments.json_files import ElectionFile, read_json, read_partitions

    file = read_json(options.path_to_json_file, FILE_FLAG, ElectionFile)
    partitions = read_partitions(file.partitions, "Replica election data contains duplicate partitions")
    if not partitions:
        raise CommandError("Replica election data is empty")
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return by_topic


def _outcome(topic: str, result: Mapping[str, Any]) -> ElectionOutcome:
    from sparklog.cli.output.documents import ElectionOutcome

    code = result["error_code"]
    return ElectionOutcome(
        topic=topic,
        partition=result["partition_id"],
        outcome="elected" if not code else "not-needed" if code == ElectionNotNeededError.errno else "failed",
        error=result["error_message"],
    )


def _lines(result: ElectionResult) -> Iterator[str]:
    kind = result.election_type
    elected, not_needed = (
        ", ".join(str(partition) for partition in result.partitions if partition.outcome == outcome)
        for outcome in ("elected", "not-needed")
    )
    if elected:
        yield f"Successfully completed leader election ({kind}) for partitions {elected}"
    if not_needed:
        yield f"Valid replica already elected for partitions {not_needed}"
    for partition in result.partitions:
        if partition.outcome == "failed":
            yield f"Error completing leader election ({kind}) for partition: {partition}: {partition.error}"
