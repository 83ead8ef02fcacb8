"""``sparklog alerts``: evaluates rules on a cluster, remembers what fires, and tells of it. Kafka has no such tool.

Rules: everything that it says comes from the log; it may run anywhere, once from cron or in a loop, and more than once.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    complain,
    connect,
    plural_s,
    refuse_together,
    say,
)
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.cli.output.tables import table
from sparklog.clock import SystemClock, utc_text
from sparklog.errors import InvalidConfigurationError, SparklogError

if TYPE_CHECKING:
    from sparklog.cli.output.documents import AlertReport
    from sparklog.maintenance.loop import Stop
    from sparklog.monitoring.alerts.evaluation import Alerts, Evaluation
    from sparklog.monitoring.alerts.rules import RuleBook

OUTPUT_IS_OPTIONAL = True
FIRES_EXIT_CODE = 2
SLEEP_SECONDS = 0.5
"""Seconds between two checks for a stop request."""


def parser() -> CommandParser:
    options = CommandParser(
        "alerts",
        "Evaluate rules on a cluster: lag, groups that are stuck, replicas out of sync, late maintenance and others.\n"
        "What begins to fire or resolves is sent to the channels that the rules name: webhooks, commands, e-mail.\n"
        "Without --once it runs until SIGTERM or Ctrl-C, evaluating at the interval that the rules state.\n"
        "Exit codes of --once: 0 nothing fires, 2 something does, 1 an error, such as a channel that did not answer.",
        "sparklog alerts --bootstrap-server /data/log --rules alerts.toml --once",
        "--rules FILE [OPTIONS]",
    )
    options.add_value("--rules", "FILE", "the rules, in TOML (docs/alerts.md; conf/alerts.toml has defaults)")
    options.add_switch("--once", "evaluate once, print what is pending or fires, and end")
    options.add_switch("--check", "only validate the rules")
    options.add_value("--state", "FILE", "an SQLite file that keeps what fires (default: the rules' name with .state)")
    add_json(options, what="one JSON object, without --once one per evaluation that changes something")
    return options


def run(options: argparse.Namespace) -> int:
    if options.rules is None:
        raise UsageError(
            'Missing required argument "[rules]": a file with rules; conf/alerts.toml of the repository has defaults'
        )
    refuse_together(options, "check", ["once", "state", "json"])
    from sparklog.monitoring.alerts.rule_file import read_rule_file

    try:
        book = read_rule_file(options.rules)
    except InvalidConfigurationError as error:
        raise CommandError(str(error)) from error
    if options.check:
        channels = len(book.channels)
        rules = len(book.rules)
        say(f"{options.rules}: {rules} rule{plural_s(rules)} and {channels} channel{plural_s(channels)}, all valid.")
        return 0
    if options.state == "":
        raise UsageError("invalid --state: the name of a file must not be empty")
    coordinator = connect(options)
    from sparklog.maintenance.loop import Stop, stopped_by_signals
    from sparklog.monitoring.alerts.alert_file import AlertFile, state_path
    from sparklog.monitoring.alerts.evaluation import Alerts

    with AlertFile(state_path(options.rules, options.state)) as file:
        alerts = Alerts(coordinator, book, file)
        if options.once:
            evaluation = alerts.evaluate()
            _print_once(book, evaluation, options.json)
            return 1 if evaluation.problems else FIRES_EXIT_CODE if evaluation.firing else 0
        stop = Stop()
        with stopped_by_signals(stop, complain):
            _loop(book, alerts, stop, options.json)
    return 0


def _loop(book: RuleBook, alerts: Alerts, stop: Stop, as_json: bool) -> None:
    from sparklog.maintenance.runner import StopRequested

    clock = SystemClock()
    with contextlib.suppress(StopRequested):
        while True:
            due = clock.monotonic() + book.interval_seconds
            try:
                _print_changes(book, alerts.evaluate(), as_json)
            except SparklogError as error:
                complain(f"the rules could not be evaluated, retrying in {book.interval_seconds:.0f} s: {error}")
            while (remaining := due - clock.monotonic()) > 0:
                stop.check()
                clock.sleep(min(remaining, SLEEP_SECONDS))
            stop.check()


def _print_once(book: RuleBook, evaluation: Evaluation, as_json: bool) -> None:
    for problem in evaluation.problems:
        complain(problem)
    if as_json:
        print_json(_report(book, evaluation))
    elif not evaluation.alerts:
        rules = len(book.rules)
        say(f"Nothing fires ({rules} rule{plural_s(rules)}).")
    else:
        rows = [
            (each.state.status, each.rule.severity, each.rule.name, utc_text(each.state.since_ms), each.summary)
            for each in evaluation.alerts
        ]
        print(*table([("STATUS", "SEVERITY", "RULE", "SINCE", "WHAT"), *rows], [-8, -9, -10, -24, 0]), sep="\n")


def _print_changes(book: RuleBook, evaluation: Evaluation, as_json: bool) -> None:
    from sparklog.monitoring.alerts.notifications import alert_of

    for problem in evaluation.problems:
        complain(problem)
    if as_json and evaluation.changes:
        print_json(_report(book, evaluation))
        return
    rules = {rule.name: rule for rule in book.rules}
    for change in evaluation.changes:
        alert = alert_of(rules.get(change.rule), change)
        say(f"{utc_text(change.time_ms)} {change.status.upper()} {change.rule}: {alert['summary']}")


def _report(book: RuleBook, evaluation: Evaluation) -> AlertReport:
    from sparklog.cli.output.documents import AlertChange, AlertDetails, AlertReport
    from sparklog.monitoring.alerts.notifications import UNITS, alert_of

    rules = {rule.name: rule for rule in book.rules}
    return AlertReport(
        cluster_id=evaluation.cluster_id,
        time_ms=evaluation.time_ms,
        rules=len(book.rules),
        firing=evaluation.firing,
        alerts=[
            AlertDetails.of(
                each.state,
                rule=each.rule.name,
                kind=each.rule.kind,
                severity=each.rule.severity,
                subject=dict(each.subject),
                above=each.rule.above,
                unit=UNITS[each.rule.unit],
                summary=each.summary,
            )
            for each in evaluation.alerts
        ],
        changes=[
            AlertChange.of(
                change, subject=dict(change.subject), summary=alert_of(rules.get(change.rule), change)["summary"]
            )
            for change in evaluation.changes
        ],
        problems=evaluation.problems,
    )
