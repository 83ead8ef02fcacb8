#!/usr/bin/env bash
# Creates .venv-airflow in the checkout and installs Airflow into it, for the test of conf/airflow: what
# tests/airflow/requirements.txt names. Does nothing where that was done after the last change of it.
#
#   scripts/airflow.sh       needs .venv (make setup), whose Python it uses
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.venv-airflow
stamp=$folder/.setup-done
log=$folder/setup.log
list=tests/airflow/requirements.txt

if [ -f "$stamp" ] && [ "$stamp" -nt "$list" ]; then exit 0; fi
[ -x "$folder/bin/python" ] || .venv/bin/python -m venv --clear "$folder"
printf 'airflow: installing Airflow into %s\n' "$folder" >&2
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! "$folder/bin/python" -m pip install --no-input --progress-bar off -r "$list" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    printf 'airflow: pip failed; the whole output is in %s\n' "$log" >&2
    exit 1
fi
touch "$stamp"
