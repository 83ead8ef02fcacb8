#!/usr/bin/env bash
# Creates .venv-thirdparty in the checkout and installs into it this project and what is written for kafka-python: what
# tests/thirdparty/requirements.txt names. Does nothing where that was done after the last change of them.
#
#   scripts/thirdparty.sh       needs .venv (make setup), whose Python it uses
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.venv-thirdparty
stamp=$folder/.setup-done
log=$folder/setup.log
list=tests/thirdparty/requirements.txt

if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt "$list" ]; then exit 0; fi
[ -x "$folder/bin/python" ] || .venv/bin/python -m venv --clear "$folder"
printf 'thirdparty: installing programs written for kafka-python into %s\n' "$folder" >&2
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! "$folder/bin/python" -m pip install --no-input --progress-bar off -e . -r "$list" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    printf 'thirdparty: pip failed; the whole output is in %s\n' "$log" >&2
    exit 1
fi
touch "$stamp"
