"""``sparklog vacuum``: delete what writers and jobs that died have left behind. Shows first what would go."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import VacuumFile, VacuumResult
    from sparklog.maintenance.gc.orphans import GarbageFile, OrphanReport

OUTPUT_IS_OPTIONAL = True
"""The exit code says what was found, also where nobody reads the output."""
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,9})([smhd])")

LISTED = 20
"""files that are named without --verbose; the others are counted."""


def parser() -> CommandParser:
    options = CommandParser(
        "vacuum",
        "Find files that are not part of the log and never will be: of writers that died before their commit, of jobs\n"
        "that others got in the way of, leases of members that are gone. Without --execute nothing is deleted.\n"
        "No clocks are compared: writers that began before the age limit, and are not done, are told to write again.",
        "sparklog vacuum --bootstrap-server /data/log --older-than 7d --execute",
    )
    options.add_connection()
    options.add_argument("--execute", action="store_true", help="delete them (default: show what would go)")
    options.add_argument("--dry-run", action="store_true", help="the default, for those who want to be sure")
    options.add_argument(
        "--older-than", metavar="TIME", default="7d",
        help="only what was begun before, such as 36h or 7d (7d); units are s, m, h and d",
    )  # fmt: skip
    options.add_argument("--force", action="store_true", help="take also less than a day for --older-than")
    options.add_argument("--verbose", action="store_true", help=f"name every file, not only {LISTED} of them")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    if options.execute and options.dry_run:
        raise UsageError('Option "[execute]" can\'t be used with option "[dry-run]"')
    older_than_ms = milliseconds(options.older_than)
    coordinator = connect(options)
    from sparklog.maintenance.gc.orphans import vacuum

    brokers = len(coordinator.state.brokers)
    looked_at = 0

    def check() -> None:
        nonlocal looked_at
        looked_at += 1
        if sys.stderr.isatty():
            print(f"vacuum: looking at broker {looked_at} of {brokers}", file=sys.stderr)

    result = vacuum(coordinator, older_than_ms, dry_run=not options.execute, force=options.force, check=check)
    document = _document(result)
    if options.json:
        print_json(document)
    else:
        _print(document, options.verbose)
    for problem in result.problems:
        complain(f"vacuum: {problem}")
    return 1 if result.problems else 0


def milliseconds(text: str) -> int:
    """``7d`` in milliseconds. Raises UsageError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--older-than {text!r} is not a time such as 36h or 7d; units are s, m, h and d")
    return int(found.group(1)) * UNITS_MS[found.group(2)]


def _document(result: OrphanReport) -> VacuumResult:
    from sparklog.cli.output.documents import VacuumResult

    return VacuumResult(
        dry_run=result.dry_run,
        fence=result.fence,
        files=_in_order(result.files),
        superseded=_in_order(result.superseded),
        left_alone=_in_order(result.left_alone),
        younger=result.younger,
        unfinished=result.unfinished,
        size_bytes=result.size_bytes,
        problems=result.problems,
    )


def _in_order(files: list[GarbageFile]) -> list[VacuumFile]:
    """The largest first."""
    from sparklog.cli.output.documents import VacuumFile

    return [
        VacuumFile(broker=found.broker, path=found.path, size_bytes=found.size, why=found.why)
        for found in sorted(files, key=lambda found: (-found.size, found.broker, found.path))
    ]


def _print(result: VacuumResult, verbose: bool) -> None:
    if result.files:
        print(f"No part of the log, begun at version {result.fence} or before:")
        _print_files(result.files, verbose)
    if result.superseded:
        print("No part of the log any more:")
        _print_files(result.superseded, verbose)
    if result.left_alone:
        print("Left alone:")
        _print_files(result.left_alone, verbose)
    if result.younger:
        print(f"{_files(result.younger)} begun later may still become part of the log; a later vacuum looks at them.")
    size = f"{_files(len(result.files) + len(result.superseded))}, {result.size_bytes:,} bytes"
    if result.dry_run:
        print(f"Dry run: nothing was deleted; --execute deletes {size}.")
        return
    print(f"Deleted {size}.")
    if result.unfinished:
        print(f"Deleted {_files(result.unfinished)} that writers had not finished.")


def _print_files(files: list[VacuumFile], verbose: bool) -> None:
    """By broker, size, path and reason."""
    shown = files if verbose else files[:LISTED]
    for found in shown:
        print(f"  broker {found.broker}\t{found.size_bytes:,} bytes\t{printable(found.path)}\t{printable(found.why)}")
    if len(shown) < len(files):
        rest = files[len(shown) :]
        print(f"  and {_files(len(rest))}, {sum(found.size_bytes for found in rest):,} bytes; --verbose names them")


def _files(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"
