"""Where the tasks of long work run: in this process, in several, or on Spark (``--workers``, ``--distributed``).

Rules: Spark is imported by name and only when it is asked for, so that the command line needs none.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.parser import CommandParser, UsageError, parse_pairs

if TYPE_CHECKING:
    from sparklog.maintenance.runner import TaskRunner

PROGRESS_SECONDS = 5.0
"""Seconds between two lines about work that goes on."""


def add_runner_options(options: CommandParser) -> None:
    group = options.add_argument_group("Where the work is done")
    group.add_argument("--workers", metavar="N", type=int, help="processes on this machine (1: this one)")
    group.add_argument("--distributed", action="store_true", help="on Spark, which has to be installed")
    group.add_argument("--master", metavar="URL", help="Spark's master: local[4], yarn, spark://… (local[*])")
    group.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark's, repeatable"
    )


def check_runner_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    if options.distributed and options.workers is not None:
        raise UsageError('Option "[workers]" can\'t be used with option "[distributed]"')
    if not options.distributed and (options.master or options.conf):
        raise UsageError("--master and --conf are Spark's, which --distributed asks for")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers {options.workers}: at least 1")
    parse_pairs(options.conf, "--conf")


@contextmanager
def task_runners(
    options: argparse.Namespace, name: str, check: Callable[[], None] = lambda: None, said: bool = True
) -> Iterator[Callable[[str], TaskRunner]]:
    """Runners for as long as the ``with`` block runs, each for work with a description, which Spark's UI shows.

    ``check`` may end their work (see ``maintenance.runner``). They say how far they are unless not ``said``. Raises
    UsageError where Spark is asked for and not installed.
    """

    def watched(runner: TaskRunner, title: str) -> TaskRunner:
        return _Watched(runner, title) if said else runner

    if not options.distributed:
        from sparklog.maintenance.runner import runner

        yield lambda description: watched(runner(options.workers or 1, check), f"{name}: {description}")
        return
    session, tasks = _spark()
    conf = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF", **parse_pairs(options.conf, "--conf")}
    spark = session.sparklog_session(options.master or "local[*]", f"sparklog {name}", config=conf)
    try:
        yield lambda description: watched(
            tasks.SparkTasks(spark, f"{name}: {description}", check), f"{name}: {description}"
        )
    finally:
        spark.stop()


def _spark() -> tuple[Any, Any]:
    if sys.modules.get("numpy", sys) is None:  # hidden by the command line for its speed; Spark may want it
        del sys.modules["numpy"]
    try:
        return importlib.import_module("sparklog.spark.session"), importlib.import_module("sparklog.spark.jobs.runner")
    except ImportError as error:
        raise UsageError(
            f"--distributed needs Spark, and {sys.executable} lacks {error.name}: pip install 'sparklog[spark]'",
            prefixed=True,
        ) from error


class _Watched:
    """A runner that says on standard error how far it is."""

    def __init__(self, inner: TaskRunner, title: str) -> None:
        self._inner = inner
        self._title = title

    @property
    def workers(self) -> int:
        return self._inner.workers

    def run(self, function: Callable[[Any], Any], items: Any) -> Iterator[Any]:
        from operator import length_hint

        from sparklog.clock import SystemClock

        clock = SystemClock()
        total = length_hint(items, 0)
        said = clock.monotonic()
        for done, result in enumerate(self._inner.run(function, items), 1):
            if clock.monotonic() - said >= PROGRESS_SECONDS:
                said = clock.monotonic()
                print(f"{self._title}: {done:,}{f' of {total:,}' if total else ''} tasks done", file=sys.stderr)
            yield result
