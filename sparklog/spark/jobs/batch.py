"""Shared code of the programs for spark-submit (``jobs/``): a session, progress lines, and a one-line error message.

Exit codes of a program: 0 success, 1 failure (the last line on stderr gives the reason), 2 invalid command line,
130 interrupted.

Rules: runs in the user's process; prints all messages to stderr, so that stdout is free for data.
Not for: reading and writing, which the programs do with ``api.read`` and ``api.write``.
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
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sparklog import progress
from sparklog.clock import Clock, SystemClock
from sparklog.config.environment import default_root
from sparklog.coordinator import shared_cluster
from sparklog.errors import SparklogError
from sparklog.spark.api import register
from sparklog.spark.jobs.attempts import Settings, shared_application
from sparklog.spark.session import sparklog_session

PROGRESS_SECONDS = 1.0
"""Seconds between two updates of the progress of a running job."""
MAX_REASON_CHARACTERS = 2000
SUBMITTED_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Environment variable that only spark-submit sets for the program it starts."""

_OURS = re.compile(r"^(?:Caused by: )?sparklog\.errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_SPARK = re.compile(r"\[[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*\] .+")
_JAVA = re.compile(r"^(?:: )?(?:\w+\.)+(?P<words>\w+)(?:Exception|Error): ")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:?\d{2}(:?\d{2}([.,]\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?")
_JAVA_STACK = re.compile(r"\n\s+at [\w.$/]+\(")


EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options by which Spark writes times as text with all their digits, and the seconds of an offset: its own formats cut
them after milliseconds."""
_TEXT_FORMATS = ("csv", "json", "xml")


def pair(text: str) -> tuple[str, str]:
    """Parse ``name=value`` of a command line, for argparse's ``type``; the value may contain ``=``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value


def text_options(format: str) -> dict[str, str]:
    """Return the options by which a format of text keeps what values it is given."""
    return EXACT_TIMES if format.lower() in _TEXT_FORMATS else {}


def is_submitted() -> bool:
    """Return whether spark-submit started this program, and so sets the master and the settings."""
    return SUBMITTED_VARIABLE in os.environ


def add_cluster_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the cluster's root, whose default comes from the environment."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="ROOT",
        default=default_root(),
        help="the cluster's root: a path or a URL such as s3://bucket/log ($SPARKLOG_BOOTSTRAP_SERVER)",
    )


def check_cluster_argument(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with the usage if no cluster is given."""
    if not options.bootstrap_server:
        parser.error("--bootstrap-server is required: the cluster's root, a path or URL")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the session of a program that is started by ``python``."""
    group = parser.add_argument_group("Spark, if the program is started by python instead of spark-submit")
    group.add_argument("--master", help="Spark master (local[*])")
    group.add_argument(
        "--conf", metavar="NAME=VALUE", type=pair, action="append", default=[], help="a setting of Spark's, repeatable"
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"),
        help="Spark's log level: DEBUG, INFO, WARN, ERROR, OFF (OFF; under spark-submit as configured)",
    )


def check_session_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with the usage if options are given that belong to spark-submit."""
    if is_submitted() and (options.master or options.conf):
        parser.error("--master and --conf are spark-submit's here: put them before the name of the program")


def job_session(app_name: str, options: argparse.Namespace) -> SparkSession:
    """Return the session of a program: spark-submit's with its settings, else one of ``sparklog_session``."""
    if is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run any "python3"
        spark = SparkSession.Builder().getOrCreate()
        register(spark)
    else:
        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": options.log_level or "OFF"}
        spark = sparklog_session(options.master or "local[*]", app_name, config={**quiet, **dict(options.conf)})
    if options.log_level:
        spark.sparkContext.setLogLevel(options.log_level)
    return spark


def storage_values(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a command line's storage options, with booleans, JSON objects and lists decoded. Raises ValueError."""
    return {
        name: json.loads(text) if text in ("true", "false") or text.startswith(("{", "[")) else text
        for name, text in pairs
    }


def add_number_arguments(options: Any) -> None:
    """Add to a program, or to a group of options, those that number its write so that it is idempotent."""
    options.add_argument(
        "--txn-app-id",
        metavar="ID",
        help="a name for these jobs: with one of the next two, a job that is run again writes nothing (on YARN the "
        "default is the application id)",
    )
    options.add_argument("--txn-version", metavar="N", type=int, help="a number that increases with every job")
    options.add_argument(
        "--run-date", metavar="DATE", type=run_date, help="the scheduled date, or date and time, of this run"
    )


def check_number_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with the usage if the options that number a write are incomplete or contradict each other."""
    if options.txn_version is not None and options.run_date:
        parser.error("--txn-version and --run-date exclude each other: either numbers the write")
    if options.txn_app_id and options.txn_version is None and not options.run_date:
        parser.error("--txn-app-id and --txn-version belong together: they number a write; so does --run-date")
    if not options.txn_app_id and (options.txn_version is not None or options.run_date):
        parser.error("--txn-version and --run-date belong together with --txn-app-id: they number a write")


def run_date(text: str) -> str:
    """Check a date, or a date and time, for argparse's ``type``; return it unchanged: it names the write, also one that
    an earlier version has made."""
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        date.fromisoformat(text[:10])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 2026-11-20 or 2026-11-20T06:00") from None
    return text


def write_number(options: argparse.Namespace, setting: Settings) -> tuple[str, int] | tuple[None, None]:
    """Return application id and version of a program's write: from its options, else from the id that its attempts
    share, else None.

    Each date is an application of its own, so that an earlier date can be backfilled after a later one.
    """
    if options.txn_app_id:
        return (f"{options.txn_app_id}:{options.run_date}", 0) if options.run_date else (
            options.txn_app_id, options.txn_version)  # fmt: skip
    application = shared_application(setting)
    return (f"spark:{application}", 0) if application else (None, None)


def was_written(root: str, storage_options: Mapping[str, Any], application: str, version: int) -> bool:
    """Return whether this version of this application is in the log already, for good. Errors as ``open_cluster``."""
    coordinator = shared_cluster(root, storage_options)
    recorded = coordinator.refresh().applications.get(application)
    if recorded is None or version > recorded.version:
        return False
    coordinator.log.make_durable()
    return True


def count_rows(df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Return the same rows, and a function that returns their number after a job has read them."""
    observation = Observation()
    rows = df.observe(observation, F.count(F.lit(1)).alias("rows"))
    return rows, lambda: int(observation.get["rows"])


def say(program: str, text: str) -> None:
    """Print one line to stderr."""
    progress.clear()
    print(f"{program}: {text}", file=sys.stderr, flush=True)  # noqa: T201


class JobProgress:
    """Shows the progress of Spark's running stages while the ``with`` block runs, on a terminal or in a notebook."""

    def __init__(self, program: str, spark: SparkSession, clock: Clock | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._clock = clock or SystemClock()
        self._shown = progress.Progress(program)
        self._started = self._clock.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, name=f"{program} progress", daemon=True)

    def __enter__(self) -> JobProgress:
        if self._shown.is_shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._shown.close()

    @property
    def seconds(self) -> float:
        """Seconds since this object was created."""
        return self._clock.monotonic() - self._started

    def _report(self) -> None:
        while not self._done.wait(PROGRESS_SECONDS):
            stages = []
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    failed = f", {info.numFailedTasks} failed and retried" if info.numFailedTasks else ""
                    done = f"{info.numCompletedTasks} of {info.numTasks} tasks done, {info.numActiveTasks} running"
                    stages.append(f"stage {stage}: {done}{failed}")
            self._shown.say(f"{self.seconds:.0f} s{'; ' if stages else ''}{'; '.join(stages)}")


def run(program: str, work: Callable[[], str]) -> int:
    """Run the work of a program, print its result or the reason of its failure, and return the exit code."""
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
    """Return the reason of a failure in one line: sparklog's own message, extracted from the text that Spark wraps
    around it."""
    if isinstance(error, SparklogError):
        return _one_line(error.message)
    if isinstance(error, ConnectionError):
        return f"Spark's JVM has ended, or does not answer ({error}); see its log for why"
    text = str(error)
    if "ConcurrentModificationException" in text and "attachAllHandlers" in text:  # a race within Spark's start on YARN
        return (
            "Spark's web page and YARN's filter started at the same moment: submit again, or with "
            "--conf spark.ui.enabled=false"
        )
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
    """Return the first informative line: not py4j's own, and without a leading Java class name if it is a sentence."""
    lines = (_without_class(line).strip() for line in text.splitlines())
    return _one_line(
        next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
    )


def _without_class(line: str) -> str:
    """Return a Java error's message. If it only names something, as that of a NoSuchFileException does, the words of
    the class's name say what is wrong with it."""
    raised = _JAVA.match(line)
    if raised is None:
        return line
    message = line[raised.end() :]
    is_name = " " not in message.strip() or "java.nio.file." in raised.group()
    return f"{_CAPITAL.sub(' ', raised['words']).lower()}: {message}" if is_name else message


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_CHARACTERS else f"{line[:MAX_REASON_CHARACTERS]}…"
