"""Copy topics continuously into a topic, each record exactly once.

    spark-submit jobs/stream_copy.py --bootstrap-server ROOT --topic TOPIC --to TOPIC --checkpoint FOLDER [OPTIONS]
    python jobs/stream_copy.py       --bootstrap-server ROOT --topic TOPIC --to TOPIC --checkpoint FOLDER [OPTIONS]

SIGTERM stops the query; started again with the same checkpoint, it continues where it stopped.
Exit codes: 0 ended or stopped, 1 failure (the last line gives the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import sys

try:
    from sparklog.spark.jobs import batch as job
    from sparklog.spark.jobs import stream as stream_job
except ImportError as error:
    sys.exit(
        f"stream_copy: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the Python "
        "that has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "stream_copy"
EXAMPLES = """\
examples:
  spark-submit jobs/stream_copy.py --bootstrap-server /data/log --topic orders --to orders-archive \\
      --checkpoint /data/checkpoints/archive --group archive
  python jobs/stream_copy.py --bootstrap-server /data/log --topic orders --to large-orders --available-now \\
      --checkpoint /data/checkpoints/large --where "length(value) > 1000" --value "upper(CAST(value AS STRING))" """


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="stream_copy.py",
        description="Copy topics continuously into a topic of the same cluster, each record exactly once.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    stream_job.add_stream_arguments(options)
    target = options.add_argument_group("what to write")
    target.add_argument("--to", metavar="TOPIC", required=True, help="the topic to write to")
    target.add_argument("--key", metavar="EXPR", default="key", help="an SQL expression (key)")
    target.add_argument("--value", metavar="EXPR", default="value", help="an SQL expression (value)")
    target.add_argument("--where", metavar="EXPR", help="only records for which this SQL expression is true")
    target.add_argument("--keep-partitions", action="store_true", help="write to the partition of the same number")
    return options


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    command_line = parser()
    options = command_line.parse_args(arguments)
    stream_job.check_stream_arguments(command_line, options)
    return options


def stream_copy(options: argparse.Namespace) -> str:
    spark = job.job_session(f"sparklog stream_copy {options.topic or options.include} to {options.to}", options)
    rows = stream_job.records(spark, options)
    if options.where:
        rows = rows.where(options.where)
    partition = ["partition"] if options.keep_partitions else []
    rows = rows.selectExpr(f"{options.key} AS key", f"{options.value} AS value", "headers", *partition)
    writer = rows.writeStream.format("sparklog").options(**stream_job.cluster_options(options), topic=options.to)
    if options.group:
        writer = writer.option("kafka.group.id", options.group)  # the sink commits offsets and output together
    return stream_job.run_query(PROGRAM, writer, options)


if __name__ == "__main__":
    arguments = parse()
    sys.exit(job.run(PROGRAM, lambda: stream_copy(arguments)))
