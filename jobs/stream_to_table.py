"""Read topics continuously into a table of files, each record exactly once: Parquet, Delta, or any streaming format.

    spark-submit jobs/stream_to_table.py --bootstrap-server ROOT --topic TOPIC --path FOLDER --checkpoint FOLDER
    python jobs/stream_to_table.py       --bootstrap-server ROOT --topic TOPIC --path FOLDER --checkpoint FOLDER

SIGTERM stops the query; started again with the same checkpoint, it continues where it stopped.
Exit codes: 0 ended or stopped, 1 failure (the last line gives the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import sys

try:
    from pyspark.sql import functions as F

    from sparklog.spark.jobs import batch as job
    from sparklog.spark.jobs import stream as stream_job
except ImportError as error:
    sys.exit(
        f"stream_to_table: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the "
        "Python that has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "stream_to_table"
POSITION_COLUMNS = ("topic", "partition", "offset", "timestamp")
EXAMPLES = """\
examples:
  spark-submit jobs/stream_to_table.py --bootstrap-server /data/log --topic flights --path /data/flights \\
      --checkpoint /data/checkpoints/flights --value-schema "carrier string, dep_delay double" --interval "1 minute"
  python jobs/stream_to_table.py --bootstrap-server /data/log --topic orders --path /data/orders --available-now \\
      --checkpoint /data/checkpoints/orders --group orders-table"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="stream_to_table.py",
        description="Read topics continuously into a table of files, each record exactly once.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    stream_job.add_stream_arguments(options)
    target = options.add_argument_group("columns (key and value as text, topic, partition, offset and timestamp)")
    target.add_argument("--value-schema", metavar="DDL", help="schema of a JSON value: its fields become columns")
    target.add_argument(
        "--select", metavar="EXPR", action="append", default=[], help="an SQL expression over these columns, repeatable"
    )
    target.add_argument("--path", required=True, help="the folder of the table")
    target.add_argument("--format", default="parquet", help="parquet, delta, json, csv … (parquet)")
    target.add_argument(
        "--option",
        metavar="NAME=VALUE",
        type=job.pair,
        action="append",
        default=[],
        help="option of the format, repeatable",
    )
    return options


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    command_line = parser()
    options = command_line.parse_args(arguments)
    stream_job.check_stream_arguments(command_line, options)
    return options


def stream_to_table(options: argparse.Namespace) -> str:
    spark = job.job_session(f"sparklog stream_to_table {options.topic or options.include}", options)
    rows = stream_job.records(spark, options, options.group)
    key = F.col("key").cast("string").alias("key")
    if options.value_schema:
        value = F.from_json(F.col("value").cast("string"), options.value_schema, {"mode": "FAILFAST"})
        rows = rows.select(key, value.alias("value"), *POSITION_COLUMNS)
        fields = {name.lower() for name in rows.select("value.*").columns}  # replace columns of the log, as in consume
        own = [name for name in POSITION_COLUMNS if name not in fields]
        rows = rows.select(*(["key"] if "key" not in fields else []), "value.*", *own)
    else:
        rows = rows.select(key, F.col("value").cast("string").alias("value"), *POSITION_COLUMNS)
    if options.select:
        rows = rows.selectExpr(*options.select)
    written = {**job.text_options(options.format), **dict(options.option)}
    writer = rows.writeStream.format(options.format).options(**written).option("path", options.path)
    return stream_job.run_query(PROGRAM, writer, options)


if __name__ == "__main__":
    arguments = parse()
    sys.exit(job.run(PROGRAM, lambda: stream_to_table(arguments)))
