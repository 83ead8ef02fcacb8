"""Chooses where long work runs: in this process, in several processes, or on Spark (``--workers``, ``--distributed``).

Rules: Spark is imported by name and only with ``--distributed``, so that the command line works without it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    parse_pairs,
    refuse_together,
)
from sparklog.progress import Progress

if TYPE_CHECKING:
    from sparklog.maintenance.runner import TaskRunner


def add_runner_options(options: CommandParser) -> None:
    group = options.add_group("Where the work runs")
    group.add_number("--workers", "N", "number of processes on this machine (default 1: this process)")
    group.add_switch("--distributed", "run on Spark, which must be installed")
    group.add_value("--master", "URL", "Spark's master: local[4], yarn, spark://… (default: local[*])")
    group.add_values("--conf", "NAME=VALUE", "a Spark setting, repeatable")


def check_runner_options(options: argparse.Namespace) -> None:
    refuse_together(options, "workers", ["distributed"])
    if not options.distributed and (options.master or options.conf):
        raise UsageError("--master and --conf are settings of Spark and require --distributed")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"invalid --workers {options.workers}: must be at least 1")
    parse_pairs(options.conf, "--conf")


@contextmanager
def task_runners(
    options: argparse.Namespace, name: str, check: Callable[[], None] = lambda: None, progress: bool = True
) -> Iterator[Callable[[str], TaskRunner]]:
    """Yield a function that creates runners, valid within the ``with`` block; Spark's UI shows their descriptions.

    ``check`` may end their work (see ``maintenance.runner``). With ``progress`` they show it (``sparklog.progress``).
    Raises UsageError if Spark is requested and not installed.
    """

    def with_progress(runner: TaskRunner, description: str) -> TaskRunner:
        return _ProgressRunner(runner, f"{name}: {description}") if progress else runner

    if not options.distributed:
        from sparklog.maintenance.runner import runner

        yield lambda description: with_progress(runner(options.workers or 1, check), description)
        return
    session, tasks = _import_spark()
    conf = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF", **parse_pairs(options.conf, "--conf")}
    spark = session.sparklog_session(options.master or "local[*]", f"sparklog {name}", config=conf)
    try:
        yield lambda description: with_progress(tasks.SparkTasks(spark, f"{name}: {description}", check), description)
    finally:
        spark.stop()


def _import_spark() -> tuple[Any, Any]:
    if sys.modules.get("numpy", sys) is None:  # hidden by ``cli.main`` to start faster; Spark may need it
        del sys.modules["numpy"]
    try:
        return importlib.import_module("sparklog.spark.session"), importlib.import_module("sparklog.spark.jobs.runner")
    except ImportError as error:
        raise CommandError(
            f"--distributed needs Spark, and {sys.executable} lacks {error.name}: pip install 'sparklog[spark]'"
        ) from error


class _ProgressRunner:
    def __init__(self, inner: TaskRunner, title: str) -> None:
        self._inner = inner
        self._title = title

    @property
    def workers(self) -> int:
        return self._inner.workers

    def run(self, function: Callable[[Any], Any], items: Any) -> Iterator[Any]:
        total = length_hint(items, 0)
        with Progress(self._title) as progress:
            for done, result in enumerate(self._inner.run(function, items), 1):
                progress.show("tasks", done, total)
                yield result
