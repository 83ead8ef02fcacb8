"""``sparklog leader-election``: Kafka's kafka-leader-election. Lets preferred replicas lead, or ones out of sync."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

from sparklog.cli.common import CommandParser, UsageError, connect, given, require, say
from sparklog.cli.json_output import add_json, print_json
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.cli.documents import ElectionOutcome, ElectionResult
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
        "  preferred  the first of the replica list, where it is in sync and another one leads\n"
        "  unclean    a replica that is not in sync, where none that is can lead: records that it lacks are lost",
        "sparklog leader-election --bootstrap-server /data/log --election-type preferred --all-topic-partitions",
    )
    options.add_connection()
    options.add_argument("--election-type", metavar="TYPE", help="preferred or unclean")
    options.add_argument("--topic", metavar="TOPIC", help="one topic's partition, with --partition")
    options.add_argument("--partition", metavar="N", type=int, help="the partition")
    options.add_argument("--all-topic-partitions", action="store_true", help="every partition that needs it")
    options.add_argument(FILE_FLAG, metavar="FILE", help='these: {"partitions":[{"topic":"orders","partition":0}]}')
    options.add_deprecated("--admin.config", "--command-config", metavar="FILE")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    kind = _check(options)
    places = _places(options)
    coordinator = connect(options)
    elect = _preferred if kind == PREFERRED else _unclean
    return _report(kind, elect(coordinator, places), options.json)


def _check(options: argparse.Namespace) -> Literal["PREFERRED", "UNCLEAN"]:
    require(options, "election-type")
    kind = options.election_type.upper()
    if kind not in (PREFERRED, UNCLEAN):
        raise UsageError(f"--election-type {options.election_type}: preferred or unclean")
    if sum(given(options, name) for name in SCOPES) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(SCOPES)}")
    if options.topic is not None and options.partition is None:
        raise UsageError("Missing required option(s): partition")
    if options.topic is None and options.partition is not None:
        raise UsageError("Option partition is only allowed if topic is used")
    return PREFERRED if kind == PREFERRED else UNCLEAN


def _places(options: argparse.Namespace) -> list[TopicPartition] | None:
    """The partitions asked for; None for all."""
    if options.topic is not None:
        return [TopicPartition(options.topic, options.partition)]
    if options.path_to_json_file is None:
        return None
    from sparklog.cli.json_files import ElectionFile, read_json, repeated

    file = read_json(options.path_to_json_file, FILE_FLAG, ElectionFile)
    places = [TopicPartition(one.topic, one.partition) for one in file.partitions]
    twice = repeated(places)
    if twice:
        raise UsageError(f"Replica election data contains duplicate partitions: {twice}", prefixed=True)
    if not places:
        raise UsageError("Replica election data is empty", prefixed=True)
    return places


def _preferred(coordinator: Coordinator, places: list[TopicPartition] | None) -> Outcome:
    from sparklog.protocol.elections import elect_preferred

    found: Outcome = coordinator.submit(partial(elect_preferred, partitions=places))
    return found


def _unclean(coordinator: Coordinator, places: list[TopicPartition] | None) -> Outcome:
    """Look at what the replicas hold, then elect the one that lacks least, whatever the topic's settings say."""
    from sparklog.coordinator.unclean import look_for_leader
    from sparklog.errors import ElectionNotNeededError, SparklogError
    from sparklog.protocol.elections import elect_unclean, every_partition

    state = coordinator.state
    outcome: Outcome = {}
    looked_at = []
    for place in every_partition(state) if places is None else places:
        try:
            partition = state.partition(*place)
            if partition.leader < 0:
                looked_at.append(look_for_leader(coordinator, state, *place))
            elif places is not None:
                outcome[place] = ElectionNotNeededError(
                    f"broker {partition.leader} leads {place}", topic=place.topic, partition=place.partition
                )
        except SparklogError as error:
            outcome[place] = error
    if looked_at:
        outcome.update(coordinator.submit(partial(elect_unclean, elections=looked_at)))
    return outcome


def _report(kind: Literal["PREFERRED", "UNCLEAN"], outcome: Outcome, as_json: bool) -> int:
    from sparklog.cli.documents import ElectionOutcome, ElectionResult
    from sparklog.errors import ElectionNotNeededError

    result = ElectionResult(
        election_type=kind,
        partitions=[
            ElectionOutcome(
                topic=place.topic,
                partition=place.partition,
                outcome="elected" if error is None
                else "not-needed" if isinstance(error, ElectionNotNeededError)
                else "failed",
                error=None if error is None else str(error),
            )
            for place, error in sorted(outcome.items(), key=lambda item: item[0])
        ],
    )  # fmt: skip
    if as_json:
        print_json(result)
    else:
        _print(result)
    failed = sum(one.outcome == "failed" for one in result.partitions)
    if failed:
        raise UsageError(f"{failed} replica(s) could not be elected", prefixed=True)
    return 0


def _print(result: ElectionResult) -> None:
    """Kafka's lines."""
    kind = result.election_type
    done = [one for one in result.partitions if one.outcome == "elected"]
    needless = [one for one in result.partitions if one.outcome == "not-needed"]
    if done:
        say(f"Successfully completed leader election ({kind}) for partitions {_text(done)}")
    if needless:
        say(f"Valid replica already elected for partitions {_text(needless)}")
    for one in result.partitions:
        if one.outcome == "failed":
            say(f"Error completing leader election ({kind}) for partition: {one.topic}-{one.partition}: {one.error}")


def _text(outcomes: Iterable[ElectionOutcome]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in outcomes)
