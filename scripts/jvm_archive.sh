#!/usr/bin/env bash
# Writes .venv/spark.jsa: the classes that Spark loads when it starts, in the form in which a JVM maps them into memory
# (class data sharing). The tests start some fifty JVMs, and each takes 3 of 8 seconds of CPU less with it. A JVM of
# another version ignores the file.
set -euo pipefail
cd "$(dirname "$0")/.."
archive=.venv/spark.jsa
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PROGRAM'
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1000).repartition(2).selectExpr("id % 7 AS k").groupBy("k").count().collect()
spark.stop()
PROGRAM
export PYSPARK_PYTHON="$PWD/.venv/bin/python" SPARK_LOCAL_IP=127.0.0.1
export SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit=$folder/spark.jsa"
if ! .venv/bin/spark-submit "$folder/program.py" >"$folder/out" 2>&1; then
    tail -n 20 "$folder/out" >&2
    exit 1
fi
mv "$folder/spark.jsa" "$archive"
