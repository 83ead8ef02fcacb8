"""``sparklog delete-records``: Kafka's kafka-delete-records. Moves the log start offsets of partitions forward."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, connect_admin, failure_code, require
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import DeletedRecords

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
    options.add_value(FLAG, "FILE", "the partitions and their first offsets to keep")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "offset-json-file")
    from sparklog.cli.arguments.json_files import OffsetFile, read_json, read_partitions

    file = read_json(options.offset_json_file, FLAG, OffsetFile)
    partitions = read_partitions(file.partitions, "Offset json file contains duplicate topic partitions")
    with connect_admin(options) as admin:
        if not options.json:
            print("Executing records delete operation")
        offsets = {partition: entry.offset for partition, entry in zip(partitions, file.partitions, strict=True)}
        results = admin.delete_records(offsets, raise_errors=False)
    from sparklog.cli.output.documents import DeletedRecords, RecordDeletion

    deletions = [
        DeletedRecords(
            topic=partition.topic,
            partition=partition.partition,
            low_watermark=None if result["error_code"] else result["low_watermark"],
            error=result["error_message"] if result["error_code"] else None,
        )
        for partition, result in results.items()
    ]
    lines = ["Records delete operation completed:", *map(_line, deletions)]
    print_document(RecordDeletion(partitions=deletions), options.json, lines)
    return failure_code(options) if any(deletion.error is not None for deletion in deletions) else 0


def _line(deletion: DeletedRecords) -> str:
    outcome = f"low_watermark: {deletion.low_watermark}" if deletion.error is None else f"error: {deletion.error}"
    return f"partition: {printable(deletion)}\t{printable(outcome)}"
