"""Keep a log healthy with the executors of a Spark application: roll, retention, compaction, replication and the rest.

    spark-submit jobs/maintain.py --bootstrap-server ROOT [--only STEPS] [--topic REGEX] [--loop]
    python jobs/maintain.py       --bootstrap-server ROOT [--only STEPS] [--topic REGEX] [--loop]

One pass, or with --loop each step at its interval until SIGTERM. Any number of these may run concurrently, also with
`sparklog maintain`; the next pass completes the work of a killed one.
Exit codes: 0 success or stopped, 1 failure (a line gives the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import closing

try:
    from sparklog.coordinator import open_cluster
    from sparklog.errors import InvalidOptionError, SparklogError
    from sparklog.maintenance.loop import Loop, Stop, problems, repeats_logged_once, stopped_by_signals
    from sparklog.maintenance.steps import STEPS, MaintenanceContext, steps
    from sparklog.spark.jobs import batch as job
    from sparklog.spark.jobs.runner import SparkTasks
    from sparklog.spark.jobs.signals import signals_of_jvm
except ImportError as error:
    sys.exit(
        f"maintain: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the Python "
        "that has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "maintain"
EXAMPLES = """\
examples:
  spark-submit --master yarn jobs/maintain.py --bootstrap-server hdfs://namenode/log --only roll,retention,deletion
  python jobs/maintain.py --master 'local[4]' --bootstrap-server s3://bucket/log --only compaction --topic 'users.*'"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="maintain.py",
        description="Keep a log healthy: roll, retention, compaction, replication and the rest, on Spark.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.add_cluster_argument(options)
    options.add_argument("--loop", action="store_true", help="run until SIGTERM instead of one pass")
    options.add_argument(
        "--only", metavar="STEPS", type=step_names, default=[], help=f"comma-separated, of {', '.join(STEPS)} (all)"
    )
    options.add_argument(
        "--topic", metavar="REGEX", type=topic_pattern, help="topics, for the steps that work per topic (all)"
    )
    options.add_argument("--mirror", metavar="URL", default="", help="a location to mirror the commit log to")
    options.add_argument("--storage-option", metavar="NAME=VALUE", type=job.pair, action="append", default=[],
                         help="option of the storage client, repeatable")  # fmt: skip
    job.add_session_arguments(options)
    return options


def step_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in STEPS:
            raise argparse.ArgumentTypeError(f"unknown step {name!r}; choose from {', '.join(STEPS)}")
    return names


def topic_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"invalid regular expression {text!r}: {error}") from None


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    command_line = parser()
    options = command_line.parse_args(arguments)
    job.check_cluster_argument(command_line, options)
    job.check_session_arguments(command_line, options)
    return options


def maintain(options: argparse.Namespace) -> str:
    coordinator = open_cluster(options.bootstrap_server, job.storage_values(options.storage_option))
    topic = options.topic
    if topic is not None and not options.loop and not any(map(topic.fullmatch, coordinator.state.topics)):
        raise InvalidOptionError(f"--topic {topic.pattern!r} matches no topic of the cluster")
    spark = job.job_session("sparklog maintain", options)
    stop = Stop()

    def tasks(what: str) -> SparkTasks:
        return SparkTasks(spark, f"maintain: {what}", stop.check)

    def say(line: str) -> None:
        job.say(PROGRAM, line)

    context = MaintenanceContext(coordinator, tasks, topic, stop.check, not options.loop, options.mirror)
    due = steps(context, options.only)
    loop = Loop(due, coordinator.log.clock, stop.check, say)
    with (
        stopped_by_signals(stop, say),
        signals_of_jvm(lambda: bool(stop.requested)),
        repeats_logged_once(),
        closing(context),
        job.JobProgress(PROGRAM, spark) as progress,
    ):
        if options.loop:
            loop.forever()
            return f"ended after {progress.seconds:.0f} s"
        reports = loop.once()
    if len(reports) < len(due):
        raise SparklogError(f"stopped after {len(reports)} of {len(due)} steps; their work is kept")
    failures = problems(reports)
    if failures:
        raise SparklogError(f"{failures} problem{'s' * (failures > 1)}, see above; all other work is done")
    return f"{len(reports)} step{'' if len(reports) == 1 else 's'} done in {progress.seconds:.1f} s"


if __name__ == "__main__":
    arguments = parse()
    sys.exit(job.run(PROGRAM, lambda: maintain(arguments)))
