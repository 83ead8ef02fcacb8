"""``sparklog maintain``: runs the maintenance of a log, once or in a loop. Kafka's brokers do this by themselves.

Any number of processes may run it, on any machine; reads and writes do not depend on it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from sparklog import progress
from sparklog.cli.arguments.parser import CommandError, CommandParser, UsageError, complain, connect
from sparklog.cli.arguments.patterns import topic_pattern
from sparklog.cli.arguments.runners import add_runner_options, check_runner_options, task_runners
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.errors.suggestions import did_you_mean
from sparklog.maintenance.step_names import STEP_NAMES
from sparklog.types import printable

if TYPE_CHECKING:
    import re

    from sparklog.cli.output.documents import MaintenanceStep
    from sparklog.maintenance.loop import LoopReport

OUTPUT_IS_OPTIONAL = True


def parser() -> CommandParser:
    options = CommandParser(
        "maintain",
        "Run the maintenance of a log, step by step:\n"
        "  elections    check the brokers and elect leaders, as the controller\n"
        "  replication  copy missing files to replicas, and add replicas that have caught up to the ISR\n"
        "  roll         merge small files into segments\n"
        "  retention    remove segments from the log by retention.ms and retention.bytes\n"
        "  compaction   keep the newest record of each key, in topics whose cleanup.policy contains compact\n"
        "  publication  make the Delta tables of topics with history.format=delta equal to their history\n"
        "  deletion     delete files that were retired more than file.delete.delay.ms ago\n"
        "  cleanup      remove old commits and checkpoints, dead members of groups, and offsets of expired groups\n"
        "  expiry       forget transactional ids, producers and applications that have been idle for too long\n"
        "  mirror       with --mirror: copy the new part of the commit log there\n"
        "A failed step is reported, and the other steps still run. Stopping is safe at any time.",
        "sparklog maintain --bootstrap-server /data/log --once --only roll,retention,deletion",
        "--once|--loop [OPTIONS]",
    )
    options.add_switch("--once", "one pass; exit code 1 if anything failed")
    options.add_switch(
        "--loop", "run until SIGTERM or Ctrl-C, each step at its interval (log.retention.check.interval.ms and others)"
    )
    options.add_value("--only", "STEPS", "comma-separated steps (default: all)")
    options.add_value("--topic", "TOPIC", "a topic, or a regular expression, for the steps that work on topics")
    options.add_value("--mirror", "URL", "where to mirror the commit log to (see `sparklog cluster`)")
    add_json(options, what="one JSON object, with --loop one per line")
    add_runner_options(options)
    return options


def run(options: argparse.Namespace) -> int:
    only, pattern = _check(options)
    coordinator = connect(options)
    from sparklog.maintenance.loop import Loop, Stop, problems, repeats_logged_once, stopped_by_signals
    from sparklog.maintenance.steps import MaintenanceContext, steps

    if options.once and pattern is not None and not any(map(pattern.fullmatch, coordinator.state.topics)):
        raise CommandError(f"--topic {options.topic!r} matches no topic of the cluster")
    stop = Stop()
    with stopped_by_signals(stop, complain), task_runners(options, "maintain", stop.check) as runner:
        context = MaintenanceContext(coordinator, runner, pattern, stop.check, options.once, options.mirror or "")
        due = steps(context, only)
        as_json = options.json and options.loop
        loop = Loop(
            due,
            coordinator.log.clock,
            stop.check,
            (lambda line: None) if options.json else _say,
            (lambda report: print_json(_step(report))) if as_json else (lambda report: None),
        )
        with closing(context), repeats_logged_once():
            if options.loop:
                loop.forever()
                return 0
            reports = loop.once()
            if options.json:
                _print_pass(reports, len(reports) == len(due))
            if len(reports) < len(due):
                return stop.exit_code or 1  # a scheduler must not take an incomplete pass for a complete one
            return 1 if problems(reports) else 0


def _check(options: argparse.Namespace) -> tuple[list[str], re.Pattern[str] | None]:
    """Return the selected steps, none for all, and the pattern of topics. Raises UsageError."""
    if options.once == options.loop:
        raise UsageError("Command must include exactly one action: --once or --loop")
    only = [name.strip() for name in options.only.split(",")] if options.only is not None else []
    for name in only:
        if name not in STEP_NAMES:
            hint = did_you_mean(name, STEP_NAMES)
            raise UsageError(f"--only: unknown step {name!r}; choose from {', '.join(STEP_NAMES)}{hint}")
    if "mirror" in only and not options.mirror:
        raise UsageError("--only mirror requires --mirror, the location to mirror the commit log to")
    check_runner_options(options)
    if options.topic is None:
        return only, None
    return only, topic_pattern(options.topic)


def _step(report: LoopReport) -> MaintenanceStep:
    from sparklog.cli.output.documents import MaintenanceStep

    counts = {name: number for name, number in report.counts.items() if number}
    return MaintenanceStep.of(report, counts=counts, seconds=round(report.seconds, 3))


def _print_pass(reports: Sequence[LoopReport], complete: bool) -> None:
    from sparklog.cli.output.documents import MaintenancePass
    from sparklog.maintenance.loop import problems

    print_json(MaintenancePass(problems=problems(reports), complete=complete, steps=list(map(_step, reports))))


def _say(line: str) -> None:
    progress.clear()
    sys.stdout.write(f"{printable(line)}\n")  # in one write, since several threads print
    sys.stdout.flush()
