"""``sparklog system``: prints a system table, what the commit log says of topics, groups, lag and maintenance.

Kafka has no such command.
"""

from __future__ import annotations

import argparse

from sparklog.cli.arguments.parser import CommandParser, UsageError, connect, given, print_notes, refuse_together
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.cli.output.tables import table

NAMES = (
    "commits", "appends", "throughput", "offsets", "lag", "transactions", "topic_changes", "replicas", "configs",
    "maintenance", "publications", "topics", "partitions", "segments", "groups", "members", "producers", "brokers",
    "storage",
)  # fmt: skip
"""The tables, for the help and for completion, which import no schemas."""
SELECTION = ("topic", "partition", "group", "since", "until", "step", "orphans")


def parser() -> CommandParser:
    options = CommandParser(
        "system",
        "Print a system table: what there is in the cluster, or what its commits changed, such as the lag at any time.",
        "sparklog system lag --bootstrap-server /data/log --group billing --since 6h --step 10m",
        "(TABLE [OPTIONS] | --list | --describe TABLE)",
    )
    options.add_actions(NAMES)
    options.add_switch("--list", "list the tables, and what a row of each is")
    options.add_value("--describe", "TABLE", "print the columns of a table")
    options.add_value("--topic", "TOPIC", "only rows of this topic")
    options.add_number("--partition", "N", "only rows of this partition")
    options.add_value("--group", "GROUP", "only rows of this consumer group")
    options.add_value("--since", "TIME", "only commits since a time, or for so long: 2026-11-01T09:30:00Z, ms, or 90m")
    options.add_value("--until", "TIME", "only commits before this time; of lag: as it was then")
    options.add_value("--step", "DURATION", "lag with --since: how often it is stated, such as 10s (default: 1m)")
    options.add_switch("--orphans", "storage: count orphans, too; lists all files, as sparklog vacuum does")
    options.add_switch("--csv", "print CSV, the names of the columns first; control characters are escaped")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    chosen = [options.action is not None, options.list, options.describe is not None]
    if sum(chosen) != 1:
        raise UsageError("Command must include exactly one action: a table, --list, --describe.")
    refuse_together(options, "csv", ["json", "list", "describe"])
    if options.action is not None:
        return _print_rows(options)
    for name in SELECTION:
        if given(options, name):
            raise UsageError(f"--{name} can't be used with --list or --describe")
    if options.list:
        _list(options.json)
    else:
        _describe(options.describe, options.json)
    return 0


def _print_rows(options: argparse.Namespace) -> int:
    from sparklog.cli.output.documents import SystemTableRows
    from sparklog.cli.output.system_rows import csv_lines, json_rows, text_lines
    from sparklog.client.system import System, logger
    from sparklog.monitoring.arguments import check_table
    from sparklog.monitoring.system_tables import logger as tables_logger

    name = check_table(options.action)
    selection = {argument: getattr(options, argument) for argument in SELECTION}
    with print_notes(logger), print_notes(tables_logger):
        rows = System(connect(options)).read(name, **selection)
    if options.json:
        print_document(SystemTableRows(table=name, rows=json_rows(rows)), True, ())
        return 0
    for line in csv_lines(rows) if options.csv else text_lines(rows):
        print(line)
    return 0


def _list(as_json: bool) -> None:
    from sparklog.cli.output.documents import SystemTableList, SystemTableName
    from sparklog.monitoring.schemas import TABLES

    tables = [SystemTableName(table=each.name, rows=each.rows) for each in TABLES.values()]
    lines = table([("TABLE", "A ROW IS"), *((each.table, each.rows) for each in tables)], [-16, 0])
    print_document(SystemTableList(tables=tables), as_json, lines)


def _describe(name: str, as_json: bool) -> None:
    from sparklog.cli.output.documents import SystemTableColumn, SystemTableDescription
    from sparklog.monitoring.arguments import check_table
    from sparklog.monitoring.schemas import TABLES

    described = TABLES[check_table(name)]
    columns = [SystemTableColumn(column=field.name, type=str(field.type)) for field in described.schema]
    lines = table([("COLUMN", "TYPE"), *((each.column, each.type) for each in columns)], [-20, 0])
    document = SystemTableDescription(table=name, rows=described.rows, columns=columns)
    print_document(document, as_json, [f"A row of {name} is {described.rows}.", "", *lines])
