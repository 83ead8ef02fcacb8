"""Append any data that Spark can read to a topic: one job, one commit, all records or none.

    spark-submit jobs/produce.py --bootstrap-server ROOT --topic TOPIC --format FORMAT --path PATH [OPTIONS]
    python jobs/produce.py       --bootstrap-server ROOT --topic TOPIC --format FORMAT --path PATH [OPTIONS]

Exit codes: 0 all records are in the log, 1 none are, unless the last line says that the outcome is unknown (it gives
the reason), 2 invalid command line.
"""

from __future__ import annotations

import argparse
import sys

try:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType

    import sparklog
    from sparklog.spark.jobs import attempts
    from sparklog.spark.jobs import batch as job
except ImportError as error:
    sys.exit(
        f"produce: failed: {sys.executable} lacks {error.name}: pip install 'sparklog[spark]', or name the Python that "
        "has it, as in: export PYSPARK_PYTHON=/path/to/venv/bin/python"
    )

PROGRAM = "produce"
EXAMPLES = """\
examples:
  spark-submit jobs/produce.py --bootstrap-server /data/log --topic flights \\
      --format csv --path flights.csv --option header=true --option nullValue=NA --key tailnum
  spark-submit --master yarn --py-files sparklog-py.zip jobs/produce.py --bootstrap-server hdfs://nn/log \\
      --topic orders --format parquet --path hdfs://nn/orders/2026-11-20 --timestamp ordered_at \\
      --txn-app-id orders-daily --run-date 2026-11-20
  python jobs/produce.py --bootstrap-server s3://bucket/log --topic events --format json --path s3a://bucket/events \\
      --key "concat(user, '-', device)" --value "to_json(named_struct('at', at, 'what', what))"

Run again with the same --txn-app-id and --run-date (or --txn-version), a job writes nothing. Without them it is
numbered by its Spark application, so that it writes once even if YARN reruns it or Kubernetes restarts its driver pod;
submitted again it writes again."""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="produce.py",
        description="Append any data that Spark can read to a topic: one job, one commit, all records or none.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.add_cluster_argument(options)
    options.add_argument("--topic", help="the topic to append to; without it, the column topic names that of each row")
    source = options.add_argument_group("what to read")
    source.add_argument("--format", required=True, help="a Spark format: csv, json, parquet, orc, delta …")
    source.add_argument("--path", action="append", default=[], help="a file or folder, repeatable")
    source.add_argument(
        "--option",
        metavar="NAME=VALUE",
        type=job.pair,
        action="append",
        default=[],
        help="option of the format, repeatable",
    )
    source.add_argument("--schema", metavar="DDL", help="columns and types, such as 'id bigint, name string'")
    record = options.add_argument_group("fields of the record (columns or SQL expressions over the columns)")
    record.add_argument(
        "--value", metavar="EXPR", help="(all columns as JSON: to_json(struct(*)), with times to the microsecond)"
    )
    record.add_argument("--key", metavar="EXPR", help="chooses the partition as in Kafka (no key)")
    record.add_argument("--headers", metavar="EXPR", help="an array<struct<key:string,value:binary>> (none)")
    record.add_argument("--partition", metavar="EXPR", help="the partition's number, instead of that of the key")
    record.add_argument("--timestamp", metavar="EXPR", help="the record's timestamp (the time of the write)")
    write = options.add_argument_group("how to write")
    write.add_argument("--partitioner", metavar="NAME", help="default, integer_key, or your own as module:callable")
    write.add_argument("--compression-codec", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="(none)")
    job.add_number_arguments(write)
    write.add_argument(
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
    job.check_number_arguments(command_line, options)
    job.check_session_arguments(command_line, options)
    return options


def records(rows: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Return the columns of a record, from expressions over the columns of the rows."""
    value = _text_or_bytes(rows, options.value) if options.value else F.to_json(F.struct("*"), job.EXACT_TIMES)
    columns = [value.alias("value")]
    if options.key:
        columns.append(_text_or_bytes(rows, options.key).alias("key"))
    if options.headers:
        columns.append(F.expr(options.headers).alias("headers"))
    if options.partition:
        columns.append(F.expr(options.partition).cast("int").alias("partition"))
    if options.timestamp:
        columns.append(F.expr(options.timestamp).cast("timestamp").alias("timestamp"))
    if not options.topic:
        columns.append(F.col("topic"))
    return rows.select(*columns)


def _text_or_bytes(rows: DataFrame, expression: str) -> Column:
    """Return the expression; a value that is neither text nor binary is cast to text."""
    column = F.expr(expression)
    return column if isinstance(rows.select(column).schema[0].dataType, BinaryType) else column.cast("string")


def produce(options: argparse.Namespace) -> str:
    storage_options = job.storage_values(options.storage_option)
    target = f"topic {options.topic}" if options.topic else "the topics that the rows name"
    spark = job.job_session(f"sparklog produce {options.topic or ''}".strip(), options)
    application, version = job.write_number(options, attempts.settings_of(spark))
    if (
        application
        and version is not None
        and job.was_written(options.bootstrap_server, storage_options, application, version)
    ):
        return f"version {version} of {application} was written before: nothing to do"
    job.say(PROGRAM, f"from {options.format} {' '.join(options.path)} into {target} of {options.bootstrap_server}")
    with job.JobProgress(PROGRAM, spark) as progress:
        reader = spark.read.format(options.format).options(**dict(options.option))
        if options.schema:
            reader = reader.schema(options.schema)
        rows, count = job.count_rows(records(reader.load(options.path or None), options))
        sparklog.write(
            rows,
            options.bootstrap_server,
            options.topic,
            partitioner=options.partitioner,
            compression=options.compression_codec,
            txn_app_id=application,
            txn_version=version,
            storage_options=storage_options,
        )
    return f"{count():,} records written to {target} in {progress.seconds:.1f} s"


if __name__ == "__main__":
    given = parse()
    sys.exit(job.run(PROGRAM, lambda: produce(given)))
