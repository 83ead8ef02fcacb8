"""What the programs for spark-submit (``jobs/``) share: a session, progress lines, and one line that says what failed.

Exit codes of a program: 0 it worked, 1 it did not and the last line on stderr says why, 2 its command line is wrong,
130 it was interrupted.

Rules: runs in the user's process; says everything on stderr, so that stdout belongs to data.
Not for: what is read and written, which the programs do with ``api.read`` and ``api.write``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import date
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sparklog.clock import Clock, SystemClock
from sparklog.config.environment import default_root
from sparklog.coordinator import shared_cluster
from sparklog.errors import SparklogError
from sparklog.spark.api import register
from sparklog.spark.jobs.attempts import Settings, shared_application
from sparklog.spark.session import sparklog_session

PROGRESS_SECONDS = 5.0
"""Seconds between two progress lines of a running job."""
MAX_REASON_CHARACTERS = 2000
SUBMITTED_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, and by nothing else, in the environment of the program it starts."""

_OURS = re.compile(r"^(?:Caused by: )?sparklog\.errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_SPARK = re.compile(r"\[[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*\] .+")
_JAVA = re.compile(r"^(?:: )?(?:\w+\.)+\w+(?:Exception|Error): ", re.MULTILINE)
_JAVA_STACK = re.compile(r"\n\s+at [\w.$/]+\(")


def pair(text: str) -> tuple[str, str]:
    """``name=value`` of a command line, for argparse's ``type``; a value may hold ``=``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value


def is_submitted() -> bool:
    """Whether spark-submit started this program, so that master and settings are its own."""
    return SUBMITTED_VARIABLE in os.environ


def add_cluster_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names the cluster, which the environment may give too."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="ROOT",
        default=default_root(),
        help="the cluster's root: a path or a URL such as s3://bucket/log ($SPARKLOG_BOOTSTRAP_SERVER)",
    )


def check_cluster_argument(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program with its usage where no cluster is named."""
    if not options.bootstrap_server:
        parser.error("--bootstrap-server is required: the cluster's root, a path or URL")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a program that is started by ``python`` and has to make its own session."""
    group = parser.add_argument_group("Spark, where the program is started by python instead of spark-submit")
    group.add_argument("--master", help="Spark master (local[*])")
    group.add_argument(
        "--conf", metavar="NAME=VALUE", type=pair, action="append", default=[], help="a setting of Spark's, repeatable"
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"),
        help="what Spark logs: DEBUG, INFO, WARN, ERROR, OFF (OFF; under spark-submit as it is configured)",
    )


def check_session_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program with its usage where options belong to spark-submit."""
    if is_submitted() and (options.master or options.conf):
        parser.error("--master and --conf are spark-submit's here: put them before the name of the program")


def job_session(app_name: str, options: argparse.Namespace) -> SparkSession:
    """The session of a program: spark-submit's with its settings, else one of ``sparklog_session``."""
    if is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are whatever "python3" is
        spark = SparkSession.Builder().getOrCreate()
        register(spark)
    else:
        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": options.log_level or "OFF"}
        spark = sparklog_session(options.master or "local[*]", app_name, config={**quiet, **dict(options.conf)})
    if options.log_level:
        spark.sparkContext.setLogLevel(options.log_level)
    return spark


def storage_values(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Storage options of a command line; true, false and what starts like JSON is decoded. Raises ValueError."""
    return {
        name: json.loads(text) if text in ("true", "false") or text.startswith(("{", "[")) else text
        for name, text in pairs
    }


def add_number_arguments(options: Any) -> None:
    """The options of a program or a group of them that number its write, so that it happens once."""
    options.add_argument(
        "--txn-app-id",
        metavar="ID",
        help="a name for these jobs: with one of the next two, a job that is run again writes nothing (on YARN without "
        "it: the id of the application)",
    )
    options.add_argument("--txn-version", metavar="N", type=int, help="a number that grows with every job")
    options.add_argument(
        "--run-date", metavar="DATE", type=run_date, help="the date, or date and time, that the schedule runs it for"
    )


def check_number_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program with its usage where a write would not be numbered as it is meant to be."""
    if options.txn_version is not None and options.run_date:
        parser.error("--txn-version and --run-date exclude each other: either numbers the write")
    if options.txn_app_id and options.txn_version is None and not options.run_date:
        parser.error("--txn-app-id and --txn-version belong together: they number a write; so does --run-date")
    if not options.txn_app_id and (options.txn_version is not None or options.run_date):
        parser.error("--txn-version and --run-date belong together with --txn-app-id: they number a write")


def run_date(text: str) -> str:
    """A date, or a date and a time, for argparse's ``type``; kept as it is written."""
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 2026-11-20 or 2026-11-20T06:00") from None
    return text


def write_number(options: argparse.Namespace, setting: Settings) -> tuple[str, int] | tuple[None, None]:
    """What the write of a program is numbered by: what its options say, else what its attempts share, else nothing.

    Each date is an application of its own, so that a date may be filled in after a later one.
    """
    if options.txn_app_id:
        return (f"{options.txn_app_id}:{options.run_date}", 0) if options.run_date else (
            options.txn_app_id, options.txn_version)  # fmt: skip
    application = shared_application(setting)
    return (f"spark:{application}", 0) if application else (None, None)


def was_written(root: str, storage_options: Mapping[str, Any], application: str, version: int) -> bool:
    """Whether this version of this application is in the log already. Errors as ``open_cluster``."""
    known = shared_cluster(root, storage_options).refresh().applications.get(application)
    return known is not None and version <= known.version


def counted(df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The same rows, and their number once a job has run over them."""
    observation = Observation()
    rows = df.observe(observation, F.count(F.lit(1)).alias("rows"))
    return rows, lambda: int(observation.get["rows"])


def say(program: str, text: str) -> None:
    """One line on stderr."""
    print(f"{program}: {text}", file=sys.stderr, flush=True)  # noqa: T201


class Progress:
    """Says how far Spark's running stages are, every few seconds, as long as the ``with`` block runs."""

    def __init__(self, program: str, spark: SparkSession, clock: Clock | None = None) -> None:
        self._program = program
        self._tracker = spark.sparkContext.statusTracker()
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, name=f"{program} progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Seconds since this was made."""
        return self._clock.monotonic() - self._started

    def _report(self) -> None:
        while not self._done.wait(PROGRESS_SECONDS):
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    failed = f", {info.numFailedTasks} failed and tried again" if info.numFailedTasks else ""
                    say(
                        self._program,
                        f"{self.seconds:.0f} s: stage {stage}: {info.numCompletedTasks} of {info.numTasks} tasks done, "
                        f"{info.numActiveTasks} running{failed}",
                    )


def run(program: str, work: Callable[[], str]) -> int:
    """Do the work of a program, say what it returns or why it failed, and return the exit code."""
    try:
        say(program, work())
    except KeyboardInterrupt:
        say(program, "interrupted")
        return 130
    except Exception as error:
        say(program, f"failed: {reason(error)}")
        return 1
    return 0


def reason(error: BaseException) -> str:
    """Why something failed, in one line: sparklog's own message out of whatever Spark has wrapped around it."""
    if isinstance(error, SparklogError):
        return _one_line(error.message)
    text = str(error)
    ours = _OURS.search(text)
    if ours:
        return _one_line(ours.group(1))
    if "Traceback (most recent call last)" in text:
        raised = _PYTHON.findall(_JAVA_STACK.split(text.split("Traceback (most recent call last)", 1)[1])[0])
        if raised:
            kind, message = raised[-1]
            return _one_line(message if kind == "RuntimeError" else f"{kind}: {message}")
    spark = _SPARK.search(text)
    if spark:
        return _one_line(spark.group())
    return _first_line(text) or type(error).__name__


def _first_line(text: str) -> str:
    """The first line that tells something: not py4j's own, and without the name of a Java class before it."""
    lines = (_JAVA.sub("", line).strip() for line in text.splitlines())
    return _one_line(
        next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
    )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_CHARACTERS else f"{line[:MAX_REASON_CHARACTERS]}…"
