"""Read topics into any format that Spark can write: files, tables, the console.

    spark-submit jobs/consume.py --bootstrap-server ROOT --topic TOPIC --format FORMAT --path PATH [OPTIONS]
    python jobs/consume.py       --bootstrap-server ROOT --topic TOPIC --format FORMAT --path PATH [OPTIONS]

Exit codes: 0 success, 1 failure (the last line gives the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import sys

try:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    import sparklog
    from sparklog.spark.jobs import attempts
    from sparklog.spark.jobs import batch as job
except ImportError as error:
    sys.exit(
        f"consume: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the Python that "
        "has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "consume"
NUMBERED_FORMATS = ("delta", "sparklog")
"""Formats with idempotent writes, numbered by txnAppId and txnVersion."""
TEXT_COLUMNS = ("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
POSITION_COLUMNS = ("topic", "partition", "offset", "timestamp")
EXAMPLES = """\
examples:
  spark-submit jobs/consume.py --bootstrap-server /data/log --topic flights --format parquet --path flights.parquet \\
      --value-schema "carrier string, dep_delay double"
  spark-submit jobs/consume.py --bootstrap-server s3://bucket/log --topic orders --format csv --path orders.csv \\
      --mode overwrite --starting-offsets '{"orders": {"0": 1000, "1": 980}}' --ending-offsets latest
  python jobs/consume.py --bootstrap-server /data/log --topic flights --format console --value-schema "dest string" \\
      --select "dest" --select "partition" --option numRows=5"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="consume.py",
        description="Read one consistent snapshot of topics into any format that Spark can write.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.add_cluster_argument(options)
    source = options.add_argument_group("what to read")
    topics = source.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", help="comma-separated topics")
    topics.add_argument("--include", metavar="REGEX", help="all topics whose names contain a match")
    source.add_argument(
        "--partition", metavar="N", type=int, action="append", default=[], help="partition of one topic, repeatable"
    )
    starts = source.add_mutually_exclusive_group()
    starts.add_argument(
        "--starting-offsets", metavar="OFFSETS", help="earliest, or JSON by topic and partition (earliest)"
    )
    starts.add_argument("--starting-timestamp", metavar="MS", type=int, help="from the first record of this time")
    ends = source.add_mutually_exclusive_group()
    ends.add_argument("--ending-offsets", metavar="OFFSETS", help="latest, or JSON; exclusive (latest)")
    ends.add_argument(
        "--ending-timestamp", metavar="MS", type=int, help="up to the first record of this time, exclusive"
    )
    columns = options.add_argument_group("columns (key and value as text, topic, partition, offset and timestamp)")
    columns.add_argument("--value-schema", metavar="DDL", help="schema of a JSON value: its fields become columns")
    columns.add_argument(
        "--select", metavar="EXPR", action="append", default=[], help="an SQL expression over these columns, repeatable"
    )
    columns.add_argument("--raw", action="store_true", help="keep key and value as bytes, if they are not text")
    columns.add_argument("--include-headers", action="store_true", help="include the column headers")
    target = options.add_argument_group("where to write")
    target.add_argument("--format", required=True, help="a Spark format: csv, json, parquet, delta, console …")
    target.add_argument("--path", help="the folder to write to")
    target.add_argument("--mode", choices=("append", "overwrite", "errorifexists", "ignore"), default="errorifexists",
                        help="what to do if the path exists (errorifexists)")  # fmt: skip
    target.add_argument(
        "--option",
        metavar="NAME=VALUE",
        type=job.pair,
        action="append",
        default=[],
        help="option of the format, repeatable",
    )
    job.add_number_arguments(options.add_argument_group(f"idempotent writes, to {' and '.join(NUMBERED_FORMATS)}"))
    options.add_argument("--skip-lost-records", action="store_true", help="continue if records have been deleted")
    options.add_argument(
        "--storage-option",
        metavar="NAME=VALUE",
        type=job.pair,
        action="append",
        default=[],
        help="option of the storage client, repeatable",
    )
    job.add_session_arguments(options)
    return options


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    command_line = parser()
    options = command_line.parse_args(arguments)
    job.check_cluster_argument(command_line, options)
    if options.partition and (not options.topic or "," in options.topic):
        command_line.error("--partition needs --topic with one topic")
    if options.raw and options.value_schema:
        command_line.error("--raw and --value-schema exclude each other: JSON is text")
    if options.txn_app_id and options.format.lower() not in NUMBERED_FORMATS:
        command_line.error(
            f"--txn-app-id applies to {' and '.join(NUMBERED_FORMATS)}: {options.format} has no numbered writes"
        )
    job.check_number_arguments(command_line, options)
    job.check_session_arguments(command_line, options)
    return options


def columns(records: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Return the columns to write, from those of a log."""
    positions = [*POSITION_COLUMNS, *(["headers"] if options.include_headers else [])]
    if options.raw:
        rows = records.select("key", "value", *positions)
    elif options.value_schema:
        value = F.from_json(F.col("value").cast("string"), options.value_schema, {"mode": "FAILFAST"})
        rows = records.select(F.col("key").cast("string").alias("key"), value.alias("value"), *positions)
        fields = _field_names(rows)
        rows = rows.select("value.*", *(name for name in rows.columns if name != "value" and name not in fields))
    else:
        rows = records.selectExpr(*TEXT_COLUMNS, *positions)
    return rows.selectExpr(*options.select) if options.select else rows


def _field_names(rows: DataFrame) -> set[str]:
    """Return the fields of the value, which replace columns of the log with the same name."""
    return {name.lower() for name in rows.select("value.*").columns}


def number_options(options: argparse.Namespace, setting: attempts.Settings) -> dict[str, str]:
    """Return the writer options that make this job idempotent; for other formats warn about a second attempt."""
    if options.format.lower() in NUMBERED_FORMATS:
        application, version = job.write_number(options, setting)
        return {"txnAppId": application, "txnVersion": str(version)} if application else {}
    rerunner = attempts.find_rerunner(setting)
    if rerunner and options.mode == "append":
        job.say(PROGRAM, f"a second attempt ({rerunner}) appends to {options.format} again: use --mode overwrite, or "
                         f"one of the formats {', '.join(NUMBERED_FORMATS)}")  # fmt: skip
    return {}


def consume(options: argparse.Namespace) -> str:
    spark = job.job_session(f"sparklog consume {options.topic or options.include}", options)
    target = f"{options.format} {options.path or ''}".strip()
    job.say(PROGRAM, f"from {options.topic or options.include} of {options.bootstrap_server} into {target}")
    with job.JobProgress(PROGRAM, spark) as progress:
        records = sparklog.read(
            spark,
            options.bootstrap_server,
            None if options.partition else options.topic,
            subscribe_pattern=options.include,
            assign={options.topic: options.partition} if options.partition else None,
            starting_offsets=options.starting_offsets,
            ending_offsets=options.ending_offsets,
            starting_timestamp=options.starting_timestamp,
            ending_timestamp=options.ending_timestamp,
            fail_on_data_loss=not options.skip_lost_records,
            include_headers=options.include_headers,
            storage_options=job.storage_values(options.storage_option),
        )
        rows, count = job.count_rows(columns(records, options))
        numbered = number_options(options, attempts.settings_of(spark))
        writer = rows.write.format(options.format).mode(options.mode)
        writer.options(**{**job.text_options(options.format), **numbered, **dict(options.option)}).save(options.path)
    if options.format.lower() == "console":  # reads only the rows that it shows
        return f"shown in {progress.seconds:.1f} s"
    if numbered:  # a repetition runs no job, so there is no count
        return (
            f"version {numbered['txnVersion']} of {numbered['txnAppId']} is in {target} after {progress.seconds:.1f} s"
        )
    return f"{count():,} records written to {target} in {progress.seconds:.1f} s"


if __name__ == "__main__":
    given = parse()
    sys.exit(job.run(PROGRAM, lambda: consume(given)))
