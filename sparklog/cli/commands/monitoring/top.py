"""``sparklog top``: the throughput of topics and the lag of groups, live in a terminal. Kafka has no such tool.

Rules: it only reads. rich is imported for the live screen alone; ``--once`` needs nothing besides the package.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandError, CommandParser, UsageError, connect
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.errors import SparklogError
from sparklog.types import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sparklog.monitoring.activity import Activity

DEFAULT_INTERVAL_SECONDS = 2.0
DEFAULT_WINDOW_SECONDS = 60.0
FOOT = "q or Ctrl-C ends"


def parser() -> CommandParser:
    options = CommandParser(
        "top",
        "Show the throughput of topics and the lag of groups, live, until q or Ctrl-C is pressed.\n"
        "The busiest topics, and the groups that are the furthest behind, come first. It needs a terminal and rich\n"
        "(pip install 'sparklog[top]'); --once prints everything once as plain lines.",
        "sparklog top --bootstrap-server /data/log",
    )
    options.add_switch("--once", "print once, for a pipe or a file")
    options.add_value(
        "--interval", "SECONDS", f"time between two refreshes (default {DEFAULT_INTERVAL_SECONDS:.0f})", type=float
    )
    options.add_value(
        "--window", "SECONDS", f"rates are of the last SECONDS (default {DEFAULT_WINDOW_SECONDS:.0f})", type=float
    )
    options.add_value("--group", "GROUP", "of the groups only this one")
    add_json(options, "--once")
    return options


def run(options: argparse.Namespace) -> int:
    interval = _seconds(options, "interval", DEFAULT_INTERVAL_SECONDS, 0.2)
    window = _seconds(options, "window", DEFAULT_WINDOW_SECONDS, 1.0)
    if options.once and options.interval is not None:
        raise UsageError("--interval can't be used with --once")
    if options.json and not options.once:
        raise UsageError("--json requires --once")
    if not options.once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal; use --once for a pipe")
    if not options.once:
        _check_rich()
    coordinator = connect(options)
    from sparklog.monitoring.activity import read_activity
    from sparklog.monitoring.system_tables import SystemTables

    tables, root = SystemTables(coordinator), coordinator.store.root

    def read() -> Activity:
        activity = read_activity(coordinator, tables, window)
        groups = [each for each in activity.groups if options.group in (None, each.group)]
        return activity._replace(groups=groups)

    if options.once:
        _print(read(), root, options.json)
    else:
        _show(read, root, interval)
    return 0


def _seconds(options: argparse.Namespace, name: str, default: float, least: float) -> float:
    value: float = default if getattr(options, name) is None else getattr(options, name)
    if not least <= value <= 86_400:
        raise UsageError(f"invalid --{name} {value:g}: must be {least:g} to 86400 seconds")
    return value


def _check_rich() -> None:
    try:
        import rich.live  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"the live screen needs rich, and {sys.executable} lacks it: pip install 'sparklog[top]', or use --once"
        ) from error


def _print(activity: Activity, root: str, as_json: bool) -> None:
    from sparklog.cli.output.activity_listing import lines_of
    from sparklog.cli.output.documents import ActivityReport, GroupRates, TopicRates

    document = ActivityReport.of(
        activity, topics=list(map(TopicRates.of, activity.topics)), groups=list(map(GroupRates.of, activity.groups))
    )
    print_document(document, as_json, lines_of(activity, root))


def _show(read: Callable[[], Activity], root: str, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from sparklog.cli.output.activity_listing import screen

    console = Console(highlight=False, markup=False, emoji=False)
    activity, foot = read(), FOOT

    def draw() -> RenderableType:
        return screen(activity, root, console.width, console.height, foot)

    live = Live(draw(), console=console, screen=True, auto_refresh=False)
    with _keys() as pressed:
        try:  # a ``with`` block would not end the screen if Ctrl-C came while it begins
            live.start()
            while not pressed(interval):
                try:
                    activity, foot = read(), FOOT
                except SparklogError as error:
                    foot = f"{FOOT}; {printable(error)}"
                live.update(draw(), refresh=True)
        finally:
            live.stop()


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits up to so many seconds and returns whether q was pressed; the terminal is as before
    after the block, also if a signal ends it."""
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([keyboard], [], [], seconds)
        return bool(ready) and (not (data := os.read(keyboard, 1024)) or b"q" in data.lower())

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(keyboard)
        yield pressed
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
