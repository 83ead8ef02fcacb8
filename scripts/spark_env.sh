#!/usr/bin/env bash
# Creates .venv-spark-VERSION in the checkout and installs into it the project with this version of pyspark and what the
# tests need, Spark Connect included; prints its folder. Does nothing where that was done after the last change of
# pyproject.toml and constraints.txt.
#
#   scripts/spark_env.sh 4.3.0                       the pinned versions of everything that is not Spark's
#   PYTHON=/path/to/python scripts/spark_env.sh ...  with this interpreter instead of that of .venv
#   PANDAS=3.1.1 PYARROW=26.0.1 NUMPY=... ...        with these versions of packages (the newest that fits: PANDAS=3.*)
#
# Exits with 69 where nothing can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/spark_env.sh VERSION, such as 4.3.0}

say() { printf 'spark %s: %s\n' "$version" "$*" >&2; }

case $version in
    [0-9]*.[0-9]*.[0-9]*) ;;
    *) say "invalid version of Spark: write all three numbers, such as 4.3.0"; exit 64 ;;
esac

python=${PYTHON:-.venv/bin/python}
name=.venv-spark-$version
if [ -n "${PYTHON:-}" ]; then name=$name-py$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); fi
own=("pyspark==$version")
unpinned='pyspark|delta-spark|sparklog'
for package in PANDAS PYARROW NUMPY; do
    chosen=${!package:-}
    if [ -n "$chosen" ]; then
        own+=("${package,,}==$chosen")
        unpinned="$unpinned|${package,,}"
        name=$name-${package,,}${chosen//[^0-9.]/}
    fi
done
name=${name%.}

folder=$PWD/$name
stamp=$folder/.setup-done
log=$folder/setup.log
if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ] && [ "$stamp" -nt "$0" ]; then
    printf '%s\n' "$folder"
    exit 0
fi
rm -f "$stamp"
[ -x "$folder/bin/python" ] || "$python" -m venv --clear "$folder"
grep -vE "^($unpinned)==" constraints.txt >"$folder/constraints.txt"
say "installing into $name (the first time this fetches Spark, about 450 MB)"
started=$SECONDS
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! PIP_CONSTRAINT=$folder/constraints.txt PIP_BUILD_CONSTRAINT=$folder/constraints.txt \
    "$folder/bin/python" -m pip install --no-input --progress-bar off -e '.[test,connect]' "${own[@]}" >"$log" 2>&1; then
    tail -n 8 "$log" >&2
    say "pip failed; the whole output is in $log"
    if grep -qE 'NewConnectionError|ProxyError|ReadTimeoutError' "$log"; then exit 69; fi
    exit 1
fi
touch "$stamp"
say "installed in $((SECONDS - started)) s"
printf '%s\n' "$folder"
