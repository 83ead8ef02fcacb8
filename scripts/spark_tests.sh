#!/usr/bin/env bash
# Runs pytest with a version of Spark, in the environment that scripts/spark_env.sh makes for it.
#
#   scripts/spark_tests.sh 4.3.0 -n 3 tests/integration      the rest are pytest's arguments
#   SECONDS_AT_MOST=1800 ...                                  ends the run after half an hour (the default)
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/spark_tests.sh VERSION [PYTEST ARGUMENTS]}
shift
folder=$(bash scripts/spark_env.sh "$version")
JAVA_HOME=$(bash scripts/java.sh)
export JAVA_HOME PYSPARK_PYTHON="$folder/bin/python"
[ -e "$folder/spark.jsa" ] || bash scripts/jvm_archive.sh "$folder" || true # without it the tests are slower
"$folder/bin/python" - <<'PROGRAM'
import platform, numpy, pandas, pyarrow, pyspark
print(f"pyspark {pyspark.__version__}, Python {platform.python_version()}, pandas {pandas.__version__}, "
      f"pyarrow {pyarrow.__version__}, numpy {numpy.__version__}", flush=True)
PROGRAM
"$JAVA_HOME/bin/java" -version 2>&1 | sed -n 2p
exec timeout --foreground "${SECONDS_AT_MOST:-1800}" "$folder/bin/python" -m pytest "$@"
