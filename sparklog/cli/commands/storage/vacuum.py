"""``sparklog vacuum``: deletes orphans, files that failed writers and jobs left behind. A dry run by default."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect, plural_s, refuse_together
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.progress import Progress
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import VacuumFile, VacuumResult
    from sparklog.maintenance.gc.vacuum import GarbageFile, OrphanReport

OUTPUT_IS_OPTIONAL = True
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,9})([smhd])")

MAX_LISTED = 20
"""files listed without --verbose; the others are only counted."""


def parser() -> CommandParser:
    options = CommandParser(
        "vacuum",
        "Find orphans: files of writers that failed before their commit, files of jobs that lost to conflicting\n"
        "commits, and leases of dead members. Without --execute nothing is deleted.\n"
        "No clocks are compared: writers that began before the age limit and have not committed are fenced and retry.",
        "sparklog vacuum --bootstrap-server /data/log --older-than 7d --execute",
    )
    options.add_switch("--execute", "delete the files (default: only list them)")
    options.add_switch("--dry-run", "only list the files (the default)")
    options.add_value(
        "--older-than",
        "TIME",
        "only files begun longer ago than this, such as 36h or 7d (7d); units are s, m, h and d",
        default="7d",
    )
    options.add_switch("--force", "allow less than a day for --older-than")
    options.add_switch("--verbose", f"list every file, not only {MAX_LISTED} of them")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    refuse_together(options, "execute", ["dry-run"])
    older_than_ms = milliseconds(options.older_than)
    coordinator = connect(options)
    from sparklog.maintenance.gc.vacuum import vacuum

    with Progress("vacuum") as progress:
        result = vacuum(
            coordinator, older_than_ms, dry_run=not options.execute, force=options.force, progress=progress.show
        )
    document = _document(result)
    if options.json:
        print_json(document)
    else:
        _print(document, options.verbose)
    for problem in result.problems:
        complain(f"vacuum: {problem}")
    return 1 if result.problems else 0


def milliseconds(text: str) -> int:
    """Convert a duration such as ``7d`` to milliseconds. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"invalid --older-than {text!r}: must be a duration such as 36h or 7d (s, m, h or d)")
    return int(match.group(1)) * UNITS_MS[match.group(2)]


def _document(result: OrphanReport) -> VacuumResult:
    from sparklog.cli.output.documents import VacuumResult

    return VacuumResult.of(
        result,
        files=_in_order(result.files),
        superseded=_in_order(result.superseded),
        left_alone=_in_order(result.left_alone),
    )


def _in_order(files: list[GarbageFile]) -> list[VacuumFile]:
    from sparklog.cli.output.documents import VacuumFile

    return [
        VacuumFile.of(file, size_bytes=file.size)
        for file in sorted(files, key=lambda file: (-file.size, file.broker, file.path))
    ]


def _print(result: VacuumResult, verbose: bool) -> None:
    for title, files in (
        (f"Orphans, begun at version {result.fence} or before:", result.files),
        ("No longer part of the log:", result.superseded),
        ("Not deleted by vacuum:", result.left_alone),
    ):
        if files:
            print(title)
            _print_files(files, verbose)
    if result.younger:
        print(f"{_files(result.younger)} begun later may still become part of the log; a later vacuum checks them.")
    size = f"{_files(len(result.files) + len(result.superseded))}, {result.size_bytes:,} bytes"
    if result.dry_run:
        print(f"Dry run: nothing was deleted; --execute deletes {size}.")
        return
    print(f"Deleted {size}.")
    if result.unfinished:
        print(f"Deleted {_files(result.unfinished)} that had not been written completely.")


def _print_files(files: list[VacuumFile], verbose: bool) -> None:
    listed = files if verbose else files[:MAX_LISTED]
    for file in listed:
        print(f"  broker {file.broker}\t{file.size_bytes:,} bytes\t{printable(file.path)}\t{printable(file.why)}")
    if len(listed) < len(files):
        rest = files[len(listed) :]
        print(f"  and {_files(len(rest))}, {sum(file.size_bytes for file in rest):,} bytes; --verbose lists them")


def _files(number: int) -> str:
    return f"{number:,} file{plural_s(number)}"
