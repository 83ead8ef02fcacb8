"""``sparklog fsck``: checks that nothing is missing or damaged; with ``--repair``, repairs what can be repaired.

Exit codes: 0 no findings, 1 findings (with ``--repair``: that remain), 2 the check could not run.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    bootstrap_server,
    complain,
    given,
    refuse_together,
)
from sparklog.cli.arguments.runners import add_runner_options, check_runner_options, task_runners
from sparklog.clock import SystemClock
from sparklog.errors import SparklogError
from sparklog.progress import Progress
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.maintenance.fsck.check import Check, Scope
    from sparklog.maintenance.fsck.kinds import Report

OUTPUT_IS_OPTIONAL = True
FAILURE_EXIT_CODE = 2
"""Tells a check that could not run from one with findings."""


def parser() -> CommandParser:
    options = CommandParser(
        "fsck",
        "Check a cluster: every commit and checkpoint, the lists of segments, and every byte of every data file on\n"
        "every in-sync replica, against their checksums. Without --repair it only reads. The cluster may be in use.\n"
        "Exit codes: 0 no findings, 1 findings, 2 the check could not run.",
        "sparklog fsck --bootstrap-server /data/log --workers 2",
    )
    options.add_values("--topic", "TOPIC", "only data files of this topic, repeatable")
    options.add_value("--partitions", "NUMBERS", "only data files of these partitions, such as 0,3")
    options.add_switch("--fast", "do not read the batches: find missing, short or misplaced files")
    options.add_switch("--repair", "repair what can be repaired from sound copies and commits; never guesses")
    options.add_switch("--dry-run", "with --repair: only print what would be done")
    options.add_values("--mirror", "ROOT", "with --repair: a copy of the commit log to take commits from, repeatable")
    options.add_number(
        "--end-at",
        "VERSION",
        "with --repair: end the log at this version, and move later files out of the way. For a root that was "
        "restored from a copy while clients were running; stop all writers first",
    )
    options.add_switch("--keep-report", "also keep the report in the cluster, where `sparklog ui` shows it")
    options.add_switch("--json", "print the report as JSON")
    options.add_switch("--progress", "print progress even if stderr is not a terminal")
    add_runner_options(options)
    return options


def run(options: argparse.Namespace) -> int:
    scope = _scope(options)
    root, storage_options = bootstrap_server(options)
    from sparklog.store.open import open_store

    store = open_store(root, storage_options)
    mirrors = [open_store(mirror, storage_options) for mirror in options.mirror]
    from sparklog.maintenance.fsck.check import check_cluster
    from sparklog.maintenance.fsck.repair import repair_cluster

    with (
        task_runners(options, "fsck", progress=False) as runners,
        Progress("fsck", options.progress) as progress,
    ):
        runner, show = runners("check of data files"), progress.show
        clock = SystemClock()
        time_ms, began = clock.now_ms(), clock.monotonic()
        check = check_cluster(store, scope, storage_options=storage_options, runner=runner, progress=show)
        if options.repair:
            dry_run, end_at = options.dry_run, options.end_at
            repair_cluster(check, mirrors=mirrors, runner=runner, progress=show, dry_run=dry_run, end_at=end_at)
    _print(options, check.report)
    if options.keep_report:
        _keep(check, time_ms, clock.monotonic() - began)
    return 0 if check.report.clean and not any(repair.why_not for repair in check.report.repairs) else 1


def _keep(check: Check, time_ms: int, seconds: float) -> None:
    """Keep the report in the cluster. Best effort: a root that cannot be written is checked all the same."""
    from sparklog.maintenance.fsck.kept_report import keep_report

    try:
        keep_report(check, time_ms, seconds)
    except SparklogError as error:
        complain(f"the report was not kept in the cluster: {printable(str(error))}")


def _scope(options: argparse.Namespace) -> Scope:
    from sparklog.maintenance.fsck.check import Scope

    check_runner_options(options)
    for name in ("dry-run", "mirror", "end-at"):
        if given(options, name) and not options.repair:
            raise UsageError(f"--{name} requires --repair")
    if options.end_at is not None and options.end_at < 0:
        raise UsageError(f"invalid --end-at {options.end_at}: must be a version, 0 or more")
    refuse_together(options, "dry-run", ["keep-report"], ": a dry run changes nothing")
    refuse_together(options, "repair", ["fast"], ": a repair has to read the files")
    return Scope(tuple(options.topic), _parse_partitions(options.partitions), options.fast)


def _parse_partitions(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"invalid --partitions {text!r}: must be a comma-separated list of numbers, such as 0,3")
    return tuple(map(int, parts))


def _print(options: argparse.Namespace, report: Report) -> None:
    from sparklog.maintenance.fsck.report import to_json, to_text

    if options.json:
        print(to_json(report))
        return
    for line in to_text(report):
        print(printable(line))
