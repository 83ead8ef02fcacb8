"""``sparklog delete-records``: Kafka's kafka-delete-records. Moves the log start offsets of partitions forward."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, connect, failure_code, require
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.errors import SparklogError

FLAG = "--offset-json-file"


def parser() -> CommandParser:
    options = CommandParser(
        "delete-records",
        "Delete the records before an offset in each partition. They can no longer be read when the command returns; "
        "their\nfiles are deleted by the next retention (`sparklog maintain`). The file:\n"
        '  {"partitions":[{"topic":"orders","partition":0,"offset":3}],"version":1}\n'
        "where offset is the first one to keep, and -1 deletes all records.",
        "sparklog delete-records --bootstrap-server /data/log --offset-json-file offsets.json",
    )
    options.add_connection()
    options.add_argument(FLAG, metavar="FILE", help="the partitions and their first offsets to keep")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "offset-json-file")
    from sparklog.cli.arguments.json_files import OffsetFile, join_duplicates, read_json

    file = read_json(options.offset_json_file, FLAG, OffsetFile)
    offsets = {TopicPartition(entry.topic, entry.partition): entry.offset for entry in file.partitions}
    duplicates = join_duplicates(TopicPartition(entry.topic, entry.partition) for entry in file.partitions)
    if duplicates:
        raise UsageError(f"Offset json file contains duplicate topic partitions: {duplicates}", prefixed=True)
    coordinator = connect(options)
    if not options.json:
        print("Executing records delete operation")
    low, failed = _delete(coordinator, offsets)
    from sparklog.cli.output.documents import DeletedRecords, RecordDeletion

    deletions = [
        DeletedRecords(
            topic=partition.topic,
            partition=partition.partition,
            low_watermark=low.get(partition),
            error=str(failed[partition]) if partition in failed else None,
        )
        for partition in offsets
    ]
    if options.json:
        print_json(RecordDeletion(partitions=deletions))
    else:
        print("Records delete operation completed:")
        for deletion in deletions:
            outcome = (
                f"low_watermark: {deletion.low_watermark}" if deletion.error is None else f"error: {deletion.error}"
            )
            print(f"partition: {printable(deletion.topic)}-{deletion.partition}\t{printable(outcome)}")
    return failure_code(options) if failed else 0


def _delete(
    coordinator: Coordinator, offsets: dict[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]:
    """Delete in one commit; return the new low watermarks, and the errors of the partitions that are left unchanged."""
    from sparklog.errors import InvalidTopicError, SparklogError
    from sparklog.protocol.decide.decision import Decision
    from sparklog.protocol.decide.segments import delete_records
    from sparklog.protocol.names import is_internal_topic
    from sparklog.protocol.state import State

    def decide(state: State) -> Decision[tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]]:
        low: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, SparklogError] = {}
        actions = []
        for partition, offset in offsets.items():
            try:
                if is_internal_topic(partition.topic):  # refused, as by Kafka's brokers
                    raise InvalidTopicError(f"cannot delete records of the internal topic {partition.topic}")
                decided = delete_records(state, {(partition.topic, partition.partition): offset})
            except SparklogError as error:
                failed[partition] = error
            else:
                low[partition] = decided.result[partition]
                actions += decided.actions
        return Decision(actions, (low, failed))

    result: tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]] = coordinator.submit(decide)
    return result
