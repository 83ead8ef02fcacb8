"""``sparklog maintain``: what keeps a log healthy, once or in a loop. Kafka's brokers do this by themselves.

Any number may run, anywhere; none has to, for reads and writes to go on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from sparklog.cli.common import CommandParser, UsageError, complain, connect, suggestion
from sparklog.cli.json_output import add_json, print_json
from sparklog.cli.runners import add_runner_options, check_runner_options, task_runners
from sparklog.types import printable

if TYPE_CHECKING:
    import re

    from sparklog.cli.documents import MaintenanceStep
    from sparklog.maintenance.loop import Report

OUTPUT_IS_OPTIONAL = True
"""The exit code says what was found, also where nobody reads the output."""
STEPS = ("elections", "replication", "roll", "retention", "compaction", "deletion", "cleanup", "expiry", "mirror")
"""The names of ``maintenance.steps.STEPS``, which costs more to import than the help may."""


def parser() -> CommandParser:
    options = CommandParser(
        "maintain",
        "Keep a log healthy, step by step:\n"
        "  elections    check the brokers and elect leaders, as the controller\n"
        "  replication  copy what replicas lack, and let those in sync that have caught up\n"
        "  roll         merge small files into segments\n"
        "  retention    take out of the log what retention.ms and retention.bytes do not keep\n"
        "  compaction   keep the newest record of each key, where cleanup.policy says compact\n"
        "  deletion     delete files that left the log more than file.delete.delay.ms ago\n"
        "  cleanup      remove old commits, checkpoints, dead members of groups, and offsets of groups that are gone\n"
        "  expiry       forget transactional ids, producers and applications that have been silent for long\n"
        "  mirror       with --mirror: copy what is new of the commit log there\n"
        "A step that fails is said, and the others go on. Stopping is safe at any time.",
        "sparklog maintain --bootstrap-server /data/log --once --only roll,retention,deletion",
        "--once|--loop [OPTIONS]",
    )
    options.add_connection()
    options.add_argument("--once", action="store_true", help="one pass; exit code 1 if anything failed")
    options.add_argument(
        "--loop",
        action="store_true",
        help="until SIGTERM or Ctrl-C, each step at its interval (log.retention.check.interval.ms and others)",
    )
    options.add_argument("--only", metavar="STEPS", help="comma-separated steps (default: all)")
    options.add_argument(
        "--topic", metavar="TOPIC", help="a topic, or a regular expression, for the steps that go by topic"
    )
    options.add_argument("--mirror", metavar="URL", help="where to mirror the commit log to (see `sparklog cluster`)")
    add_json(options, what="one JSON object, with --loop one a line")
    add_runner_options(options)
    return options


def run(options: argparse.Namespace) -> int:
    only, pattern = _check(options)
    coordinator = connect(options)
    from sparklog.maintenance.loop import Loop, Stop, problems, repeats_logged_once, stopped_by_signals
    from sparklog.maintenance.steps import Upkeep, steps

    if options.once and pattern is not None and not any(map(pattern.fullmatch, coordinator.state.topics)):
        raise UsageError(f"--topic {options.topic!r} matches no topic of the cluster", prefixed=True)
    stop = Stop()
    with stopped_by_signals(stop, complain), task_runners(options, "maintain", stop.check) as runner:
        upkeep = Upkeep(coordinator, runner, pattern, stop.check, options.once, options.mirror or "")
        due = steps(upkeep, only)
        as_json = options.json and options.loop
        loop = Loop(
            due,
            coordinator.log.clock,
            stop.check,
            (lambda line: None) if options.json else _say,
            (lambda report: print_json(_step(report))) if as_json else (lambda report: None),
        )
        with closing(upkeep), repeats_logged_once():
            if options.loop:
                loop.forever()
                return 0
            reports = loop.once()
            if options.json:
                _print_pass(reports, len(reports) == len(due))
            if len(reports) < len(due):
                return stop.exit_code or 1  # a scheduler is not to take part of a pass for a whole one
            return 1 if problems(reports) else 0


def _check(options: argparse.Namespace) -> tuple[list[str], re.Pattern[str] | None]:
    """The steps asked for, none for all, and the topics. Raises UsageError."""
    if options.once == options.loop:
        raise UsageError("Command must include exactly one action: --once or --loop")
    only = [name.strip() for name in options.only.split(",")] if options.only is not None else []
    for name in only:
        if name not in STEPS:
            raise UsageError(f"--only: there is no step {name!r}: {', '.join(STEPS)}{suggestion(name, STEPS)}")
    if "mirror" in only and not options.mirror:
        raise UsageError("--only mirror needs --mirror, the location to mirror the commit log to")
    check_runner_options(options)
    if options.topic is None:
        return only, None
    from sparklog.cli.patterns import topic_pattern

    return only, topic_pattern(options.topic)


def _step(report: Report) -> MaintenanceStep:
    from sparklog.cli.documents import MaintenanceStep

    return MaintenanceStep(
        step=report.step,
        counts={name: number for name, number in report.counts.items() if number},
        notes=list(report.notes),
        problems=list(report.problems),
        seconds=round(report.seconds, 3),
    )


def _print_pass(reports: Sequence[Report], complete: bool) -> None:
    from sparklog.cli.documents import MaintenancePass
    from sparklog.maintenance.loop import problems

    print_json(MaintenancePass(problems=problems(reports), complete=complete, steps=[_step(one) for one in reports]))


def _say(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")  # at once, since several threads say things
    sys.stdout.flush()
