"""Consume topics with the tasks of a Spark job as members of a consumer group.

    spark-submit jobs/consume_group.py --bootstrap-server ROOT --group GROUP --topic TOPIC --process FILE:FUNCTION
    python jobs/consume_group.py       --bootstrap-server ROOT --group GROUP --topic TOPIC --process FILE:FUNCTION

The function is called with records of one partition and a context; rows that it passes to ``context.send(topic, rows)``
are in the log exactly once. Without --forever the program ends when all records that existed at its start are consumed.
SIGTERM ends it after the running calls; the next start continues from there.
Exit codes: 0 success or stopped, 1 failure (the last line gives the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

try:
    from sparklog.spark import consume
    from sparklog.spark.jobs import batch as job
    from sparklog.spark.jobs import functions
    from sparklog.spark.jobs.signals import signals_of_jvm
except ImportError as error:
    sys.exit(
        f"consume_group: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the "
        "Python that has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "consume_group"
EXAMPLES = """\
examples:
  spark-submit jobs/consume_group.py --bootstrap-server /data/log --group totals --topic orders \\
      --process totals.py:add_up
  python jobs/consume_group.py --bootstrap-server /data/log --group totals --topic orders,refunds --forever \\
      --process billing.totals:add_up --records pandas --members 4

totals.py:
  def add_up(records, context):                  # a pyarrow RecordBatch, or a DataFrame with --records pandas
      context.send("totals", records.select(["key", "value"]))"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="consume_group.py",
        description="Consume topics with the tasks of a Spark job as members of a consumer group.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.add_cluster_argument(options)
    options.add_argument("--group", required=True, help="the consumer group; it continues at its committed offsets")
    options.add_argument("--topic", metavar="TOPICS", required=True, help="comma-separated topics")
    options.add_argument(
        "--process", metavar="WHAT", required=True, help="FILE.py:FUNCTION, or MODULE:FUNCTION that executors have"
    )
    options.add_argument(
        "--records", choices=("arrow", "pandas"), default="arrow", help="type of the function's records (arrow)"
    )
    options.add_argument("--members", metavar="N", type=int, help="number of tasks (as many as Spark has slots)")
    options.add_argument("--forever", action="store_true", help="wait for more records instead of ending")
    options.add_argument(
        "--auto-offset-reset",
        choices=("earliest", "latest", "none"),
        default="earliest",
        help="where a group without offsets starts (earliest)",
    )
    options.add_argument("--max-records", metavar="N", type=int, default=100_000, help="per call (100000)")
    options.add_argument("--include-headers", action="store_true", help="include the column headers")
    options.add_argument("--session-timeout-ms", metavar="MS", type=int, default=45_000,
                         help="time without a heartbeat after which a member is removed (45000)")  # fmt: skip
    options.add_argument("--storage-option", metavar="NAME=VALUE", type=job.pair, action="append", default=[],
                         help="option of the storage client, repeatable")  # fmt: skip
    job.add_session_arguments(options)
    return options


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    command_line = parser()
    options = command_line.parse_args(arguments)
    job.check_cluster_argument(command_line, options)
    job.check_session_arguments(command_line, options)
    return options


def consume_group(options: argparse.Namespace) -> str:
    process = functions.load_function(options.process)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = job.job_session(f"sparklog consume_group {options.group}", options)
    with signals_of_jvm(stop.is_set), job.JobProgress(PROGRAM, spark) as progress:
        reports = consume(
            spark,
            root=options.bootstrap_server,
            group=options.group,
            topics=options.topic.split(","),
            process=process,
            members=options.members,
            records=options.records,
            forever=options.forever,
            stop=stop,
            auto_offset_reset=options.auto_offset_reset,
            max_records=options.max_records,
            include_headers=options.include_headers,
            session_timeout_ms=options.session_timeout_ms,
            storage_options=job.storage_values(options.storage_option),
        )
    for report in reports:
        job.say(PROGRAM, f"member {report.task} on {report.host}: {report.records:,} records of "
                         f"{', '.join(report.partitions) or 'no partition'}")  # fmt: skip
    how = "stopped" if stop.is_set() else "consumed everything"
    return f"{how} after {sum(report.records for report in reports):,} records in {progress.seconds:.1f} s"


if __name__ == "__main__":
    arguments = parse()
    sys.exit(job.run(PROGRAM, lambda: consume_group(arguments)))
