"""``sparklog delete-records``: Kafka's kafka-delete-records. Lets partitions start at later offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.common import CommandParser, UsageError, connect, failure_code, require
from sparklog.cli.json_output import add_json, print_json
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.errors import SparklogError

FLAG = "--offset-json-file"


def parser() -> CommandParser:
    options = CommandParser(
        "delete-records",
        "Delete the records before an offset of partitions: they cannot be read any more when the command returns, and "
        "their\nfiles go with the next retention (`sparklog maintain`). The file:\n"
        '  {"partitions":[{"topic":"orders","partition":0,"offset":3}],"version":1}\n'
        "where offset is the first one to keep, and -1 deletes all records there are.",
        "sparklog delete-records --bootstrap-server /data/log --offset-json-file offsets.json",
    )
    options.add_connection()
    options.add_argument(FLAG, metavar="FILE", help="the partitions and their first offsets to keep")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "offset-json-file")
    from sparklog.cli.json_files import OffsetFile, read_json, repeated

    file = read_json(options.offset_json_file, FLAG, OffsetFile)
    offsets = {TopicPartition(one.topic, one.partition): one.offset for one in file.partitions}
    twice = repeated(TopicPartition(one.topic, one.partition) for one in file.partitions)
    if twice:
        raise UsageError(f"Offset json file contains duplicate topic partitions: {twice}", prefixed=True)
    coordinator = connect(options)
    if not options.json:
        print("Executing records delete operation")
    low, failed = _delete(coordinator, offsets)
    from sparklog.cli.documents import DeletedRecords, RecordDeletion

    done = [
        DeletedRecords(
            topic=place.topic,
            partition=place.partition,
            low_watermark=low.get(place),
            error=str(failed[place]) if place in failed else None,
        )
        for place in offsets
    ]
    if options.json:
        print_json(RecordDeletion(partitions=done))
    else:
        print("Records delete operation completed:")
        for one in done:
            outcome = f"low_watermark: {one.low_watermark}" if one.error is None else f"error: {one.error}"
            print(f"partition: {printable(one.topic)}-{one.partition}\t{printable(outcome)}")
    return failure_code(options) if failed else 0


def _delete(
    coordinator: Coordinator, offsets: dict[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]:
    """One commit for all partitions that can be; the low watermarks of these, and why the others cannot."""
    from sparklog.errors import InvalidTopicError, SparklogError
    from sparklog.protocol.decide_segments import delete_records
    from sparklog.protocol.decision import Decision
    from sparklog.protocol.names import is_internal_topic
    from sparklog.protocol.state import State

    def decide(state: State) -> Decision:
        low: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, SparklogError] = {}
        actions = []
        for place, offset in offsets.items():
            try:
                if is_internal_topic(place.topic):  # as a broker refuses it
                    raise InvalidTopicError(f"records of the internal topic {place.topic} are not deleted")
                decided = delete_records(state, {(place.topic, place.partition): offset})
            except SparklogError as error:
                failed[place] = error
            else:
                low[place] = decided.result[place]
                actions += decided.actions
        return Decision(actions, (low, failed))

    found: tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]] = coordinator.submit(decide)
    return found
